//! One block device, as the store sees it: an array of 4 KiB blocks.

use std::fmt;
use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;

use crate::Buffer;

/// What a 4 KiB write may leave after a power loss (PROTOCOL S9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tearing {
    /// An aligned block is old or new as a whole.
    Atomic,
    /// A block can be part old, part new. Unknown counts as this.
    Torn,
}

/// What is known about a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskGeometry {
    /// Its size in whole blocks.
    pub blocks: u64,
    /// A power loss can take completed writes that no flush followed (PROTOCOL S6).
    pub volatile_cache: bool,
    /// What a power loss does to a block that is being written.
    pub tearing: Tearing,
    /// It can give back the space of discarded blocks.
    pub discard: bool,
}

/// What was asked of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOperation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush of the volatile cache.
    Flush,
    /// A discard.
    Discard,
}

impl fmt::Display for DiskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskOperation::Read => "read",
            DiskOperation::Write => "write",
            DiskOperation::Flush => "flush",
            DiskOperation::Discard => "discard",
        })
    }
}

/// A disk did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} at block {block} failed: {cause}")]
pub struct DiskError {
    /// What was asked.
    pub operation: DiskOperation,
    /// First block concerned.
    pub block: u64,
    /// What the disk or the system said.
    pub cause: String,
}

/// A disk, open on one core. Clones are the same disk.
///
/// Operations of one disk overlap freely and have no order but that of their completions. A future that is dropped
/// leaves its operation to itself: it happens or does not, and its memory stays alive until then.
pub trait Disk: Clone + Debug + 'static {
    /// Memory that it reads into.
    type Buffer: Buffer;

    /// Size and promises; constant while it is open.
    fn geometry(&self) -> DiskGeometry;

    /// Fills `buffer` from `block` on. The buffer comes back in every case; after an error its content is arbitrary.
    fn read(
        &self,
        block: u64,
        buffer: Self::Buffer,
    ) -> impl Future<Output = (Result<(), DiskError>, Self::Buffer)>;

    /// Writes `data` from `block` on. After an error each block is old, new or, if the disk tears, anything.
    fn write(
        &self,
        block: u64,
        data: <Self::Buffer as Buffer>::Data,
    ) -> impl Future<Output = Result<(), DiskError>>;

    /// Makes every write that completed before this was called durable.
    fn flush(&self) -> impl Future<Output = Result<(), DiskError>>;

    /// Gives up the content of `blocks`: what they read as afterwards is arbitrary. A hint, which a disk that cannot
    /// ignores with success.
    fn discard(&self, blocks: Range<u64>) -> impl Future<Output = Result<(), DiskError>>;
}
