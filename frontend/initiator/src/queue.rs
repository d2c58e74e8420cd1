//! An I/O queue: one connection on one core, with the commands of the NVM command set as async functions.

use std::rc::Rc;

use ashlar_nvme::command::FusedOperation;
use ashlar_nvme::nvm::{DSM_RANGES_MAX, DsmAttributes, DsmCommand, DsmRange, RwControl};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::wire::{U32, Wire};
use ashlar_nvme::{CommandId, Lba, Nsid, Qid, Sqe, Status};
use ashlar_reactor::IoBuf;

use crate::command::Pending;
use crate::connection::{self, Connection, Link};
use crate::controller::Ticket;
use crate::data::{Data, Payload, Sink};
use crate::error::HostError;
use crate::load::{Handler, RunResult, Submitter, blocks_command};

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
pub struct IoQueue {
    link: Rc<Link>,
    qid: Qid,
    transfer_max: u32,
}

impl IoQueue {
    /// Connects queue `qid` (1 up to the controller's number of queues) of the ticket's controller, on this
    /// core.
    ///
    /// # Errors
    /// If there is no connection, or the controller refuses.
    pub async fn connect(ticket: &Ticket, qid: Qid) -> Result<Self, HostError> {
        let link = ticket.connect_queue(qid).await?;
        Ok(Self { link: Rc::new(link), qid, transfer_max: ticket.transfer_max() })
    }

    fn connection(&self) -> &Rc<Connection> {
        &self.link.0
    }

    /// Its number.
    #[must_use]
    pub fn qid(&self) -> Qid {
        self.qid
    }

