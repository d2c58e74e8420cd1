//! Admin commands: which code answers which opcode.

use std::rc::Rc;

use ashlar_nvme::{Sqe, Status};

use super::Controller;

/// The answer to an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminReply {
    /// Status; DNR follows its rule (NVME N12).
    pub status: Status,
    /// DW0 of the completion.
    pub dw0: u32,
    /// Data for the host, exactly as long as what the command asked for; never longer than [`crate::limits::MAX_TRANSFER_BYTES`].
    pub data: Option<Vec<u8>>,
}

impl AdminReply {
    /// A status without data.
    pub fn status(status: Status) -> Self {
        AdminReply { status, dw0: 0, data: None }
    }
}

impl Controller {
    /// Executes one admin command, all but those of Fabrics. `data` is what the host sent with it. The data pointer's form
    /// has been checked; its length is compared here with what the command moves. Asynchronous Event Requests wait in here.
    pub async fn execute(self: &Rc<Self>, sqe: &Sqe, data: &[u8]) -> AdminReply {
        let _ = (sqe, data);
        AdminReply::status(Status::INVALID_OPCODE)
    }
}
