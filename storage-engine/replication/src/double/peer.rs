//! A replica in memory that can be told to fail, hang, dawdle and rot.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::sync::Notify;
use ashlar_io::{BLOCK_BYTES, World};
use ashlar_store::lane::{ExtentReport, Memory, Origin, ReadData, TailKind, TailRecord, Verdict};
use ashlar_store::{Blocks, EXTENT_BLOCKS, ExtentId, SegmentId, Stored, Summer, Version};

use super::world::{Bytes, Shared, TestWorld};
use crate::digest::{self, Digest};
use crate::peer::{Condition, Kind, Peer, PeerError, Report, Update};

/// What it does with changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Works,
    /// Refuses so many changes with a passing error.
    Stumbles(u32),
    Stopped,
    Hangs,
}

struct Extent {
    sums: Box<[Stored; EXTENT_BLOCKS as usize]>,
    bytes: BTreeMap<u32, Vec<u8>>,
    last: Version,
}

pub(crate) struct MemoryPeer {
    world: TestWorld,
    segment: SegmentId,
    extents: RefCell<BTreeMap<u32, Extent>>,
    tail: RefCell<Vec<TailRecord>>,
    pub(crate) committed: Cell<Version>,
    pub(crate) base: Cell<Option<Version>>,
    pub(crate) single: Cell<bool>,
    pub(crate) condition: Cell<Condition>,
    pub(crate) mood: Cell<Mood>,
    pub(crate) delay: Cell<Duration>,
    pub(crate) room: Cell<usize>,
    pub(crate) suspect: Cell<bool>,
    pub(crate) is_volatile: Cell<bool>,
    pub(crate) flushes: Cell<u32>,
    pub(crate) reads: Cell<u32>,
    /// Told when the mood changes.
    changed: Notify,
    /// Extents with changes in flight: the shard promises that they do not overlap.
    in_flight: RefCell<Vec<(u32, Blocks)>>,
    numbers: RefCell<BTreeSet<u64>>,
}

impl MemoryPeer {
    pub(crate) fn new(world: &TestWorld, segment: SegmentId) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            segment,
            extents: RefCell::default(),
            tail: RefCell::default(),
            committed: Cell::default(),
            base: Cell::default(),
            single: Cell::default(),
            condition: Cell::new(Condition::Whole),
            mood: Cell::new(Mood::Works),
            delay: Cell::default(),
            room: Cell::new(usize::MAX),
            suspect: Cell::default(),
            is_volatile: Cell::default(),
            flushes: Cell::default(),
            reads: Cell::default(),
            changed: Notify::new(),
            in_flight: RefCell::default(),
            numbers: RefCell::default(),
        })
    }

    pub(crate) fn become_(&self, mood: Mood) {
        self.mood.set(mood);
        self.changed.notify_all();
    }

    /// The bytes of a block change and nobody is told.
    pub(crate) fn rot(&self, extent: u32, block: u32) {
        let mut extents = self.extents.borrow_mut();
        let bytes = extents.get_mut(&extent).and_then(|extent| extent.bytes.get_mut(&block));
        bytes.expect("there are bytes to rot")[17] ^= 0x40;
    }

    /// First byte of each block, as it would be read.
    pub(crate) fn first_byte(&self, extent: u32, block: u32) -> u8 {
        let extents = self.extents.borrow();
        let Some(held) = extents.get(&extent) else { return 0 };
        if !held.sums[block as usize].has_data() {
            return 0;
        }
        held.bytes.get(&block).map_or(0, |bytes| bytes[0])
    }

    pub(crate) fn has(&self, extent: u32) -> bool {
        self.extents.borrow().contains_key(&extent)
    }

    /// Sequence numbers that it has.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.numbers.borrow().iter().copied().collect()
    }

    async fn takes_time(&self) -> Result<(), PeerError> {
        if !self.delay.get().is_zero() {
            self.world.sleep(self.delay.get()).await;
        }
        loop {
            match self.mood.get() {
                Mood::Works => return Ok(()),
                Mood::Stumbles(0) => {
                    self.mood.set(Mood::Works);
                }
                Mood::Stumbles(left) => {
                    self.mood.set(Mood::Stumbles(left - 1));
                    return Err(PeerError::Device { cause: "stumbled".to_owned() });
                }
                Mood::Stopped => return Err(PeerError::Stopped { cause: "told to".to_owned() }),
                Mood::Hangs => self.changed.notified().await,
            }
        }
    }

    fn identity(&self, extent: u32) -> ExtentId {
        ExtentId { segment: self.segment, index: extent }
    }

    fn apply_now(&self, update: &Update<Shared>) -> Result<(), PeerError> {
        let mut extents = self.extents.borrow_mut();
        let full = extents.len() >= self.room.get();
        let kind = match &update.kind {
            Kind::Write { blocks, checksums, data } => {
                if full && !extents.contains_key(&update.extent) {
                    return Err(PeerError::NoSpace { extent: update.extent });
                }
                let extent = extents.entry(update.extent).or_insert_with(|| Extent {
                    sums: Box::new([Stored::NEVER; EXTENT_BLOCKS as usize]),
                    bytes: BTreeMap::new(),
                    last: update.version,
                });
                extent.last = extent.last.max(update.version);
                let content = data.chunks(BLOCK_BYTES).zip(checksums);
                for (block, (bytes, sum)) in (blocks.first()..).zip(content) {
                    extent.sums[block as usize] = *sum;
                    extent.bytes.insert(block, bytes.to_vec());
                }
                let sums = checksums.iter().map(|sum| (*sum, Verdict::Valid)).collect();
                TailKind::Write { blocks: *blocks, sums }
            }
            Kind::Zero(blocks) => {
                if let Some(extent) = extents.get_mut(&update.extent) {
                    extent.last = extent.last.max(update.version);
                    extent.sums[blocks.indices()].fill(Stored::ZERO);
                }
                TailKind::Zero { blocks: *blocks }
            }
            Kind::Free => {
                extents.remove(&update.extent);
                TailKind::Free
            }
            Kind::Empty => TailKind::Empty,
        };
        if update.origin == Origin::Shard {
            assert!(self.numbers.borrow_mut().insert(update.version.sequence), "each number is used once");
            self.tail.borrow_mut().push(TailRecord {
                extent: update.extent,
                version: update.version,
                origin: update.origin,
                kind,
            });
        }
        Ok(())
    }
}

