//! What a disk carries already: file systems, partition tables, parts of arrays, other devices of ours. Whatever is
//! found here is overwritten only when an operator insists.
//!
//! The places and magic numbers are facts of those formats, as far as `wipefs` and `blkid` know them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ashlar_io::{BLOCK_BYTES, DiskError, World};

use super::blocks::Blocks;
use crate::format::{BlockKind, DeviceId, Superblock};

const BLOCK: u64 = BLOCK_BYTES as u64;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// What can be found on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signature {
    /// A device of ours.
    Ashlar(DeviceId),
    /// A superblock of ours that is damaged, or of a version that this program does not know.
    AshlarUnreadable,
    /// GUID partition table.
    Gpt,
    /// DOS partition table.
    Mbr,
    /// File system ext2.
    Ext2,
    /// File system ext3.
    Ext3,
    /// File system ext4.
    Ext4,
    /// File system XFS.
    Xfs,
    /// File system btrfs.
    Btrfs,
    /// File system FAT (12, 16 or 32).
    Fat,
    /// File system exFAT.
    ExFat,
    /// File system NTFS.
    Ntfs,
    /// File system F2FS.
    F2fs,
    /// File system ISO 9660.
    Iso9660,
    /// Swap space, or an image of a hibernated system.
    Swap,
    /// Physical volume of LVM.
    Lvm,
    /// Member of a Linux software RAID, with its metadata version.
    Md(&'static str),
    /// Encrypted volume of LUKS.
    Luks,
    /// Member of a ZFS pool.
    Zfs,
    /// Backing or caching device of bcache.
    Bcache,
    /// File system bcachefs.
    Bcachefs,
    /// Device of a Ceph OSD.
    Bluestore,
    /// Device of Stratis.
    Stratis,
    /// Device of VDO.
    Vdo,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signature::Ashlar(device) => return write!(f, "Ashlar device {device}"),
            Signature::Md(version) => return write!(f, "md RAID member (metadata {version})"),
            Signature::AshlarUnreadable => "unreadable Ashlar superblock",
            Signature::Gpt => "GUID partition table",
            Signature::Mbr => "DOS partition table",
            Signature::Ext2 => "ext2 file system",
            Signature::Ext3 => "ext3 file system",
            Signature::Ext4 => "ext4 file system",
            Signature::Xfs => "XFS file system",
            Signature::Btrfs => "btrfs file system",
            Signature::Fat => "FAT file system",
            Signature::ExFat => "exFAT file system",
            Signature::Ntfs => "NTFS file system",
            Signature::F2fs => "F2FS file system",
            Signature::Iso9660 => "ISO 9660 file system",
            Signature::Swap => "swap space",
            Signature::Lvm => "LVM physical volume",
            Signature::Luks => "LUKS encrypted volume",
            Signature::Zfs => "ZFS pool member",
            Signature::Bcache => "bcache device",
            Signature::Bcachefs => "bcachefs file system",
            Signature::Bluestore => "Ceph OSD device",
            Signature::Stratis => "Stratis device",
            Signature::Vdo => "VDO device",
        })
    }
}

/// A signature, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// What it is.
    pub signature: Signature,
    /// Where its magic number stands, in bytes from the beginning of the disk.
    pub at: u64,
}

/// Says what was found and where, each kind once.
pub(super) fn list(found: &[Found]) -> String {
    let mut places: BTreeMap<Signature, Vec<u64>> = BTreeMap::new();
    for one in found {
        places.entry(one.signature).or_default().push(one.at);
    }
    let described = places.iter().map(|(signature, at)| match at.as_slice() {
        [first] => format!("{signature} (at byte {first})"),
        [first, rest @ ..] => format!("{signature} (at byte {first} and {} other places)", rest.len()),
        [] => signature.to_string(),
    });
    described.collect::<Vec<_>>().join(", ")
}

/// Blocks that carry what was found: with these wiped, nothing is found any more.
pub(super) fn blocks(found: &[Found]) -> BTreeSet<u64> {
    found.iter().map(|found| found.at / BLOCK).collect()
}

