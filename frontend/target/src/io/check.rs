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

/// The status for a namespace that the controller does not have: an inactive id is an invalid field, an id
/// above NN is an invalid namespace (NVMe Base 2.0 §3.2.1.3).
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

/// No namespace has metadata. MPTR and PRINFO are used only with metadata and protection information (NVM
/// Command Set 1.0 §5.2) and ignored otherwise; but a metadata SGL segment (PSDT 10b) is memory that we
/// cannot reach over a fabric.
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

#[cfg(test)]
mod tests {
    use ashlar_nvme::ids::Nguid;
    use ashlar_nvme::nvm::{DsmAttributes, RwControl};
    use ashlar_nvme::sgl::DataPointer;
    use ashlar_nvme::{CommandId, Lba};

    use super::*;
    use crate::backend::{BackendInfo, Deallocated};
    use crate::inventory::LbaSize;

    const BLOCKS: u64 = 1 << 20;

    fn namespace(lba: LbaSize) -> Namespace {
        let backend = BackendInfo {
            bytes: BLOCKS << lba.shift(),
            access_bytes: 512,
            volatile_cache: false,
            deallocated: Deallocated::Zeroes,
        };
        let (uuid, nguid) = (uuid::Uuid::from_u128(1), Nguid([1; 16]));
        let (nsid, ana_state) = (Nsid(1), AnaState::Optimized);
        Namespace { nsid, uuid, nguid, lba, blocks: BLOCKS, backend, ana_group: 1, ana_state }
    }

    fn sqe(opcode: NvmOpcode, slba: u64, nlb: u32) -> Sqe {
        let command = RwCommand { slba: Lba(slba), nlb, control: RwControl(0) };
        command.to_sqe(opcode, CommandId(1), Nsid(1), DataPointer::None)
    }

    fn status(sqe: &Sqe, lba: LbaSize, data_bytes: u32) -> Status {
        check(sqe, &namespace(lba), data_bytes).err().unwrap_or(Status::SUCCESS)
    }

    const RANGED: [NvmOpcode; 5] =
        [NvmOpcode::Read, NvmOpcode::Write, NvmOpcode::Compare, NvmOpcode::Verify, NvmOpcode::WriteZeroes];

    fn moved(opcode: NvmOpcode, bytes: u32) -> u32 {
        if matches!(opcode, NvmOpcode::Verify | NvmOpcode::WriteZeroes) { 0 } else { bytes }
    }

    #[test]
    fn blocks_beyond_the_end_are_out_of_range() {
        for opcode in RANGED {
            for (slba, nlb, expected) in [
                (BLOCKS - 2, 2, Status::SUCCESS),
                (BLOCKS - 1, 2, Status::LBA_OUT_OF_RANGE),
                (BLOCKS, 1, Status::LBA_OUT_OF_RANGE),
                (u64::MAX, 1, Status::LBA_OUT_OF_RANGE),
                (u64::MAX - 1, 2, Status::LBA_OUT_OF_RANGE),
            ] {
                let data = moved(opcode, nlb * 4096);
                assert_eq!(
                    status(&sqe(opcode, slba, nlb), LbaSize::B4096, data),
                    expected,
                    "{opcode:?} {slba}"
                );
            }
        }
    }

    #[test]
    fn a_length_that_disagrees_with_the_blocks_is_refused() {
        for opcode in RANGED {
            let right = moved(opcode, 8 * 512);
            for data in [0, 1, right.wrapping_sub(1), right + 1, right + 512, u32::MAX] {
                if data != right {
                    let got = status(&sqe(opcode, 0, 8), LbaSize::B512, data);
                    assert_eq!(got, Status::DATA_SGL_LENGTH_INVALID, "{opcode:?} {data}");
                }
            }
        }
        assert_eq!(status(&sqe(NvmOpcode::Flush, 0, 1), LbaSize::B512, 1), Status::DATA_SGL_LENGTH_INVALID);
    }

    #[test]
    fn transfers_beyond_mdts_are_an_invalid_field() {
        for opcode in [NvmOpcode::Read, NvmOpcode::Write, NvmOpcode::Compare] {
            assert_eq!(status(&sqe(opcode, 0, 256), LbaSize::B4096, 1 << 20), Status::SUCCESS);
            assert_eq!(status(&sqe(opcode, 0, 257), LbaSize::B4096, 257 << 12), Status::INVALID_FIELD);
            assert_eq!(status(&sqe(opcode, 0, 2049), LbaSize::B512, 2049 << 9), Status::INVALID_FIELD);
        }
        // Nothing moves, so MDTS is no limit.
        assert_eq!(status(&sqe(NvmOpcode::Verify, 0, 65536), LbaSize::B4096, 0), Status::SUCCESS);
    }

