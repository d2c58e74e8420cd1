//! Formatting: complete or not begun, and never over something else.

use ashlar_io::{BLOCK_BYTES, Disk};
use ashlar_store::device::{
    self, Existing, FormatError, FormatOptions, OpenError, Signature, TornBlocks, read_catalog,
};
use ashlar_store::format::{DeviceId, Label, Layout, LayoutError, Root, RootHeader, Slot, Superblock};
use uuid::Uuid;

use crate::memory::{Coins, Memory, MemoryDisk, run};

/// Blocks of most disks here: 1 GiB.
pub(crate) const BLOCKS: u64 = 1 << 18;

pub(crate) fn options(id: u128) -> FormatOptions {
    FormatOptions {
        device: DeviceId(Uuid::from_u128(id)),
        cluster: None,
        node: Uuid::from_u128(1),
        pool: Uuid::from_u128(2),
        lanes: 4,
        label: Label::new("bay 7").expect("it is short"),
        formatted_at: 1_800_000_000,
        torn: TornBlocks::Refuse,
        existing: Existing::Refuse,
    }
}

pub(crate) fn overwriting(id: u128) -> FormatOptions {
    FormatOptions { existing: Existing::Overwrite, ..options(id) }
}

pub(crate) fn format(disk: &MemoryDisk, options: &FormatOptions) -> Result<Superblock, FormatError> {
    run(device::format(&Memory, disk, options))
}

pub(crate) fn formatted() -> (MemoryDisk, Superblock) {
    let disk = MemoryDisk::new(BLOCKS);
    let superblock = format(&disk, &options(7)).expect("an empty disk can be formatted");
    (disk, superblock)
}

/// The root of a lane, as the first opening of a lane finds it.
fn root(disk: &MemoryDisk, superblock: &Superblock, lane: u32) -> Root {
    let layout = &superblock.layout;
    let first = disk.block(layout.root(lane, Slot::Odd).first);
    let header =
        RootHeader::decode(&first, layout, superblock.device, lane, Slot::Odd).expect("it was written");
    header.decode_body(&[], layout).expect("it has no body")
}

fn assert_complete(disk: &MemoryDisk, superblock: &Superblock) {
    for lane in 0..superblock.layout.lanes() {
        assert_eq!(root(disk, superblock, lane), Root::empty(lane));
    }
    let catalog = run(read_catalog(&Memory, disk, superblock)).expect("it was written");
    assert_eq!((catalog.generation, catalog.bytes), (1, Vec::new()));
}

#[test]
fn a_formatted_disk_opens_as_what_it_was_formatted_to_be() {
    let (disk, superblock) = formatted();
    disk.power_loss(|| false);
    let opened = run(device::open(&Memory, &disk)).expect("it was formatted");
    assert_eq!(opened.superblock, superblock);
    assert!(!opened.needs_restoring(), "all copies are good: {:?}", opened.copies);
    assert_eq!(opened.grown_by, 0);
    assert_eq!(superblock.label.as_str(), "bay 7");
    assert_eq!(Layout::plan(BLOCKS, 4), Ok(superblock.layout));
    assert_complete(&disk, &superblock);
}

#[test]
fn a_device_is_not_formatted_again_unless_forced() {
    let (disk, superblock) = formatted();
    let before = disk.content();
    let refused = format(&disk, &options(8));
    let Err(FormatError::Carries { found }) = refused else { panic!("{refused:?}") };
    assert!(found.iter().all(|found| found.signature == Signature::Ashlar(superblock.device)), "{found:?}");
    assert_eq!(found.len(), 4, "every copy is found: {found:?}");
    assert_eq!(disk.content(), before, "nothing was written");

    let again = format(&disk, &overwriting(8)).expect("forced");
    let opened = run(device::open(&Memory, &disk)).expect("it was formatted");
    assert_eq!(opened.superblock, again);
    assert!(!opened.needs_restoring(), "nothing of the old device is left: {:?}", opened.copies);
}

