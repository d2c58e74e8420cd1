//! Growing with the disk: the old size or the new, whenever the power goes off.

use ashlar_io::BLOCK_BYTES;
use ashlar_store::device;
use ashlar_store::format::{BlockKind, Superblock};

use crate::formatting::{BLOCKS, formatted};
use crate::memory::{Coins, Memory, MemoryDisk, run};

/// Addresses of everything that looks like a superblock.
fn superblocks(disk: &MemoryDisk) -> Vec<u64> {
    let magic = BlockKind::Superblock.magic();
    disk.content()
        .into_iter()
        .filter(|(_, bytes)| bytes.starts_with(&magic))
        .map(|(block, _)| block)
        .collect()
}

fn grow(disk: &MemoryDisk, superblock: &Superblock) -> Superblock {
    run(device::grow(&Memory, disk, superblock)).expect("the disk works")
}

#[test]
fn a_device_takes_in_what_its_disk_grew_by() {
    for more in [1, 2, 5000, BLOCKS] {
        let (disk, before) = formatted();
        disk.resize(BLOCKS + more);
        let after = grow(&disk, &before);
        disk.power_loss(|| false);
        assert_eq!(after.layout.device_blocks(), BLOCKS + more);
        let opened = run(device::open(&Memory, &disk)).expect("it grew");
        assert_eq!(opened.superblock, after);
        assert_eq!(opened.grown_by, 0);
        assert!(!opened.needs_restoring(), "{:?}", opened.copies);
        assert_eq!(superblocks(&disk), after.layout.superblocks(), "the old copies are wiped");
        assert_eq!(after.layout.slabs() > before.layout.slabs(), more > before.layout.slab_blocks());
    }
}

#[test]
fn a_device_whose_disk_has_its_size_is_left_alone() {
    let (disk, before) = formatted();
    let writes = disk.writes();
    assert_eq!(grow(&disk, &before), before);
    assert_eq!(disk.writes(), writes);
}

/// Once a front copy says the new size, the device opens without its front.
fn assert_back_follows_front(disk: &MemoryDisk, size: u64) {
    let front = [0, 1].map(|block| Superblock::decode(&disk.block(block), block));
    if front.iter().flatten().any(|copy| copy.layout.device_blocks() == size) {
        let disk = disk.duplicate();
        [0, BLOCK_BYTES as u64].into_iter().for_each(|at| disk.poke(at, &[0; BLOCK_BYTES]));
        let opened = run(device::open(&Memory, &disk)).expect("the back copies are there");
        assert_eq!(opened.superblock.layout.device_blocks(), size);
    }
}

#[test]
fn a_kill_at_any_write_leaves_the_old_size_or_the_new() {
    for more in [1, 2, 5000] {
        for seed in 0..8 {
            let (mut old, mut new) = (0, 0);
            for operations in 0.. {
                let (disk, before) = formatted();
                disk.power_loss(|| true);
                disk.resize(BLOCKS + more);
                disk.stop_after(operations);
                let done = run(device::grow(&Memory, &disk, &before)).is_ok();
                let mut coins = Coins(seed << 32 | operations as u64);
                disk.power_loss(|| seed != 0 && coins.toss());
                let opened = run(device::open(&Memory, &disk)).expect("it opens");
                match opened.superblock.layout.device_blocks() {
                    BLOCKS => old += 1,
                    blocks => {
                        assert_eq!(blocks, BLOCKS + more);
                        new += 1;
                    }
                }
                assert_back_follows_front(&disk, BLOCKS + more);
                let restored =
                    run(device::restore(&Memory, &disk, &opened.superblock)).expect("the disk works");
                let again = run(device::open(&Memory, &disk)).expect("it opens");
                assert_eq!(again.superblock, restored, "what was restored holds");
                let grown = grow(&disk, &restored);
                assert_eq!(grown.layout.device_blocks(), BLOCKS + more);
                if done {
                    break;
                }
            }
            assert!(old > 0 && new > 0, "{old} times the old size, {new} times the new");
        }
    }
}

#[test]
fn a_grown_device_opens_without_its_front() {
    let (disk, before) = formatted();
    disk.resize(2 * BLOCKS);
    let after = grow(&disk, &before);
    disk.poke(0, &[0; BLOCK_BYTES]);
    disk.poke(BLOCK_BYTES as u64, &[0; BLOCK_BYTES]);
    let opened = run(device::open(&Memory, &disk)).expect("the back copies are good");
    assert_eq!(opened.superblock, after);
}
