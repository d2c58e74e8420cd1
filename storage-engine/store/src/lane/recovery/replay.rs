//! Applies journal records to the tables, those whose data is known to have landed at once (PROTOCOL S1).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::cache::Cache;
use super::super::slabs::{Claim, SlabMap};
use super::super::tables::{Life, Openness, ShardState, Tables, UncommittedKind};
use super::super::types::{Origin, ShardSlot};
use crate::checksum::Stored;
use crate::format::{Extent, JournalBlock, Record, Slab, Subject};
use crate::ids::{Blocks, ExtentId, Version};

/// A record about an extent, kept in order until it is known whether the data of those before landed.
pub(super) enum Doubtful {
    Write { subject: Subject, blocks: Blocks, sums: SmallVec<[Stored; 4]> },
    Zero { subject: Subject, blocks: Blocks },
    Allocate { subject: Subject, holds: ExtentId },
    Free { subject: Subject },
    SetOpen { extent: Extent, open: Openness },
    Verified { extent: Extent },
}

/// A record above the commit watermark of its shard.
pub(super) struct Tail {
    pub(super) version: Version,
    pub(super) record: u64,
    pub(super) origin: Origin,
    /// Which extent of the segment it is about.
    pub(super) index: u32,
    pub(super) kind: UncommittedKind,
}

/// See the module.
pub(super) struct Replay {
    pub(super) tables: Tables,
    pub(super) cache: Cache,
    /// Records whose data is not known to have landed, with their numbers.
    pub(super) window: VecDeque<(u64, Doubtful)>,
    /// By shard, what is above its commit watermark.
    pub(super) tails: BTreeMap<ShardSlot, Vec<Tail>>,
    /// Slabs whose release is durable here, and their generations until then.
    pub(super) released: Vec<(Slab, u64)>,
    /// Slabs of the lane whose headers are bad, and their generations.
    pub(super) lost: Vec<(Slab, u64)>,
    /// A slab of the lane that another lane has, too.
    pub(super) disputed: Option<(Slab, u32)>,
    lane: u32,
    slabs: Arc<SlabMap>,
}

impl Replay {
    pub(super) fn new(
        tables: Tables,
        cache: Cache,
        lane: u32,
        slabs: Arc<SlabMap>,
        lost: Vec<(Slab, u64)>,
    ) -> Self {
        Self {
            tables,
            cache,
            window: VecDeque::new(),
            tails: BTreeMap::new(),
            released: Vec::new(),
            lost,
            disputed: None,
            lane,
            slabs,
        }
    }

    /// Takes a block in. Its landed mark settles records of blocks before, and its own: they waited for their turn to
    /// go out while their data landed.
    pub(super) fn block(&mut self, block: &JournalBlock<'_>) {
        self.settle(block.header.landed);
        for (number, record) in block.records() {
            self.record(number, &record);
        }
        self.settle(block.header.landed);
    }

    fn settle(&mut self, landed: u64) {
        while let Some((number, _)) = self.window.front() {
            if *number >= landed {
                break;
            }
            if let Some((_, record)) = self.window.pop_front() {
                apply(&mut self.tables, &mut self.cache, &record, Sums::AllLanded);
            }
        }
    }

    fn record(&mut self, number: u64, record: &Record<'_>) {
        match record {
            Record::Write { subject, blocks, sums } => {
                let sums: SmallVec<[Stored; 4]> = sums.iter().collect();
                let kind = UncommittedKind::Write { subject: *subject, blocks: *blocks, sums: sums.clone() };
                self.tail(subject.shard, subject.version, number, Some(subject), kind);
                if !subject.carried {
                    let blocks = *blocks;
                    self.window.push_back((number, Doubtful::Write { subject: *subject, blocks, sums }));
                }
            }
            Record::Zero { subject, blocks } => {
                let kind = UncommittedKind::Zero { subject: *subject, blocks: *blocks };
                self.tail(subject.shard, subject.version, number, Some(subject), kind);
                if !subject.carried {
                    let blocks = *blocks;
                    self.window.push_back((number, Doubtful::Zero { subject: *subject, blocks }));
                }
            }
            Record::Allocate { subject, holds } => {
                self.window.push_back((number, Doubtful::Allocate { subject: *subject, holds: *holds }));
            }
            Record::Free { subject } => {
                let kind = UncommittedKind::Free { subject: *subject };
                self.tail(subject.shard, subject.version, number, Some(subject), kind);
                if !subject.carried {
                    self.window.push_back((number, Doubtful::Free { subject: *subject }));
                }
            }
            Record::Empty { shard, version, .. } => {
                self.tail(*shard, *version, number, None, UncommittedKind::Empty);
            }
            Record::Open { extent } => self.set_open(number, *extent, Openness::Open),
            Record::Close { extent } => self.set_open(number, *extent, Openness::Closed),
            Record::Verified { extent } => {
                self.window.push_back((number, Doubtful::Verified { extent: *extent }));
            }
            Record::Committed { shard, version } => self.committed(*shard, *version),
            Record::Shard(entry) => {
                let mut state = ShardState::from_entry(entry);
                if let Some(known) = self.tables.shards.get(&entry.slot).filter(|known| known.id == state.id)
                {
                    state.commit(known.committed);
                }
                self.tables.add_shard(entry.slot, state);
                self.committed(entry.slot, entry.committed);
            }
            Record::ShardForgotten { shard } => {
                self.tables.remove_shard(*shard);
                self.tails.remove(shard);
            }
            Record::SlabTaken { slab, generation } => self.slab_taken(*slab, *generation),
            Record::SlabReleased { slab, generation } => {
                let ours = self.tables.slabs.get(slab).is_some_and(|state| state.generation == *generation);
                if ours {
                    self.settle_slab(*slab);
                    self.tables.remove_slab(*slab);
                    self.released.push((*slab, *generation));
                }
            }
        }
    }

