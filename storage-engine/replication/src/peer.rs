//! One replica of one shard, wherever it is: what a shard asks of it.
//!
//! In one machine a peer is a lane of the same core ([`crate::LocalPeer`]); over the network it will be a session
//! with another node. The shard does not know the difference.

use std::future::Future;

use ashlar_io::{Buffer, World};
use ashlar_store::lane::{ExtentReport, Memory, Order, Origin, ReadData, TailRecord};
use ashlar_store::{Blocks, EXTENT_BLOCKS, Stored, Version};

use smallvec::SmallVec;

use crate::digest::Digest;

/// Content that the disks of a world write.
pub type DataOf<W> = <<W as World>::Buffer as Buffer>::Data;

/// Checksums of some blocks. Those of small requests, the usual case, need no memory of their own.
pub type Checksums = SmallVec<[Stored; 8]>;

/// What becomes of some blocks.
#[derive(Debug)]
pub enum Kind<D> {
    /// They get these bytes.
    Write {
        /// Which blocks.
        blocks: Blocks,
        /// Their checksums, one each.
        checksums: Checksums,
        /// Their bytes.
        data: D,
    },
    /// They read as zeroes.
    Zero(Blocks),
    /// The whole extent reads as zeroes, and its space is free.
    Free,
    /// Nothing: a sequence that was given and not used (PROTOCOL S3).
    Empty,
}

/// A change of a shard's bytes, as its members get it.
#[derive(Debug)]
pub struct Update<D> {
    /// The extent, as an index of the segment.
    pub extent: u32,
    /// The version given.
    pub version: Version,
    /// Of all members, or of this one alone.
    pub origin: Origin,
    /// Record first, or data and record at once.
    pub order: Order,
    /// What happens.
    pub kind: Kind<D>,
}

/// Whether what a peer says about a shard can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Everything that it ever acknowledged is there.
    Whole,
    /// A device with a part of the shard is absent (PROTOCOL R4).
    Incomplete,
    /// Its journal lost something that was acknowledged (PROTOCOL S5).
    Damaged,
}

/// What a peer has of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it is worth.
    pub condition: Condition,
    /// Everything up to here was durable on all members of its time.
    pub committed: Version,
    /// A catch-up has begun and not finished: only what is at or below this is certain (PROTOCOL R5). See
    /// [`Peer::set_base`].
    pub base: Option<Version>,
    /// Its mark of the single-replica mode (PROTOCOL S2).
    pub single: bool,
    /// What it applied above `committed`, oldest first.
    pub tail: Vec<TailRecord>,
    /// The extents that it has, each once.
    pub extents: Vec<ExtentReport>,
}

impl Report {
    /// Of a peer that has nothing of the shard.
    pub fn blank() -> Self {
        Self {
            condition: Condition::Whole,
            committed: Version::ZERO,
            base: None,
            single: false,
            tail: Vec::new(),
            extents: Vec::new(),
        }
    }
}

/// A peer did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It has no room for the extent.
    #[error("no space for extent {extent}")]
    NoSpace {
        /// The extent that needed it.
        extent: u32,
    },
    /// Its device failed; the next attempt may succeed.
    #[error("the device failed: {cause}")]
    Device {
        /// What the device said.
        cause: String,
    },
    /// Bytes do not have their checksums.
    #[error("blocks {blocks:?} of extent {extent} do not have their checksums")]
    Mismatch {
        /// The extent.
        extent: u32,
        /// Which of its blocks.
        blocks: Vec<u32>,
        /// A crash may explain it (PROTOCOL S2).
        suspect: bool,
    },
    /// The checksums of an extent are lost (PROTOCOL S4).
    #[error("the checksums of extent {extent} are lost")]
    BadPage {
        /// The extent.
        extent: u32,
    },
    /// It stopped for good.
    #[error("it stopped: {cause}")]
    Stopped {
        /// Why.
        cause: String,
    },
    /// It did not answer in time.
    #[error("no answer for too long")]
    Hung,
    /// It is no member any more.
    #[error("it is no member any more")]
    Gone,
}

impl PeerError {
    /// Another attempt may succeed.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, PeerError::Device { .. })
    }

    /// The blocks of `asked` that it is about, where a good copy would help. `None` if the peer itself is the matter.
    pub(crate) fn bad_blocks(&self, asked: Blocks) -> Option<Vec<u32>> {
        match self {
            PeerError::Mismatch { blocks, .. } => Some(blocks.clone()),
            // A sector that cannot be read is made readable by writing it.
            PeerError::BadPage { .. } | PeerError::Device { .. } => {
                Some((asked.first()..asked.end()).collect())
            }
            _ => None,
        }
    }
}

/// A replica of one shard. All its operations may overlap; of changes of the same blocks the shard has only one in
/// flight at a time. What was called and then dropped may still happen.
pub trait Peer<W: World>: 'static {
    /// What it has now, including what was applied since it opened.
    fn report(&self) -> impl Future<Output = Result<Report, PeerError>>;

    /// Applies a change: at its return it is *accepted* (PROTOCOL S1), as durable as the device promises, together
    /// with every change that it had accepted before. A change that it has already is acknowledged again. Zeroing
    /// or freeing what it does not have needs no space.
    fn apply(&self, update: &Update<DataOf<W>>) -> impl Future<Output = Result<(), PeerError>>;

    /// Reads and verifies.
    fn read(
        &self,
        extent: u32,
        blocks: Blocks,
        memory: Memory,
    ) -> impl Future<Output = Result<ReadData<W::Buffer>, PeerError>>;

    /// Reads what is there, with the checksums that should be (PROTOCOL S2).
    fn read_unverified(
        &self,
        extent: u32,
        blocks: Blocks,
    ) -> impl Future<Output = Result<(W::Buffer, Vec<Stored>), PeerError>>;

    /// The checksums of an extent; all [`Stored::NEVER`] if it has none.
    fn checksums(
        &self,
        extent: u32,
    ) -> impl Future<Output = Result<Box<[Stored; EXTENT_BLOCKS as usize]>, PeerError>>;

    /// The hash of some blocks, verified as by a read (PROTOCOL S13).
    fn digest(&self, extent: u32, blocks: Blocks) -> impl Future<Output = Result<Digest, PeerError>>;

    /// Everything up to `version` is durable on all members (PROTOCOL S1). It becomes durable by and by.
    fn committed(&self, version: Version);

    /// A catch-up begins at this base, or (`None`) has finished: from then on the base is the commit watermark.
    /// Durable at return, together with the watermark.
    fn set_base(&self, base: Option<Version>) -> impl Future<Output = Result<(), PeerError>>;

    /// Marks or ends the single-replica mode (PROTOCOL S2). Durable at return.
    fn set_single(&self, single: bool) -> impl Future<Output = Result<(), PeerError>>;

    /// Makes all that it accepted durable on a device with a volatile cache.
    fn flush(&self) -> impl Future<Output = Result<(), PeerError>>;

    /// Frees everything that it has of the shard, with all memory of it. Durable at return.
    fn forget(&self) -> impl Future<Output = Result<(), PeerError>>;

    /// A power loss can take what it accepted and did not flush.
    fn volatile(&self) -> bool;
}
