//! The low-level way to use a queue: commands are submitted with a token, and a handler is called for each
//! completion, without a task, an allocation or a wake-up per command.

use ashlar_nvme::opcode::NvmOpcode;
use ashlar_nvme::status::StatusField;
use ashlar_nvme::wire::U32;
use ashlar_nvme::{CommandId, Lba, Nsid, Sqe, Status};
use ashlar_reactor::IoBuf;

use crate::data::{Data, Payload, Sink};
use crate::engine::Engine;
use crate::error::HostError;
use crate::slot::Owner;

/// A number of the caller's that comes back with the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    /// The caller's number.
    pub token: Token,
    /// How it ended.
    pub outcome: Outcome,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// The buffer of [`Sink::Into`].
    pub buffer: Option<IoBuf>,
}

impl Done {
    /// Whether it succeeded, data and all.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self.outcome, Outcome::Completed(field) if field.status().is_success())
    }

    /// The controller's status; `None` if the data was damaged or the connection lost.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self.outcome {
            Outcome::Completed(field) => Some(field.status()),
            Outcome::DataDigest | Outcome::Lost => None,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The controller completed it with this status.
    Completed(StatusField),
    /// The controller completed it with success, but the data does not match its digest.
    DataDigest,
    /// The connection was lost; whether it was executed is unknown.
    Lost,
}

/// Takes completions of one queue; see [`crate::IoQueue::run`].
pub trait Handler {
    /// Called once, when the handler is put to work: submits the first commands.
    fn begin(&mut self, queue: &mut Submitter<'_>);

    /// A piece of the data of a command with [`Sink::Handler`], in order.
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        let _ = (token, offset, bytes);
    }

    /// A command has ended. New ones may be submitted.
    fn complete(&mut self, queue: &mut Submitter<'_>, done: Done);

    /// All that had arrived is worked off, the turn's sends go out after this. Called after `begin`, too.
    fn end_of_batch(&mut self, queue: &mut Submitter<'_>) {
        let _ = queue;
    }

    /// Whether the run is over once no command of this handler is outstanding.
    fn is_done(&self) -> bool {
        true
    }
}

/// Why a command was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// As many commands are outstanding as the queue has entries for. The data comes back.
    #[error("the queue is full")]
    Full(Data),
    /// The connection is gone.
    #[error("the connection is lost")]
    Lost,
}

/// Puts commands into a queue.
#[derive(Debug)]
pub struct Submitter<'a> {
    pub(crate) engine: &'a mut Engine,
}

impl Submitter<'_> {
    /// Commands that can be submitted now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.engine.room()
    }

    /// Commands of the handler that are outstanding.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.engine.handled
    }

    /// Submits a command; its command identifier and data pointer are filled in.
    ///
    /// # Errors
    /// If the queue is full or lost.
    pub fn submit(&mut self, token: Token, sqe: Sqe, data: Data) -> Result<(), Refused> {
        self.engine.submit(Owner::Handler(token), sqe, data).map(|_| ())
    }

    /// Submits a Read of `len` bytes, which must be the bytes of `blocks` blocks.
    ///
    /// # Errors
    /// If the queue is full or lost.
    pub fn read(
        &mut self,
        token: Token,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        len: u32,
        sink: Sink,
    ) -> Result<(), Refused> {
        self.submit(token, blocks_command(NvmOpcode::Read, nsid, slba, blocks), Data::In { len, sink })
    }

    /// Submits a Write of `payload`, which must have the bytes of `blocks` blocks.
    ///
    /// # Errors
    /// If the queue is full or lost.
    pub fn write(
        &mut self,
        token: Token,
        nsid: Nsid,
        slba: Lba,
        blocks: u32,
        payload: &Payload,
    ) -> Result<(), Refused> {
        let sqe = blocks_command(NvmOpcode::Write, nsid, slba, blocks);
        self.submit(token, sqe, Data::Out(payload.clone()))
    }
}

/// A command about a range of blocks.
pub(crate) fn blocks_command(opcode: NvmOpcode, nsid: Nsid, slba: Lba, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode.code(), CommandId(0), nsid);
    sqe.set_cdw10_11(slba.0);
    sqe.cdw12 = U32::new(u32::from(nlb(blocks)));
    sqe
}

/// The wire's NLB: 0-based. 0 and more than 65536 blocks are taken as the nearest limit.
fn nlb(blocks: u32) -> u16 {
    (blocks.clamp(1, 1 << 16) - 1) as u16
}

/// The handler of a queue that has none.
pub(crate) struct Idle;

impl Handler for Idle {
    fn begin(&mut self, _: &mut Submitter<'_>) {}

    fn complete(&mut self, _: &mut Submitter<'_>, _: Done) {}
}

/// What [`crate::IoQueue::run`] gives back.
pub type RunResult = Result<(), HostError>;
