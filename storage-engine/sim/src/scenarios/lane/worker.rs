//! What hosts do, one after the other, each checked against the model.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, World};
use ashlar_store::Summer;
use ashlar_store::checksum::Stored;
use ashlar_store::ids::{Blocks, Version};
use ashlar_store::lane::{Change, Lane, LaneError, Order, Origin, ReadData, Write};

use super::shard::{Acknowledged, Shard, address, addresses};
use super::{BLOCKS, EXTENTS, Engine, Life, State};
use crate::model::Violation;
use crate::random::Random;
use crate::value::Value;
use crate::world::SimWorld;

/// The largest write or read.
const RANGE_MAX: u64 = 6;

pub(super) struct Worker {
    engine: Engine,
    world: SimWorld,
    lanes: Vec<Lane<SimWorld>>,
    life: Rc<Life>,
    random: RefCell<Random>,
}

impl Worker {
    pub(super) fn new(
        engine: &Engine,
        world: &SimWorld,
        lanes: &[Lane<SimWorld>],
        life: &Rc<Life>,
        random: Random,
    ) -> Self {
        Self {
            engine: engine.clone(),
            world: world.clone(),
            lanes: lanes.to_vec(),
            life: Rc::clone(life),
            random: RefCell::new(random),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn state(&self) -> std::cell::RefMut<'_, State> {
        self.engine.state.borrow_mut()
    }

    fn fail(&self, what: impl Into<String>) {
        self.world.simulation().fail(what);
    }

    fn check(&self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.fail(violation.to_string());
        }
    }

    fn lane(&self, extent: u32) -> &Lane<SimWorld> {
        &self.lanes[self.engine.state.borrow().shards[Shard::of(extent)].lane]
    }

    fn range(&self) -> (u32, Blocks) {
        let mut random = self.random.borrow_mut();
        let extent = random.below(u64::from(EXTENTS)) as u32;
        let count = random.between(1, RANGE_MAX) as u32;
        let first = random.below(u64::from(BLOCKS - count + 1)) as u32;
        (extent, Blocks::new(first, count).expect("within the extent"))
    }

    /// Works until the process dies or the life ends.
    pub(super) async fn work(self) {
        while !self.life.closing.get() {
            let (extent, blocks) = self.range();
            match self.below(100) {
                0..55 => self.write(extent, blocks).await,
                55..63 => self.zero(extent, blocks).await,
                63..67 => self.free(extent).await,
                67..90 => self.read(extent, blocks).await,
                90..94 => self.flush().await,
                94..98 => self.commit(extent),
                _ => self.world.sleep(Duration::from_millis(self.below(700))).await,
            }
        }
        self.life.workers.set(self.life.workers.get() - 1);
        self.life.changed.notify_all();
    }

    /// Waits for what overlaps, then gives a version.
    async fn start(&self, extent: u32, blocks: Blocks) -> (Change, Order) {
        loop {
            let ended = {
                let mut state = self.state();
                let shard = &mut state.shards[Shard::of(extent)];
                if !shard.is_busy(extent, blocks) {
                    let version = shard.start(extent, blocks, self.world.simulation().now_ns());
                    let (shard, order) = (shard.slot, shard.order);
                    let extent = Shard::extent(extent);
                    return (Change { shard, extent, version, origin: Origin::Shard }, order);
                }
                Rc::clone(&shard.ended)
            };
            ended.notified().await;
        }
    }

    fn end(&self, extent: u32, version: Version, wrote: Option<Blocks>) {
        let durable = !self.engine.volatile;
        let acknowledged = Acknowledged { extent, wrote, durable };
        self.state().shards[Shard::of(extent)].end(version, Some(acknowledged));
    }

