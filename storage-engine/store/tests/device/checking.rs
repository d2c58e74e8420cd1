//! A check finds what is wrong, says where, and how bad it is; and nothing else.

use ashlar_io::BLOCK_BYTES;
use ashlar_store::device::check::{Counts, Progress};
use ashlar_store::device::{self, CheckReport, Depth, Finding, Part, Severity};
use ashlar_store::format::{Extent, Slot};
use proptest::prelude::*;

use crate::contents::{Contents, JOURNAL, LANE, SLAB, id};
use crate::formatting::formatted;
use crate::memory::{Memory, MemoryDisk, run};

fn check(disk: &MemoryDisk, depth: Depth) -> CheckReport {
    run(device::check(&Memory, disk, depth, |_| ())).expect("the device opens")
}

/// Findings of a check of everything.
fn findings(contents: &Contents) -> Vec<Finding> {
    check(&contents.disk, Depth::Data).findings
}

/// The one finding that there is.
fn only(contents: &Contents) -> (Severity, Part, Option<u64>) {
    let findings = findings(contents);
    let [finding] = findings.as_slice() else { panic!("one thing is wrong: {findings:?}") };
    (finding.severity, finding.part.clone(), finding.address)
}

#[test]
fn a_new_device_has_no_findings() {
    let (disk, superblock) = formatted();
    let report = check(&disk, Depth::Data);
    assert_eq!(report.findings, []);
    assert_eq!(report.device.superblock, superblock);
    assert_eq!(report.counts, Counts::default());
}

#[test]
fn a_device_that_was_killed_has_no_findings() {
    let contents = Contents::new();
    let writes = contents.disk.writes();
    let mut progress = Vec::new();
    let report = run(device::check(&Memory, &contents.disk, Depth::Data, |at| progress.push(at)));
    let report = report.expect("it opens");
    assert_eq!(report.findings, []);
    assert_eq!(report.worst(), None);
    // Eight blocks of the closed extent, eight of the open one but one that was zeroed, one of the fresh one.
    let counts = Counts { journal_blocks: 4, extents: 3, checksum_pages: 2, data_blocks: 8 + 7 + 1 };
    assert_eq!(report.counts, counts);
    assert_eq!(progress.last(), Some(&Progress { done: 3, total: 3 }));
    assert_eq!(contents.disk.writes(), writes, "a check writes nothing");
}

#[test]
fn a_bad_superblock_copy_is_a_warning() {
    let contents = Contents::new();
    let address = contents.superblock.layout.superblocks()[3];
    contents.spoil(address);
    assert_eq!(only(&contents), (Severity::Warning, Part::Superblock { copy: 3 }, Some(address)));
}

#[test]
fn a_lost_catalog_is_an_error() {
    let contents = Contents::new();
    let address = contents.superblock.layout.catalog(Slot::Odd).first;
    contents.spoil(address);
    let findings = findings(&contents);
    assert_eq!(findings.len(), 2, "both slots are bad: {findings:?}");
    assert!(
        findings.iter().all(|finding| finding.severity == Severity::Error && finding.part == Part::Catalog)
    );
}

#[test]
fn a_bad_older_root_is_a_warning_and_a_bad_newest_root_an_error() {
    let contents = Contents::new();
    let address = contents.superblock.layout.root(LANE, Slot::Odd).first;
    contents.spoil(address);
    assert_eq!(only(&contents), (Severity::Warning, Part::Root { lane: LANE }, Some(address)));

    let contents = Contents::new();
    contents.spoil(contents.superblock.layout.root(LANE, Slot::Even).first);
    let findings = findings(&contents);
    let lost = findings.iter().find(|finding| finding.severity == Severity::Error);
    let lost = lost.expect("what the older root names has gone from the journal");
    assert_eq!(lost.part, Part::Journal { lane: LANE });
}

#[test]
fn a_root_whose_body_is_bad_is_found() {
    let contents = Contents::new();
    contents.spoil(contents.superblock.layout.root(LANE, Slot::Even).first + 1);
    assert_eq!(check(&contents.disk, Depth::Structures).worst(), Some(Severity::Error));
}

#[test]
fn a_lane_without_a_root_is_an_error() {
    let contents = Contents::new();
    for slot in Slot::BOTH {
        contents.spoil(contents.superblock.layout.root(LANE, slot).first);
    }
    let findings = findings(&contents);
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().all(|finding| finding.severity == Severity::Error));
}

#[test]
fn a_hole_in_the_journal_is_an_error_and_a_torn_end_is_none() {
    let contents = Contents::new();
    let address = |sequence| contents.superblock.layout.journal_block(LANE, sequence);
    contents.spoil(address(*JOURNAL.end()));
    assert_eq!(findings(&contents), [], "nobody was told that the last block is durable");

    let contents = Contents::new();
    let missing = JOURNAL.start() + 1;
    contents.spoil(address(missing));
    let findings = findings(&contents);
    let hole = findings.iter().find(|finding| finding.part == Part::Journal { lane: LANE });
    let hole = hole.expect("a later block says that it was durable");
    assert_eq!((hole.severity, hole.address), (Severity::Error, Some(address(missing))));
    assert!(hole.what.contains(&missing.to_string()), "{hole}");
}

