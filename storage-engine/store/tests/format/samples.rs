//! One block, or run of blocks, of every kind with every field in use.

use ashlar_store::format::layout::ENTRIES_PER_PAGE;
use ashlar_store::format::superblock::Superblock;
use ashlar_store::format::{
    BadBlock, CatalogHeader, CatalogImage, DeviceId, Entry, Extent, Held, JournalBlock, JournalBuilder,
    JournalHeader, Label, Layout, PageRef, Place, Record, Root, RootHeader, ShardEntry, Slab, SlabEntry,
    SlabHeader, Slot, Subject, Sums, checksum_page, table,
};
use ashlar_store::lane::{Origin, ShardSlot};
use ashlar_store::{Blocks, ExtentId, SegmentId, ShardId, Stored, Version};
use uuid::Uuid;

/// A device of 64 GiB: 64 extents in a slab, so that there is a second table page with one entry.
pub(crate) fn layout() -> Layout {
    Layout::plan(1 << 24, 4).expect("64 GiB can be laid out")
}

pub(crate) const DEVICE: DeviceId = DeviceId(Uuid::from_u128(0x0102_0304_0506_4708_890a_0b0c_0d0e_0f10));
const VOLUME: Uuid = Uuid::from_u128(0x1112_1314_1516_4718_991a_1b1c_1d1e_1f20);
const SEGMENT: SegmentId = SegmentId { volume: VOLUME, index: 7 };
const LANE: u32 = 2;

fn block() -> Vec<u8> {
    vec![0xa5; 4096]
}

/// A sample, with the function that says whether bytes are still exactly this sample.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) open: fn(&[u8]) -> Opened,
}

/// What opening bytes gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    Same,
    Different,
    Refused,
}

fn compare<T: PartialEq, E>(opened: Result<T, E>, expected: &T) -> Opened {
    match opened {
        Ok(value) if value == *expected => Opened::Same,
        Ok(_) => Opened::Different,
        Err(_) => Opened::Refused,
    }
}

pub(crate) fn all() -> Vec<Sample> {
    vec![
        Sample { name: "superblock", bytes: superblock_bytes(), open: open_superblock },
        Sample { name: "catalog", bytes: catalog_bytes(), open: open_catalog },
        Sample { name: "root", bytes: root_bytes(), open: open_root },
        Sample { name: "slab-header", bytes: slab_header_bytes(), open: open_slab_header },
        Sample { name: "table-page", bytes: table_page_bytes().0, open: open_table_page },
        Sample { name: "checksum-page", bytes: checksum_page_bytes().0, open: open_checksum_page },
        Sample { name: "journal-block", bytes: journal_bytes(), open: open_journal },
    ]
}

fn superblock() -> Superblock {
    Superblock {
        generation: 3,
        device: DEVICE,
        cluster: Some(Uuid::from_u128(0x21)),
        node: Uuid::from_u128(0x22),
        pool: Uuid::from_u128(0x23),
        layout: layout(),
        formatted_at: 1_800_000_000,
        torn_prone: true,
        label: Label::new("rack 4, bay 2 – größer").expect("it is short enough"),
    }
}

fn superblock_bytes() -> Vec<u8> {
    let mut bytes = block();
    superblock().encode(&mut bytes, 1);
    bytes
}

fn open_superblock(bytes: &[u8]) -> Opened {
    compare(Superblock::decode(bytes, 1), &superblock())
}

const CATALOG: &[u8] = b"what replication keeps about its replicas";

fn catalog_bytes() -> Vec<u8> {
    let image = CatalogImage::new(&layout(), DEVICE, 8, CATALOG).expect("it fits");
    [image.first, image.body].concat()
}

fn open_catalog(bytes: &[u8]) -> Opened {
    let (first, body) = bytes.split_at(4096.min(bytes.len()));
    let bytes = CatalogHeader::decode(first, &layout(), DEVICE, Slot::Even)
        .and_then(|header| Ok((header.generation, header.open_body(body)?)));
    compare(bytes, &(8, CATALOG))
}

