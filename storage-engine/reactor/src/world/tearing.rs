//! What a power loss does to an aligned write of 4 KiB (PROTOCOL S9).
//!
//! A sector is written whole or not at all, so sectors of 4 KiB never tear. With smaller ones the device must promise
//! it: newer kernels say what it promised in sysfs (`atomic_write_unit_*_bytes`), an NVMe device is asked directly.
//! Whatever is not known counts as torn. Regular files count as atomic: what is below their file system is out of
//! sight, and `docs/configuration.md` says so.
//!
//! NVMe promises this for commands up to its atomic write unit, and nothing for larger ones. Devices write in units of
//! their own all the same, and what keeps to the boundaries of such a unit is what S9 asks for; who wants it to the
//! letter formats the namespace with sectors of 4 KiB.

use std::io;
use std::os::fd::BorrowedFd;

use ashlar_io::{BLOCK_BYTES, Tearing};

use super::nvme;
use crate::file::{FileKind, Geometry};
use crate::sys;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Sectors in which sysfs counts a partition's start, whatever the device's are.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// What is known about a block device.
#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    sector_bytes: u32,
    /// Where it starts on its disk, if it is a partition.
    start_bytes: u64,
    /// Smallest and largest write, in bytes, that the kernel promises to be atomic.
    kernel: Option<(u64, u64)>,
    /// What the NVMe device promises.
    nvme: Option<nvme::AtomicUnits>,
}

/// Of what `fd` names.
pub(super) fn of(fd: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Tearing> {
    let device = match (geometry.kind, sys::block_device_number(fd)?) {
        (FileKind::BlockDevice, Some(device)) => device,
        _ => return Ok(Tearing::Atomic),
    };
    let number =
        |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok()).filter(|&value| value > 0);
    let promise = |name| number(sys::queue_attribute(device, name));
    let least = promise("atomic_write_unit_min_bytes");
    let start = number(sys::device_attribute(device, "start")).unwrap_or(0);
    Ok(judge(Evidence {
        sector_bytes: geometry.logical_block_bytes,
        start_bytes: start.saturating_mul(SYSFS_SECTOR_BYTES),
        kernel: least.zip(promise("atomic_write_unit_max_bytes")),
        nvme: nvme::atomic_units(fd),
    }))
}

fn judge(evidence: Evidence) -> Tearing {
    let by_sector = u64::from(evidence.sector_bytes) == BLOCK;
    let by_kernel = evidence.kernel.is_some_and(|(least, most)| least <= BLOCK && BLOCK <= most);
    let by_device = evidence.nvme.is_some_and(|units| units.keep_whole(BLOCK, evidence.sector_bytes));
    // An aligned block of an unaligned partition lies on the boundary of two.
    let aligned = evidence.start_bytes.is_multiple_of(BLOCK);
    if aligned && (by_sector || by_kernel || by_device) { Tearing::Atomic } else { Tearing::Torn }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Evidence = Evidence { sector_bytes: 512, start_bytes: 0, kernel: None, nvme: None };

    #[test]
    fn a_sector_of_a_block_is_atomic() {
        assert_eq!(judge(Evidence { sector_bytes: 4096, ..SMALL }), Tearing::Atomic);
    }

    #[test]
    fn what_nobody_promises_is_torn() {
        assert_eq!(judge(SMALL), Tearing::Torn);
    }

    #[test]
    fn the_kernels_promise_must_cover_a_block() {
        assert_eq!(judge(Evidence { kernel: Some((512, 131_072)), ..SMALL }), Tearing::Atomic);
        assert_eq!(judge(Evidence { kernel: Some((512, 2048)), ..SMALL }), Tearing::Torn);
        assert_eq!(judge(Evidence { kernel: Some((8192, 65_536)), ..SMALL }), Tearing::Torn);
    }

    #[test]
    fn the_devices_promise_counts() {
        let units = nvme::AtomicUnits { unit_sectors: 8, boundary_sectors: 0, boundary_offset: 0 };
        assert_eq!(judge(Evidence { nvme: Some(units), ..SMALL }), Tearing::Atomic);
        let single = nvme::AtomicUnits { unit_sectors: 1, ..units };
        assert_eq!(judge(Evidence { nvme: Some(single), ..SMALL }), Tearing::Torn);
    }

    #[test]
    fn an_unaligned_partition_is_torn() {
        let start_bytes = 63 * SYSFS_SECTOR_BYTES;
        assert_eq!(judge(Evidence { start_bytes, kernel: Some((512, 4096)), ..SMALL }), Tearing::Torn);
        let start_bytes = 2048 * SYSFS_SECTOR_BYTES;
        assert_eq!(judge(Evidence { start_bytes, kernel: Some((512, 4096)), ..SMALL }), Tearing::Atomic);
    }
}
