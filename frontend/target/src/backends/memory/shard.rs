//! The blocks that one core keeps: chunks of memory found through a table of two levels.
//!
//! Offsets are the shard's own, dense from zero. Memory is taken in chunks of 64 KiB when a block in them is
//! first written, and given back when none of a chunk's blocks is written any more; so a sparse namespace of
//! many TiB takes what was written to it. Bytes of blocks that are not written are always zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::BackendError;

/// Unit of "written or not": a store block.
const BLOCK_BYTES: usize = 4096;

/// Unit of allocation: large enough that a 128 KiB slice is two or three copies, small enough for sparse use.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks of one leaf of the table: 256 MiB of namespace in 16 KiB.
const LEAF_CHUNKS: usize = 4096;

/// Chunks and leaves that one step of clearing looks at: about 20 µs of freeing or zeroing (NVME N10).
const STEP_CHUNKS: usize = 16;
const STEP_LEAVES: usize = 1024;

/// How much memory a namespace takes, all cores together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    most: u64,
}

impl Budget {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), most })
    }

    fn take(&self) -> bool {
        let bytes = CHUNK_BYTES as u64;
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.most;
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self) {
        self.used.fetch_sub(CHUNK_BYTES as u64, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    /// One bit per block.
    written: u16,
}

/// Place of a chunk in [`Shard::chunks`], plus one; zero for none.
type Place = u32;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Shard {
    table: Vec<Option<Box<[Place]>>>,
    chunks: Vec<Chunk>,
    free: Vec<Place>,
    budget: Arc<Budget>,
}

/// The part of a range that lies in one chunk.
struct Part {
    chunk: usize,
    /// Offset in the chunk.
    at: usize,
    len: usize,
}

/// Splits a range at chunks' borders.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let position = offset + done as u64;
        let at = (position % CHUNK_BYTES as u64) as usize;
        let part = Part {
            chunk: (position / CHUNK_BYTES as u64) as usize,
            at,
            len: (CHUNK_BYTES - at).min(len - done),
        };
        done += part.len;
        Some(part)
    })
}

/// Bits of the blocks that a part touches.
fn touched(at: usize, len: usize) -> u16 {
    let (first, last) = (at / BLOCK_BYTES, (at + len - 1) / BLOCK_BYTES);
    bits(first, last + 1)
}

/// Bits of the blocks that a part covers as a whole.
fn covered(at: usize, len: usize) -> u16 {
    let (first, end) = (at.div_ceil(BLOCK_BYTES), (at + len) / BLOCK_BYTES);
    if first < end { bits(first, end) } else { 0 }
}

/// Bits `from..to`, at most 16.
fn bits(from: usize, to: usize) -> u16 {
    (((1u32 << to) - 1) & !((1u32 << from) - 1)) as u16
}

