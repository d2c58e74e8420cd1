//! What goes into a lane and what comes out.

use ashlar_io::DiskError;

use crate::checksum::Stored;
use crate::format::{DeviceId, Layout};
use crate::ids::{Blocks, ExtentId, ShardId, Version};

/// What the journal calls a shard: its slot in the lane's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardSlot(pub u32);

/// Why bytes change (PROTOCOL S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A write of the shard, sent to all in-sync replicas under a sequence number of its own.
    Shard,
    /// A copy or repair of this replica alone; its version is the newest that the shard had given.
    Copy,
}

/// What must be durable before what (PROTOCOL S2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Data and record are written at the same time.
    Parallel,
    /// The record is durable first: the segment has a single in-sync replica.
    RecordFirst,
}

/// What a change is about: a shard's extent, at a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The shard, as [`super::Lane::shard`] named it.
    pub shard: ShardSlot,
    /// The extent, which belongs to the shard.
    pub extent: ExtentId,
    /// The version given.
    pub version: Version,
    /// Why.
    pub origin: Origin,
}

/// A write of some blocks of one extent. The caller orders overlapping changes (design §5): of those that overlap
/// only one is in the lane at a time.
#[derive(Debug, Clone)]
pub struct Write<'a, D> {
    /// Where and which.
    pub change: Change,
    /// The blocks.
    pub blocks: Blocks,
    /// Their checksums, one each (see [`crate::Summer`]).
    pub checksums: &'a [Stored],
    /// Their bytes.
    pub data: D,
    /// Record first, or both at once.
    pub order: Order,
}

/// What a read brings.
#[derive(Debug)]
pub enum ReadData<B> {
    /// Every block of the range reads as zeroes; nothing was touched.
    Zeroes,
    /// The bytes, verified.
    Buffer(B),
}

/// Where a read takes its memory from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Waits until a buffer is free.
    Shared,
    /// Does not wait: those who have the buffers wait for whoever reads.
    Spare,
}

/// A lane could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// No extent is free on the device.
    #[error("no extent is free for {extent}")]
    NoSpace {
        /// The extent that needed one.
        extent: ExtentId,
    },
    /// The device failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes do not have the checksums that are stored for them (design D4).
    #[error("blocks {blocks:?} of extent {extent} do not have their checksums")]
    Mismatch {
        /// The extent.
        extent: ExtentId,
        /// Indices of the blocks in the extent.
        blocks: Vec<u32>,
        /// The extent was open at a crash and these blocks were not verified since: data may have landed whose
        /// record did not (PROTOCOL S2).
        suspect: bool,
    },
    /// An earlier failure of the journal stopped the lane.
    #[error("the lane stopped: {0}")]
    Stopped(String),
}

/// What recovery found out about one block of a record above the committed mark (PROTOCOL S1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The bytes are those of this record, or it needs none.
    Valid,
    /// The bytes are those of an older record or of the floor: this record's data did not land.
    NotLanded,
    /// The bytes are nobody's.
    Bad,
}

/// What a record of the tail did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailKind {
    /// Wrote blocks; checksum and verdict of each.
    Write {
        /// Which blocks.
        blocks: Blocks,
        /// Checksum and verdict, one per block.
        sums: Vec<(Stored, Verdict)>,
    },
    /// Zeroed blocks.
    Zero {
        /// Which blocks.
        blocks: Blocks,
    },
    /// Freed the extent.
    Free,
    /// Nothing: a sequence that was given and not used.
    Empty,
}

/// A record above the committed mark of its shard, found at recovery (PROTOCOL S1, R5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailRecord {
    /// The extent, as an index of its segment. For [`TailKind::Empty`] it means nothing.
    pub extent: u32,
    /// Its version.
    pub version: Version,
    /// A copy or repair of this replica alone.
    pub origin: Origin,
    /// What it did.
    pub kind: TailKind,
}

/// What a lane holds of a shard, as recovery found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardReport {
    /// The shard.
    pub shard: ShardId,
    /// Its slot.
    pub slot: ShardSlot,
    /// Journaled commit watermark (S1).
    pub committed: Version,
    /// Base (R5): durable, advances only when catch-up has finished.
    pub base: Version,
    /// Single-replica mode was on (S2).
    pub single: bool,
    /// Everything above `committed`, in journal order.
    pub tail: Vec<TailRecord>,
}

/// An extent that a shard has on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentReport {
    /// Index in the segment.
    pub index: u32,
    /// Version of its last change.
    pub last: Version,
    /// Open at a crash and not verified since (S2).
    pub suspect: bool,
}

/// Space of a lane or device, in extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Extents that hold data.
    pub used: u64,
    /// Extents that can be taken now: of own slabs and of slabs that nobody owns.
    pub free: u64,
}

/// How a lane uses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneConfig {
    /// Checksum pages kept in memory, 4 KiB each (S11).
    pub cache_pages: usize,
    /// Extents that may be open at a time: what a scan after a crash has to verify (S2).
    pub open_extents: usize,
    /// Bytes of records from which a journal block goes out although others are in flight (S10: a second block starts
    /// early only if many records wait).
    pub early_bytes: usize,
}

impl Default for LaneConfig {
    /// 16 MiB of checksums, those of 16 GiB of data; 128 GiB open.
    fn default() -> Self {
        Self { cache_pages: 4096, open_extents: 32_768, early_bytes: 2048 }
    }
}

/// Which lane of which device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSite {
    /// The device.
    pub device: DeviceId,
    /// Where things are on it.
    pub layout: Layout,
    /// The lane.
    pub lane: u32,
}
