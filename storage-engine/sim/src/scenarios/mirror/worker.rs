//! What hosts do, one after the other, each checked against the model.

use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, World};
use ashlar_replication::{LocalPeer, Part, Shard, ShardError};
use ashlar_store::ids::Blocks;
use ashlar_store::lane::ReadData;

use super::node::{MirrorVolume, Node};
use super::{BLOCKS, EXTENTS, HALF, PARTS, SHARDS, halves};
use crate::model::{Violation, WriteId};
use crate::random::Random;
use crate::value::Value;
use crate::world::SimWorld;

/// The largest write or read.
pub(super) const RANGE_MAX: u32 = 6;

pub(super) struct Worker {
    node: Node,
    volume: Rc<MirrorVolume>,
    random: Random,
}

impl Worker {
    pub(super) fn new(node: &Node, volume: &Rc<MirrorVolume>, random: Random) -> Self {
        Self { node: node.clone(), volume: Rc::clone(volume), random }
    }

    fn shard(&self, extent: u32) -> &Shard<SimWorld, LocalPeer<SimWorld>> {
        self.volume.shard(0, extent % SHARDS).expect("all shards are open here")
    }

    fn check(&self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.node.fail(violation.to_string());
        }
    }

    fn note(&self, what: &str, extent: u32, blocks: Blocks) {
        self.node.world.simulation().note(format!("{what} extent {extent} blocks {blocks}"));
    }

    fn range(&mut self) -> (u32, Blocks) {
        let extent = self.random.below(u64::from(EXTENTS)) as u32;
        let count = self.random.between(1, u64::from(RANGE_MAX)) as u32;
        let first = self.random.below(u64::from(BLOCKS - count + 1)) as u32;
        (extent, Blocks::new(first, count).expect("within the extent"))
    }

    fn value(&mut self) -> Value {
        Value::Write(self.random.bits() | 1)
    }

    /// Works until the process dies or the workload ends.
    pub(super) async fn work(mut self) {
        while !self.node.closing.get() {
            let (extent, blocks) = self.range();
            match self.random.below(100) {
                0..45 => self.write(extent, blocks).await,
                45..55 => self.write_part(extent).await,
                55..63 => self.clear(extent, blocks).await,
                63..66 => self.clear(extent, Blocks::ALL).await,
                66..93 => self.read(extent, blocks).await,
                93..97 => self.flush().await,
                _ => self.node.world.sleep(Duration::from_micros(self.random.below(3_000))).await,
            }
        }
        self.node.workers.set(self.node.workers.get() - 1);
        self.node.changed.notify_all();
    }

    /// What came of a change.
    fn ended(&self, write: WriteId, result: Result<(), ShardError>) {
        let mut model = self.node.mirror.model.borrow_mut();
        match result {
            Ok(()) => model.acknowledge(write),
            Err(ShardError::NoSpace { .. }) => model.forget(write),
            Err(error) => self.node.fail(format!("a change failed: {error}")),
        }
    }

    async fn write(&mut self, extent: u32, blocks: Blocks) {
        let mut buffer = self.node.world.buffer(blocks.count() as usize).await;
        let value = self.value();
        for (address, half) in halves(extent, blocks).zip(buffer.chunks_exact_mut(HALF)) {
            value.fill(address, half);
        }
        self.note(&format!("{value:x?}"), extent, blocks);
        let write = self.node.mirror.model.borrow_mut().write(halves(extent, blocks).map(|at| (at, value)));
        let _request = self.node.request(format!("write of extent {extent} blocks {blocks}"));
        let result = self.shard(extent).write(extent, blocks, buffer.freeze()).await;
        self.ended(write, result);
    }

    /// Writes some halves of the first blocks.
    async fn write_part(&mut self, extent: u32) {
        let count = self.random.between(1, 3) as usize;
        let first = self.random.below(u64::from(2 * PARTS) - count as u64 + 1) as usize;
        let end = (first + count).div_ceil(2);
        let blocks = Blocks::new(first as u32 / 2, (end - first / 2) as u32).expect("within the extent");
        let part = Part { blocks, skip: first % 2 * HALF, len: count * HALF };
        let value = self.value();
        let changed: Vec<u64> = halves(extent, blocks).skip(first % 2).take(count).collect();
        let mut bytes = vec![0; part.len];
        for (address, half) in changed.iter().zip(bytes.chunks_exact_mut(HALF)) {
            value.fill(*address, half);
        }
        self.note(&format!("{value:x?} at +{} for {}", part.skip, part.len), extent, blocks);
        let values = changed.into_iter().map(|at| (at, value));
        let write = self.node.mirror.model.borrow_mut().write(values);
        let _request = self.node.request(format!("partial write of extent {extent} blocks {blocks}"));
        let result = self.shard(extent).write_part(extent, part, &bytes).await;
        self.ended(write, result);
    }

    async fn clear(&mut self, extent: u32, blocks: Blocks) {
        self.note("clear", extent, blocks);
        let used = if blocks == Blocks::ALL { Blocks::new(0, BLOCKS).expect("not empty") } else { blocks };
        let values = halves(extent, used).map(|at| (at, Value::Zero));
        let write = self.node.mirror.model.borrow_mut().write(values);
        let _request = self.node.request(format!("clearing of extent {extent} blocks {blocks}"));
        let result = self.shard(extent).clear(extent, blocks).await;
        self.ended(write, result);
    }

    async fn flush(&mut self) {
        let flush = self.node.mirror.model.borrow_mut().flush();
        let _request = self.node.request("flush".to_owned());
        match self.volume.flush().await {
            Ok(()) => self.node.mirror.model.borrow_mut().flushed(flush),
            Err(error) => self.node.fail(format!("a flush failed: {error}")),
        }
    }

    pub(super) async fn read(&self, extent: u32, blocks: Blocks) {
        let read = self.node.mirror.model.borrow_mut().read(halves(extent, blocks));
        let _request = self.node.request(format!("read of extent {extent} blocks {blocks}"));
        let result = self.shard(extent).read(extent, blocks).await;
        let mut model = self.node.mirror.model.borrow_mut();
        match result {
            Ok(ReadData::Zeroes) => {
                self.note("zeroes in", extent, blocks);
                self.check(model.returned_zeroes(read));
            }
            Ok(ReadData::Buffer(bytes)) => {
                let found = halves(extent, blocks).zip(bytes.chunks_exact(HALF));
                let found: Vec<_> = found.map(|(address, bytes)| Value::of(address, bytes)).collect();
                self.note(&format!("read {found:x?}"), extent, blocks);
                let torn = (blocks.first()..blocks.end())
                    .zip(found.chunks_exact(BLOCK_BYTES / HALF))
                    .find(|(block, halves)| *block >= PARTS && halves[0] != halves[1]);
                if let Some((block, halves)) = torn {
                    self.node.fail(format!("block {block} of extent {extent} is torn: {halves:x?} (S9)"));
                }
                self.check(model.returned(read, &bytes));
            }
            Err(error) => {
                model.read_failed(read);
                self.node.fail(format!("a read failed: {error}"));
            }
        }
    }
}