/// Signatures that are a magic number in one place.
const MAGICS: &[(Signature, u64, &[u8])] = &[
    (Signature::Gpt, 512, b"EFI PART"),
    (Signature::Gpt, 4096, b"EFI PART"),
    (Signature::Xfs, 0, b"XFSB"),
    (Signature::Btrfs, 64 * KIB + 64, b"_BHRfS_M"),
    (Signature::Btrfs, 64 * MIB + 64, b"_BHRfS_M"),
    (Signature::ExFat, 3, b"EXFAT   "),
    (Signature::Ntfs, 3, b"NTFS    "),
    (Signature::F2fs, 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    (Signature::Iso9660, 32 * KIB + 1, b"CD001"),
    (Signature::Md("1.1"), 0, MD_MAGIC),
    (Signature::Md("1.2"), 4096, MD_MAGIC),
    (Signature::Luks, 0, b"LUKS\xba\xbe"),
    (
        Signature::Bcache,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    (
        Signature::Bcachefs,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    (Signature::Bluestore, 0, b"bluestore block device"),
    (Signature::Stratis, 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    (Signature::Vdo, 0, b"dmvdo001"),
];

/// 0xa92b4efc, little-endian.
const MD_MAGIC: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];

/// Parts of the disk that were read.
struct Probe {
    windows: Vec<(u64, Vec<u8>)>,
    disk_blocks: u64,
    found: BTreeSet<Found>,
}

/// Blocks read at the front: LUKS2 keeps its second header within 4 MiB, ZFS two labels within 512 KiB.
const FRONT_BLOCKS: u64 = 4 * MIB / BLOCK + 1;
/// Blocks read at the back: ZFS keeps two labels within 768 KiB.
const BACK_BLOCKS: u64 = MIB / BLOCK;

/// Looks for everything that is known.
///
/// # Errors
/// A read failed.
pub async fn find<W: World>(world: &W, disk: &W::Disk) -> Result<Vec<Found>, DiskError> {
    let blocks = Blocks::new(world, disk);
    let count = blocks.count();
    let mut windows = Vec::new();
    for (first, length) in
        [(0, FRONT_BLOCKS), (64 * MIB / BLOCK, 1), (count.saturating_sub(BACK_BLOCKS), BACK_BLOCKS)]
    {
        let length = length.min(count.saturating_sub(first));
        windows.push((first * BLOCK, blocks.read(first, length).await?));
    }
    let mut probe = Probe { windows, disk_blocks: count, found: BTreeSet::new() };
    probe.magics();
    probe.ours();
    probe.partitions();
    probe.ext();
    probe.swap();
    probe.lvm();
    probe.md();
    probe.luks();
    probe.zfs();
    Ok(probe.found.into_iter().collect())
}

impl Probe {
    /// Bytes of the disk; none if they were not read.
    fn bytes(&self, at: u64, length: usize) -> &[u8] {
        let read = self.windows.iter().find_map(|(first, bytes)| {
            let from = usize::try_from(at.checked_sub(*first)?).ok()?;
            bytes.get(from..from.checked_add(length)?)
        });
        read.unwrap_or_default()
    }

    fn u16(&self, at: u64) -> u16 {
        self.bytes(at, 2).try_into().map_or(0, u16::from_le_bytes)
    }

    fn u32(&self, at: u64) -> u32 {
        self.bytes(at, 4).try_into().map_or(0, u32::from_le_bytes)
    }

    fn has(&self, at: u64, magic: &[u8]) -> bool {
        self.bytes(at, magic.len()) == magic
    }

    fn add(&mut self, signature: Signature, at: u64) {
        self.found.insert(Found { signature, at });
    }

    fn magics(&mut self) {
        for (signature, at, magic) in MAGICS {
            if self.has(*at, magic) {
                self.add(*signature, *at);
            }
        }
    }

    fn ours(&mut self) {
        let ends = [0, 1, self.disk_blocks.saturating_sub(2), self.disk_blocks.saturating_sub(1)];
        for block in ends {
            let at = block * BLOCK;
            if self.has(at, &BlockKind::Superblock.magic()) {
                let superblock = Superblock::decode(self.bytes(at, BLOCK_BYTES), block);
                let signature = superblock
                    .map_or(Signature::AshlarUnreadable, |superblock| Signature::Ashlar(superblock.device));
                self.add(signature, at);
            }
        }
    }

    /// A boot sector is that of a FAT file system, or has a partition table; the backup of a GUID partition table is
    /// in the last sector, whatever its size.
    fn partitions(&mut self) {
        if self.has(510, &[0x55, 0xaa]) {
            let fat = self.has(54, b"FAT12   ") || self.has(54, b"FAT16   ") || self.has(82, b"FAT32   ");
            let partition =
                |index: u64| self.bytes(446 + 16 * index + 4, 1).first().is_some_and(|kind| *kind != 0);
            if fat {
                self.add(Signature::Fat, 510);
            } else if (0..4).any(partition) && !self.has(3, b"EXFAT   ") && !self.has(3, b"NTFS    ") {
                self.add(Signature::Mbr, 510);
            }
        }
        let last = self.disk_blocks.saturating_sub(1) * BLOCK;
        for at in (last..last + BLOCK).step_by(512) {
            if self.has(at, b"EFI PART") {
                self.add(Signature::Gpt, at);
            }
        }
    }

    fn ext(&mut self) {
        const SUPERBLOCK: u64 = 1024;
        const MAGIC: u64 = SUPERBLOCK + 56;
        if self.u16(MAGIC) != 0xef53 {
            return;
        }
        const HAS_JOURNAL: u32 = 0x4;
        // Features that ext3 does not have.
        const INCOMPATIBLE_EXT4: u32 = !(0x2 | 0x4 | 0x10);
        const READ_ONLY_EXT4: u32 = !(0x1 | 0x2 | 0x4);
        let compatible = self.u32(SUPERBLOCK + 92);
        let incompatible = self.u32(SUPERBLOCK + 96);
        let read_only = self.u32(SUPERBLOCK + 100);
        let signature = if incompatible & INCOMPATIBLE_EXT4 != 0 || read_only & READ_ONLY_EXT4 != 0 {
            Signature::Ext4
        } else if compatible & HAS_JOURNAL != 0 {
            Signature::Ext3
        } else {
            Signature::Ext2
        };
        self.add(signature, MAGIC);
    }

    /// The magic number ends the first page, whatever the page size of the machine that wrote it.
    fn swap(&mut self) {
        for page in [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB] {
            let at = page - 10;
            let magics: [&[u8]; 4] = [b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND", b"LINHIB0001"];
            if magics.iter().any(|magic| self.has(at, magic)) {
                self.add(Signature::Swap, at);
            }
        }
    }

    /// The label is in one of the first four sectors.
    fn lvm(&mut self) {
        for at in (0..4 * 512).step_by(512) {
            if self.has(at, b"LABELONE") && self.has(at + 24, b"LVM2 001") {
                self.add(Signature::Lvm, at);
            }
        }
    }

    /// Those at the end: 1.0 at least 8 KiB before it, 0.90 in the last whole 64 KiB, in either byte order.
    fn md(&mut self) {
        let at = self.disk_blocks.saturating_sub(2) * BLOCK;
        if self.has(at, MD_MAGIC) && self.u32(at + 4) == 1 {
            self.add(Signature::Md("1.0"), at);
        }
        let at = (self.disk_blocks * BLOCK / (64 * KIB)).saturating_sub(1) * 64 * KIB;
        if self.has(at, MD_MAGIC) && self.u32(at + 4) == 0 || self.has(at, &[0xa9, 0x2b, 0x4e, 0xfc]) {
            self.add(Signature::Md("0.90"), at);
        }
    }

    /// The second header of LUKS2.
    fn luks(&mut self) {
        for at in (0..9).map(|shift| (16 * KIB) << shift) {
            if self.has(at, b"SKUL\xba\xbe") {
                self.add(Signature::Luks, at);
            }
        }
    }

    /// Uberblocks in the second half of each of four labels, in either byte order.
    fn zfs(&mut self) {
        const LABEL: u64 = 256 * KIB;
        const MAGIC: u64 = 0x00ba_b10c;
        let end = self.disk_blocks * BLOCK / LABEL * LABEL;
        for label in [0, LABEL, end.saturating_sub(2 * LABEL), end.saturating_sub(LABEL)] {
            for at in (label + LABEL / 2..label + LABEL).step_by(KIB as usize) {
                if self.has(at, &MAGIC.to_le_bytes()) || self.has(at, &MAGIC.to_be_bytes()) {
                    self.add(Signature::Zfs, at);
                }
            }
        }
    }
}
