//! What the store's addresses are made of (design §2).

use std::fmt;
use std::ops::Range;

use uuid::Uuid;

/// Blocks of an extent.
pub const EXTENT_BLOCKS: u32 = 1024;

/// A segment of a volume. Volume ids are never reused (PROTOCOL R10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The volume.
    pub volume: Uuid,
    /// Index of the segment in the volume.
    pub index: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.volume, self.index)
    }
}

/// A shard of a segment: the unit of ordering. Its extents are those whose index has the shard's remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// The segment.
    pub segment: SegmentId,
    /// Index of the shard in the segment.
    pub index: u32,
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.segment, self.index)
    }
}

/// An extent of a segment, wherever it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId {
    /// The segment.
    pub segment: SegmentId,
    /// Index of the extent in the segment.
    pub index: u32,
}

impl fmt::Display for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.index)
    }
}

/// What a shard gives to each of its writes: the target epoch, then a sequence that never restarts (PROTOCOL R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// Target epoch of the volume.
    pub epoch: u32,
    /// Sequence number within the shard, from 1.
    pub sequence: u64,
}

impl Version {
    /// Before every write.
    pub const ZERO: Self = Self { epoch: 0, sequence: 0 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

/// Some blocks of one extent: not empty, within the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    first: u16,
    count: u16,
}

impl Blocks {
    /// All of an extent.
    pub const ALL: Self = Self { first: 0, count: EXTENT_BLOCKS as u16 };

    /// `count` blocks from `first` on; `None` if that is empty or goes beyond the extent.
    pub const fn new(first: u32, count: u32) -> Option<Self> {
        if count == 0 || first >= EXTENT_BLOCKS || count > EXTENT_BLOCKS - first {
            return None;
        }
        Some(Self { first: first as u16, count: count as u16 })
    }

    /// The first block.
    pub const fn first(self) -> u32 {
        self.first as u32
    }

    /// How many.
    pub const fn count(self) -> u32 {
        self.count as u32
    }

    /// First block behind them.
    pub const fn end(self) -> u32 {
        self.first as u32 + self.count as u32
    }

    /// As indices into per-extent tables.
    pub const fn indices(self) -> Range<usize> {
        self.first as usize..self.end() as usize
    }

    /// Some block is in both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.first() < other.end() && other.first() < self.end()
    }

    /// Every block of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.first() <= other.first() && other.end() <= self.end()
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.first, self.count)
    }
}
