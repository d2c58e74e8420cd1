//! What can be said about an I/O command before its data moves.

use ashlar_nvme::command::{Psdt, Sqe};
use ashlar_nvme::nvm::{DsmCommand, DsmRange, RwCommand};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_nvme::{Nsid, Status, Wire};

use crate::backend::ByteRange;
use crate::inventory::{AnaState, Namespace};
use crate::limits::{MAX_TRANSFER_BYTES, NAMESPACES_MAX, WRITE_ZEROES_BYTES_MAX};

/// Bytes of a full Dataset Management list. Linux always sends that much, whatever NR says.
const DSM_LIST_BYTES: u32 = (ashlar_nvme::nvm::DSM_RANGES_MAX * DsmRange::SIZE) as u32;

/// Which namespace a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressee {
    /// This one, if it exists.
    One(Nsid),
    /// All that the controller has: Flush with FFFFFFFFh, which VWC's broadcast bits announce (NVME N2).
    All,
}

/// The namespace that an I/O command names.
pub fn addressee(sqe: &Sqe) -> Result<Addressee, Status> {
    let nsid = sqe.namespace();
    if nsid == Nsid::BROADCAST && sqe.opcode == NvmOpcode::Flush.code() {
        return Ok(Addressee::All);
    }
    if !nsid.is_valid() {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    Ok(Addressee::One(nsid))
}

/// The status for a namespace that the controller does not have: an inactive id is an invalid field, an id above NN
/// is an invalid namespace (NVMe Base 2.0 §3.2.1.3).
pub fn absent_namespace(nsid: Nsid) -> Status {
    if nsid.is_valid() && nsid.0 <= NAMESPACES_MAX {
        Status::INVALID_FIELD
    } else {
        Status::INVALID_NAMESPACE_OR_FORMAT
    }
}

/// How much data a command moves, and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// This many bytes to the host.
    ToHost(u32),
    /// This many bytes from the host.
    FromHost(u32),
}

/// An I/O command that passed [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub(super) action: Action,
    /// Bytes of the namespace; empty for Flush and Dataset Management.
    pub(super) range: ByteRange,
    /// FUA.
    pub(super) force_unit_access: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    Flush,
    Compare,
    Verify,
    WriteZeroes { deallocate: bool },
    DatasetManagement { ranges: u16, list_bytes: u16, deallocate: bool },
}

impl Request {
    /// The data that moves.
    pub fn transfer(&self) -> Transfer {
        // Checked against the largest transfer, which fits.
        let bytes = self.range.len as u32;
        match self.action {
            Action::Read => Transfer::ToHost(bytes),
            Action::Write | Action::Compare => Transfer::FromHost(bytes),
            Action::DatasetManagement { list_bytes, .. } => Transfer::FromHost(u32::from(list_bytes)),
            Action::Flush | Action::Verify | Action::WriteZeroes { .. } => Transfer::None,
        }
    }
}

/// Checks an I/O command that names `namespace`, with `data_bytes` the length that its data pointer gives.
pub fn check(sqe: &Sqe, namespace: &Namespace, data_bytes: u32) -> Result<Request, Status> {
    match namespace.ana_state {
        AnaState::Optimized => {}
        AnaState::Inaccessible => return Err(Status::ANA_INACCESSIBLE),
        AnaState::Transition => return Err(Status::ANA_TRANSITION),
    }
    let opcode = NvmOpcode::try_from(sqe.opcode).map_err(|_| Status::INVALID_OPCODE)?;
    check_metadata(sqe)?;
    match opcode {
        NvmOpcode::Read => ranged(sqe, namespace, data_bytes, Action::Read),
        NvmOpcode::Write => ranged(sqe, namespace, data_bytes, Action::Write),
        NvmOpcode::Compare => ranged(sqe, namespace, data_bytes, Action::Compare),
        NvmOpcode::Verify => ranged(sqe, namespace, data_bytes, Action::Verify),
        NvmOpcode::WriteZeroes => {
            let deallocate = RwCommand::from_sqe(sqe).deac();
            ranged(sqe, namespace, data_bytes, Action::WriteZeroes { deallocate })
        }
        NvmOpcode::DatasetManagement => dataset_management(sqe, data_bytes),
        NvmOpcode::Flush if data_bytes == 0 => Ok(without_range(Action::Flush)),
        NvmOpcode::Flush => Err(Status::DATA_SGL_LENGTH_INVALID),
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// No namespace has metadata. MPTR and PRINFO are used only with metadata and protection information (NVM Command Set
/// 1.0 §5.2) and ignored otherwise; but a metadata SGL segment (PSDT 10b) is memory that we cannot reach over a fabric.
fn check_metadata(sqe: &Sqe) -> Result<(), Status> {
    if sqe.psdt()? == Psdt::SglMptrSegment && sqe.mptr.get() != 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(())
}

const fn without_range(action: Action) -> Request {
    Request { action, range: ByteRange { offset: 0, len: 0 }, force_unit_access: false }
}

fn ranged(sqe: &Sqe, namespace: &Namespace, data_bytes: u32, action: Action) -> Result<Request, Status> {
    let command = RwCommand::from_sqe(sqe);
    if !command.fits(namespace.blocks) {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    let shift = namespace.lba.shift();
    let range = ByteRange { offset: command.slba.0 << shift, len: u64::from(command.nlb) << shift };
    let (most, moves) = match action {
        Action::WriteZeroes { .. } => (WRITE_ZEROES_BYTES_MAX, 0),
        // VSL is 0: no limit but NLB's.
        Action::Verify => (u64::MAX, 0),
        _ => (u64::from(MAX_TRANSFER_BYTES), range.len),
    };
    // MDTS and WZSL: NVMe Base 2.0 figure 275, NVM Command Set 1.0 figure 118.
    if range.len > most {
        return Err(Status::INVALID_FIELD);
    }
    // NVME N5
    if u64::from(data_bytes) != moves {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    Ok(Request { action, range, force_unit_access: command.fua() })
}

fn dataset_management(sqe: &Sqe, data_bytes: u32) -> Result<Request, Status> {
    let command = DsmCommand::from_sqe(sqe);
    if data_bytes < command.bytes() || data_bytes > DSM_LIST_BYTES {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    Ok(without_range(Action::DatasetManagement {
        ranges: command.nr,
        // At most 4096.
        list_bytes: data_bytes as u16,
        deallocate: command.attributes.ad(),
    }))
}
