//! Table pages: what each extent of a slab holds.

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, BadBlock, BlockKind, HEADER_BYTES, PageRef, Place, bad_field};
use super::layout::{ENTRIES_PER_PAGE, Layout, Slab};
use crate::ids::{ExtentId, SegmentId, Version};
use crate::lane::ShardSlot;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = size_of::<RawEntry>();

/// Where the entries begin.
const ENTRIES_AT: usize = 64;

const STATE_FREE: u8 = 0;
const STATE_ALLOCATED: u8 = 1;

const FLAG_OPEN: u8 = 1 << 0;
const FLAG_SUSPECT: u8 = 1 << 1;
const FLAG_CHECKSUMS: u8 = 1 << 2;
const FLAGS: u8 = FLAG_OPEN | FLAG_SUSPECT | FLAG_CHECKSUMS;

/// What a table says about an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Generation of the newest checksum page ever written for the extent, 0 if none was. It stays when the extent
    /// is freed, so that no generation is used twice.
    pub page_generation: u64,
    /// What it holds; `None` if it is free.
    pub held: Option<Held>,
}

/// What an extent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The extent of a segment.
    pub extent: ExtentId,
    /// The shard that it belongs to, by its slot in the root.
    pub shard: ShardSlot,
    /// Version of its last change.
    pub last: Version,
    /// It may be written without a further record (design §6).
    pub open: bool,
    /// It was open at a crash and not verified since (PROTOCOL S2).
    pub suspect: bool,
    /// CRC of its checksum page, that of [`Entry::page_generation`]; `None`: no block was ever written.
    pub checksums: Option<u32>,
}

impl Entry {
    /// Its checksum page.
    pub fn page(&self) -> Option<PageRef> {
        let crc = self.held?.checksums?;
        Some(PageRef { generation: self.page_generation, crc })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    volume: [u8; 16],
    segment: U32,
    index: U32,
    epoch: U32,
    state: u8,
    flags: u8,
    reserved: [u8; 2],
    sequence: U64,
    page_generation: U64,
    page_crc: U32,
    shard: U32,
    reserved_end: [u8; 8],
}

const _: () = assert!(size_of::<RawEntry>() == 64, "an entry is 64 bytes");

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPage {
    slab: U32,
    first: U32,
}

impl From<&Entry> for RawEntry {
    fn from(entry: &Entry) -> Self {
        let mut raw = RawEntry::new_zeroed();
        raw.page_generation = entry.page_generation.into();
        if let Some(held) = &entry.held {
            raw.volume = held.extent.segment.volume.into_bytes();
            raw.segment = held.extent.segment.index.into();
            raw.index = held.extent.index.into();
            raw.shard = held.shard.0.into();
            raw.epoch = held.last.epoch.into();
            raw.sequence = held.last.sequence.into();
            raw.state = STATE_ALLOCATED;
            raw.flags = if held.open { FLAG_OPEN } else { 0 }
                | if held.suspect { FLAG_SUSPECT } else { 0 }
                | if held.checksums.is_some() { FLAG_CHECKSUMS } else { 0 };
            raw.page_crc = held.checksums.unwrap_or(0).into();
        }
        raw
    }
}

impl RawEntry {
    fn decode(&self) -> Result<Entry, BadBlock> {
        let page_generation = self.page_generation.get();
        let held = match self.state {
            STATE_FREE => None,
            STATE_ALLOCATED => {
                if self.flags & !FLAGS != 0 {
                    return Err(bad_field("entry's flags", self.flags));
                }
                let checksums = (self.flags & FLAG_CHECKSUMS != 0).then_some(self.page_crc.get());
                if checksums.is_some() && page_generation == 0 {
                    return Err(bad_field("entry's checksum page generation", page_generation));
                }
                let segment = SegmentId { volume: Uuid::from_bytes(self.volume), index: self.segment.get() };
                Some(Held {
                    extent: ExtentId { segment, index: self.index.get() },
                    shard: ShardSlot(self.shard.get()),
                    last: Version { epoch: self.epoch.get(), sequence: self.sequence.get() },
                    open: self.flags & FLAG_OPEN != 0,
                    suspect: self.flags & FLAG_SUSPECT != 0,
                    checksums,
                })
            }
            state => return Err(bad_field("entry's state", state)),
        };
        Ok(Entry { page_generation, held })
    }
}

/// Writes page `page` of `slab` for `place`, and says what the root must say of it. `entries` are all of the page, in
/// order.
///
/// # Panics
/// If `block` is not 4096 bytes or `entries` are too many.
pub fn encode_page<'a>(
    block: &mut [u8],
    place: Place,
    generation: u64,
    (slab, page): (Slab, u32),
    entries: impl IntoIterator<Item = &'a Entry>,
) -> PageRef {
    block.fill(0);
    let raw = RawPage { slab: slab.0.into(), first: (page * ENTRIES_PER_PAGE).into() };
    block[HEADER_BYTES..HEADER_BYTES + size_of::<RawPage>()].copy_from_slice(raw.as_bytes());
    let mut at = ENTRIES_AT;
    for entry in entries {
        block[at..at + ENTRY_BYTES].copy_from_slice(RawEntry::from(entry).as_bytes());
        at += ENTRY_BYTES;
    }
    let crc = block::seal(block, BlockKind::TablePage, place, generation);
    PageRef { generation, crc }
}

/// Reads page `page` of `slab`, which stands at `place` and is the one that the root means: as many entries as the
/// page has.
///
/// # Errors
/// What is wrong with it.
pub fn decode_page(
    block: &[u8],
    place: Place,
    expected: PageRef,
    layout: &Layout,
    (slab, page): (Slab, u32),
) -> Result<Vec<Entry>, BadBlock> {
    let header = block::open(block, BlockKind::TablePage, place)?;
    if header.generation != expected.generation {
        return Err(bad_field("generation", header.generation));
    }
    if header.crc != expected.crc {
        return Err(BadBlock::Crc { stored: expected.crc, computed: header.crc });
    }
    let raw: &RawPage = block::fields(block, HEADER_BYTES)?;
    if raw.slab.get() != slab.0 {
        return Err(bad_field("slab", raw.slab.get()));
    }
    let first = page.saturating_mul(ENTRIES_PER_PAGE);
    if raw.first.get() != first {
        return Err(bad_field("first extent", raw.first.get()));
    }
    let entries = layout.extents_per_slab().saturating_sub(first).min(ENTRIES_PER_PAGE);
    (0..entries as usize)
        .map(|index| block::fields::<RawEntry>(block, ENTRIES_AT + index * ENTRY_BYTES)?.decode())
        .collect()
}
