//! Telling of I/O commands that failed: a namespace's counters, and its controller's error log.

use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::{Lba, Nsid, Sqe, Status};

use crate::backend::OpenBackend;
use crate::controller::CommandError;
use crate::target::core_state::CoreState;
use crate::transport::queue::{Queue, Running};

/// Reports of one queue that are under way at a time. A host that does everything wrong loses some of them, as it
/// would from a log that keeps the newest 64.
const REPORTS_MAX: u32 = 16;

/// Where a command was to work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    nsid: Nsid,
    lba: Lba,
}

impl Place {
    pub(crate) fn of(sqe: &Sqe) -> Self {
        Self { nsid: sqe.namespace(), lba: Lba(sqe.cdw10_11()) }
    }
}

impl<F: OpenBackend> Queue<F> {
    /// Counts a command that was refused before it was carried out.
    pub(super) fn count_refusal(&self, place: Place, status: Status) {
        if let Some(served) = self.subsystem.namespace(place.nsid) {
            served.note_refusal(status);
        }
    }
}

impl<F: OpenBackend> Running<F> {
    /// Answers a command that is not carried out.
    pub(super) fn refuse(self, place: Place, status: Status) {
        self.queue.count_refusal(place, status);
        self.report(place, status);
        self.answer(status);
    }

    /// Tells the controller that the command failed; on its owner core, behind this call.
    pub(super) fn report(&self, place: Place, status: Status) {
        let queue = &self.queue;
        if status.is_success() || queue.is_closed() || queue.reports.get() >= REPORTS_MAX {
            return;
        }
        queue.reports.set(queue.reports.get() + 1);
        let error =
            CommandError { qid: queue.qid, command: self.cid, status, lba: place.lba, nsid: place.nsid };
        ashlar_reactor::spawn(send(Rc::clone(queue), error));
    }
}

async fn send<F: OpenBackend>(queue: Rc<Queue<F>>, error: CommandError) {
    let shared = Arc::clone(&queue.core.shared);
    let controller = Arc::clone(&queue.controller);
    let record = move |there: Rc<CoreState<F>>| async move {
        if let Some(association) = there.association_of(&controller) {
            association.controller.record_error(error);
        }
    };
    // Without the owner there is no log.
    let _ = shared.on(shared.owner_of(queue.controller.cntlid), record).await;
    queue.reports.set(queue.reports.get().saturating_sub(1));
}
