//! Asks a local NVMe device for its atomic write units (NVMe NVM Command Set 1.0 §2.1.4): AWUPF of the controller,
//! NAWUPF, NABSPF and NABO of the namespace.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct nvme_passthru_cmd` (linux/nvme_ioctl.h).
#[repr(C)]
#[derive(Default)]
struct PassthroughCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(mem::size_of::<PassthroughCommand>() == 72);

/// `NVME_IOCTL_ID`: the namespace that a block device is.
const IOCTL_ID: libc::c_ulong = 0x4e40;
/// `NVME_IOCTL_ADMIN_CMD`.
const IOCTL_ADMIN: libc::c_ulong = 0xc048_4e41;
/// Identify.
const OPCODE_IDENTIFY: u8 = 0x06;
/// Identify Namespace data structure.
const CNS_NAMESPACE: u32 = 0x00;
/// Identify Controller data structure.
const CNS_CONTROLLER: u32 = 0x01;
/// A device answers in less, or not at all.
const TIMEOUT_MS: u32 = 5000;

const IDENTIFY_BYTES: usize = 4096;

/// What is written whole when the power fails. In logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtomicUnits {
    /// Largest write that is atomic.
    pub(super) unit_sectors: u32,
    /// Distance of the boundaries that an atomic write must not cross, zero if there are none.
    pub(super) boundary_sectors: u32,
    /// Where the first boundary is.
    pub(super) boundary_offset: u32,
}

impl AtomicUnits {
    /// Aligned writes of `bytes` are atomic on sectors of `sector_bytes`.
    pub(super) fn keep_whole(self, bytes: u64, sector_bytes: u32) -> bool {
        let sized = |sectors: u32| u64::from(sectors) * u64::from(sector_bytes);
        let no_boundary_within = self.boundary_sectors == 0
            || (sized(self.boundary_sectors).is_multiple_of(bytes)
                && sized(self.boundary_offset).is_multiple_of(bytes));
        sized(self.unit_sectors) >= bytes && no_boundary_within
    }

    /// From the two data structures.
    fn read(controller: &[u8; IDENTIFY_BYTES], namespace: &[u8; IDENTIFY_BYTES]) -> Self {
        let field =
            |data: &[u8; IDENTIFY_BYTES], at: usize| u32::from(u16::from_le_bytes([data[at], data[at + 1]]));
        /// Atomic Write Unit Power Fail, counted from zero.
        const AWUPF: usize = 528;
        /// Namespace Features; bit 1: the namespace has units of its own.
        const NSFEAT: usize = 24;
        const NSFEAT_OWN_UNITS: u8 = 1 << 1;
        /// Namespace Atomic Write Unit Power Fail, counted from zero; zero: as the controller says.
        const NAWUPF: usize = 36;
        /// Namespace Atomic Boundary Offset.
        const NABO: usize = 42;
        /// Namespace Atomic Boundary Size Power Fail, counted from zero; zero: there is none.
        const NABSPF: usize = 44;
        let controllers = field(controller, AWUPF) + 1;
        if namespace[NSFEAT] & NSFEAT_OWN_UNITS == 0 {
            return Self { unit_sectors: controllers, boundary_sectors: 0, boundary_offset: 0 };
        }
        let unit_sectors = match field(namespace, NAWUPF) {
            0 => controllers,
            own => own + 1,
        };
        let boundary_sectors = match field(namespace, NABSPF) {
            0 => 0,
            size => size + 1,
        };
        Self { unit_sectors, boundary_sectors, boundary_offset: field(namespace, NABO) }
    }
}

fn identify(fd: BorrowedFd<'_>, cns: u32, nsid: u32) -> Option<Box<[u8; IDENTIFY_BYTES]>> {
    let mut data = Box::new([0u8; IDENTIFY_BYTES]);
    let mut command = PassthroughCommand {
        opcode: OPCODE_IDENTIFY,
        nsid,
        address: data.as_mut_ptr() as u64,
        data_len: IDENTIFY_BYTES as u32,
        cdw10: cns,
        timeout_ms: TIMEOUT_MS,
        ..PassthroughCommand::default()
    };
    // SAFETY: the command is what this request takes; the device writes `data_len` bytes at most, which `data` has, and
    // the call returns when it is done.
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_ADMIN as _, &raw mut command) };
    (status == 0).then_some(data)
}

/// What the device that `fd` names promises; `None` if it is no NVMe namespace or does not say (it takes the right to
/// administer the system).
pub(super) fn atomic_units(fd: BorrowedFd<'_>) -> Option<AtomicUnits> {
    // SAFETY: this request takes no argument and touches no memory; what is no NVMe device refuses it.
    let nsid = unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_ID as _) };
    let nsid = u32::try_from(nsid).ok().filter(|&nsid| nsid > 0)?;
    let controller = identify(fd, CNS_CONTROLLER, 0)?;
    let namespace = identify(fd, CNS_NAMESPACE, nsid)?;
    Some(AtomicUnits::read(&controller, &namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data structure with these 16-bit fields.
    fn data(fields: &[(usize, u16)]) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        for (at, value) in fields {
            data[*at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        data
    }

    #[test]
    fn the_controllers_unit_holds_unless_the_namespace_has_its_own() {
        let controller = data(&[(528, 7)]);
        let expected = AtomicUnits { unit_sectors: 8, boundary_sectors: 0, boundary_offset: 0 };
        // Without the feature bit the other fields mean nothing.
        assert_eq!(AtomicUnits::read(&controller, &data(&[(36, 15), (44, 3)])), expected);
        assert_eq!(AtomicUnits::read(&controller, &data(&[(24, 2)])), expected);
        let own = AtomicUnits::read(&controller, &data(&[(24, 2), (36, 31), (42, 4), (44, 63)]));
        assert_eq!(own, AtomicUnits { unit_sectors: 32, boundary_sectors: 64, boundary_offset: 4 });
    }

    #[test]
    fn a_boundary_within_a_block_tears_it() {
        let units = AtomicUnits { unit_sectors: 8, boundary_sectors: 64, boundary_offset: 0 };
        assert!(units.keep_whole(4096, 512));
        assert!(!AtomicUnits { boundary_offset: 4, ..units }.keep_whole(4096, 512));
        assert!(!AtomicUnits { boundary_sectors: 12, ..units }.keep_whole(4096, 512));
        assert!(!AtomicUnits { unit_sectors: 7, ..units }.keep_whole(4096, 512));
    }
}
