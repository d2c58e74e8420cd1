//! Memory as the model hands it out: bounded per process, full of junk, shared once it is frozen.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use ashlar_io::{BLOCK_BYTES, Buffer, Data};

/// The memory of a process.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Mutex<Blocks>>);

#[derive(Debug)]
struct Blocks {
    free: usize,
    waiting: VecDeque<Waker>,
}

impl Pool {
    pub(crate) fn new(blocks: usize) -> Self {
        Self(Arc::new(Mutex::new(Blocks { free: blocks, waiting: VecDeque::new() })))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Blocks) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until `blocks` are free, then fills them with `junk`.
    pub(crate) async fn take(&self, blocks: usize, junk: u8) -> SimBuffer {
        poll_fn(|context| {
            self.change(|state| {
                if state.free >= blocks {
                    state.free -= blocks;
                    Poll::Ready(())
                } else {
                    state.waiting.push_back(context.waker().clone());
                    Poll::Pending
                }
            })
        })
        .await;
        let permit = Permit { pool: self.clone(), blocks };
        SimBuffer { bytes: vec![junk; blocks * BLOCK_BYTES], permit }
    }

    /// The same beyond what is free, if need be.
    pub(crate) fn take_spare(&self, blocks: usize, junk: u8) -> SimBuffer {
        let taken = self.change(|state| {
            let taken = blocks.min(state.free);
            state.free -= taken;
            taken
        });
        let permit = Permit { pool: self.clone(), blocks: taken };
        SimBuffer { bytes: vec![junk; blocks * BLOCK_BYTES], permit }
    }
}

/// Blocks of a pool, given back when dropped.
struct Permit {
    pool: Pool,
    blocks: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let waiting = self.pool.change(|state| {
            state.free += self.blocks;
            std::mem::take(&mut state.waiting)
        });
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Memory with one owner.
pub struct SimBuffer {
    bytes: Vec<u8>,
    permit: Permit,
}

impl fmt::Debug for SimBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimBuffer({} blocks)", self.permit.blocks)
    }
}

impl Deref for SimBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for SimBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Buffer for SimBuffer {
    type Data = SimData;

    fn freeze(self) -> SimData {
        let range = 0..self.bytes.len();
        SimData { bytes: Arc::new(self.bytes), range, _permit: Arc::new(self.permit) }
    }
}

/// Final bytes. The permit goes back with the last of them; a disk keeps the bytes alone.
#[derive(Clone)]
pub struct SimData {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
    _permit: Arc<Permit>,
}

impl SimData {
    /// The whole allocation, and where in it these bytes start.
    pub(crate) fn shared(&self) -> (Arc<Vec<u8>>, usize) {
        (Arc::clone(&self.bytes), self.range.start)
    }
}

impl fmt::Debug for SimData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimData({} blocks)", self.range.len() / BLOCK_BYTES)
    }
}

impl Deref for SimData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Data for SimData {
    fn slice(&self, part: Range<usize>) -> Self {
        assert!(part.end <= self.range.len(), "a part lies within the length");
        assert!(
            part.start.is_multiple_of(BLOCK_BYTES) && part.end.is_multiple_of(BLOCK_BYTES),
            "whole blocks"
        );
        let range = self.range.start + part.start..self.range.start + part.end;
        Self { bytes: Arc::clone(&self.bytes), range, _permit: Arc::clone(&self._permit) }
    }
}
