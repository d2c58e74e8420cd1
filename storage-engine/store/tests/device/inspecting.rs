//! What people are shown of a device.

use ashlar_store::device;
use ashlar_store::device::inspect::{JournalSummary, RootReport, SlabReport};
use ashlar_store::format::Slot;

use crate::contents::{Contents, LANE, SLAB, events, id, sum, version};
use crate::memory::{Memory, run};

#[test]
fn a_device_is_shown_as_it_was_left() {
    let contents = Contents::new();
    let report = run(device::inspect(&Memory, &contents.disk)).expect("it opens");
    assert_eq!(report.device.superblock, contents.superblock);
    assert_eq!(report.catalog, Some((1, 0)));
    assert_eq!(report.slabs_unowned, contents.superblock.layout.slabs() - 1);
    let lane = &report.lanes[LANE as usize];
    let [even, odd] = &lane.roots;
    let newest = RootReport { generation: 2, incarnation: 3, tail: 10, slabs: 1, shards: 1 };
    assert_eq!(*even, Ok(newest));
    assert_eq!(odd.map(|root| root.generation), Ok(1));
    let journal = JournalSummary {
        tail: 10,
        end: 14,
        incarnation: 3,
        first_record: 100,
        next_record: 108,
        landed: 106,
        gap: None,
    };
    assert_eq!(lane.journal, Some(journal));
    assert_eq!(lane.shards[0].committed, version(7), "the journal has a later mark than the root");
    assert_eq!(lane.slabs, [SlabReport { slab: SLAB, generation: 1, used: 3, free: 61 }]);
    let extents: Vec<_> =
        lane.extents.iter().map(|extent| (extent.extent, extent.holds, extent.open)).collect();
    let expected =
        [(contents.closed, id(0), false), (contents.open, id(32), true), (contents.fresh, id(64), false)];
    assert_eq!(extents, expected);
    assert_eq!(lane.extents[1].last, version(9));
    assert_eq!(lane.extents[1].checksum_page, Some(2));
    assert!(report.lanes[0].extents.is_empty() && report.lanes[0].slabs.is_empty());
}

#[test]
fn the_history_of_a_block_shows_its_page_its_records_and_its_bytes() {
    let contents = Contents::new();
    let histories = run(device::history(&Memory, &contents.disk, id(32), 5)).expect("it opens");
    let [history] = histories.as_slice() else { panic!("one lane has it: {histories:?}") };
    assert_eq!((history.lane, history.extent), (LANE, contents.open));
    assert_eq!(history.address, contents.superblock.layout.extent_block(contents.open, 5));
    assert_eq!(history.page, Ok(sum(32, 5, 1)));
    let shown: Vec<_> = history.events.iter().map(|event| (event.record, event.landed, event.kind)).collect();
    assert_eq!(shown, events());
    assert_eq!(history.found, sum(32, 5, 1), "the old bytes are still there");
    contents.data(contents.open, 32, 5, 2);
    let histories = run(device::history(&Memory, &contents.disk, id(32), 5)).expect("it opens");
    assert_eq!(histories[0].found, sum(32, 5, 2));
}

#[test]
fn a_block_that_nobody_holds_has_no_history() {
    let contents = Contents::new();
    assert_eq!(run(device::history(&Memory, &contents.disk, id(96), 0)).expect("it opens"), []);
    assert_eq!(run(device::history(&Memory, &contents.disk, id(32), 1024)).expect("it opens"), []);
}

#[test]
fn a_bad_checksum_page_is_shown_as_such() {
    let contents = Contents::new();
    contents.spoil(contents.superblock.layout.checksum_page(contents.open, Slot::Even));
    let histories = run(device::history(&Memory, &contents.disk, id(32), 5)).expect("it opens");
    assert!(histories[0].page.is_err());
}

#[test]
fn superblocks_are_shown_also_when_the_device_does_not_open() {
    let contents = Contents::new();
    let addresses = contents.superblock.layout.superblocks();
    addresses.into_iter().for_each(|address| contents.spoil(address));
    assert!(run(device::inspect(&Memory, &contents.disk)).is_err());
    let found = run(device::inspect::superblocks(&Memory, &contents.disk)).expect("the disk works");
    let found: Vec<_> = found.into_iter().map(|(address, copy)| (address, copy.is_err())).collect();
    assert_eq!(found, addresses.map(|address| (address, true)));
}
