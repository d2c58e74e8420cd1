//! A disk in memory that can lose what was not flushed, and stop at any write.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Deref, DerefMut, Range};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ashlar_io::{
    BLOCK_BYTES, Buffer, Data, Disk, DiskError, DiskGeometry, DiskOperation, Instant, Tearing, World,
};

/// Runs what never waits.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a disk in memory never lets one wait"),
    }
}

/// The world of these tests.
#[derive(Debug, Clone)]
pub(crate) struct Memory;

impl World for Memory {
    type Disk = MemoryDisk;
    type Buffer = MemoryBuffer;
    const MAX_BUFFER_BLOCKS: usize = 32;

    fn now(&self) -> Instant {
        Instant::from_ns(0)
    }

    async fn sleep(&self, _: Duration) {}

    fn spawn(&self, _: impl Future<Output = ()> + 'static) {
        unreachable!("nothing here starts tasks");
    }

    async fn next_turn(&self) {}

    fn random(&self) -> u64 {
        unreachable!("nothing here is random");
    }

    async fn buffer(&self, blocks: usize) -> MemoryBuffer {
        assert!((1..=Self::MAX_BUFFER_BLOCKS).contains(&blocks), "{blocks} blocks are a buffer");
        self.spare_buffer(blocks)
    }

    fn spare_buffer(&self, blocks: usize) -> MemoryBuffer {
        MemoryBuffer(vec![0xaa; blocks * BLOCK_BYTES])
    }
}

#[derive(Debug)]
pub(crate) struct MemoryBuffer(Vec<u8>);

impl Deref for MemoryBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for MemoryBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Buffer for MemoryBuffer {
    type Data = MemoryData;

