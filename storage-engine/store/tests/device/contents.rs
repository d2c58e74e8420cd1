//! A device with something in every place, written by hand: what a lane left when it was killed.

use std::cell::Cell;

use ashlar_io::BLOCK_BYTES;
use ashlar_store::device::inspect::EventKind;
use ashlar_store::format::{
    DeviceId, Entry, Extent, Held, JournalBuilder, JournalHeader, PageRef, Place, Record, Root, ShardEntry,
    Slab, SlabEntry, SlabHeader, Slot, Subject, Sums, Superblock, checksum_page, table,
};
use ashlar_store::lane::{Origin, ShardSlot};
use ashlar_store::{Blocks, ExtentId, SegmentId, ShardId, Stored, Summer, Version};
use uuid::Uuid;

use crate::formatting::{format, options};
use crate::memory::MemoryDisk;

/// 64 GiB, so that a slab has 64 extents.
const BLOCKS: u64 = 1 << 24;
pub(crate) const LANE: u32 = 1;
pub(crate) const SLAB: Slab = Slab(3);
const SHARD: ShardSlot = ShardSlot(0);
const SEGMENT: SegmentId = SegmentId { volume: Uuid::from_u128(0xabc), index: 2 };
/// Journal blocks from the tail to the end.
pub(crate) const JOURNAL: std::ops::RangeInclusive<u64> = 10..=13;

/// A device, and where its parts are.
pub(crate) struct Contents {
    pub(crate) disk: MemoryDisk,
    pub(crate) superblock: Superblock,
    /// Closed, with eight blocks.
    pub(crate) closed: Extent,
    /// Open. Block 5 was written anew, and that may have landed; block 6 was written since the checkpoint, and landed.
    pub(crate) open: Extent,
    /// Taken since the checkpoint; block 0 was written.
    pub(crate) fresh: Extent,
    /// Freed since the checkpoint.
    pub(crate) freed: Extent,
    end: Cell<End>,
}

/// Where the journal goes on.
#[derive(Debug, Clone, Copy)]
struct End {
    sequence: u64,
    predecessor: u32,
    first_record: u64,
}

pub(crate) fn id(index: u32) -> ExtentId {
    ExtentId { segment: SEGMENT, index }
}