    #[test]
    fn write_zeroes_goes_as_far_as_wzsl() {
        assert_eq!(WRITE_ZEROES_BYTES_MAX, 4096 << crate::limits::WZSL);
        assert_eq!(status(&sqe(NvmOpcode::WriteZeroes, 0, 65536), LbaSize::B512, 0), Status::SUCCESS);
        assert_eq!(status(&sqe(NvmOpcode::WriteZeroes, 0, 8192), LbaSize::B4096, 0), Status::SUCCESS);
        assert_eq!(status(&sqe(NvmOpcode::WriteZeroes, 0, 8193), LbaSize::B4096, 0), Status::INVALID_FIELD);
    }

    #[test]
    fn opcodes_that_are_not_served_are_invalid() {
        let served = RANGED.map(NvmOpcode::code);
        for opcode in 0..=u8::MAX {
            let mut command = sqe(NvmOpcode::Read, 0, 1);
            command.opcode = opcode;
            let other = [NvmOpcode::Flush, NvmOpcode::DatasetManagement].map(NvmOpcode::code);
            if !served.contains(&opcode) && !other.contains(&opcode) {
                assert_eq!(status(&command, LbaSize::B512, 512), Status::INVALID_OPCODE, "{opcode:#x}");
            }
        }
    }

    #[test]
    fn metadata_that_cannot_be_reached_is_an_invalid_field_and_unused_fields_are_ignored() {
        let mut command = sqe(NvmOpcode::Read, 0, 1);
        command.cdw12 = RwControl(0).with_prinfo(0xF).with_stc(true).with_lr(true).0.into();
        command.mptr = 0x1000.into();
        assert_eq!(status(&command, LbaSize::B512, 512), Status::SUCCESS);
        command.set_psdt(Psdt::SglMptrSegment);
        assert_eq!(status(&command, LbaSize::B512, 512), Status::INVALID_FIELD);
        command.mptr = 0.into();
        assert_eq!(status(&command, LbaSize::B512, 512), Status::SUCCESS);
        command.flags |= 0b1100_0000;
        assert_eq!(status(&command, LbaSize::B512, 512), Status::INVALID_FIELD);
    }

    #[test]
    fn a_list_of_ranges_may_be_longer_than_its_ranges_but_not_shorter() {
        let command = DsmCommand { nr: 3, attributes: DsmAttributes(0).with_ad(true) };
        let command = command.to_sqe(CommandId(1), Nsid(1), DataPointer::None);
        for (bytes, expected) in [
            (47, Status::DATA_SGL_LENGTH_INVALID),
            (48, Status::SUCCESS),
            (4096, Status::SUCCESS),
            (4097, Status::DATA_SGL_LENGTH_INVALID),
        ] {
            assert_eq!(status(&command, LbaSize::B512, bytes), expected, "{bytes} bytes");
        }
        let request = check(&command, &namespace(LbaSize::B512), 4096).expect("it is right");
        assert_eq!(request.transfer(), Transfer::FromHost(4096));
    }

    #[test]
    fn a_path_that_does_not_serve_says_so_first() {
        for (state, expected) in [
            (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
            (AnaState::Transition, Status::ANA_TRANSITION),
        ] {
            let mut described = namespace(LbaSize::B512);
            described.ana_state = state;
            assert_eq!(check(&sqe(NvmOpcode::Read, u64::MAX, 1), &described, 0), Err(expected));
        }
    }

    #[test]
    fn only_flush_may_name_all_namespaces() {
        for opcode in [NvmOpcode::Read, NvmOpcode::Flush] {
            for (nsid, flush, other) in [
                (0, Err(Status::INVALID_NAMESPACE_OR_FORMAT), Err(Status::INVALID_NAMESPACE_OR_FORMAT)),
                (5, Ok(Addressee::One(Nsid(5))), Ok(Addressee::One(Nsid(5)))),
                (
                    0xFFFF_FFFE,
                    Err(Status::INVALID_NAMESPACE_OR_FORMAT),
                    Err(Status::INVALID_NAMESPACE_OR_FORMAT),
                ),
                (0xFFFF_FFFF, Ok(Addressee::All), Err(Status::INVALID_NAMESPACE_OR_FORMAT)),
            ] {
                let command = Sqe::new(opcode.code(), CommandId(1), Nsid(nsid));
                let expected = if opcode == NvmOpcode::Flush { flush } else { other };
                assert_eq!(addressee(&command), expected, "{opcode:?} {nsid:#x}");
            }
        }
        assert_eq!(absent_namespace(Nsid(NAMESPACES_MAX)), Status::INVALID_FIELD);
        assert_eq!(absent_namespace(Nsid(NAMESPACES_MAX + 1)), Status::INVALID_NAMESPACE_OR_FORMAT);
    }
}