    fn freeze(self) -> MemoryData {
        MemoryData { range: 0..self.0.len(), bytes: self.0.into() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct MemoryData {
    bytes: Arc<[u8]>,
    range: Range<usize>,
}

impl Deref for MemoryData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Data for MemoryData {
    fn slice(&self, part: Range<usize>) -> Self {
        let start = self.range.start;
        Self { bytes: Arc::clone(&self.bytes), range: start + part.start..start + part.end }
    }
}

/// Bytes that even a tearing disk writes as a whole.
const SECTOR_BYTES: usize = 512;

type Block = [u8; BLOCK_BYTES];

#[derive(Debug)]
struct State {
    geometry: DiskGeometry,
    /// What was flushed; blocks that are not here are zero.
    durable: BTreeMap<u64, Block>,
    /// What was written since, in order.
    cached: Vec<(u64, Block)>,
    /// Writes and flushes until the disk stops.
    operations_left: usize,
    /// Blocks that were written, flushed or not.
    writes: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct MemoryDisk(Rc<RefCell<State>>);

impl MemoryDisk {
    /// An empty disk.
    pub(crate) fn new(blocks: u64) -> Self {
        let geometry =
            DiskGeometry { blocks, volatile_cache: true, tearing: Tearing::Atomic, discard: false };
        Self(Rc::new(RefCell::new(State {
            geometry,
            durable: BTreeMap::new(),
            cached: Vec::new(),
            operations_left: usize::MAX,
            writes: 0,
        })))
    }

    /// A copy that goes its own way.
    pub(crate) fn duplicate(&self) -> Self {
        let state = self.0.borrow();
        Self(Rc::new(RefCell::new(State {
            geometry: state.geometry,
            durable: state.durable.clone(),
            cached: state.cached.clone(),
            operations_left: state.operations_left,
            writes: state.writes,
        })))
    }

    pub(crate) fn tearing(self) -> Self {
        self.0.borrow_mut().geometry.tearing = Tearing::Torn;
        self
    }

    pub(crate) fn resize(&self, blocks: u64) {
        let mut state = self.0.borrow_mut();
        state.geometry.blocks = blocks;
        state.durable.retain(|block, _| *block < blocks);
        state.cached.retain(|(block, _)| *block < blocks);
    }

    /// Writes and flushes beyond this number fail.
    pub(crate) fn stop_after(&self, operations: usize) {
        self.0.borrow_mut().operations_left = operations;
    }

    /// Power comes back: of what was not flushed, each sector (or, if the disk does not tear, block) is there if
    /// `keep` says so.
    pub(crate) fn power_loss(&self, mut keep: impl FnMut() -> bool) {
        let state = &mut *self.0.borrow_mut();
        let unit = match state.geometry.tearing {
            Tearing::Atomic => BLOCK_BYTES,
            Tearing::Torn => SECTOR_BYTES,
        };
        for (block, bytes) in state.cached.drain(..) {
            let stored = state.durable.entry(block).or_insert([0; BLOCK_BYTES]);
            for at in (0..BLOCK_BYTES).step_by(unit) {
                if keep() {
                    stored[at..at + unit].copy_from_slice(&bytes[at..at + unit]);
                }
            }
        }
        state.operations_left = usize::MAX;
    }

    /// Blocks that were written so far.
    pub(crate) fn writes(&self) -> usize {
        self.0.borrow().writes
    }

    /// Changes bytes behind everybody's back.
    pub(crate) fn poke(&self, at: u64, bytes: &[u8]) {
        let block = at / BLOCK_BYTES as u64;
        let at = (at % BLOCK_BYTES as u64) as usize;
        let mut content = self.block(block);
        content[at..at + bytes.len()].copy_from_slice(bytes);
        let mut state = self.0.borrow_mut();
        state.cached.retain(|(cached, _)| *cached != block);
        state.durable.insert(block, content);
    }

    /// What a block reads as.
    pub(crate) fn block(&self, block: u64) -> Block {
        let state = self.0.borrow();
        let cached = state.cached.iter().rev().find(|(cached, _)| *cached == block).map(|(_, bytes)| bytes);
        cached.or_else(|| state.durable.get(&block)).copied().unwrap_or([0; BLOCK_BYTES])
    }

    /// Everything that it holds.
    pub(crate) fn content(&self) -> BTreeMap<u64, Block> {
        let blocks: Vec<u64> = {
            let state = self.0.borrow();
            state.durable.keys().copied().chain(state.cached.iter().map(|(block, _)| *block)).collect()
        };
        let content = blocks.into_iter().map(|block| (block, self.block(block)));
        content.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).collect()
    }

    fn operation(&self, operation: DiskOperation, block: u64) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        match state.operations_left.checked_sub(1) {
            Some(left) => state.operations_left = left,
            None => return Err(DiskError { operation, block, cause: "the power is off".to_owned() }),
        }
        Ok(())
    }
}

impl Disk for MemoryDisk {
    type Buffer = MemoryBuffer;

    fn geometry(&self) -> DiskGeometry {
        self.0.borrow().geometry
    }

    async fn read(&self, block: u64, mut buffer: MemoryBuffer) -> (Result<(), DiskError>, MemoryBuffer) {
        let blocks = self.geometry().blocks;
        for (block, to) in (block..).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            assert!(block < blocks, "block {block} is on a disk of {blocks}");
            to.copy_from_slice(&self.block(block));
        }
        (Ok(()), buffer)
    }

    async fn write(&self, block: u64, data: MemoryData) -> Result<(), DiskError> {
        self.operation(DiskOperation::Write, block)?;
        let blocks = self.geometry().blocks;
        for (block, bytes) in (block..).zip(data.chunks_exact(BLOCK_BYTES)) {
            assert!(block < blocks, "block {block} is on a disk of {blocks}");
            let mut state = self.0.borrow_mut();
            state.cached.push((block, bytes.try_into().expect("a block has its length")));
            state.writes += 1;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DiskError> {
        self.operation(DiskOperation::Flush, 0)?;
        let state = &mut *self.0.borrow_mut();
        state.durable.extend(state.cached.drain(..));
        Ok(())
    }

    async fn discard(&self, _: Range<u64>) -> Result<(), DiskError> {
        Ok(())
    }
}

/// Coin tosses that repeat.
#[derive(Debug, Clone)]
pub(crate) struct Coins(pub(crate) u64);

impl Coins {
    pub(crate) fn toss(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 63 == 1
    }
}