#[test]
fn a_disk_that_tears_is_refused_unless_writes_are_logged() {
    let disk = MemoryDisk::new(BLOCKS).tearing();
    assert!(matches!(format(&disk, &options(1)), Err(FormatError::Tears)));
    assert_eq!(disk.writes(), 0);
    let logged = FormatOptions { torn: TornBlocks::Log, ..options(1) };
    assert!(format(&disk, &logged).expect("with logged writes it can be used").torn_prone);
}

#[test]
fn a_disk_that_is_too_small_is_left_alone() {
    let disk = MemoryDisk::new(1000);
    let refused = format(&disk, &options(1));
    assert!(
        matches!(refused, Err(FormatError::Layout(LayoutError::TooSmall { blocks: 1000 }))),
        "{refused:?}"
    );
    assert_eq!(disk.writes(), 0);
}

/// Formats with the power going off after every possible number of operations, and says what is left.
fn killed_at_every_write(disk: &MemoryDisk, options: &FormatOptions, mut look: impl FnMut(&MemoryDisk)) {
    for seed in 0..4 {
        let mut operations = 0;
        loop {
            let disk = disk.duplicate();
            disk.stop_after(operations);
            let done = format(&disk, options).is_ok();
            let mut coins = Coins(seed * 1000 + operations as u64);
            disk.power_loss(|| seed != 0 && coins.toss());
            look(&disk);
            if done {
                break;
            }
            operations += 1;
        }
        assert!(operations > 10, "only {operations} operations were needed");
    }
}

#[test]
fn a_kill_at_any_write_leaves_no_device_or_a_complete_one() {
    for disk in [MemoryDisk::new(BLOCKS), MemoryDisk::new(BLOCKS).tearing()] {
        let options = FormatOptions { torn: TornBlocks::Log, ..options(1) };
        let (mut unformatted, mut complete) = (0, 0);
        killed_at_every_write(&disk, &options, |disk| match run(device::open(&Memory, disk)) {
            Ok(opened) => {
                complete += 1;
                assert_eq!(opened.superblock.device, options.device);
                assert_complete(disk, &opened.superblock);
            }
            Err(OpenError::NotADevice { found }) => {
                unformatted += 1;
                assert_eq!(found, [], "nothing is recognised");
                format(disk, &options).expect("it can be formatted without force");
            }
            Err(error) => panic!("{error}"),
        });
        assert!(unformatted > 10 && complete > 4, "{unformatted} unformatted, {complete} complete");
    }
}

#[test]
fn a_kill_while_formatting_by_force_leaves_the_old_device_the_new_one_or_none() {
    let (disk, _) = formatted();
    disk.power_loss(|| true);
    let new = overwriting(8);
    let mut seen = [0; 3];
    killed_at_every_write(&disk, &new, |disk| {
        let state = match run(device::open(&Memory, disk)) {
            Ok(opened) if opened.superblock.device == new.device => {
                assert_complete(disk, &opened.superblock);
                0
            }
            Ok(opened) => {
                assert_eq!(opened.superblock.device, DeviceId(Uuid::from_u128(7)));
                assert_complete(disk, &opened.superblock);
                1
            }
            Err(OpenError::NotADevice { found }) => {
                assert_eq!(found, []);
                2
            }
            Err(error) => panic!("{error}"),
        };
        seen[state] += 1;
    });
    assert!(seen.iter().all(|count| *count > 0), "new, old and none were seen: {seen:?}");
}

#[test]
fn blocks_of_an_earlier_format_do_not_verify() {
    let (disk, old) = formatted();
    let new = format(&disk, &overwriting(8)).expect("forced");
    let first = disk.block(old.layout.root(0, Slot::Odd).first);
    assert!(RootHeader::decode(&first, &new.layout, old.device, 0, Slot::Odd).is_err());
    assert_eq!(root(&disk, &new, 0), Root::empty(0));
}

#[test]
fn formatting_writes_little() {
    let disk = MemoryDisk::new(BLOCKS);
    let large = MemoryDisk::new(1 << 34);
    format(&disk, &options(1)).expect("an empty disk can be formatted");
    format(&large, &options(1)).expect("64 TiB can be formatted");
    assert_eq!(disk.writes(), large.writes(), "what is written does not grow with the disk");
    assert_eq!(large.geometry().blocks * BLOCK_BYTES as u64, 64 << 40);
}
