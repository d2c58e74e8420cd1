//! Admin commands: which code answers which opcode.

use std::rc::Rc;

use ashlar_nvme::command::FusedOperation;
use ashlar_nvme::opcode::AdminOpcode;
use ashlar_nvme::{Sqe, Status};

use super::{CommandError, Controller, ControllerState};

/// The answer to an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminReply {
    /// Status; DNR follows its rule (NVME N12).
    pub status: Status,
    /// DW0 of the completion.
    pub dw0: u32,
    /// Data for the host, exactly as long as the command's data pointer says and not empty; at most
    /// [`crate::limits::MAX_TRANSFER_BYTES`].
    pub data: Option<Vec<u8>>,
}

impl AdminReply {
    /// A status without data.
    pub fn status(status: Status) -> Self {
        AdminReply { status, dw0: 0, data: None }
    }
}

/// A command that succeeded.
#[derive(Debug, Default)]
pub(super) struct Answer {
    dw0: u32,
    data: Option<Vec<u8>>,
}

impl Answer {
    /// Success with DW0.
    pub(super) fn dw0(dw0: u32) -> Self {
        Self { dw0, data: None }
    }

    /// Success with data.
    pub(super) fn data(data: Vec<u8>) -> Self {
        Self { dw0: 0, data: Some(data) }
    }
}

/// The data pointer must ask for exactly what the command moves (SGLS offers nothing else; NVME N5).
pub(super) fn expect_length(sqe: &Sqe, bytes: u64) -> Result<(), Status> {
    if u64::from(sqe.dptr.length.get()) == bytes { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID) }
}

impl Controller {
    /// Executes one admin command, all but those of Fabrics. `data` is what the host sent with it. The form
    /// of the data pointer has been checked; its length is compared here with what the command moves.
    /// Asynchronous Event Requests wait in here. Dropping the future takes the command back.
    pub async fn execute(self: &Rc<Self>, sqe: &Sqe, data: &[u8]) -> AdminReply {
        match self.dispatch(sqe, data).await {
            Ok(Answer { dw0, data }) => {
                AdminReply { status: Status::SUCCESS, dw0, data: data.filter(|data| !data.is_empty()) }
            }
            Err(status) => {
                // What was aborted is no error of the command.
                if status != Status::ABORT_REQUESTED && status != Status::ABORTED_SQ_DELETION {
                    self.record_error(CommandError::of_admin(sqe, status));
                }
                AdminReply::status(status)
            }
        }
    }

    async fn dispatch(&self, sqe: &Sqe, data: &[u8]) -> Result<Answer, Status> {
        match self.shared.state() {
            ControllerState::Ready => {}
            // Before it is ready only Fabrics commands (NVME N6).
            ControllerState::Disabled => return Err(Status::COMMAND_SEQUENCE_ERROR),
            ControllerState::Ended => return Err(Status::ABORTED_SQ_DELETION),
        }
        let opcode = AdminOpcode::try_from(sqe.opcode).map_err(|_| Status::INVALID_OPCODE)?;
        // There are no fused admin commands.
        let not_fused = || match sqe.fused() {
            Ok(FusedOperation::Normal) => Ok(()),
            _ => Err(Status::INVALID_FIELD),
        };
        match opcode {
            AdminOpcode::Identify => not_fused().and_then(|()| self.identify(sqe)),
            AdminOpcode::GetLogPage => not_fused().and_then(|()| self.get_log_page(sqe)),
            AdminOpcode::GetFeatures => not_fused().and_then(|()| self.get_features(sqe)),
            AdminOpcode::SetFeatures => not_fused().and_then(|()| self.set_features(sqe, data)),
            AdminOpcode::Abort => {
                not_fused().and_then(|()| expect_length(sqe, 0))?;
                self.abort(sqe).await
            }
            AdminOpcode::AsyncEventRequest => {
                not_fused().and_then(|()| expect_length(sqe, 0))?;
                self.events.request(sqe.command_id()).await
            }
            // That it arrived has been noted with the traffic of its queue.
            AdminOpcode::KeepAlive => {
                not_fused().and_then(|()| expect_length(sqe, 0)).map(|()| Answer::default())
            }
            _ => Err(Status::INVALID_OPCODE),
        }
    }
}
