//! Everything that others put on disks is recognised, named, and gone after formatting by force.

use ashlar_io::BLOCK_BYTES;
use ashlar_store::device::{FormatError, Signature, signature};

use crate::formatting::{BLOCKS, format, options, overwriting};
use crate::memory::{Memory, MemoryDisk, run};

const BYTES: u64 = BLOCKS * BLOCK_BYTES as u64;

/// What stands where, and what that is.
type Case = (Signature, &'static [(u64, &'static [u8])]);

const CASES: &[Case] = &[
    (Signature::Ext2, &[(1080, &[0x53, 0xef])]),
    (Signature::Ext3, &[(1080, &[0x53, 0xef]), (1024 + 92, &[0x04])]),
    (Signature::Ext4, &[(1080, &[0x53, 0xef]), (1024 + 92, &[0x3c]), (1024 + 96, &[0xc2, 2])]),
    (Signature::Xfs, &[(0, b"XFSB")]),
    (Signature::Btrfs, &[(65536 + 64, b"_BHRfS_M"), ((64 << 20) + 64, b"_BHRfS_M")]),
    (Signature::Fat, &[(82, b"FAT32   "), (510, &[0x55, 0xaa])]),
    (Signature::Fat, &[(54, b"FAT16   "), (510, &[0x55, 0xaa])]),
    (Signature::ExFat, &[(3, b"EXFAT   "), (510, &[0x55, 0xaa])]),
    (Signature::Ntfs, &[(3, b"NTFS    "), (510, &[0x55, 0xaa]), (450, &[7])]),
    (Signature::F2fs, &[(1024, &[0x10, 0x20, 0xf5, 0xf2])]),
    (Signature::Iso9660, &[(32769, b"CD001")]),
    (Signature::Swap, &[(4086, b"SWAPSPACE2")]),
    (Signature::Swap, &[(65526, b"SWAPSPACE2")]),
    (Signature::Lvm, &[(512, b"LABELONE"), (512 + 24, b"LVM2 001")]),
    (Signature::Md("1.0"), &[(BYTES - 8192, &[0xfc, 0x4e, 0x2b, 0xa9, 1])]),
    (Signature::Md("1.1"), &[(0, &[0xfc, 0x4e, 0x2b, 0xa9, 1])]),
    (Signature::Md("1.2"), &[(4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1])]),
    (Signature::Md("0.90"), &[(BYTES - 65536, &[0xfc, 0x4e, 0x2b, 0xa9])]),
    (Signature::Md("0.90"), &[(BYTES - 65536, &[0xa9, 0x2b, 0x4e, 0xfc])]),
    (Signature::Gpt, &[(512, b"EFI PART"), (BYTES - 512, b"EFI PART")]),
    (Signature::Gpt, &[(4096, b"EFI PART"), (BYTES - 4096, b"EFI PART")]),
    (Signature::Mbr, &[(446 + 16 + 4, &[0x83]), (510, &[0x55, 0xaa])]),
    (Signature::Luks, &[(0, b"LUKS\xba\xbe"), (0x4000, b"SKUL\xba\xbe")]),
    (Signature::Luks, &[(0x40_0000, b"SKUL\xba\xbe")]),
    (Signature::Zfs, &[(128 << 10, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0])]),
    (Signature::Zfs, &[(BYTES - (64 << 10), &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c])]),
    (Signature::Bcache, &[(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")]),
    (Signature::Bluestore, &[(0, b"bluestore block device\n")]),
    (Signature::Stratis, &[(516, b"!Stra0tis\x86\xff\x02^\x41rh")]),
    (Signature::AshlarUnreadable, &[((BLOCKS - 1) * 4096, b"ASLS")]),
];

#[test]
fn what_others_wrote_is_refused_by_name_and_overwritten_only_by_force() {
    for (expected, bytes) in CASES {
        let disk = MemoryDisk::new(BLOCKS);
        bytes.iter().for_each(|(at, bytes)| disk.poke(*at, bytes));
        let before = disk.content();
        let error = format(&disk, &options(1)).expect_err("it carries something");
        let FormatError::Carries { found } = &error else { panic!("{expected}: {error}") };
        assert!(found.iter().all(|found| found.signature == *expected), "{expected}: {found:?}");
        assert!(!found.is_empty());
        assert!(error.to_string().contains(&expected.to_string()), "{error}");
        assert!(error.to_string().contains(&found[0].at.to_string()), "{error}");
        assert_eq!(disk.content(), before, "{expected}: nothing was written");

        let superblock = format(&disk, &overwriting(1)).expect("forced");
        let found = run(signature::find(&Memory, &disk)).expect("the disk works");
        let ours = Signature::Ashlar(superblock.device);
        assert!(found.iter().all(|found| found.signature == ours), "{expected} is gone: {found:?}");
    }
}

#[test]
fn a_partition_table_in_front_of_a_file_system_is_named_with_it() {
    let disk = MemoryDisk::new(BLOCKS);
    disk.poke(1080, &[0x53, 0xef]);
    disk.poke(510, &[0x55, 0xaa]);
    disk.poke(450, &[0xee]);
    disk.poke(512, b"EFI PART");
    let found = run(signature::find(&Memory, &disk)).expect("the disk works");
    let found: Vec<_> = found.iter().map(|found| found.signature).collect();
    assert_eq!(found, [Signature::Gpt, Signature::Mbr, Signature::Ext2]);
}

#[test]
fn other_bytes_are_nothing() {
    let disk = MemoryDisk::new(BLOCKS);
    for block in (0..1100).chain(BLOCKS - 300..BLOCKS) {
        let bytes: Vec<u8> = (0..4096_u64).map(|at| (block * 7 + at * 13 + at / 256) as u8).collect();
        disk.poke(block * 4096, &bytes);
    }
    assert_eq!(run(signature::find(&Memory, &disk)).expect("the disk works"), []);
}
