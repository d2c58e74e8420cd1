//! What stands behind a namespace: a narrow, asynchronous trait, one handle per core.
//!
//! A backend knows bytes, not LBAs: the target has checked every range against the namespace's size and LBA
//! format before it calls. Calls of one core overlap freely; a backend orders what must be ordered.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, Range};
use std::rc::Rc;

use ashlar_nvme::Status;
use ashlar_reactor::net::Received;
use ashlar_reactor::{CoreId, IoBuf};

/// A range of bytes of a namespace, within its size, aligned to its LBA size, not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes. Reads and writes have at most [`crate::limits::SLICE_BYTES`].
    pub len: u64,
}

impl ByteRange {
    /// First byte behind the range.
    pub const fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Some byte is in both.
    pub const fn overlaps(self, other: ByteRange) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

/// When a write is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When a later read sees it; durable after the next flush, or at once if there is no volatile cache.
    Cached,
    /// When it is durable (FUA, or the volatile write cache is switched off; NVME N16).
    Durable,
}

/// What becomes of a cleared range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clear {
    /// It reads as zeroes; its space is given back if the backend can.
    Deallocate,
    /// It reads as zeroes and stays allocated if the backend knows the difference.
    Zero,
    /// Dataset Management: a hint. What it reads as afterwards is what [`BackendInfo::deallocated`] says.
    Discard,
}

/// What a deallocated block reads as (DLFEAT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deallocated {
    /// Zeroes, certainly.
    Zeroes,
    /// Nothing is promised.
    Unspecified,
}

/// What is constant about a backend while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendInfo {
    /// Size in bytes.
    pub bytes: u64,
    /// Smallest unit of access in bytes: 512 or 4096. The namespace's LBA is at least this.
    pub access_bytes: u32,
    /// Acknowledged writes can be lost with the power until a flush (VWC).
    pub volatile_cache: bool,
    /// What discarded blocks read as.
    pub deallocated: Deallocated,
}

/// Why a backend could not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The data is lost or fails its checksum, with no good copy.
    #[error("unrecovered read error at byte {offset}")]
    Unrecovered {
        /// First byte concerned.
        offset: u64,
    },
    /// The device failed a write.
    #[error("write failed: {0}")]
    WriteFault(#[source] std::io::Error),
    /// The device failed a read.
    #[error("read failed: {0}")]
    ReadFault(#[source] std::io::Error),
    /// No space is left for new data.
    #[error("no space is left")]
    CapacityExceeded,
    /// This node is no longer the one to ask: the host shall take another path.
    #[error("this path no longer serves the volume")]
    PathLost,
    /// Not now: starting, moving, overloaded. The host shall try again.
    #[error("not ready")]
    NotReady,
}

impl BackendError {
    /// The status that the host gets (NVME N12).
    pub fn status(&self) -> Status {
        match self {
            BackendError::Unrecovered { .. } | BackendError::ReadFault(_) => Status::UNRECOVERED_READ,
            BackendError::WriteFault(_) => Status::UNRECOVERED_WRITE,
            BackendError::CapacityExceeded => Status::CAPACITY_EXCEEDED,
            BackendError::PathLost => Status::INTERNAL_PATH_ERROR,
            BackendError::NotReady => Status::NAMESPACE_NOT_READY,
        }
    }
}

/// What a read brings.
pub enum ReadData {
    /// The bytes, in a buffer of exactly the range's length.
    Buffer(IoBuf),
    /// The whole range reads as zeroes: nothing was touched.
    Zeroes,
}

/// What a write carries.
#[derive(Debug)]
pub enum WriteData {
    /// Bytes where they arrived, in a shared receive buffer, at any alignment. Use them during the call or
    /// copy them ([`WriteData::into_buffer`]): shared buffers are few.
    Received(ReceivedSlice),
    /// An aligned buffer of exactly the range's length.
    Buffer(IoBuf),
}

impl Deref for WriteData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            WriteData::Received(slice) => slice,
            WriteData::Buffer(buffer) => buffer,
        }
    }
}

impl WriteData {
    /// The bytes in an aligned buffer: copied if they are not in one yet. Waits for a buffer if none is free;
    /// `None` if there are more than fit into the largest one.
    pub async fn into_buffer(self) -> Option<IoBuf> {
        match self {
            WriteData::Buffer(buffer) => Some(buffer),
            WriteData::Received(slice) => {
                let mut buffer = IoBuf::wait(slice.len()).await?;
                buffer.copy_from_slice(&slice);
                Some(buffer)
            }
        }
    }
}

/// A part of a receive buffer, which stays alive with it.
#[derive(Clone)]
pub struct ReceivedSlice {
    received: Rc<Received>,
    range: Range<usize>,
}

impl ReceivedSlice {
    /// `range` of `received`; `None` if it is not within it.
    pub fn new(received: Rc<Received>, range: Range<usize>) -> Option<Self> {
        received.get(range.clone())?;
        Some(Self { received, range })
    }
}

impl Deref for ReceivedSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Checked at construction; a receive buffer is never changed behind an `Rc`.
        self.received.get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for ReceivedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedSlice").field("range", &self.range).finish_non_exhaustive()
    }
}

/// One core's handle on a namespace's storage.
///
/// All futures may be dropped at any await: the operation then has or has not happened, as with a power loss.
pub trait Backend: 'static {
    /// Reads a range.
    fn read(&self, range: ByteRange) -> impl Future<Output = Result<ReadData, BackendError>>;

    /// Writes `data`, which has the range's length.
    fn write(
        &self,
        range: ByteRange,
        data: WriteData,
        durability: Durability,
    ) -> impl Future<Output = Result<(), BackendError>>;

    /// Makes every write that was acknowledged before durable, on whichever core it was done. A failure is
    /// never followed by a success that would cover the same writes (NVME N16).
    fn flush(&self) -> impl Future<Output = Result<(), BackendError>>;

    /// Clears a range, which can be of any length; long ones yield to other work in between (NVME N10).
    fn clear(
        &self,
        range: ByteRange,
        how: Clear,
        durability: Durability,
    ) -> impl Future<Output = Result<(), BackendError>>;
}

/// Opens a namespace's storage on each core.
pub trait OpenBackend: Send + Sync + 'static {
    /// What it opens.
    type Backend: Backend;

    /// What is constant about it; the same on all cores.
    fn info(&self) -> BackendInfo;

    /// Makes the handle of one core; called on that core.
    fn open(&self, core: CoreId) -> impl Future<Output = Result<Self::Backend, BackendError>>;
}
