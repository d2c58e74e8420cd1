//! Records of the journal: what happened to a lane, in the order in which it became durable.

use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Extent, Layout, Slab};
use super::root::{FLAG_SINGLE, ShardEntry};
use crate::checksum::Stored;
use crate::ids::{Blocks, ExtentId, SegmentId, ShardId, Version};
use crate::lane::{Origin, ShardSlot};

/// Bit of a record's flags: a change of one replica (PROTOCOL S3).
const FLAG_COPY: u8 = 1 << 0;
/// Bit of a record's flags: carried forward from the tail (PROTOCOL S1).
const FLAG_CARRIED: u8 = 1 << 1;

/// Bytes before a record's body.
const HEAD_BYTES: usize = size_of::<RawHead>();

/// What a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Where its extent is.
    pub extent: Extent,
    /// The shard.
    pub shard: ShardSlot,
    /// Which extent of the segment that is: it stands here too, because the place may hold another by the time at
    /// which the record is read.
    pub index: u32,
    /// The version given.
    pub version: Version,
    /// A copy or repair is outside R5's contiguity.
    pub origin: Origin,
    /// Not new: it was appended again before the tail passed it (PROTOCOL S1).
    pub carried: bool,
}

/// Stored checksums of a write, one per block: given by the writer, or as they stand in a block.
#[derive(Debug, Clone, Copy)]
pub struct Sums<'a>(Of<'a>);

#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    Given(&'a [Stored]),
    Read(&'a [U32]),
}

impl<'a> Sums<'a> {
    /// How many.
    pub const fn len(&self) -> usize {
        match self.0 {
            Of::Given(sums) => sums.len(),
            Of::Read(sums) => sums.len(),
        }
    }

    /// There are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In the order of the blocks.
    pub fn iter(&self) -> impl Iterator<Item = Stored> + use<'a> {
        let (given, read): (&[Stored], &[U32]) = match self.0 {
            Of::Given(sums) => (sums, &[]),
            Of::Read(sums) => (&[], sums),
        };
        given.iter().copied().chain(read.iter().map(|sum| Stored(sum.get())))
    }
}

impl<'a> From<&'a [Stored]> for Sums<'a> {
    fn from(sums: &'a [Stored]) -> Self {
        Self(Of::Given(sums))
    }
}

