//! How a controller reaches the commands of its I/O queues, which may be on other cores.

use std::future::Future;
use std::pin::Pin;

use ashlar_nvme::ids::{CommandId, Qid};

/// What became of a command that was to be aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aborted {
    /// It will not be executed any further; its completion says Command Abort Requested.
    Yes,
    /// It is unknown, has completed, or can no longer be stopped.
    No,
}

/// The answer of [`Queues::abort`].
pub type AbortFuture = Pin<Box<dyn Future<Output = Aborted>>>;

/// The controller's queues.
pub trait Queues {
    /// Asks the queue to abort a command. A queue that does not exist answers [`Aborted::No`]. The completion
    /// of the aborted command is sent before the future ends.
    fn abort(&self, queue: Qid, command: CommandId) -> AbortFuture;
}