    /// The slab's header says who owns it, and was written before the record: if it does not, it is bad.
    fn slab_taken(&mut self, slab: Slab, generation: u64) {
        if self.tables.slabs.contains_key(&slab) {
            return;
        }
        match self.slabs.claim(slab, self.lane, generation) {
            Claim::Lost => {
                let pages = vec![None; self.tables.layout.table_pages() as usize];
                self.tables.add_slab(slab, generation, pages, &[]);
                self.lost.push((slab, generation));
            }
            Claim::Disputed(other) => self.disputed = Some((slab, other)),
            Claim::Agreed | Claim::Outdated => {}
        }
    }

    /// A slab is released with nothing in it: its records are settled, whatever landed.
    fn settle_slab(&mut self, slab: Slab) {
        let layout = self.tables.layout;
        self.window.retain(|(_, record)| layout.slab_of(record.extent()).0 != slab);
        for extent in layout.extents_of(slab) {
            self.cache.forget(extent);
        }
    }

    fn set_open(&mut self, number: u64, extent: Extent, open: Openness) {
        self.window.push_back((number, Doubtful::SetOpen { extent, open }));
    }

    fn committed(&mut self, shard: ShardSlot, version: Version) {
        if let Some(state) = self.tables.shards.get_mut(&shard) {
            state.commit(version);
        }
        if let Some(tail) = self.tails.get_mut(&shard) {
            tail.retain(|record| record.version > version);
        }
    }

    fn tail(
        &mut self,
        shard: ShardSlot,
        version: Version,
        record: u64,
        subject: Option<&Subject>,
        kind: UncommittedKind,
    ) {
        let Some(state) = self.tables.shards.get(&shard) else { return };
        if version <= state.committed {
            return;
        }
        let tail = self.tails.entry(shard).or_default();
        let origin = subject.map_or(Origin::Shard, |subject| subject.origin);
        // Carried forward, and the checkpoint did not come to its end: it is here twice.
        let carried =
            subject.is_some_and(|subject| subject.carried) || matches!(kind, UncommittedKind::Empty);
        if carried
            && let Some(old) = tail.iter_mut().find(|old| old.version == version && old.origin == origin)
        {
            old.record = record;
            return;
        }
        let index = subject.map_or(0, |subject| subject.index);
        tail.push(Tail { version, record, origin, index, kind });
    }
}

impl Doubtful {
    pub(super) fn extent(&self) -> Extent {
        match self {
            Doubtful::Write { subject, .. }
            | Doubtful::Zero { subject, .. }
            | Doubtful::Allocate { subject, .. }
            | Doubtful::Free { subject } => subject.extent,
            Doubtful::SetOpen { extent, .. } | Doubtful::Verified { extent } => *extent,
        }
    }
}

/// Whether a write's checksums are taken at their word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// The data has landed.
    AllLanded,
    /// Bytes decide: see `judge`.
    Judged,
}

/// Applies one record to the tables.
pub(super) fn apply(tables: &mut Tables, cache: &mut Cache, record: &Doubtful, sums_are: Sums) {
    let extent = record.extent();
    if !tables.owns(extent) {
        return;
    }
    if let Doubtful::Allocate { holds, subject } = record {
        cache.forget(extent);
        tables.hold(extent, *holds, subject.shard, Life::Held);
        tables.change(extent).last = subject.version;
        return;
    }
    // The table is newer than this record: what it was about has gone.
    if tables.place(extent).life != Life::Held {
        return;
    }
    match record {
        Doubtful::Allocate { .. } => {}
        Doubtful::Free { .. } => {
            cache.forget(extent);
            tables.freed(extent);
        }
        Doubtful::SetOpen { open, .. } => {
            tables.change(extent).open = *open;
            match open {
                Openness::Open => tables.open.insert(extent),
                _ => tables.open.remove(&extent),
            };
        }
        Doubtful::Verified { .. } => tables.change(extent).suspect = false,
        Doubtful::Write { subject, blocks, sums } => {
            if sums_are == Sums::AllLanded {
                for (block, sum) in (blocks.first()..).zip(sums) {
                    cache.set(extent, block, *sum);
                }
            }
            let place = tables.change(extent);
            place.last = place.last.max(subject.version);
        }
        Doubtful::Zero { subject, blocks } => {
            for block in blocks.first()..blocks.end() {
                cache.set(extent, block, Stored::ZERO);
            }
            let place = tables.change(extent);
            place.last = place.last.max(subject.version);
        }
    }
}
