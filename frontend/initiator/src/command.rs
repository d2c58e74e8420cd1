//! A command in flight, as a future.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ashlar_nvme::CommandId;

use crate::connection::Connection;
use crate::error::{CommandError, HostError};
use crate::load::Outcome;
use crate::queue::Completion;

/// A submitted command, to be awaited. Dropping it lets the command go on and forgets its outcome.
#[derive(Debug)]
pub struct Pending {
    connection: Rc<Connection>,
    index: usize,
    opcode: u8,
    ended: bool,
}

impl Pending {
    pub(crate) fn new(connection: Rc<Connection>, index: usize, opcode: u8) -> Self {
        Self { connection, index, opcode, ended: false }
    }

    /// The command's identifier, for Abort.
    #[must_use]
    pub fn command_id(&self) -> CommandId {
        self.connection.with_engine(|engine| engine.command_id(self.index))
    }
}

impl Future for Pending {
    type Output = Result<Completion, HostError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index;
        let ended = self.connection.with_engine(|engine| {
            let ended = engine.take_ended(index);
            if ended.is_none() {
                engine.set_waker(index, context.waker());
            }
            ended
        });
        let Some((outcome, result, buffer)) = ended else { return Poll::Pending };
        self.ended = true;
        self.connection.freed();
        Poll::Ready(match outcome {
            Outcome::Completed(field) if field.status().is_success() => Ok(Completion { result, buffer }),
            Outcome::Completed(field) => {
                Err(HostError::Command(CommandError { field, result, opcode: self.opcode }))
            }
            Outcome::DataDigest => Err(HostError::DataDigest),
            Outcome::Lost => Err(self.connection.lost_error()),
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.with_engine(|engine| engine.forget(self.index));
            self.connection.freed();
        }
    }
}