impl PartialEq for Sums<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Sums<'_> {}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// Blocks were written.
    Write {
        /// What was changed.
        subject: Subject,
        /// Which blocks.
        blocks: Blocks,
        /// Their checksums, as many as blocks.
        sums: Sums<'a>,
    },
    /// Blocks were zeroed or deallocated.
    Zero {
        /// What was changed.
        subject: Subject,
        /// Which blocks.
        blocks: Blocks,
    },
    /// A free extent was taken; no block of it was ever written.
    Allocate {
        /// What was changed.
        subject: Subject,
        /// What it holds from now on.
        holds: ExtentId,
    },
    /// An extent was given back.
    Free {
        /// What was changed.
        subject: Subject,
    },
    /// The extent may be written.
    Open {
        /// The extent.
        extent: Extent,
    },
    /// All that was written to the extent is durable, and no more will be.
    Close {
        /// The extent.
        extent: Extent,
    },
    /// Every block of a suspect extent was verified (PROTOCOL S2).
    Verified {
        /// The extent.
        extent: Extent,
    },
    /// Everything up to this version is durable on every in-sync replica (PROTOCOL S1).
    Committed {
        /// The shard.
        shard: ShardSlot,
        /// The version.
        version: Version,
    },
    /// A shard was added, or its mode or base changed.
    Shard(ShardEntry),
    /// The lane has nothing of a shard any more.
    ShardForgotten {
        /// The shard.
        shard: ShardSlot,
    },
    /// The lane took a slab (PROTOCOL S7).
    SlabTaken {
        /// The slab.
        slab: Slab,
        /// Its owner generation.
        generation: u64,
    },
    /// The lane gave a slab back (PROTOCOL S7).
    SlabReleased {
        /// The slab.
        slab: Slab,
        /// Its owner generation until then.
        generation: u64,
    },
    /// A sequence number that was given and not used (PROTOCOL S3).
    Empty {
        /// The shard.
        shard: ShardSlot,
        /// The version given.
        version: Version,
        /// See [`Subject::carried`].
        carried: bool,
    },
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It goes beyond the bytes of its block.
    #[error("it ends after {length} bytes, and {left} are left in its block")]
    Length {
        /// Its length.
        length: usize,
        /// What is left.
        left: usize,
    },
    /// Nobody knows its kind.
    #[error("its kind is {0}")]
    Kind(u8),
    /// It has flags that its kind does not.
    #[error("its flags are {0:#04x}")]
    Flags(u8),
    /// Its length is not that of its kind.
    #[error("a record of kind {kind} is not {length} bytes long")]
    Size {
        /// Its kind.
        kind: u8,
        /// Its length.
        length: usize,
    },
    /// It names an extent that the device does not have.
    #[error("the device has no extent {0}")]
    Extent(Extent),
    /// It names a slab that the device does not have.
    #[error("the device has no slab {0}")]
    Slab(Slab),
    /// It names blocks that an extent does not have.
    #[error("an extent has no {count} blocks from {first} on")]
    Blocks {
        /// The first.
        first: u16,
        /// How many.
        count: u16,
    },
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    kind: u8,
    flags: u8,
    length: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawVersion {
    epoch: U32,
    sequence: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlocks {
    extent: U32,
    shard: U32,
    index: U32,
    first: U16,
    count: U16,
    version: RawVersion,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAllocate {
    extent: U32,
    volume: [u8; 16],
    segment: U32,
    index: U32,
    shard: U32,
    version: RawVersion,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFree {
    extent: U32,
    shard: U32,
    index: U32,
    version: RawVersion,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMark {
    shard: U32,
    version: RawVersion,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawShard {
    slot: U32,
    volume: [u8; 16],
    segment: U32,
    shard: U32,
    flags: U32,
    committed: RawVersion,
    base: RawVersion,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlab {
    slab: U32,
    generation: U64,
}

/// Kinds, as they stand in records.
mod kind {
    pub(super) const WRITE: u8 = 1;
    pub(super) const ZERO: u8 = 2;
    pub(super) const ALLOCATE: u8 = 3;
    pub(super) const FREE: u8 = 4;
    pub(super) const OPEN: u8 = 5;
    pub(super) const CLOSE: u8 = 6;
    pub(super) const VERIFIED: u8 = 7;
    pub(super) const COMMITTED: u8 = 8;
    pub(super) const SHARD: u8 = 9;
    pub(super) const SHARD_FORGOTTEN: u8 = 10;
    pub(super) const SLAB_TAKEN: u8 = 11;
    pub(super) const SLAB_RELEASED: u8 = 12;
    pub(super) const EMPTY: u8 = 13;
}

/// Bytes of a write's record without its checksums.
pub const WRITE_BYTES: usize = HEAD_BYTES + size_of::<RawBlocks>();

impl From<Version> for RawVersion {
    fn from(version: Version) -> Self {
        Self { epoch: version.epoch.into(), sequence: version.sequence.into() }
    }
}

impl RawVersion {
    fn get(&self) -> Version {
        Version { epoch: self.epoch.get(), sequence: self.sequence.get() }
    }
}

impl<'a> Record<'a> {
    /// Bytes that it takes.
    pub fn encoded_bytes(&self) -> usize {
        HEAD_BYTES
            + match self {
                Record::Write { sums, .. } => size_of::<RawBlocks>() + sums.len() * size_of::<U32>(),
                Record::Zero { .. } => size_of::<RawBlocks>(),
                Record::Allocate { .. } => size_of::<RawAllocate>(),
                Record::Free { .. } => size_of::<RawFree>(),
                Record::Open { .. }
                | Record::Close { .. }
                | Record::Verified { .. }
                | Record::ShardForgotten { .. } => size_of::<U32>(),
                Record::Committed { .. } | Record::Empty { .. } => size_of::<RawMark>(),
                Record::Shard(_) => size_of::<RawShard>(),
                Record::SlabTaken { .. } | Record::SlabReleased { .. } => size_of::<RawSlab>(),
            }
    }

    /// Writes it to the beginning of `to`, and says how many bytes it takes; `None`, and nothing is written, if it
    /// does not fit. A write has as many checksums as blocks.
    pub fn encode(&self, to: &mut [u8]) -> Option<usize> {
        let length = self.encoded_bytes();
        let to = to.get_mut(..length)?;
        let head =
            RawHead { kind: self.kind(), flags: self.flags(), length: u16::try_from(length).ok()?.into() };
        let (raw, body) = to.split_at_mut(HEAD_BYTES);
        raw.copy_from_slice(head.as_bytes());
        self.encode_body(body);
        Some(length)
    }

    fn encode_body(&self, to: &mut [u8]) {
        match self {
            Record::Write { subject, blocks, sums } => {
                debug_assert_eq!(sums.len(), blocks.count() as usize, "a checksum per block");
                let (raw, rest) = to.split_at_mut(size_of::<RawBlocks>());
                raw.copy_from_slice(raw_blocks(subject, *blocks).as_bytes());
                for (to, sum) in rest.chunks_exact_mut(size_of::<U32>()).zip(sums.iter()) {
                    to.copy_from_slice(&sum.0.to_le_bytes());
                }
            }
            Record::Zero { subject, blocks } => {
                to.copy_from_slice(raw_blocks(subject, *blocks).as_bytes());
            }
            Record::Allocate { subject, holds } => {
                let raw = RawAllocate {
                    extent: subject.extent.0.into(),
                    volume: holds.segment.volume.into_bytes(),
                    segment: holds.segment.index.into(),
                    index: holds.index.into(),
                    shard: subject.shard.0.into(),
                    version: subject.version.into(),
                };
                to.copy_from_slice(raw.as_bytes());
            }
            Record::Free { subject } => {
                let raw = RawFree {
                    extent: subject.extent.0.into(),
                    shard: subject.shard.0.into(),
                    index: subject.index.into(),
                    version: subject.version.into(),
                };
                to.copy_from_slice(raw.as_bytes());
            }
            Record::Open { extent } | Record::Close { extent } | Record::Verified { extent } => {
                to.copy_from_slice(&extent.0.to_le_bytes());
            }
            Record::ShardForgotten { shard } => to.copy_from_slice(&shard.0.to_le_bytes()),
            Record::Committed { shard, version } | Record::Empty { shard, version, .. } => {
                let raw = RawMark { shard: shard.0.into(), version: (*version).into() };
                to.copy_from_slice(raw.as_bytes());
            }
            Record::Shard(entry) => to.copy_from_slice(raw_shard(entry).as_bytes()),
            Record::SlabTaken { slab, generation } | Record::SlabReleased { slab, generation } => {
                let raw = RawSlab { slab: slab.0.into(), generation: (*generation).into() };
                to.copy_from_slice(raw.as_bytes());
            }
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Record::Write { .. } => kind::WRITE,
            Record::Zero { .. } => kind::ZERO,
            Record::Allocate { .. } => kind::ALLOCATE,
            Record::Free { .. } => kind::FREE,
            Record::Open { .. } => kind::OPEN,
            Record::Close { .. } => kind::CLOSE,
            Record::Verified { .. } => kind::VERIFIED,
            Record::Committed { .. } => kind::COMMITTED,
            Record::Shard(_) => kind::SHARD,
            Record::ShardForgotten { .. } => kind::SHARD_FORGOTTEN,
            Record::SlabTaken { .. } => kind::SLAB_TAKEN,
            Record::SlabReleased { .. } => kind::SLAB_RELEASED,
            Record::Empty { .. } => kind::EMPTY,
        }
    }

    fn flags(&self) -> u8 {
        match self {
            Record::Write { subject, .. }
            | Record::Zero { subject, .. }
            | Record::Allocate { subject, .. }
            | Record::Free { subject } => {
                let copy = if subject.origin == Origin::Copy { FLAG_COPY } else { 0 };
                copy | if subject.carried { FLAG_CARRIED } else { 0 }
            }
            Record::Empty { carried: true, .. } => FLAG_CARRIED,
            _ => 0,
        }
    }

    /// Reads the record at the beginning of `from`, which is not empty, and says how many bytes it takes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(from: &'a [u8], layout: &Layout) -> Result<(Self, usize), BadRecord> {
        let Ok((head, _)) = RawHead::ref_from_prefix(from) else {
            return Err(BadRecord::Length { length: HEAD_BYTES, left: from.len() });
        };
        let length = usize::from(head.length.get());
        let Some(body) = from.get(HEAD_BYTES..length) else {
            return Err(BadRecord::Length { length, left: from.len() });
        };
        Ok((Body { kind: head.kind, flags: head.flags, bytes: body, layout }.decode()?, length))
    }
}

fn raw_blocks(subject: &Subject, blocks: Blocks) -> RawBlocks {
    RawBlocks {
        extent: subject.extent.0.into(),
        shard: subject.shard.0.into(),
        index: subject.index.into(),
        first: (blocks.first() as u16).into(),
        count: (blocks.count() as u16).into(),
        version: subject.version.into(),
    }
}

fn raw_shard(entry: &ShardEntry) -> RawShard {
    RawShard {
        slot: entry.slot.0.into(),
        volume: entry.shard.segment.volume.into_bytes(),
        segment: entry.shard.segment.index.into(),
        shard: entry.shard.index.into(),
        flags: if entry.single { FLAG_SINGLE } else { 0 }.into(),
        committed: entry.committed.into(),
        base: entry.base.into(),
    }
}

/// A record that is to be decoded.
struct Body<'a, 'l> {
    kind: u8,
    flags: u8,
    bytes: &'a [u8],
    layout: &'l Layout,
}

impl<'a> Body<'a, '_> {
    fn decode(&self) -> Result<Record<'a>, BadRecord> {
        let allowed = match self.kind {
            kind::WRITE..=kind::FREE => FLAG_COPY | FLAG_CARRIED,
            kind::EMPTY => FLAG_CARRIED,
            _ => 0,
        };
        if self.flags & !allowed != 0 {
            return Err(BadRecord::Flags(self.flags));
        }
        Ok(match self.kind {
            kind::WRITE => self.write()?,
            kind::ZERO => {
                let (subject, blocks) = self.blocks(self.whole()?)?;
                Record::Zero { subject, blocks }
            }
            kind::ALLOCATE => {
                let raw: &RawAllocate = self.whole()?;
                let segment = SegmentId { volume: Uuid::from_bytes(raw.volume), index: raw.segment.get() };
                let subject = self.subject((raw.extent, raw.shard, raw.index), raw.version)?;
                Record::Allocate { subject, holds: ExtentId { segment, index: raw.index.get() } }
            }
            kind::FREE => {
                let raw: &RawFree = self.whole()?;
                Record::Free { subject: self.subject((raw.extent, raw.shard, raw.index), raw.version)? }
            }
            kind::OPEN => Record::Open { extent: self.extent(*self.whole()?)? },
            kind::CLOSE => Record::Close { extent: self.extent(*self.whole()?)? },
            kind::VERIFIED => Record::Verified { extent: self.extent(*self.whole()?)? },
            kind::COMMITTED => {
                let raw: &RawMark = self.whole()?;
                Record::Committed { shard: ShardSlot(raw.shard.get()), version: raw.version.get() }
            }
            kind::SHARD => self.shard()?,
            kind::SHARD_FORGOTTEN => {
                let raw: &U32 = self.whole()?;
                Record::ShardForgotten { shard: ShardSlot(raw.get()) }
            }
            kind::SLAB_TAKEN => {
                let (slab, generation) = self.slab()?;
                Record::SlabTaken { slab, generation }
            }
            kind::SLAB_RELEASED => {
                let (slab, generation) = self.slab()?;
                Record::SlabReleased { slab, generation }
            }
            kind::EMPTY => {
                let raw: &RawMark = self.whole()?;
                Record::Empty {
                    shard: ShardSlot(raw.shard.get()),
                    version: raw.version.get(),
                    carried: self.flags & FLAG_CARRIED != 0,
                }
            }
            kind => return Err(BadRecord::Kind(kind)),
        })
    }

    fn bad_size(&self) -> BadRecord {
        BadRecord::Size { kind: self.kind, length: HEAD_BYTES + self.bytes.len() }
    }

    /// The body, if it is exactly this structure.
    fn whole<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<&'a T, BadRecord> {
        T::ref_from_bytes(self.bytes).map_err(|_| self.bad_size())
    }

    fn extent(&self, raw: U32) -> Result<Extent, BadRecord> {
        let extent = Extent(raw.get());
        if self.layout.has_extent(extent) { Ok(extent) } else { Err(BadRecord::Extent(extent)) }
    }

    fn subject(
        &self,
        (extent, shard, index): (U32, U32, U32),
        version: RawVersion,
    ) -> Result<Subject, BadRecord> {
        Ok(Subject {
            extent: self.extent(extent)?,
            shard: ShardSlot(shard.get()),
            index: index.get(),
            version: version.get(),
            origin: if self.flags & FLAG_COPY != 0 { Origin::Copy } else { Origin::Shard },
            carried: self.flags & FLAG_CARRIED != 0,
        })
    }

    fn blocks(&self, raw: &RawBlocks) -> Result<(Subject, Blocks), BadRecord> {
        let (first, count) = (raw.first.get(), raw.count.get());
        let blocks = Blocks::new(first.into(), count.into()).ok_or(BadRecord::Blocks { first, count })?;
        Ok((self.subject((raw.extent, raw.shard, raw.index), raw.version)?, blocks))
    }

    fn write(&self) -> Result<Record<'a>, BadRecord> {
        let (raw, rest) = RawBlocks::ref_from_prefix(self.bytes).map_err(|_| self.bad_size())?;
        let (subject, blocks) = self.blocks(raw)?;
        let sums =
            <[U32]>::ref_from_bytes_with_elems(rest, blocks.count() as usize).map_err(|_| self.bad_size())?;
        Ok(Record::Write { subject, blocks, sums: Sums(Of::Read(sums)) })
    }

    fn shard(&self) -> Result<Record<'a>, BadRecord> {
        let raw: &RawShard = self.whole()?;
        let flags = raw.flags.get();
        if flags & !FLAG_SINGLE != 0 {
            return Err(BadRecord::Flags(flags as u8));
        }
        let segment = SegmentId { volume: Uuid::from_bytes(raw.volume), index: raw.segment.get() };
        Ok(Record::Shard(ShardEntry {
            slot: ShardSlot(raw.slot.get()),
            shard: ShardId { segment, index: raw.shard.get() },
            single: flags & FLAG_SINGLE != 0,
            committed: raw.committed.get(),
            base: raw.base.get(),
        }))
    }

    fn slab(&self) -> Result<(Slab, u64), BadRecord> {
        let raw: &RawSlab = self.whole()?;
        let slab = Slab(raw.slab.get());
        if !self.layout.has_slab(slab) {
            return Err(BadRecord::Slab(slab));
        }
        Ok((slab, raw.generation.get()))
    }
}