impl Shard {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { table: Vec::new(), chunks: Vec::new(), free: Vec::new(), budget }
    }

    pub(super) fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }

    fn place(&self, chunk: usize) -> Option<usize> {
        let leaf = self.table.get(chunk / LEAF_CHUNKS)?.as_deref()?;
        match leaf[chunk % LEAF_CHUNKS] {
            0 => None,
            place => Some(place as usize - 1),
        }
    }

    /// No byte of the range was written.
    pub(super) fn is_unwritten(&self, offset: u64, len: usize) -> bool {
        parts(offset, len).all(|part| {
            self.place(part.chunk)
                .is_none_or(|place| self.chunks[place].written & touched(part.at, part.len) == 0)
        })
    }

    /// Copies the range out.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        for part in parts(offset, out.len()) {
            let into = &mut out[done..done + part.len];
            match self.place(part.chunk) {
                Some(place) => into.copy_from_slice(&self.chunks[place].bytes[part.at..part.at + part.len]),
                None => into.fill(0),
            }
            done += part.len;
        }
    }

    /// Copies the range in. If there is no memory for a part of it, what comes before that part is written.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), BackendError> {
        let mut done = 0;
        for part in parts(offset, data.len()) {
            let place = match self.place(part.chunk) {
                Some(place) => place,
                None => self.allocate(part.chunk).ok_or(BackendError::CapacityExceeded)?,
            };
            let chunk = &mut self.chunks[place];
            chunk.bytes[part.at..part.at + part.len].copy_from_slice(&data[done..done + part.len]);
            chunk.written |= touched(part.at, part.len);
            done += part.len;
        }
        Ok(())
    }

    fn allocate(&mut self, chunk: usize) -> Option<usize> {
        let leaf_index = chunk / LEAF_CHUNKS;
        if leaf_index >= self.table.len() {
            self.table.try_reserve(leaf_index + 1 - self.table.len()).ok()?;
            self.table.resize_with(leaf_index + 1, || None);
        }
        if !self.budget.take() {
            return None;
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(CHUNK_BYTES).is_err() || self.chunks.len() >= Place::MAX as usize - 1 {
            self.budget.give_back();
            return None;
        }
        bytes.resize(CHUNK_BYTES, 0);
        let new = Chunk { bytes: bytes.into_boxed_slice(), written: 0 };
        let place = match self.free.pop() {
            Some(place) => {
                self.chunks[place as usize - 1] = new;
                place
            }
            None => {
                self.chunks.push(new);
                self.chunks.len() as Place
            }
        };
        let leaf = self.table[leaf_index].get_or_insert_with(|| vec![0; LEAF_CHUNKS].into_boxed_slice());
        leaf[chunk % LEAF_CHUNKS] = place;
        Some(place as usize - 1)
    }

    /// Clears from `from` on towards `end`, as much as is done in one go; returns how far it came.
    pub(super) fn clear_step(&mut self, from: u64, end: u64) -> u64 {
        let mut position = from;
        let leaf_bytes = (LEAF_CHUNKS * CHUNK_BYTES) as u64;
        let (mut chunks, mut leaves) = (0, 0);
        while position < end && chunks < STEP_CHUNKS && leaves < STEP_LEAVES {
            let leaf = (position / leaf_bytes) as usize;
            if leaf >= self.table.len() {
                return end;
            }
            let leaf_end = (leaf as u64 + 1) * leaf_bytes;
            if self.table[leaf].is_none() {
                position = leaf_end.min(end);
                leaves += 1;
                continue;
            }
            // Looking at places is cheap: a leaf's worth of empty ones counts as a chunk.
            let stop = leaf_end.min(end);
            while position < stop && chunks < STEP_CHUNKS {
                let next = (position / CHUNK_BYTES as u64 + 1) * CHUNK_BYTES as u64;
                let until = next.min(stop);
                if self.clear_part(position, (until - position) as usize) {
                    chunks += 1;
                }
                position = until;
            }
            chunks += 1;
        }
        position
    }

    /// Clears a part of one chunk; tells whether there was one.
    fn clear_part(&mut self, offset: u64, len: usize) -> bool {
        let (number, at) = ((offset / CHUNK_BYTES as u64) as usize, (offset % CHUNK_BYTES as u64) as usize);
        let Some(place) = self.place(number) else { return false };
        let chunk = &mut self.chunks[place];
        chunk.written &= !covered(at, len);
        if chunk.written != 0 {
            chunk.bytes[at..at + len].fill(0);
            return true;
        }
        chunk.bytes = Box::default();
        if let Some(leaf) = self.table[number / LEAF_CHUNKS].as_deref_mut() {
            leaf[number % LEAF_CHUNKS] = 0;
        }
        // Places have 32 bits, as `allocate` made sure.
        self.free.push(place as Place + 1);
        self.budget.give_back();
        true
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        for _ in self.free.len()..self.chunks.len() {
            self.budget.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(shard: &mut Shard, from: u64, end: u64) -> usize {
        let (mut position, mut steps) = (from, 0);
        while position < end {
            let next = shard.clear_step(position, end);
            assert!(next > position && next <= end);
            position = next;
            steps += 1;
        }
        steps
    }

    #[test]
    fn memory_is_given_back_with_the_last_written_block() {
        let budget = Budget::new(u64::MAX);
        let mut shard = Shard::new(Arc::clone(&budget));
        shard.write(CHUNK_BYTES as u64 - 512, &[1; 1024]).expect("there is memory");
        assert_eq!(budget.used(), 2 * CHUNK_BYTES as u64);
        clear(&mut shard, 0, CHUNK_BYTES as u64);
        assert_eq!(budget.used(), CHUNK_BYTES as u64);
        assert!(shard.is_unwritten(0, CHUNK_BYTES));
        assert!(!shard.is_unwritten(0, CHUNK_BYTES + 1));
        drop(shard);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn clearing_half_a_block_spares_the_other_half() {
        let mut shard = Shard::new(Budget::new(u64::MAX));
        shard.write(0, &[7; 8192]).expect("there is memory");
        clear(&mut shard, 512, 4096 + 512);
        let mut out = [9; 8192];
        shard.read(0, &mut out);
        assert!(out[..512].iter().all(|&byte| byte == 7));
        assert!(out[512..4608].iter().all(|&byte| byte == 0));
        assert!(out[4608..].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_full_budget_refuses_new_chunks_and_no_old_ones() {
        let mut shard = Shard::new(Budget::new(CHUNK_BYTES as u64));
        shard.write(0, &[1; 4096]).expect("the first fits");
        let refused = shard.write(CHUNK_BYTES as u64, &[1; 4096]);
        assert!(matches!(refused, Err(BackendError::CapacityExceeded)));
        shard.write(4096, &[2; 4096]).expect("the chunk is there already");
        clear(&mut shard, 0, CHUNK_BYTES as u64);
        shard.write(CHUNK_BYTES as u64, &[1; 4096]).expect("its memory came back");
    }

    #[test]
    fn clearing_a_huge_sparse_range_takes_few_steps() {
        let mut shard = Shard::new(Budget::new(u64::MAX));
        let end = 16u64 << 40;
        shard.write(end - 4096, &[1; 4096]).expect("there is memory");
        let steps = clear(&mut shard, 0, end);
        assert!(steps < 100, "{steps} steps");
        assert!(shard.is_unwritten(end - 4096, 4096));
    }
}
