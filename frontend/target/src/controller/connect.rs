//! Connect: who may have a queue, and every reason why not (NVMe Base 2.0 §6.3, NVME N6).

use ashlar_nvme::Status;
use ashlar_nvme::fabrics::{ConnectCommand, ConnectData, InvalidParameter};
use ashlar_nvme::ids::{Cntlid, HostId, Nqn, Qid};

use super::{Access, Controller, ControllerKind, ControllerState};
use crate::inventory::{Inventory, Portal};
use crate::limits;

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

impl FlowControl {
    fn of(command: &ConnectCommand) -> Self {
        if command.attributes().disable_flow_control() { Self::Disabled } else { Self::Enabled }
    }
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

/// What a host says of itself and of what it wants, if it is well-formed.
struct Names {
    subsystem: Nqn,
    host: Nqn,
    host_id: HostId,
}

impl Names {
    fn of(data: &ConnectData) -> Result<Self, ConnectRefusal> {
        let subsystem = data.subsystem().map_err(|_| ConnectRefusal::invalid(InvalidParameter::SUBNQN))?;
        let host = data.host().map_err(|_| ConnectRefusal::invalid(InvalidParameter::HOSTNQN))?;
        let host_id = data.host_id();
        if host_id.is_zero() {
            return Err(ConnectRefusal::invalid(InvalidParameter::HOSTID));
        }
        Ok(Self { subsystem, host, host_id })
    }
}

fn check_format(command: &ConnectCommand) -> Result<(), ConnectRefusal> {
    match command.recfmt.get() {
        0 => Ok(()),
        _ => Err(ConnectRefusal::status(Status::CONNECT_INCOMPATIBLE_FORMAT)),
    }
}

/// SQSIZE is 0-based; a queue has at least two entries.
fn entries(command: &ConnectCommand, most: u16) -> Result<u16, ConnectRefusal> {
    match command.sqsize.get() {
        size if size > 0 && size < most => Ok(size + 1),
        _ => Err(ConnectRefusal::invalid(InvalidParameter::SQSIZE)),
    }
}

/// Checks a Connect of the admin queue (QID 0) that came in over `portal`.
pub fn check_admin(
    command: &ConnectCommand,
    data: &ConnectData,
    inventory: &Inventory,
    portal: &Portal,
) -> Result<AdminAdmission, ConnectRefusal> {
    check_format(command)?;
    if command.qid.get() != Qid::ADMIN.0 {
        return Err(ConnectRefusal::invalid(InvalidParameter::QID));
    }
    let names = Names::of(data)?;
    let kind = if names.subsystem.is_discovery() {
        // Everybody may ask; everybody sees only what they may connect to.
        ControllerKind::Discovery
    } else {
        let subsystem = inventory
            .subsystems
            .get(&names.subsystem)
            .filter(|_| !portal.discovery_only)
            .ok_or(ConnectRefusal::invalid(InvalidParameter::SUBNQN))?;
        if !subsystem.hosts.allows(&names.host) {
            return Err(ConnectRefusal::status(Status::CONNECT_INVALID_HOST));
        }
        ControllerKind::Io
    };
    // Controllers are dynamic (FCATT, NVME N2).
    if data.controller() != Cntlid::DYNAMIC {
        return Err(ConnectRefusal::invalid(InvalidParameter::CNTLID));
    }
    Ok(AdminAdmission {
        kind,
        entries: entries(command, limits::ADMIN_QUEUE_ENTRIES_MAX)?,
        host_nqn: names.host,
        host_id: names.host_id,
        subsystem: names.subsystem,
        kato_ms: command.kato.get(),
        flow_control: FlowControl::of(command),
    })
}

impl Controller {
    /// Checks a Connect of an I/O queue (QID not 0) and admits it. Called on the owner core.
    pub fn admit_io_queue(
        &self,
        command: &ConnectCommand,
        data: &ConnectData,
    ) -> Result<IoQueueAdmission, ConnectRefusal> {
        check_format(command)?;
        // The admin queue may be dying: its controller is then as good as gone (NVME N6).
        if self.shared.state() == ControllerState::Ended || data.controller() != self.shared.cntlid {
            return Err(ConnectRefusal::UNKNOWN_CONTROLLER);
        }
        self.check_same_host(&Names::of(data)?)?;
        let qid = Qid(command.qid.get());
        let queues = self.features.borrow().io_queues_granted();
        if self.is_discovery() || qid.is_admin() || qid.0 > queues {
            return Err(ConnectRefusal::invalid(InvalidParameter::QID));
        }
        let registers = self.registers.get();
        if !registers.is_running() {
            return Err(ConnectRefusal::status(Status::COMMAND_SEQUENCE_ERROR));
        }
        if !registers.entry_sizes_are_right() {
            return Err(ConnectRefusal::invalid(InvalidParameter::QID));
        }
        let entries = entries(command, limits::QUEUE_ENTRIES_MAX)?;
        if !self.io_queues.borrow_mut().insert(qid) {
            return Err(ConnectRefusal::status(Status::COMMAND_SEQUENCE_ERROR));
        }
        Ok(IoQueueAdmission { qid, entries, flow_control: FlowControl::of(command) })
    }

    fn check_same_host(&self, names: &Names) -> Result<(), ConnectRefusal> {
        let refuse = |parameter| Err(ConnectRefusal::invalid(parameter));
        if names.subsystem != self.shared.subsystem {
            return refuse(InvalidParameter::SUBNQN);
        }
        if names.host != self.shared.host_nqn {
            return refuse(InvalidParameter::HOSTNQN);
        }
        if names.host_id != self.shared.host_id {
            return refuse(InvalidParameter::HOSTID);
        }
        match self.access() {
            Access::Kept => Ok(()),
            Access::Lost => Err(ConnectRefusal::status(Status::CONNECT_INVALID_HOST)),
        }
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
