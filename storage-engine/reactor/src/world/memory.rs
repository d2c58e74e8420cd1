//! A disk in memory, gone with the process: for tests, trials and measurements. It keeps what was written and nothing
//! else; memory is taken when a part is first written and given back when it is discarded.
//!
//! Its bytes are shared by all cores, each part behind a lock of its own. Lanes do not share parts, so nobody waits for
//! such a lock; real disks have none.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_io::{BLOCK_BYTES, Disk, DiskError, DiskGeometry, DiskOperation, Tearing};

use super::disk::within;
use crate::buffer::IoBuf;
use crate::frozen::FrozenBuf;

/// Blocks of a part: 1 MiB, less than an extent, so that lanes do not share any.
const PART_BLOCKS: u64 = 256;

/// Bytes of a part.
const PART_BYTES: usize = PART_BLOCKS as usize * BLOCK_BYTES;

/// Bytes of a part; one that is not there reads as zeroes.
type Part = Option<Box<[u8]>>;

/// A disk in memory. Clones are the same disk, on any core.
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
}

struct Shared {
    blocks: u64,
    parts: Box<[Mutex<Part>]>,
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").field("blocks", &self.shared.blocks).finish_non_exhaustive()
    }
}

impl MemoryDisk {
    /// A disk of `blocks` blocks, all zeroes.
    pub fn new(blocks: u64) -> Self {
        let parts = (0..blocks.div_ceil(PART_BLOCKS)).map(|_| Mutex::default()).collect();
        Self { shared: Arc::new(Shared { blocks, parts }) }
    }

    /// Bytes of memory that it takes at present.
    pub fn memory_bytes(&self) -> u64 {
        let there = self.shared.parts.iter().filter(|part| lock(part).is_some()).count();
        there as u64 * PART_BYTES as u64
    }

    /// Calls `f` with each part that blocks from `block` on touch, the bytes of the part, and the bytes of the whole
    /// that they are.
    fn each(
        &self,
        block: u64,
        len: usize,
        mut f: impl FnMut(MutexGuard<'_, Part>, Range<usize>, Range<usize>),
    ) {
        let mut at = block;
        let mut done = 0;
        while done < len {
            let inside = (at % PART_BLOCKS) as usize * BLOCK_BYTES;
            let count = (PART_BYTES - inside).min(len - done);
            // Checked to be within the disk.
            let Some(part) = self.shared.parts.get((at / PART_BLOCKS) as usize) else { return };
            f(lock(part), inside..inside + count, done..done + count);
            done += count;
            at += (count / BLOCK_BYTES) as u64;
        }
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    // Whole after every statement that changes it.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for MemoryDisk {
    type Buffer = IoBuf;

    fn geometry(&self) -> DiskGeometry {
        // What is in it is gone with the process, and no flush would change that.
        let (volatile_cache, tearing) = (false, Tearing::Atomic);
        DiskGeometry { blocks: self.shared.blocks, volatile_cache, tearing, discard: true }
    }

    async fn read(&self, block: u64, mut buffer: IoBuf) -> (Result<(), DiskError>, IoBuf) {
        if let Err(error) = within(self.shared.blocks, DiskOperation::Read, block, buffer.len()) {
            return (Err(error), buffer);
        }
        self.each(block, buffer.len(), |part, from, to| match &*part {
            Some(bytes) => buffer[to].copy_from_slice(&bytes[from]),
            None => buffer[to].fill(0),
        });
        (Ok(()), buffer)
    }

    async fn write(&self, block: u64, data: FrozenBuf) -> Result<(), DiskError> {
        within(self.shared.blocks, DiskOperation::Write, block, data.len())?;
        self.each(block, data.len(), |mut part, to, from| {
            let bytes = part.get_or_insert_with(|| vec![0; PART_BYTES].into_boxed_slice());
            bytes[to].copy_from_slice(&data[from]);
        });
        Ok(())
    }

    async fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }

    async fn discard(&self, blocks: Range<u64>) -> Result<(), DiskError> {
        // Parts that are discarded as a whole go; what is discarded of others keeps its bytes.
        let end = blocks.end.min(self.shared.blocks);
        let last = if end == self.shared.blocks { end.div_ceil(PART_BLOCKS) } else { end / PART_BLOCKS };
        for index in blocks.start.div_ceil(PART_BLOCKS)..last {
            if let Some(part) = self.shared.parts.get(index as usize) {
                *lock(part) = None;
            }
        }
        Ok(())
    }
}
