//! An I/O queue: one connection on one core, with the commands of the NVM command set as async functions.

use ashlar_nvme::nvm::DsmRange;
use ashlar_nvme::{Lba, Nsid, Qid, Sqe};
use ashlar_reactor::IoBuf;

use crate::controller::Ticket;
use crate::data::{Data, Payload};
use crate::error::HostError;
use crate::load::{Handler, RunResult, Submitter};

/// Whether a write must be on the medium when it completes (FUA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fua {
    /// It may be in a volatile cache.
    #[default]
    No,
    /// It is on the medium.
    Yes,
}

/// Whether Write Zeroes may deallocate (DEAC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Deac {
    /// No.
    #[default]
    No,
    /// Yes.
    Yes,
}

/// What a command brought.
#[derive(Debug)]
pub struct Completion {
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// The data that it read.
    pub buffer: Option<IoBuf>,
}

/// One I/O queue of a controller. It belongs to the core on which it was connected; clones are the same
/// queue, and with the last one it is closed.
#[derive(Debug, Clone)]
pub struct IoQueue {}

impl IoQueue {
    /// Connects queue `qid` (1 up to the controller's number of queues) of the ticket's controller, on this
    /// core.
    ///
    /// # Errors
    /// If there is no connection, or the controller refuses.
    pub async fn connect(ticket: &Ticket, qid: Qid) -> Result<Self, HostError> {
        unimplemented!()
    }

    /// Its number.
    #[must_use]
    pub fn qid(&self) -> Qid {
        unimplemented!()
    }

    /// Commands that can be outstanding.
    #[must_use]
    pub fn depth(&self) -> usize {
        unimplemented!()
    }

    /// Reads `blocks` blocks into `buffer`, which must have exactly their bytes.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn read(&self, nsid: Nsid, slba: Lba, blocks: u32, buffer: IoBuf) -> Result<IoBuf, HostError> {
        unimplemented!()
    }

    /// Writes `blocks` blocks from `payload`, which must have exactly their bytes.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn write(
        &self,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        payload: Payload,
        fua: Fua,
    ) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Everything that was acknowledged before is on the medium afterwards.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn flush(&self, nsid: Nsid) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Makes blocks read as zeroes.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn write_zeroes(
        &self,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        deac: Deac,
    ) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Deallocates up to 256 ranges.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn deallocate(&self, nsid: Nsid, ranges: &[DsmRange]) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Compares blocks with `payload`; different ones are Compare Failure.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn compare(
        &self,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        payload: Payload,
    ) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Fused Compare and Write: writes `new` if the blocks hold `expected`.
    ///
    /// # Errors
    /// As for [`IoQueue::command`]; the comparison's error comes first.
    pub async fn compare_and_write(
        &self,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        expected: Payload,
        new: Payload,
    ) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Reads blocks within the controller, without transfer.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn verify(&self, nsid: Nsid, slba: Lba, blocks: u32) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Any command; its command identifier and data pointer are filled in. Waits for a free entry. If the
    /// future is dropped the command goes on and its outcome is forgotten.
    ///
    /// # Errors
    /// If the controller completed it with an error, its data was damaged, or the connection is lost.
    pub async fn command(&self, sqe: Sqe, data: Data) -> Result<Completion, HostError> {
        unimplemented!()
    }

    /// Puts `handler` to work until it is done and none of its commands is outstanding, or the connection is
    /// lost; then it is given a [`crate::Outcome::Lost`] for each outstanding command first. One handler at a
    /// time.
    pub async fn run<H: Handler + 'static>(&self, handler: H) -> (RunResult, H) {
        unimplemented!()
    }

    /// Submits commands for the handler at work from outside of its callbacks, for example when a timer of a
    /// rate limit is due. Not to be called from within the handler.
    pub fn submit_with<R>(&self, submit: impl FnOnce(&mut Submitter<'_>) -> R) -> R {
        unimplemented!()
    }

    /// Ends the connection after what was submitted has been sent. Outstanding commands are lost.
    pub fn close(&self) {
        unimplemented!()
    }
}