impl Peer<TestWorld> for MemoryPeer {
    async fn report(&self) -> Result<Report, PeerError> {
        let committed = self.committed.get();
        let extents = self.extents.borrow();
        let report = |(&index, extent): (&u32, &Extent)| ExtentReport {
            index,
            last: extent.last,
            suspect: self.suspect.get(),
        };
        let tail = self.tail.borrow();
        Ok(Report {
            condition: self.condition.get(),
            committed,
            base: self.base.get(),
            single: self.single.get(),
            tail: tail.iter().filter(|record| record.version > committed).cloned().collect(),
            extents: extents.iter().map(report).collect(),
        })
    }

    async fn apply(&self, update: &Update<Shared>) -> Result<(), PeerError> {
        let blocks = match &update.kind {
            Kind::Write { blocks, .. } | Kind::Zero(blocks) => Some(*blocks),
            Kind::Free => Some(Blocks::ALL),
            Kind::Empty => None,
        };
        if let Some(blocks) = blocks {
            let mut in_flight = self.in_flight.borrow_mut();
            let overlaps =
                in_flight.iter().any(|(extent, other)| *extent == update.extent && other.overlaps(blocks));
            assert!(!overlaps, "only one of overlapping changes is in flight");
            in_flight.push((update.extent, blocks));
        }
        let ready = self.takes_time().await;
        if let Some(blocks) = blocks {
            let mut in_flight = self.in_flight.borrow_mut();
            let index = in_flight.iter().position(|flight| *flight == (update.extent, blocks));
            in_flight.swap_remove(index.expect("it is in flight"));
        }
        ready?;
        self.apply_now(update)
    }

    async fn read(&self, extent: u32, blocks: Blocks, _memory: Memory) -> Result<ReadData<Bytes>, PeerError> {
        self.reads.set(self.reads.get() + 1);
        self.takes_time().await?;
        let sums = self.checksums(extent).await?;
        if sums[blocks.indices()].iter().all(|sum| !sum.has_data()) {
            return Ok(ReadData::Zeroes);
        }
        let (buffer, sums) = self.read_unverified(extent, blocks).await?;
        let summer = Summer::new(self.identity(extent));
        let found = summer.sums(blocks.first(), &buffer);
        let bad: Vec<u32> = (blocks.first()..)
            .zip(found.zip(&sums))
            .filter(|(_, (found, sum))| sum.has_data() && found != *sum)
            .map(|(block, _)| block)
            .collect();
        if bad.is_empty() {
            return Ok(ReadData::Buffer(buffer));
        }
        Err(PeerError::Mismatch { extent, blocks: bad, suspect: self.suspect.get() })
    }

    async fn read_unverified(&self, extent: u32, blocks: Blocks) -> Result<(Bytes, Vec<Stored>), PeerError> {
        let mut buffer = self.world.buffer(blocks.count() as usize).await;
        buffer.fill(0);
        let sums = self.checksums(extent).await?;
        if let Some(held) = self.extents.borrow().get(&extent) {
            for (block, bytes) in (blocks.first()..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
                if let (true, Some(found)) = (sums[block as usize].has_data(), held.bytes.get(&block)) {
                    bytes.copy_from_slice(found);
                }
            }
        }
        Ok((buffer, sums[blocks.indices()].to_vec()))
    }

    async fn checksums(&self, extent: u32) -> Result<Box<[Stored; EXTENT_BLOCKS as usize]>, PeerError> {
        let extents = self.extents.borrow();
        let held = extents.get(&extent).map(|extent| extent.sums.clone());
        Ok(held.unwrap_or_else(|| Box::new([Stored::NEVER; EXTENT_BLOCKS as usize])))
    }

    async fn digest(&self, extent: u32, blocks: Blocks) -> Result<Digest, PeerError> {
        digest::by_reading(self, extent, blocks).await
    }

    fn committed(&self, version: Version) {
        self.committed.set(version.max(self.committed.get()));
    }

    async fn set_base(&self, base: Option<Version>) -> Result<(), PeerError> {
        self.takes_time().await?;
        self.base.set(base);
        Ok(())
    }

    async fn set_single(&self, single: bool) -> Result<(), PeerError> {
        self.takes_time().await?;
        self.single.set(single);
        Ok(())
    }

    async fn flush(&self) -> Result<(), PeerError> {
        self.takes_time().await?;
        self.flushes.set(self.flushes.get() + 1);
        Ok(())
    }

    async fn forget(&self) -> Result<(), PeerError> {
        self.extents.borrow_mut().clear();
        self.tail.borrow_mut().clear();
        Ok(())
    }

    fn volatile(&self) -> bool {
        self.is_volatile.get()
    }
}
