//! The root of a lane: written last in each checkpoint, it says which table pages hold and from where on the journal
//! must be replayed (PROTOCOL S4).

use ashlar_io::BLOCK_BYTES;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, BadBlock, BlockKind, DeviceId, HEADER_BYTES, PageRef, Place, bad_field};
use super::layout::{Area, Layout, Slab, Slot};
use crate::ids::{SegmentId, ShardId, Version};
use crate::lane::ShardSlot;

/// Bit of a shard's flags: single-replica mode (PROTOCOL S2).
pub(crate) const FLAG_SINGLE: u32 = 1 << 0;

/// What a checkpoint says of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Rises with each checkpoint; its remainder is the slot.
    pub generation: u64,
    /// The lane.
    pub lane: u32,
    /// Of the journal when this was written (PROTOCOL S5).
    pub incarnation: u32,
    /// Sequence of the oldest journal block that recovery needs.
    pub tail: u64,
    /// Number of the first record of the tail block.
    pub first_record: u64,
    /// Slabs that the lane owns.
    pub slabs: Vec<SlabEntry>,
    /// Shards that it knows.
    pub shards: Vec<ShardEntry>,
}

/// A slab of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabEntry {
    /// The slab.
    pub slab: Slab,
    /// Generation of its owner entry (PROTOCOL S7).
    pub owner_generation: u64,
    /// Its table pages, as many as slabs have; `None`: never written, all of its extents are free.
    pub pages: Vec<Option<PageRef>>,
}

/// A shard of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardEntry {
    /// What journal records call it.
    pub slot: ShardSlot,
    /// The shard.
    pub shard: ShardId,
    /// Single-replica mode is on (PROTOCOL S2).
    pub single: bool,
    /// Durable on every in-sync replica (PROTOCOL S1).
    pub committed: Version,
    /// Base (PROTOCOL R5).
    pub base: Version,
}

/// What is written for a root: the body, a flush, the first block, a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootImage {
    /// Where it is written.
    pub slot: Area,
    /// The slot's first block.
    pub first: Vec<u8>,
    /// What stands behind it, whole blocks; maybe none.
    pub body: Vec<u8>,
}

/// A lane has more slabs and shards than its roots have room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the root of lane {lane} needs {bytes} bytes, and there is room for {room}")]
pub struct RootTooLarge {
    /// The lane.
    pub lane: u32,
    /// Bytes of the body.
    pub bytes: u64,
    /// Bytes that fit.
    pub room: u64,
}

