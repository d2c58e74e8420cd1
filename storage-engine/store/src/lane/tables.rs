//! What a lane knows in memory: its slabs, what each extent holds, and its shards.
//!
//! Changes are shown here before, with, or after their record is durable; what a checkpoint may write of them is what
//! [`Place::entry`] says, which never runs ahead of the journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::types::ShardSlot;
use crate::checksum::Stored;
use crate::format::{Entry, Extent, Held, Layout, PageRef, ShardEntry, Slab, Subject};
use crate::ids::{Blocks, ExtentId, ShardId, Version};

/// Where an extent stands between free and held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It can be taken.
    Free,
    /// Taken; the record is not durable yet. On the device it is free.
    Allocating,
    /// Taken.
    Held,
    /// Given up; the record is not durable yet. On the device it is held (PROTOCOL S7).
    Freeing,
    /// Given up; I/O on it is in flight, so it cannot be taken yet (PROTOCOL S7).
    Draining,
}

/// Whether an extent may be written without a further record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Openness {
    /// No.
    Closed,
    /// The open record is on its way.
    Opening,
    /// Yes.
    Open,
}

/// Space for an extent and what it holds.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) life: Life,
    pub(super) id: ExtentId,
    pub(super) shard: ShardSlot,
    pub(super) last: Version,
    pub(super) open: Openness,
    /// Open at a crash and not verified since (PROTOCOL S2).
    pub(super) suspect: bool,
    /// Newest generation of its checksum page, and the CRC if the present holder has one.
    pub(super) page_generation: u64,
    pub(super) page_crc: Option<u32>,
    /// I/O in flight on it.
    pub(super) busy: u32,
    /// Number of the checkpoint after which it was written last.
    pub(super) touched: u64,
    /// Writes since the lane was opened.
    pub(super) writes: u64,
}

impl Place {
    fn from_entry(entry: &Entry) -> Self {
        let nobody =
            ExtentId { segment: crate::ids::SegmentId { volume: uuid::Uuid::nil(), index: 0 }, index: 0 };
        let held = entry.held;
        Self {
            life: if held.is_some() { Life::Held } else { Life::Free },
            id: held.map_or(nobody, |held| held.extent),
            shard: held.map_or(ShardSlot(0), |held| held.shard),
            last: held.map_or(Version::ZERO, |held| held.last),
            open: if held.is_some_and(|held| held.open) { Openness::Open } else { Openness::Closed },
            suspect: held.is_some_and(|held| held.suspect),
            page_generation: entry.page_generation,
            page_crc: held.and_then(|held| held.checksums),
            busy: 0,
            touched: 0,
            writes: 0,
        }
    }

    /// What a table page may say of it now: only what durable records say.
    pub(super) fn entry(&self) -> Entry {
        let held = matches!(self.life, Life::Held | Life::Freeing).then_some(Held {
            extent: self.id,
            shard: self.shard,
            last: self.last,
            open: self.open != Openness::Closed,
            suspect: self.suspect,
            checksums: self.page_crc,
        });
        Entry { page_generation: self.page_generation, held }
    }

    /// The checksum page on the device, if it has one.
    pub(super) fn page(&self) -> Option<PageRef> {
        Some(PageRef { generation: self.page_generation, crc: self.page_crc? })
    }

    /// Open, with nothing on its way and nothing in doubt.
    pub(super) fn is_idle(&self) -> bool {
        self.open == Openness::Open && self.busy == 0 && !self.suspect && self.life == Life::Held
    }

    fn clear(&mut self) {
        self.open = Openness::Closed;
        self.suspect = false;
        self.page_crc = None;
        self.last = Version::ZERO;
    }
}

/// A slab that the lane owns.
#[derive(Debug)]
pub(super) struct SlabState {
    /// Owner generation (PROTOCOL S7).
    pub(super) generation: u64,
    pub(super) places: Vec<Place>,
    /// Its table pages as the root knows them.
    pub(super) pages: Vec<Option<PageRef>>,
    /// Pages that changed since.
    pub(super) dirty: Vec<bool>,
}

/// What an uncommitted record did.
#[derive(Debug, Clone)]
pub(super) enum UncommittedKind {
    Write { subject: Subject, blocks: Blocks, sums: SmallVec<[Stored; 4]> },
    Zero { subject: Subject, blocks: Blocks },
    Free { subject: Subject },
    Empty,
}

/// A record of a shard's write that is not known to be committed everywhere (PROTOCOL S1).
#[derive(Debug, Clone)]
pub(super) struct Uncommitted {
    pub(super) version: Version,
    /// Number of the record, or of its newest copy.
    pub(super) record: u64,
    pub(super) kind: UncommittedKind,
}

