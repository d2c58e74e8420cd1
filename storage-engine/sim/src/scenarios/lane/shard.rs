//! What a shard does for its lane: gives versions, orders what overlaps, knows what is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ashlar_io::sync::Notify;
use ashlar_store::ids::{Blocks, EXTENT_BLOCKS, ExtentId, SegmentId, ShardId, Version};
use ashlar_store::lane::{Order, ShardSlot};
use uuid::Uuid;

use super::SHARDS;
use crate::random::Random;

/// The only segment.
pub(super) const SEGMENT: SegmentId = SegmentId { volume: Uuid::from_u128(0x5e9), index: 7 };

/// The model's address of a block.
pub(super) fn address(extent: u32, block: u32) -> u64 {
    u64::from(extent) * u64::from(EXTENT_BLOCKS) + u64::from(block)
}

/// The model's addresses of some blocks.
pub(super) fn addresses(extent: u32, blocks: Blocks) -> impl Iterator<Item = u64> {
    (blocks.first()..blocks.end()).map(move |block| address(extent, block))
}

/// A change that was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub(super) extent: u32,
    /// The blocks that it wrote; none if it wrote no bytes.
    pub(super) wrote: Option<Blocks>,
    /// A power loss cannot take it.
    pub(super) durable: bool,
}

/// A change on its way.
#[derive(Debug, Clone, Copy)]
struct Running {
    extent: u32,
    blocks: Blocks,
    since_ns: u64,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) id: ShardId,
    /// Index of its lane.
    pub(super) lane: usize,
    pub(super) slot: ShardSlot,
    /// Alone: records are durable first (PROTOCOL S2).
    pub(super) order: Order,
    epoch: u32,
    sequence: u64,
    /// Changes on their way, by version.
    running: BTreeMap<Version, Running>,
    /// Every version that was ever given.
    pub(super) given: BTreeSet<Version>,
    /// What was acknowledged above what recovery said is committed.
    pub(super) acknowledged: BTreeMap<Version, Acknowledged>,
    /// Blocks whose content was once chosen as it was (PROTOCOL S2): no shard's write explains it.
    pub(super) chosen: BTreeSet<(u32, u32)>,
    /// The newest that the lane was told is committed.
    pub(super) committed: Version,
    /// Told when a change has ended.
    pub(super) ended: Rc<Notify>,
}

impl Shard {
    pub(super) fn new(index: u32, lanes: u32, random: &mut Random) -> Self {
        Self {
            id: ShardId { segment: SEGMENT, index },
            lane: (index % lanes) as usize,
            slot: ShardSlot(0),
            order: if random.one_in(3) { Order::RecordFirst } else { Order::Parallel },
            epoch: 0,
            sequence: 0,
            running: BTreeMap::new(),
            given: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            chosen: BTreeSet::new(),
            committed: Version::ZERO,
            ended: Rc::default(),
        }
    }

    /// Which shard an extent belongs to.
    pub(super) fn of(extent: u32) -> usize {
        (extent % SHARDS) as usize
    }

    pub(super) fn extent(index: u32) -> ExtentId {
        ExtentId { segment: SEGMENT, index }
    }

    /// A new process serves it.
    pub(super) fn begin(&mut self, epoch: u32, slot: ShardSlot) {
        self.epoch = epoch;
        self.slot = slot;
    }

    /// Some change of these blocks is on its way.
    pub(super) fn is_busy(&self, extent: u32, blocks: Blocks) -> bool {
        self.running.values().any(|running| running.extent == extent && running.blocks.overlaps(blocks))
    }

    /// Gives a version to a change of blocks that no other changes now.
    pub(super) fn start(&mut self, extent: u32, blocks: Blocks, now_ns: u64) -> Version {
        self.sequence += 1;
        let version = Version { epoch: self.epoch, sequence: self.sequence };
        self.given.insert(version);
        self.running.insert(version, Running { extent, blocks, since_ns: now_ns });
        version
    }

    /// A change has ended, acknowledged if it says what it was.
    pub(super) fn end(&mut self, version: Version, acknowledged: Option<Acknowledged>) {
        self.running.remove(&version);
        if let Some(acknowledged) = acknowledged {
            self.acknowledged.insert(version, acknowledged);
        }
        self.ended.notify_all();
    }

    /// The newest version given.
    pub(super) fn newest(&self) -> Version {
        self.given.last().copied().unwrap_or(Version::ZERO)
    }

    /// The newest version below which nothing is on its way.
    pub(super) fn complete(&self) -> Version {
        match self.running.first_key_value() {
            Some((oldest, _)) => self.given.range(..oldest).next_back().copied().unwrap_or(Version::ZERO),
            None => self.newest(),
        }
    }

    /// A flush that began at `through` has ended.
    pub(super) fn flushed(&mut self, through: &[Version]) {
        for version in through {
            if let Some(acknowledged) = self.acknowledged.get_mut(version) {
                acknowledged.durable = true;
            }
        }
    }

    /// The process died; with the power also what no flush followed, if `lost`.
    pub(super) fn crash(&mut self, lost: bool) {
        self.running.clear();
        if lost {
            self.acknowledged.retain(|_, acknowledged| acknowledged.durable);
        }
        self.ended = Rc::default();
    }

    /// The change that has been on its way for longest.
    pub(super) fn oldest(&self) -> Option<(u64, String)> {
        let oldest = self.running.iter().min_by_key(|(_, running)| running.since_ns);
        oldest.map(|(version, running)| {
            (
                running.since_ns,
                format!("change {version} of extent {} blocks {}", running.extent, running.blocks),
            )
        })
    }
}