pub(crate) fn shard_entry(slot: u32) -> ShardEntry {
    ShardEntry {
        slot: ShardSlot(slot),
        shard: ShardId { segment: SEGMENT, index: slot % 32 },
        single: slot.is_multiple_of(2),
        committed: Version { epoch: 4, sequence: 1000 + u64::from(slot) },
        base: Version { epoch: 3, sequence: 900 },
    }
}

fn root() -> Root {
    let page = |generation| Some(PageRef { generation, crc: 0x1234_5678 ^ generation as u32 });
    Root {
        generation: 5,
        lane: LANE,
        incarnation: 9,
        tail: 70_000,
        first_record: 5_000_000,
        slabs: vec![
            SlabEntry { slab: Slab(0), owner_generation: 1, pages: vec![page(3), None] },
            SlabEntry { slab: Slab(200), owner_generation: 6, pages: vec![page(2), page(u64::MAX)] },
        ],
        shards: vec![shard_entry(0), shard_entry(31)],
    }
}

fn root_bytes() -> Vec<u8> {
    let image = root().encode(&layout(), DEVICE).expect("it fits");
    [image.first, image.body].concat()
}

fn open_root(bytes: &[u8]) -> Opened {
    let (first, body) = bytes.split_at(4096.min(bytes.len()));
    let layout = layout();
    let opened = RootHeader::decode(first, &layout, DEVICE, LANE, Slot::Odd)
        .and_then(|header| header.decode_body(body, &layout));
    compare(opened, &root())
}

fn slab_header() -> SlabHeader {
    SlabHeader { slab: Slab(11), owner: Some(LANE), generation: 12 }
}

fn slab_header_place() -> Place {
    Place { device: DEVICE, address: layout().slab(Slab(11)).header(Slot::Even) }
}

fn slab_header_bytes() -> Vec<u8> {
    let mut bytes = block();
    slab_header().encode(&mut bytes, slab_header_place());
    bytes
}

fn open_slab_header(bytes: &[u8]) -> Opened {
    compare(SlabHeader::decode(bytes, slab_header_place(), &layout(), Slab(11)), &slab_header())
}

const TABLE_PAGE: (Slab, u32) = (Slab(5), 0);

fn table_place() -> Place {
    Place { device: DEVICE, address: layout().slab(TABLE_PAGE.0).table_page(TABLE_PAGE.1, Slot::Odd) }
}

fn entries() -> Vec<Entry> {
    let held = |index: u32| Held {
        extent: ExtentId { segment: SEGMENT, index },
        shard: ShardSlot(index % 32),
        last: Version { epoch: 4, sequence: 0x1_0000_0000 + u64::from(index) },
        open: index.is_multiple_of(2),
        suspect: index.is_multiple_of(3),
        checksums: (!index.is_multiple_of(5)).then_some(0xdead_0000 | index),
    };
    (0..ENTRIES_PER_PAGE)
        .map(|index| Entry {
            page_generation: u64::from(index),
            held: (!index.is_multiple_of(7)).then(|| held(index)),
        })
        .collect()
}

fn table_page_bytes() -> (Vec<u8>, PageRef) {
    let mut bytes = block();
    let page = table::encode_page(&mut bytes, table_place(), 21, TABLE_PAGE, &entries());
    (bytes, page)
}

fn open_table_page(bytes: &[u8]) -> Opened {
    // A resealed page is followed by the table that means it, so that what stands in it is judged too.
    let crc = bytes.get(4..8).and_then(|crc| crc.try_into().ok()).map_or(0, u32::from_le_bytes);
    let expected = PageRef { generation: 21, crc };
    compare(table::decode_page(bytes, table_place(), expected, &layout(), TABLE_PAGE), &entries())
}

