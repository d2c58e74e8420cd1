//! Opening: from whatever is left, or a refusal that says what is wrong.

use ashlar_io::BLOCK_BYTES;
use ashlar_store::device::{self, OpenDevice, OpenError};
use ashlar_store::format::{BadSuperblock, DeviceId, Superblock};
use uuid::Uuid;

use crate::formatting::{BLOCKS, format, formatted, overwriting};
use crate::memory::{Memory, MemoryDisk, run};

fn open(disk: &MemoryDisk) -> Result<OpenDevice, OpenError> {
    run(device::open(&Memory, disk))
}

/// Spoils one byte in the middle of a superblock copy.
fn spoil(disk: &MemoryDisk, address: u64) {
    let byte = disk.block(address)[100];
    disk.poke(address * BLOCK_BYTES as u64 + 100, &[byte ^ 1]);
}

/// Writes a superblock copy, whole, and possibly of another version.
fn put(disk: &MemoryDisk, superblock: &Superblock, address: u64, change: impl FnOnce(&mut [u8])) {
    let mut block = vec![0; BLOCK_BYTES];
    superblock.encode(&mut block, address);
    change(&mut block);
    block[4..8].fill(0);
    let crc = crc32c::crc32c(&block);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    disk.poke(address * BLOCK_BYTES as u64, &block);
}

#[test]
fn file_too_small_for_a_superblock_is_no_device() {
    for blocks in 0..2 {
        let error = open(&MemoryDisk::new(blocks)).expect_err("there is no room");
        assert!(matches!(error, OpenError::NotADevice { .. }), "{error:?}");
    }
}

#[test]
fn any_single_good_copy_is_enough() {
    let (disk, superblock) = formatted();
    let copies = superblock.layout.superblocks();
    for good in copies {
        let disk = disk.duplicate();
        copies.into_iter().filter(|copy| *copy != good).for_each(|copy| spoil(&disk, copy));
        let opened = open(&disk).expect("one copy is good");
        assert!(opened.needs_restoring());
        // The last but one generation differs in nothing else.
        let expected = Superblock { generation: opened.superblock.generation, ..superblock.clone() };
        assert_eq!(opened.superblock, expected);
        let restored = run(device::restore(&Memory, &disk, &opened.superblock)).expect("the disk works");
        let again = open(&disk).expect("it was restored");
        assert_eq!(again.superblock, restored);
        assert!(!again.needs_restoring(), "{:?}", again.copies);
    }
}

#[test]
fn a_device_without_a_good_superblock_is_refused_with_what_is_wrong() {
    let (disk, superblock) = formatted();
    superblock.layout.superblocks().into_iter().for_each(|copy| spoil(&disk, copy));
    let error = open(&disk).expect_err("no copy is good");
    assert!(matches!(error, OpenError::AllBad { .. }), "{error:?}");
    assert!(error.to_string().contains("CRC") && error.to_string().contains("--force"), "{error}");
}

#[test]
fn an_empty_disk_is_no_device() {
    let error = open(&MemoryDisk::new(BLOCKS)).expect_err("there is nothing");
    assert!(matches!(&error, OpenError::NotADevice { found } if found.is_empty()), "{error:?}");
    assert!(error.to_string().contains("ashlar device format"), "{error}");
}

#[test]
fn a_disk_that_became_smaller_is_refused() {
    let (disk, _) = formatted();
    disk.resize(BLOCKS - 10);
    let error = open(&disk).expect_err("its end is missing");
    assert!(
        matches!(error, OpenError::Shrunk { expected: BLOCKS, found } if found == BLOCKS - 10),
        "{error:?}"
    );
}

#[test]
fn a_disk_that_became_larger_opens_with_its_old_size() {
    let (disk, superblock) = formatted();
    disk.resize(BLOCKS + 5000);
    let opened = open(&disk).expect("nothing was lost");
    assert_eq!(opened.superblock, superblock);
    assert_eq!(opened.grown_by, 5000);
    assert!(!opened.needs_restoring());
}

#[test]
fn the_highest_generation_holds() {
    let (disk, superblock) = formatted();
    let newer = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    let address = superblock.layout.superblocks()[newer.copies()[1]];
    put(&disk, &newer, address, |_| ());
    assert_eq!(open(&disk).expect("it opens").superblock, newer);
}

#[test]
fn another_version_or_feature_is_refused_even_if_older_copies_are_good() {
    let (disk, superblock) = formatted();
    let newer = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    let address = superblock.layout.superblocks()[newer.copies()[0]];
    put(&disk, &newer, address, |block| block[40] = 2);
    let error = open(&disk).expect_err("nobody knows version 2");
    assert!(matches!(error, OpenError::Newer(BadSuperblock::Version { found: 2 })), "{error:?}");
    put(&disk, &newer, address, |block| block[44] = 4);
    let error = open(&disk).expect_err("nobody knows the feature");
    assert!(matches!(error, OpenError::Newer(BadSuperblock::Features { bits: 4 })), "{error:?}");
}

#[test]
fn what_another_device_left_at_the_end_does_not_count() {
    let (disk, superblock) = formatted();
    let (other, _) = formatted();
    for _ in 0..3 {
        let opened = open(&other).expect("it was formatted");
        run(device::restore(&Memory, &other, &opened.superblock)).expect("the disk works");
    }
    let foreign = format(&other, &overwriting(9)).expect("forced");
    let foreign = run(device::restore(&Memory, &other, &foreign)).expect("the disk works");
    assert!(foreign.generation > superblock.generation);
    let last = BLOCKS - 1;
    disk.poke(last * BLOCK_BYTES as u64, &other.block(last));
    let opened = open(&disk).expect("the front copies say whose it is");
    assert_eq!(opened.superblock.device, superblock.device);
    assert!(opened.needs_restoring());
}

#[test]
fn a_disk_with_the_fronts_of_two_devices_is_refused() {
    let (disk, superblock) = formatted();
    let other = Superblock { device: DeviceId(Uuid::from_u128(99)), generation: 3, ..superblock };
    put(&disk, &other, 1, |_| ());
    let error = open(&disk).expect_err("whose is it?");
    assert!(matches!(error, OpenError::TwoDevices { .. }), "{error:?}");
}