    /// Commands that can be outstanding.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.connection().with_engine(|engine| engine.depth())
    }

    /// Whether reads may end without a response: flow control was asked to be disabled, and is (NVME N1).
    #[must_use]
    pub fn flow_control_is_disabled(&self) -> bool {
        self.connection().with_engine(|engine| engine.heads == crate::engine::HeadPointer::Disabled)
    }

    /// Reads `blocks` blocks into `buffer`, which must have exactly their bytes.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn read(&self, nsid: Nsid, slba: Lba, blocks: u32, buffer: IoBuf) -> Result<IoBuf, HostError> {
        let sqe = blocks_command(NvmOpcode::Read, nsid, slba, blocks);
        let done = self.command(sqe, Data::into_buffer(buffer)).await?;
        done.buffer.ok_or_else(|| self.connection().lost_error())
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
        let mut sqe = blocks_command(NvmOpcode::Write, nsid, slba, blocks);
        sqe.cdw12 = U32::new(RwControl(sqe.cdw12.get()).with_fua(fua == Fua::Yes).0);
        self.command(sqe, Data::Out(payload)).await.map(drop)
    }

    /// Everything that was acknowledged before is on the medium afterwards.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn flush(&self, nsid: Nsid) -> Result<(), HostError> {
        self.command(ashlar_nvme::nvm::flush(CommandId(0), nsid), Data::None).await.map(drop)
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
        let mut sqe = blocks_command(NvmOpcode::WriteZeroes, nsid, slba, blocks);
        sqe.cdw12 = U32::new(RwControl(sqe.cdw12.get()).with_deac(deac == Deac::Yes).0);
        self.command(sqe, Data::None).await.map(drop)
    }

    /// Deallocates 1 to 256 ranges.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn deallocate(&self, nsid: Nsid, ranges: &[DsmRange]) -> Result<(), HostError> {
        if ranges.is_empty() || ranges.len() > DSM_RANGES_MAX {
            let (value, most) = (ranges.len() as u64, DSM_RANGES_MAX as u64);
            return Err(HostError::Limit { what: "ranges to deallocate", value, most });
        }
        let attributes = DsmAttributes(0).with_ad(true);
        let command = DsmCommand { nr: ranges.len() as u16, attributes };
        let sqe = command.to_sqe(CommandId(0), nsid, DataPointer::None);
        let bytes: Vec<u8> = ranges.iter().flat_map(|range| range.bytes().iter().copied()).collect();
        self.command(sqe, Data::Out(Payload::copy_of(&bytes))).await.map(drop)
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
        let sqe = blocks_command(NvmOpcode::Compare, nsid, slba, blocks);
        self.command(sqe, Data::Out(payload)).await.map(drop)
    }

    /// Fused Compare and Write: writes `new` if the blocks hold `expected`.
    ///
    /// # Errors
    /// As for [`IoQueue::command`]; of two errors, the one that is not only a consequence of the other.
    pub async fn compare_and_write(
        &self,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        expected: Payload,
        new: Payload,
    ) -> Result<(), HostError> {
        self.check_length(expected.len)?;
        self.check_length(new.len)?;
        let mut compare = blocks_command(NvmOpcode::Compare, nsid, slba, blocks);
        compare.set_fused(FusedOperation::First);
        let mut write = blocks_command(NvmOpcode::Write, nsid, slba, blocks);
        write.set_fused(FusedOperation::Second);
        let pair = ((compare, Data::Out(expected)), (write, Data::Out(new)));
        let (compare, write) = self.connection().submit_pair(pair.0, pair.1).await?;
        match (compare.await, write.await) {
            (Err(error), Err(cause)) if error.status() == Some(Status::ABORTED_FAILED_FUSED) => Err(cause),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(()),
        }
    }

    /// Reads blocks within the controller, without transfer.
    ///
    /// # Errors
    /// As for [`IoQueue::command`].
    pub async fn verify(&self, nsid: Nsid, slba: Lba, blocks: u32) -> Result<(), HostError> {
        let sqe = blocks_command(NvmOpcode::Verify, nsid, slba, blocks);
        self.command(sqe, Data::None).await.map(drop)
    }

    /// Any command; its command identifier and data pointer are filled in. Waits for a free entry. If the
    /// future is dropped the command goes on and its outcome is forgotten.
    ///
    /// # Errors
    /// If the controller completed it with an error, its data was damaged, or the connection is lost.
    pub async fn command(&self, sqe: Sqe, data: Data) -> Result<Completion, HostError> {
        self.submit(sqe, data).await?.await
    }

    /// The first half of [`IoQueue::command`]: the command is on its way, and its identifier known.
    ///
    /// # Errors
    /// If the connection is lost, or the data is longer than a command's may be.
    pub async fn submit(&self, sqe: Sqe, data: Data) -> Result<Pending, HostError> {
        self.check_length(data.len())?;
        if let Data::In { len, sink: Sink::Into(buffer) } = &data
            && buffer.len() < *len as usize
        {
            let (value, most) = (u64::from(*len), buffer.len() as u64);
            return Err(HostError::Limit { what: "bytes to be read into the buffer", value, most });
        }
        self.connection().submit(sqe, data).await
    }

    fn check_length(&self, len: u32) -> Result<(), HostError> {
        if len > self.transfer_max {
            let (value, most) = (u64::from(len), u64::from(self.transfer_max));
            return Err(HostError::Limit { what: "bytes of one command", value, most });
        }
        Ok(())
    }

    /// Puts `handler` to work until it is done and none of its commands is outstanding, or the connection is
    /// lost; then it is given a [`crate::Outcome::Lost`] for each outstanding command first. One handler at a
    /// time.
    pub async fn run<H: Handler + 'static>(&self, handler: H) -> (RunResult, H) {
        connection::run(self.connection(), handler).await
    }

    /// Submits commands for the handler at work from outside of its callbacks, for example when a timer of a
    /// rate limit is due. Not to be called from within the handler.
    pub fn submit_with<R>(&self, submit: impl FnOnce(&mut Submitter<'_>) -> R) -> R {
        self.connection().submit_with(submit)
    }

    /// Ends the connection after what was submitted has been sent. Outstanding commands are lost.
    pub fn close(&self) {
        self.connection().close();
    }

    /// Whether the connection is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.connection().loss().is_some()
    }

    /// Ends when the connection is lost, with the reason.
    pub async fn lost(&self) -> HostError {
        self.connection().until_lost().await
    }
}
