//! The catalog: the old one or the new one, whole.

use ashlar_store::device::{CatalogError, read_catalog, write_catalog};
use ashlar_store::format::Slot;

use crate::formatting::formatted;
use crate::memory::{Coins, Memory, run};

fn bytes(length: usize, first: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(first)).collect()
}

#[test]
fn a_catalog_reads_back() {
    let (disk, superblock) = formatted();
    let room = (superblock.layout.catalog(Slot::Even).blocks - 1) as usize * 4096;
    let mut generation = 1;
    for length in [0, 1, 4095, 4096, 4097, room] {
        let content = bytes(length, generation as u8);
        let written = run(write_catalog(&Memory, &disk, &superblock, generation, &content)).expect("it fits");
        disk.power_loss(|| false);
        let read = run(read_catalog(&Memory, &disk, &superblock)).expect("it was written");
        assert_eq!(read, written);
        assert_eq!(read.bytes, content);
        generation = read.generation;
    }
    let refused = run(write_catalog(&Memory, &disk, &superblock, generation, &bytes(room + 1, 0)));
    assert!(matches!(refused, Err(CatalogError::TooLarge(_))));
}

#[test]
fn a_kill_at_any_write_leaves_the_old_catalog_or_the_new() {
    let (disk, superblock) = formatted();
    let old = run(write_catalog(&Memory, &disk, &superblock, 1, &bytes(200_000, 1))).expect("it fits");
    for seed in 0..8 {
        for operations in 0.. {
            let disk = disk.duplicate();
            disk.stop_after(operations);
            let new = bytes(210_000, 2);
            let done = run(write_catalog(&Memory, &disk, &superblock, old.generation, &new)).is_ok();
            let mut coins = Coins(seed * 100 + operations as u64);
            disk.power_loss(|| seed != 0 && coins.toss());
            let read = run(read_catalog(&Memory, &disk, &superblock)).expect("one of them is whole");
            assert!(read == old && !done || read.bytes == new, "generation {}", read.generation);
            if done {
                break;
            }
        }
    }
}

#[test]
fn a_spoiled_catalog_is_refused_or_the_older_one_taken() {
    let (disk, superblock) = formatted();
    let old = run(write_catalog(&Memory, &disk, &superblock, 1, b"old")).expect("it fits");
    run(write_catalog(&Memory, &disk, &superblock, 2, b"new")).expect("it fits");
    let body = |slot| (superblock.layout.catalog(slot).first + 1) * 4096;
    disk.poke(body(Slot::Odd), b"x");
    assert_eq!(run(read_catalog(&Memory, &disk, &superblock)).expect("the older one is good"), old);
    disk.poke(body(Slot::Even), b"x");
    let error = run(read_catalog(&Memory, &disk, &superblock)).expect_err("both are bad");
    assert!(matches!(error, CatalogError::BothBad { .. }), "{error:?}");
}
