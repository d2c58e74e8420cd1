//! Connect: who may have a queue, and every reason why not (NVMe Base 2.0 §6.3, NVME N6).

use ashlar_nvme::Status;
use ashlar_nvme::fabrics::{ConnectCommand, ConnectData, InvalidParameter};
use ashlar_nvme::ids::{HostId, Nqn, Qid};

use super::{Controller, ControllerKind};
use crate::inventory::{Inventory, Portal};

/// A refused Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// Status; DNR follows its rule (NVME N12).
    pub status: Status,
    /// DW0: IPO and IATTR for Connect Invalid Parameters, else 0.
    pub dw0: u32,
}

impl ConnectRefusal {
    /// A field is wrong.
    pub const fn invalid(parameter: InvalidParameter) -> Self {
        Self { status: Status::CONNECT_INVALID_PARAMETERS, dw0: parameter.dw0() }
    }

    /// Another reason.
    pub const fn status(status: Status) -> Self {
        Self { status, dw0: 0 }
    }

    /// An I/O Connect that names a controller which is not (or no longer) here.
    pub const UNKNOWN_CONTROLLER: Self = Self::invalid(InvalidParameter::CNTLID);

    /// A host has too many controllers, or the target too many: it may try again.
    pub const BUSY: Self = Self::status(Status::CONNECT_CONTROLLER_BUSY);
}

/// Whether a queue has submission queue flow control (NVME N1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowControl {
    /// SQHD counts modulo the queue's entries.
    Enabled,
    /// The host asked to disable it, and it is: SQHD is FFFFh.
    Disabled,
}

/// A Connect of an admin queue that is in order: make a controller of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAdmission {
    /// Discovery or I/O controller.
    pub kind: ControllerKind,
    /// Host NQN.
    pub host_nqn: Nqn,
    /// Host identifier.
    pub host_id: HostId,
    /// The subsystem that it connected to.
    pub subsystem: Nqn,
    /// KATO in milliseconds as asked; 0 is none.
    pub kato_ms: u32,
    /// Entries of the queue.
    pub entries: u16,
    /// Flow control of the queue.
    pub flow_control: FlowControl,
}

/// A Connect of an I/O queue that was admitted: the queue counts until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoQueueAdmission {
    /// The queue.
    pub qid: Qid,
    /// Its entries.
    pub entries: u16,
    /// Its flow control.
    pub flow_control: FlowControl,
}

/// Checks a Connect of the admin queue (QID 0) that came in over `portal`.
pub fn check_admin(
    command: &ConnectCommand,
    data: &ConnectData,
    inventory: &Inventory,
    portal: &Portal,
) -> Result<AdminAdmission, ConnectRefusal> {
    let _ = (command, data, inventory, portal);
    Err(ConnectRefusal::BUSY)
}

impl Controller {
    /// Checks a Connect of an I/O queue (QID not 0) and admits it. Called on the owner core.
    pub fn admit_io_queue(
        &self,
        command: &ConnectCommand,
        data: &ConnectData,
    ) -> Result<IoQueueAdmission, ConnectRefusal> {
        let _ = (command, data);
        Err(ConnectRefusal::BUSY)
    }

    /// Takes in that an admitted queue is gone, with every command of it accounted for. Idempotent.
    pub fn release_io_queue(&self, qid: Qid) {
        self.io_queues.borrow_mut().remove(&qid);
    }

    /// I/O queues that are admitted and not released.
    pub fn io_queue_count(&self) -> usize {
        self.io_queues.borrow().len()
    }
}