fn checksum_place() -> Place {
    Place { device: DEVICE, address: layout().checksum_page(Extent(70), Slot::Even) }
}

fn sums() -> [Stored; checksum_page::SUMS] {
    std::array::from_fn(|block| Stored((block as u32).wrapping_mul(0x9e37_79b9) % 0xffff_fff0))
}

fn checksum_page_bytes() -> (Vec<u8>, PageRef) {
    let mut bytes = block();
    let page = checksum_page::encode(&mut bytes, checksum_place(), 4, &sums());
    (bytes, page)
}

fn open_checksum_page(bytes: &[u8]) -> Opened {
    let (_, page) = checksum_page_bytes();
    compare(checksum_page::decode(bytes, checksum_place(), page).map(|sums| *sums), &sums())
}

fn subject(origin: Origin, carried: bool) -> Subject {
    Subject {
        extent: Extent(70),
        shard: ShardSlot(3),
        index: 8000,
        version: Version { epoch: 4, sequence: 77 },
        origin,
        carried,
    }
}

const SUMS: [Stored; 3] = [Stored(2), Stored(0xffff_ffff), Stored(0x8000_0001)];

/// One of each kind.
pub(crate) fn records() -> Vec<Record<'static>> {
    let extent = Extent(70);
    let shard = ShardSlot(3);
    let version = Version { epoch: 4, sequence: 0x1_0000_0001 };
    let blocks = |first, count| Blocks::new(first, count).expect("they are in the extent");
    vec![
        Record::Write {
            subject: subject(Origin::Shard, false),
            blocks: blocks(1021, 3),
            sums: Sums::from(&SUMS[..]),
        },
        Record::Zero { subject: subject(Origin::Copy, false), blocks: Blocks::ALL },
        Record::Allocate {
            subject: subject(Origin::Shard, true),
            holds: ExtentId { segment: SEGMENT, index: 8000 },
        },
        Record::Free { subject: subject(Origin::Copy, true) },
        Record::Open { extent },
        Record::Close { extent },
        Record::Verified { extent },
        Record::Committed { shard, version },
        Record::Shard(shard_entry(3)),
        Record::ShardForgotten { shard },
        Record::SlabTaken { slab: Slab(9), generation: 2 },
        Record::SlabReleased { slab: Slab(9), generation: 3 },
        Record::Empty { shard, version, carried: false },
        Record::Empty { shard, version, carried: true },
    ]
}

fn journal_header() -> JournalHeader {
    JournalHeader {
        sequence: 100_001,
        incarnation: 9,
        predecessor: 0xcafe_f00d,
        first_record: 0x1_0000_0000,
        acked_through: 99_999,
        landed: 0xffff_fff0,
    }
}

fn journal_bytes() -> Vec<u8> {
    let mut builder = JournalBuilder::new(block());
    for record in records() {
        builder.push(&record).expect("they fit one block");
    }
    builder.seal(&journal_header(), &layout(), DEVICE, LANE).0
}

fn open_journal(bytes: &[u8]) -> Opened {
    let layout = layout();
    let address = layout.journal_block(LANE, journal_header().sequence);
    match JournalBlock::open(bytes, &layout, DEVICE, LANE, address) {
        Err(_) => Opened::Refused,
        Ok(block) => {
            let numbered = block.records().collect::<Vec<_>>();
            assert_eq!(numbered.len(), block.records as usize, "every record that was checked comes out");
            let expected = (journal_header().first_record..).zip(records());
            let same = block.header == journal_header() && numbered.into_iter().eq(expected);
            if same { Opened::Same } else { Opened::Different }
        }
    }
}

/// What is wrong with a slab header that was read as the one of `place`.
pub(crate) fn misread_slab_header(place: Place) -> Option<BadBlock> {
    SlabHeader::decode(&slab_header_bytes(), place, &layout(), Slab(11)).err()
}

/// The place of the sample slab header.
pub(crate) fn slab_header_home() -> Place {
    slab_header_place()
}
