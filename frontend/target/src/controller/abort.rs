//! Abort: event requests that wait are ended here, other commands where they are (NVMe Base 2.0 §5.1).

use std::cell::Cell;

use ashlar_nvme::admin::AbortCommand;
use ashlar_nvme::{Sqe, Status};

use super::execute::Answer;
use super::{Aborted, Controller};

/// Abort commands that run at a time (ACL + 1).
pub(super) const ABORTS_MAX: usize = 4;

impl Controller {
    pub(super) async fn abort(&self, sqe: &Sqe) -> Result<Answer, Status> {
        let target = AbortCommand::from_sqe(sqe);
        if target.sqid.is_admin() {
            if self.events.abort(target.cid).is_some() {
                return Ok(Answer::dw0(AbortCommand::DW0_ABORTED));
            }
        } else if !self.io_queues.borrow().contains(&target.sqid) {
            return Ok(Answer::dw0(AbortCommand::DW0_NOT_ABORTED));
        }
        let _running = Running::start(&self.aborts)?;
        Ok(match self.queues.abort(target.sqid, target.cid).await {
            Aborted::Yes => Answer::dw0(AbortCommand::DW0_ABORTED),
            Aborted::No => Answer::dw0(AbortCommand::DW0_NOT_ABORTED),
        })
    }
}

/// Counts an Abort while it runs.
struct Running<'a>(&'a Cell<usize>);

impl<'a> Running<'a> {
    fn start(count: &'a Cell<usize>) -> Result<Self, Status> {
        if count.get() >= ABORTS_MAX {
            return Err(Status::ABORT_LIMIT_EXCEEDED);
        }
        count.set(count.get() + 1);
        Ok(Self(count))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