    async fn write(&self, extent: u32, blocks: Blocks) {
        let mut buffer = self.world.buffer(blocks.count() as usize).await;
        let (change, order) = self.start(extent, blocks).await;
        let value = Value::Write(self.random.borrow_mut().bits() | 1);
        let summer = Summer::new(change.extent);
        for (address, block) in addresses(extent, blocks).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            value.fill(address, block);
        }
        let checksums: Vec<Stored> = summer.sums(blocks.first(), &buffer).collect();
        let write = self.state().model.write(addresses(extent, blocks).map(|address| (address, value)));
        let data = buffer.freeze();
        self.note(&change, blocks, &format!("{value:x?}"));
        let request = Write { change, blocks, checksums: &checksums, data, order };
        match self.lane(extent).write(request).await {
            Ok(()) => {
                self.state().model.acknowledge(write);
                self.end(extent, change.version, Some(blocks));
            }
            Err(LaneError::NoSpace { .. }) => {
                self.state().model.forget(write);
                // PROTOCOL S3: the sequence was given.
                if let Err(error) = self.lane(extent).empty(change.shard, change.version).await {
                    self.fail(format!("an unused sequence cannot be recorded: {error}"));
                }
                self.end(extent, change.version, None);
            }
            Err(error) => self.fail(format!("a write failed: {error}")),
        }
    }

    fn note(&self, change: &Change, blocks: Blocks, what: &str) {
        let Change { extent, version, .. } = change;
        self.world.simulation().note(format!("{what} {version} extent {} blocks {blocks}", extent.index));
    }

    async fn zero(&self, extent: u32, blocks: Blocks) {
        let (change, _) = self.start(extent, blocks).await;
        self.note(&change, blocks, "zero");
        let write = self.state().model.write(addresses(extent, blocks).map(|address| (address, Value::Zero)));
        match self.lane(extent).zero(change, blocks).await {
            Ok(()) => {
                self.state().model.acknowledge(write);
                self.end(extent, change.version, None);
            }
            Err(error) => self.fail(format!("zeroing failed: {error}")),
        }
    }

    async fn free(&self, extent: u32) {
        let (change, _) = self.start(extent, Blocks::ALL).await;
        self.note(&change, Blocks::ALL, "free");
        let all = (0..BLOCKS).map(|block| (address(extent, block), Value::Zero));
        let write = self.state().model.write(all);
        match self.lane(extent).free(change).await {
            Ok(()) => {
                self.state().model.acknowledge(write);
                self.end(extent, change.version, None);
            }
            Err(error) => self.fail(format!("freeing failed: {error}")),
        }
    }

    async fn flush(&self) {
        let flush = self.state().model.flush();
        let through: Vec<Vec<Version>> =
            self.state().shards.iter().map(|shard| shard.acknowledged.keys().copied().collect()).collect();
        for lane in &self.lanes {
            if let Err(error) = lane.flush().await {
                return self.fail(format!("a flush failed: {error}"));
            }
        }
        let mut state = self.state();
        state.model.flushed(flush);
        for (shard, through) in state.shards.iter_mut().zip(&through) {
            shard.flushed(through);
        }
    }

    /// Says what is committed: at most what is complete, and durable.
    fn commit(&self, extent: u32) {
        let mut state = self.state();
        let shard = &mut state.shards[Shard::of(extent)];
        let complete = shard.complete();
        let volatile = shard.acknowledged.iter().find(|(_, acknowledged)| !acknowledged.durable);
        let durable = match volatile {
            Some((first, _)) => shard.given.range(..first).next_back().copied().unwrap_or(Version::ZERO),
            None => complete,
        };
        let version = complete.min(durable);
        if version > shard.committed {
            shard.committed = version;
            let slot = shard.slot;
            drop(state);
            self.lane(extent).committed(slot, version);
        }
    }

    /// Reads, as a shard does: behind what is on its way, and again if a change overtook it and nothing matched
    /// (PROTOCOL R11, S8).
    pub(super) async fn read(&self, extent: u32, blocks: Blocks) {
        self.idle(extent, blocks).await;
        let read = self.state().model.read(addresses(extent, blocks));
        loop {
            let next = {
                let newest = self.state().shards[Shard::of(extent)].newest();
                Version { sequence: newest.sequence + 1, ..newest }
            };
            let result = self.lane(extent).read(Shard::extent(extent), blocks).await;
            let overtaken = self.state().shards[Shard::of(extent)].newest() >= next;
            if overtaken {
                // What it saw of a change must not be told before that is complete.
                self.idle(extent, blocks).await;
            }
            match result {
                Ok(ReadData::Zeroes) => {
                    self.world.simulation().note(format!("read extent {extent} blocks {blocks}: zeroes"));
                    let result = self.state().model.returned_zeroes(read);
                    return self.check(result);
                }
                Ok(ReadData::Buffer(bytes)) => {
                    let found = addresses(extent, blocks).zip(bytes.chunks_exact(BLOCK_BYTES));
                    let found: Vec<_> = found.map(|(address, bytes)| Value::of(address, bytes)).collect();
                    self.world.simulation().note(format!("read extent {extent} blocks {blocks}: {found:x?}"));
                    let result = self.state().model.returned(read, &bytes);
                    return self.check(result);
                }
                Err(LaneError::Mismatch { .. }) if overtaken => {}
                Err(LaneError::Mismatch { blocks: bad, suspect: true, .. }) => {
                    if self.engine.state.borrow().shards[Shard::of(extent)].order == Order::RecordFirst {
                        self.state().model.read_failed(read);
                        return self.fail(format!(
                            "blocks {bad:?} of extent {extent} are suspect in single mode (S2)"
                        ));
                    }
                    for block in bad {
                        self.choose(extent, block).await;
                    }
                }
                Err(error) => {
                    self.state().model.read_failed(read);
                    return self.fail(format!("a read of extent {extent} blocks {blocks} failed: {error}"));
                }
            }
        }
    }

    async fn idle(&self, extent: u32, blocks: Blocks) {
        loop {
            let ended = {
                let state = self.state();
                let shard = &state.shards[Shard::of(extent)];
                if !shard.is_busy(extent, blocks) {
                    return;
                }
                Rc::clone(&shard.ended)
            };
            ended.notified().await;
        }
    }

    /// PROTOCOL S2: a suspect block that matches nowhere: what is there is chosen, as a change like any other.
    async fn choose(&self, extent: u32, block: u32) {
        let blocks = Blocks::new(block, 1).expect("it was within the extent");
        let (change, _) = self.start(extent, blocks).await;
        let id = Shard::extent(extent);
        match self.lane(extent).read_unverified(id, blocks).await {
            Ok(Some(found)) if found.sums.iter().all(|sum| sum.has_data()) => {
                let sum = Summer::new(id).sum(block, &found.buffer);
                let at = address(extent, block);
                let value = Value::of(at, &found.buffer);
                let possible = self.state().model.possible(at);
                self.note(&change, blocks, "choose");
                if value.is_none_or(|value| !possible.contains(&value)) {
                    self.fail(format!("suspect block {at} holds {value:?}, and may hold {possible:?}"));
                }
                self.state().shards[Shard::of(extent)].chosen.insert((extent, block));
                let copy = Change { origin: Origin::Copy, ..change };
                if let Err(error) = self.lane(extent).accept(copy, block, sum).await {
                    self.fail(format!("a suspect block cannot be accepted: {error}"));
                }
            }
            // Overwritten or freed meanwhile.
            Ok(_) => {}
            Err(error) => self.fail(format!("a suspect block cannot be read: {error}")),
        }
        // The version itself was not used.
        if let Err(error) = self.lane(extent).empty(change.shard, change.version).await {
            self.fail(format!("an unused sequence cannot be recorded: {error}"));
        }
        self.end(extent, change.version, None);
    }

    /// Reads everything.
    pub(super) async fn read_all(&self) {
        for extent in 0..EXTENTS {
            for first in (0..BLOCKS).step_by(RANGE_MAX as usize) {
                let blocks = Blocks::new(first, RANGE_MAX as u32).expect("within the extent");
                self.read(extent, blocks).await;
            }
        }
    }
}