/// A shard that has something on the lane.
#[derive(Debug)]
pub(super) struct ShardState {
    pub(super) id: ShardId,
    pub(super) committed: Version,
    pub(super) base: Version,
    pub(super) single: bool,
    pub(super) uncommitted: VecDeque<Uncommitted>,
}

impl ShardState {
    pub(super) fn new(id: ShardId) -> Self {
        Self {
            id,
            committed: Version::ZERO,
            base: Version::ZERO,
            single: false,
            uncommitted: VecDeque::new(),
        }
    }

    /// As a root or record has it.
    pub(super) fn from_entry(entry: &ShardEntry) -> Self {
        Self {
            id: entry.shard,
            committed: entry.committed,
            base: entry.base,
            single: entry.single,
            uncommitted: VecDeque::new(),
        }
    }

    /// As the root has it.
    pub(super) fn entry(&self, slot: ShardSlot) -> ShardEntry {
        ShardEntry { shard: self.id, slot, single: self.single, committed: self.committed, base: self.base }
    }

    /// Everything up to `version` is committed. True if that is news.
    pub(super) fn commit(&mut self, version: Version) -> bool {
        if version <= self.committed {
            return false;
        }
        self.committed = version;
        self.uncommitted.retain(|record| record.version > version);
        true
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) layout: Layout,
    pub(super) slabs: BTreeMap<Slab, SlabState>,
    by_id: FxHashMap<ExtentId, Extent>,
    free: BTreeSet<Extent>,
    pub(super) shards: BTreeMap<ShardSlot, ShardState>,
    by_shard: FxHashMap<ShardId, ShardSlot>,
    /// Shards whose watermark no durable mark has yet.
    pub(super) to_mark: BTreeSet<ShardSlot>,
    /// Extents that are open, to close the oldest.
    pub(super) open: BTreeSet<Extent>,
}