/// The first block of a root slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootHeader {
    /// See [`Root::generation`].
    pub generation: u64,
    /// See [`Root::lane`].
    pub lane: u32,
    /// See [`Root::incarnation`].
    pub incarnation: u32,
    /// See [`Root::tail`].
    pub tail: u64,
    /// See [`Root::first_record`].
    pub first_record: u64,
    slabs: u32,
    shards: u32,
    body_bytes: u32,
    body_crc: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    lane: U32,
    incarnation: U32,
    tail: U64,
    first_record: U64,
    slabs: U32,
    shards: U32,
    body_bytes: U32,
    body_crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlab {
    slab: U32,
    reserved: U32,
    owner_generation: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPageRef {
    generation: U64,
    crc: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawVersion {
    epoch: U32,
    reserved: U32,
    sequence: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawShard {
    volume: [u8; 16],
    segment: U32,
    shard: U32,
    slot: U32,
    flags: U32,
    committed: RawVersion,
    base: RawVersion,
}

const SLAB_BYTES: usize = size_of::<RawSlab>();
const PAGE_BYTES: usize = size_of::<RawPageRef>();
const SHARD_BYTES: usize = size_of::<RawShard>();
const _: () = assert!(SLAB_BYTES == 16 && PAGE_BYTES == 16 && SHARD_BYTES == 64, "as documented");

impl From<Version> for RawVersion {
    fn from(version: Version) -> Self {
        Self { epoch: version.epoch.into(), reserved: U32::ZERO, sequence: version.sequence.into() }
    }
}

impl RawVersion {
    fn get(&self) -> Version {
        Version { epoch: self.epoch.get(), sequence: self.sequence.get() }
    }
}

impl Root {
    /// The first root of a lane: it owns nothing, its journal has no block yet, and it was never open.
    pub const fn empty(lane: u32) -> Self {
        Self {
            generation: 1,
            lane,
            incarnation: 0,
            tail: 1,
            first_record: 1,
            slabs: Vec::new(),
            shards: Vec::new(),
        }
    }

    /// Bytes of a body with so many entries.
    pub fn body_bytes(layout: &Layout, slabs: usize, shards: usize) -> u64 {
        let slab = SLAB_BYTES + PAGE_BYTES * layout.table_pages() as usize;
        slabs as u64 * slab as u64 + shards as u64 * SHARD_BYTES as u64
    }

    /// Bytes that a body can have.
    pub fn room(layout: &Layout) -> u64 {
        (layout.root(0, Slot::Even).blocks - 1) * BLOCK_BYTES as u64
    }

    /// Puts it into the slot of its generation. Each slab has as many pages as slabs of the layout have.
    ///
    /// # Errors
    /// It does not fit.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub fn encode(&self, layout: &Layout, device: DeviceId) -> Result<RootImage, RootTooLarge> {
        let slot = layout.root(self.lane, Slot::of(self.generation));
        let bytes = Self::body_bytes(layout, self.slabs.len(), self.shards.len());
        let room = Self::room(layout);
        if bytes > room {
            return Err(RootTooLarge { lane: self.lane, bytes, room });
        }
        let mut body = Vec::with_capacity((bytes as usize).next_multiple_of(BLOCK_BYTES));
        self.slabs.iter().for_each(|slab| push_slab(&mut body, slab, layout.table_pages()));
        self.shards.iter().for_each(|shard| push_shard(&mut body, shard));
        let raw = Raw {
            lane: self.lane.into(),
            incarnation: self.incarnation.into(),
            tail: self.tail.into(),
            first_record: self.first_record.into(),
            slabs: (self.slabs.len() as u32).into(),
            shards: (self.shards.len() as u32).into(),
            body_bytes: (body.len() as u32).into(),
            body_crc: crc32c::crc32c(&body).into(),
        };
        body.resize(body.len().next_multiple_of(BLOCK_BYTES), 0);
        let mut first = vec![0; BLOCK_BYTES];
        first[HEADER_BYTES..HEADER_BYTES + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        block::seal(&mut first, BlockKind::Root, Place { device, address: slot.first }, self.generation);
        Ok(RootImage { slot, first, body })
    }
}

fn push_slab(body: &mut Vec<u8>, entry: &SlabEntry, pages: u32) {
    debug_assert_eq!(entry.pages.len(), pages as usize, "slab {} has as many pages as all", entry.slab);
    let raw = RawSlab {
        slab: entry.slab.0.into(),
        reserved: U32::ZERO,
        owner_generation: entry.owner_generation.into(),
    };
    body.extend_from_slice(raw.as_bytes());
    for page in entry.pages.iter().copied().chain(std::iter::repeat(None)).take(pages as usize) {
        let page = page.unwrap_or(PageRef { generation: 0, crc: 0 });
        let raw =
            RawPageRef { generation: page.generation.into(), crc: page.crc.into(), reserved: U32::ZERO };
        body.extend_from_slice(raw.as_bytes());
    }
}

fn push_shard(body: &mut Vec<u8>, entry: &ShardEntry) {
    let raw = RawShard {
        volume: entry.shard.segment.volume.into_bytes(),
        segment: entry.shard.segment.index.into(),
        shard: entry.shard.index.into(),
        slot: entry.slot.0.into(),
        flags: if entry.single { FLAG_SINGLE } else { 0 }.into(),
        committed: entry.committed.into(),
        base: entry.base.into(),
    };
    body.extend_from_slice(raw.as_bytes());
}

impl RootHeader {
    /// Reads the first block of a root slot of `lane`.
    ///
    /// # Errors
    /// What is wrong with it.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub fn decode(
        block: &[u8],
        layout: &Layout,
        device: DeviceId,
        lane: u32,
        slot: Slot,
    ) -> Result<Self, BadBlock> {
        let area = layout.root(lane, slot);
        let header = block::open(block, BlockKind::Root, Place { device, address: area.first })?;
        let raw: &Raw = block::fields(block, HEADER_BYTES)?;
        if Slot::of(header.generation) != slot {
            return Err(bad_field("generation", header.generation));
        }
        if raw.lane.get() != lane {
            return Err(bad_field("lane", raw.lane.get()));
        }
        let (slabs, shards, bytes) = (raw.slabs.get(), raw.shards.get(), raw.body_bytes.get());
        if slabs > layout.slabs() {
            return Err(bad_field("number of slabs", slabs));
        }
        if Root::body_bytes(layout, slabs as usize, shards as usize) != u64::from(bytes) {
            return Err(bad_field("number of shards", shards));
        }
        if u64::from(bytes) > Root::room(layout) {
            return Err(bad_field("body length", bytes));
        }
        Ok(Self {
            generation: header.generation,
            lane,
            incarnation: raw.incarnation.get(),
            tail: raw.tail.get(),
            first_record: raw.first_record.get(),
            slabs,
            shards,
            body_bytes: bytes,
            body_crc: raw.body_crc.get(),
        })
    }

    /// Blocks of the body, which follow the first.
    pub const fn body_blocks(&self) -> u64 {
        (self.body_bytes as u64).div_ceil(BLOCK_BYTES as u64)
    }

    /// Takes the root from the body's blocks.
    ///
    /// # Errors
    /// They are not those that were written, or name what the device does not have.
    pub fn decode_body(&self, body: &[u8], layout: &Layout) -> Result<Root, BadBlock> {
        let bytes = body.get(..self.body_bytes as usize).ok_or(BadBlock::Length(body.len()))?;
        let computed = crc32c::crc32c(bytes);
        if computed != self.body_crc {
            return Err(BadBlock::Crc { stored: self.body_crc, computed });
        }
        let pages = layout.table_pages() as usize;
        let slabs_end = self.slabs as usize * (SLAB_BYTES + PAGE_BYTES * pages);
        let (slabs, shards) = bytes.split_at_checked(slabs_end).ok_or(BadBlock::Length(bytes.len()))?;
        Ok(Root {
            generation: self.generation,
            lane: self.lane,
            incarnation: self.incarnation,
            tail: self.tail,
            first_record: self.first_record,
            slabs: slabs
                .chunks_exact(SLAB_BYTES + PAGE_BYTES * pages)
                .map(|entry| slab_entry(entry, layout))
                .collect::<Result<_, _>>()?,
            shards: shards.chunks_exact(SHARD_BYTES).map(shard_entry).collect::<Result<_, _>>()?,
        })
    }
}

fn slab_entry(bytes: &[u8], layout: &Layout) -> Result<SlabEntry, BadBlock> {
    let raw: &RawSlab = block::fields(bytes, 0)?;
    let slab = Slab(raw.slab.get());
    if !layout.has_slab(slab) {
        return Err(bad_field("slab", slab.0));
    }
    let pages = (0..layout.table_pages() as usize)
        .map(|page| {
            let raw: &RawPageRef = block::fields(bytes, SLAB_BYTES + page * PAGE_BYTES)?;
            let page = PageRef { generation: raw.generation.get(), crc: raw.crc.get() };
            Ok((page.generation != 0).then_some(page))
        })
        .collect::<Result<_, BadBlock>>()?;
    Ok(SlabEntry { slab, owner_generation: raw.owner_generation.get(), pages })
}

fn shard_entry(bytes: &[u8]) -> Result<ShardEntry, BadBlock> {
    let raw: &RawShard = block::fields(bytes, 0)?;
    let flags = raw.flags.get();
    if flags & !FLAG_SINGLE != 0 {
        return Err(bad_field("shard's flags", flags));
    }
    let segment = SegmentId { volume: Uuid::from_bytes(raw.volume), index: raw.segment.get() };
    Ok(ShardEntry {
        slot: ShardSlot(raw.slot.get()),
        shard: ShardId { segment, index: raw.shard.get() },
        single: flags & FLAG_SINGLE != 0,
        committed: raw.committed.get(),
        base: raw.base.get(),
    })
}