#[test]
fn a_bad_slab_header_is_a_warning_because_the_root_knows_better() {
    let contents = Contents::new();
    let address = contents.superblock.layout.slab(SLAB).header(Slot::Odd);
    contents.spoil(address);
    assert_eq!(only(&contents), (Severity::Warning, Part::SlabHeader { slab: SLAB }, Some(address)));
}

#[test]
fn a_slab_header_older_than_the_root_is_a_warning_and_a_newer_one_of_another_lane_is_believed() {
    let contents = Contents::new();
    contents.spoil(contents.superblock.layout.slab(SLAB).header(Slot::Odd));
    contents.slab_header(None, 0);
    assert_eq!(only(&contents).0, Severity::Warning);

    let contents = Contents::new();
    contents.slab_header(Some(0), 2);
    let report = check(&contents.disk, Depth::Data);
    assert_eq!(report.findings, []);
    assert_eq!(report.counts.extents, 0, "what the former owner had is not there any more");
}

#[test]
fn with_records_first_bytes_that_were_not_recorded_are_an_error_in_an_open_extent_too() {
    let contents = Contents::new();
    contents.record_first();
    assert_eq!(findings(&contents), []);
    contents.data(contents.open, 32, 6, 3);
    assert_eq!(only(&contents).0, Severity::Error);
}

#[test]
fn a_bad_table_page_is_an_error() {
    let contents = Contents::new();
    let address = contents.superblock.layout.slab(SLAB).table_page(1, Slot::Even);
    contents.spoil(address);
    assert_eq!(only(&contents), (Severity::Error, Part::TablePage { slab: SLAB, page: 1 }, Some(address)));
}

#[test]
fn a_bad_checksum_page_is_an_error() {
    let contents = Contents::new();
    let extent = contents.closed;
    let address = contents.superblock.layout.checksum_page(extent, Slot::Odd);
    contents.spoil(address);
    let part = Part::ChecksumPage { extent, holds: id(0) };
    assert_eq!(only(&contents), (Severity::Error, part, Some(address)));
}

#[test]
fn bytes_without_their_checksum_are_an_error_in_a_closed_extent_and_a_warning_in_an_open_one() {
    let blocks = |contents: &Contents, extent: Extent, spoiled: &[u32]| {
        for block in spoiled {
            contents.spoil(contents.superblock.layout.extent_block(extent, *block));
        }
    };
    let contents = Contents::new();
    blocks(&contents, contents.closed, &[2, 4]);
    let address = contents.superblock.layout.extent_block(contents.closed, 2);
    let part = Part::Data { extent: contents.closed, holds: id(0), blocks: vec![2, 4] };
    assert_eq!(only(&contents), (Severity::Error, part, Some(address)));
    assert_eq!(check(&contents.disk, Depth::Structures).findings, [], "without data it is not noticed");

    let contents = Contents::new();
    blocks(&contents, contents.open, &[6]);
    assert_eq!(only(&contents).0, Severity::Warning);

    let contents = Contents::new();
    blocks(&contents, contents.fresh, &[0]);
    assert_eq!(
        only(&contents).0,
        Severity::Error,
        "its record says that the data is durable, and it is not open"
    );

    let contents = Contents::new();
    blocks(&contents, contents.freed, &[0, 1, 2]);
    assert_eq!(findings(&contents), [], "nobody needs what was freed");
}

#[test]
fn a_record_whose_data_may_have_landed_allows_the_old_bytes_and_the_new() {
    let contents = Contents::new();
    contents.data(contents.open, 32, 5, 2);
    assert_eq!(findings(&contents), [], "the new bytes");
    contents.data(contents.open, 32, 5, 3);
    assert_eq!(only(&contents).0, Severity::Warning, "bytes that nobody recorded");
}

#[test]
fn a_misdirected_write_is_found_at_its_place() {
    let contents = Contents::new();
    contents.data(contents.closed, 0, 3, 1);
    assert_eq!(findings(&contents), []);
    let elsewhere = contents.superblock.layout.extent_block(contents.closed, 4);
    let bytes = contents.disk.block(contents.superblock.layout.extent_block(contents.closed, 3));
    contents.disk.poke(elsewhere * BLOCK_BYTES as u64, &bytes);
    assert_eq!(only(&contents).2, Some(elsewhere));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever stands on a device, looking at it ends without a panic.
    #[test]
    fn nonsense_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 8_usize..300, any::<[u8; 3]>()), 1..12),
        reseal: bool,
    ) {
        let contents = Contents::new();
        let blocks: Vec<u64> = contents.disk.content().into_keys().collect();
        for (block, at, value) in changes {
            let block = *block.get(&blocks);
            let mut bytes = contents.disk.block(block);
            bytes[at..at + 3].copy_from_slice(&value);
            if reseal && bytes.starts_with(b"ASL") {
                bytes[4..8].fill(0);
                let crc = crc32c::crc32c(&bytes);
                bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            }
            contents.disk.poke(block * BLOCK_BYTES as u64, &bytes);
        }
        // It may open or not: what counts is that these return.
        let _ = run(device::check(&Memory, &contents.disk, Depth::Data, |_| ()));
        let _ = run(device::inspect(&Memory, &contents.disk));
        let _ = run(device::history(&Memory, &contents.disk, id(32), 5));
    }
}