impl Tables {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            slabs: BTreeMap::new(),
            by_id: FxHashMap::default(),
            free: BTreeSet::new(),
            shards: BTreeMap::new(),
            by_shard: FxHashMap::default(),
            to_mark: BTreeSet::new(),
            open: BTreeSet::new(),
        }
    }

    /// Adds a slab with what its pages say; a new one has none.
    pub(super) fn add_slab(
        &mut self,
        slab: Slab,
        generation: u64,
        pages: Vec<Option<PageRef>>,
        entries: &[Entry],
    ) {
        let count = self.layout.extents_per_slab() as usize;
        let free = Entry::default();
        let places: Vec<_> =
            (0..count).map(|index| Place::from_entry(entries.get(index).unwrap_or(&free))).collect();
        for (extent, place) in self.layout.extents_of(slab).zip(&places) {
            match place.life {
                Life::Free => {
                    self.free.insert(extent);
                }
                _ => {
                    self.by_id.insert(place.id, extent);
                    if place.open != Openness::Closed {
                        self.open.insert(extent);
                    }
                }
            }
        }
        let dirty = vec![false; self.layout.table_pages() as usize];
        self.slabs.insert(slab, SlabState { generation, places, pages, dirty });
    }

    /// Takes a slab out, which must be all free.
    pub(super) fn remove_slab(&mut self, slab: Slab) {
        for extent in self.layout.extents_of(slab) {
            self.free.remove(&extent);
        }
        self.slabs.remove(&slab);
    }

    /// The lane owns the slab of this extent.
    pub(super) fn owns(&self, extent: Extent) -> bool {
        self.layout.has_extent(extent) && self.slabs.contains_key(&self.layout.slab_of(extent).0)
    }

    /// Where an extent of a segment is.
    pub(super) fn find(&self, id: ExtentId) -> Option<Extent> {
        self.by_id.get(&id).copied()
    }

    /// What an owned extent holds.
    ///
    /// # Panics
    /// If the lane does not own its slab: callers got the number from these tables.
    pub(super) fn place(&self, extent: Extent) -> &Place {
        let (slab, index) = self.layout.slab_of(extent);
        &self.slabs[&slab].places[index as usize]
    }

    /// The same, to change it; its table page becomes dirty.
    ///
    /// # Panics
    /// As [`Tables::place`].
    pub(super) fn change(&mut self, extent: Extent) -> &mut Place {
        let (slab, index) = self.layout.slab_of(extent);
        let state = self.slabs.get_mut(&slab).expect("callers got the extent from these tables");
        state.dirty[(index / crate::format::layout::ENTRIES_PER_PAGE) as usize] = true;
        &mut state.places[index as usize]
    }

    /// The same for what no table page says: I/O in flight.
    ///
    /// # Panics
    /// As [`Tables::place`].
    pub(super) fn touch(&mut self, extent: Extent) -> &mut Place {
        let (slab, index) = self.layout.slab_of(extent);
        let state = self.slabs.get_mut(&slab).expect("callers got the extent from these tables");
        &mut state.places[index as usize]
    }

    /// Takes a free extent for `id`. It is on the device once [`Tables::allocated`] was called.
    pub(super) fn allocate(&mut self, id: ExtentId, shard: ShardSlot) -> Option<Extent> {
        let extent = self.free.pop_first()?;
        self.hold(extent, id, shard, Life::Allocating);
        Some(extent)
    }

    /// Lets an extent hold `id`, with no block written.
    pub(super) fn hold(&mut self, extent: Extent, id: ExtentId, shard: ShardSlot, life: Life) {
        self.free.remove(&extent);
        self.open.remove(&extent);
        let old = self.place(extent);
        if matches!(old.life, Life::Held | Life::Allocating) && self.by_id.get(&old.id) == Some(&extent) {
            let id = old.id;
            self.by_id.remove(&id);
        }
        let place = self.change(extent);
        place.clear();
        place.life = life;
        place.id = id;
        place.shard = shard;
        self.by_id.insert(id, extent);
    }

    /// The allocation is durable.
    pub(super) fn allocated(&mut self, extent: Extent) {
        let place = self.change(extent);
        if place.life == Life::Allocating {
            place.life = Life::Held;
        }
    }

    /// The extent is given up: nobody finds it any more.
    pub(super) fn freeing(&mut self, extent: Extent) {
        let id = self.place(extent).id;
        if self.by_id.get(&id) == Some(&extent) {
            self.by_id.remove(&id);
        }
        self.open.remove(&extent);
        self.touch(extent).life = Life::Freeing;
    }

    /// The free record is durable (PROTOCOL S7). The extent can be taken once nothing is in flight on it.
    pub(super) fn freed(&mut self, extent: Extent) {
        let id = self.place(extent).id;
        if self.by_id.get(&id) == Some(&extent) {
            self.by_id.remove(&id);
        }
        self.open.remove(&extent);
        let place = self.change(extent);
        place.clear();
        place.life = if place.busy == 0 { Life::Free } else { Life::Draining };
        if place.life == Life::Free {
            self.free.insert(extent);
        }
    }

    /// One more I/O on the extent.
    pub(super) fn begin(&mut self, extent: Extent) {
        self.touch(extent).busy += 1;
    }

    /// An I/O on the extent has ended.
    pub(super) fn end(&mut self, extent: Extent) {
        let place = self.touch(extent);
        place.busy -= 1;
        if place.busy == 0 && place.life == Life::Draining {
            place.life = Life::Free;
            self.free.insert(extent);
        }
    }

    /// Extents that hold something, and free ones.
    pub(super) fn counts(&self) -> (u64, u64) {
        let all = self.slabs.len() as u64 * u64::from(self.layout.extents_per_slab());
        let free = self.free.len() as u64;
        (all - free, free)
    }

    /// A slab with nothing in it, for another lane to take.
    pub(super) fn spare_slab(&self) -> Option<Slab> {
        let idle = |state: &SlabState| state.places.iter().all(|place| place.life == Life::Free);
        self.slabs.iter().rev().find(|(_, state)| idle(state)).map(|(slab, _)| *slab)
    }

    /// The slot of a shard.
    pub(super) fn slot(&self, shard: ShardId) -> Option<ShardSlot> {
        self.by_shard.get(&shard).copied()
    }

    /// Adds a shard under a slot.
    pub(super) fn add_shard(&mut self, slot: ShardSlot, state: ShardState) {
        self.by_shard.insert(state.id, slot);
        self.shards.insert(slot, state);
    }

    /// The lowest unused slot.
    pub(super) fn unused_slot(&self) -> ShardSlot {
        let mut slot = 0;
        for used in self.shards.keys() {
            if used.0 != slot {
                break;
            }
            slot += 1;
        }
        ShardSlot(slot)
    }

    /// Forgets a shard.
    pub(super) fn remove_shard(&mut self, slot: ShardSlot) {
        if let Some(state) = self.shards.remove(&slot) {
            self.by_shard.remove(&state.id);
        }
        self.to_mark.remove(&slot);
    }

    /// Extents of a shard, by their index in the segment.
    pub(super) fn extents_of(&self, slot: ShardSlot) -> BTreeMap<u32, Extent> {
        let mut found = BTreeMap::new();
        for (slab, state) in &self.slabs {
            for (extent, place) in self.layout.extents_of(*slab).zip(&state.places) {
                if matches!(place.life, Life::Held | Life::Allocating) && place.shard == slot {
                    found.insert(place.id.index, extent);
                }
            }
        }
        found
    }
}