/// Content of a block that differs by extent, block and version.
pub(crate) fn bytes(index: u32, block: u32, version: u8) -> [u8; BLOCK_BYTES] {
    let mut bytes = [version; BLOCK_BYTES];
    bytes[..4].copy_from_slice(&index.to_le_bytes());
    bytes[4..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

pub(crate) fn sum(index: u32, block: u32, version: u8) -> Stored {
    Summer::new(id(index)).sum(block, &bytes(index, block, version))
}

pub(crate) fn version(sequence: u64) -> Version {
    Version { epoch: 1, sequence }
}

fn shard() -> ShardEntry {
    ShardEntry {
        slot: SHARD,
        shard: ShardId { segment: SEGMENT, index: 0 },
        single: false,
        committed: version(4),
        base: version(4),
    }
}

fn subject(extent: Extent, index: u32, sequence: u64) -> Subject {
    Subject { extent, shard: SHARD, index, version: version(sequence), origin: Origin::Shard, carried: false }
}

/// What [`Contents::open`]'s block 5 went through.
pub(crate) fn events() -> Vec<(u64, bool, EventKind)> {
    vec![(106, false, EventKind::Written(sum(32, 5, 2)))]
}

impl Contents {
    pub(crate) fn new() -> Self {
        let disk = MemoryDisk::new(BLOCKS);
        let superblock = format(&disk, &options(7)).expect("an empty disk can be formatted");
        let extent = |index| superblock.layout.extent(SLAB, index);
        let [closed, open, fresh, freed] = [0, 1, 2, 63].map(extent);
        let end = Cell::new(End { sequence: *JOURNAL.start(), predecessor: 77, first_record: 100 });
        let contents = Self { disk, superblock, closed, open, fresh, freed, end };
        contents.slab_header(Some(LANE), 1);
        let pages = contents.table();
        contents.root(pages);
        contents.journal();
        contents
    }

    fn device(&self) -> DeviceId {
        self.superblock.device
    }

    /// Writes a block, whatever it was.
    fn put(&self, address: u64, fill: impl FnOnce(&mut [u8], Place)) {
        let mut block = [0; BLOCK_BYTES];
        fill(&mut block, Place { device: self.device(), address });
        self.disk.poke(address * BLOCK_BYTES as u64, &block);
    }

    pub(crate) fn data(&self, extent: Extent, index: u32, block: u32, version: u8) {
        let address = self.superblock.layout.extent_block(extent, block);
        self.disk.poke(address * BLOCK_BYTES as u64, &bytes(index, block, version));
    }

    fn checksums(&self, extent: Extent, generation: u64, index: u32, blocks: std::ops::Range<u32>) -> Entry {
        let mut sums = [Stored::NEVER; checksum_page::SUMS];
        for block in blocks {
            sums[block as usize] = sum(index, block, 1);
            self.data(extent, index, block, 1);
        }
        sums[100] = Stored::ZERO;
        let mut page = PageRef { generation, crc: 0 };
        let address = self.superblock.layout.checksum_page(extent, Slot::of(generation));
        self.put(address, |block, place| page = checksum_page::encode(block, place, generation, &sums));
        let held = Held {
            extent: id(index),
            shard: SHARD,
            last: version(3),
            open: false,
            suspect: false,
            checksums: Some(page.crc),
        };
        Entry { page_generation: generation, held: Some(held) }
    }

    /// The tables, as the checkpoint left them.
    fn table(&self) -> Vec<Option<PageRef>> {
        let mut entries = vec![Entry::default(); 64];
        for (extent, generation, index) in [(self.closed, 1, 0), (self.open, 2, 32), (self.freed, 5, 96)] {
            let (_, at) = self.superblock.layout.slab_of(extent);
            entries[at as usize] = self.checksums(extent, generation, index, 0..8);
        }
        let pages = entries.chunks(63).zip(0..).map(|(entries, page)| {
            let mut written = None;
            let address = self.superblock.layout.slab(SLAB).table_page(page, Slot::Even);
            self.put(address, |block, place| {
                written = Some(table::encode_page(block, place, 2, (SLAB, page), entries));
            });
            written
        });
        pages.collect()
    }

    fn root(&self, pages: Vec<Option<PageRef>>) {
        let root = Root {
            generation: 2,
            lane: LANE,
            incarnation: 3,
            tail: *JOURNAL.start(),
            first_record: 100,
            slabs: vec![SlabEntry { slab: SLAB, owner_generation: 1, pages }],
            shards: vec![shard()],
        };
        let image = root.encode(&self.superblock.layout, self.device()).expect("it fits");
        let at = image.slot.first * BLOCK_BYTES as u64;
        self.disk.poke(at, &image.first);
        self.disk.poke(at + BLOCK_BYTES as u64, &image.body);
    }

    fn journal(&self) {
        let one = |block| Blocks::new(block, 1).expect("an extent has it");
        let landed = [sum(32, 6, 1)];
        let unknown = [sum(32, 5, 2)];
        let fresh = [sum(64, 0, 1)];
        let records: [&[Record<'_>]; 4] = [
            &[
                Record::Open { extent: self.open },
                Record::Write {
                    subject: subject(self.open, 32, 5),
                    blocks: one(6),
                    sums: Sums::from(&landed[..]),
                },
                Record::Free { subject: subject(self.freed, 96, 6) },
            ],
            &[
                Record::Allocate { subject: subject(self.fresh, 64, 7), holds: id(64) },
                Record::Write {
                    subject: subject(self.fresh, 64, 7),
                    blocks: one(0),
                    sums: Sums::from(&fresh[..]),
                },
                Record::Zero { subject: subject(self.open, 32, 8), blocks: one(7) },
            ],
            &[Record::Write {
                subject: subject(self.open, 32, 9),
                blocks: one(5),
                sums: Sums::from(&unknown[..]),
            }],
            &[Record::Committed { shard: SHARD, version: version(7) }],
        ];
        records.into_iter().for_each(|records| self.append(records));
        self.data(self.open, 32, 6, 1);
        self.data(self.fresh, 64, 0, 1);
    }

    /// Appends a journal block.
    fn append(&self, records: &[Record<'_>]) {
        let End { sequence, predecessor, first_record } = self.end.get();
        let mut builder = JournalBuilder::new(vec![0; BLOCK_BYTES]);
        for record in records {
            builder.push(record).expect("it fits");
        }
        let header = JournalHeader {
            sequence,
            incarnation: 3,
            predecessor,
            first_record,
            acked_through: sequence - 1,
            landed: first_record.min(106),
        };
        let first_record = first_record + u64::from(builder.records());
        let (block, predecessor) = builder.seal(&header, &self.superblock.layout, self.device(), LANE);
        let address = self.superblock.layout.journal_block(LANE, sequence);
        self.disk.poke(address * BLOCK_BYTES as u64, &block);
        self.end.set(End { sequence: sequence + 1, predecessor, first_record });
    }

    /// Records of the shard are durable before their data from now on.
    pub(crate) fn record_first(&self) {
        self.append(&[Record::Shard(ShardEntry { single: true, ..shard() })]);
    }

    /// Writes a header of the slab.
    pub(crate) fn slab_header(&self, owner: Option<u32>, generation: u64) {
        let header = SlabHeader { slab: SLAB, owner, generation };
        let address = self.superblock.layout.slab(SLAB).header(Slot::of(generation));
        self.put(address, |block, place| header.encode(block, place));
    }

    /// Changes one byte of a block.
    pub(crate) fn spoil(&self, address: u64) {
        let byte = self.disk.block(address)[90];
        self.disk.poke(address * BLOCK_BYTES as u64 + 90, &[byte ^ 1]);
    }
}
