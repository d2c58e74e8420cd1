//! What a lane holds, as its root and its journal say: read offline, changing nothing.
//!
//! This is recovery without its decisions: where a block may hold one of several contents, all of them are kept
//! (PROTOCOL S1), and nothing is judged.

use std::collections::BTreeMap;

use ashlar_io::{BLOCK_BYTES, DiskError, World};

use super::blocks::Blocks;
use super::journal_scan::{self, JournalSummary};
use crate::checksum::Stored;
use crate::format::{
    BadBlock, Entry, Extent, Held, PageRef, Place, Record, Root, RootHeader, ShardEntry, Slab, SlabEntry,
    SlabHeader, Slot, Subject, Superblock, table,
};
use crate::ids::Blocks as BlockRange;
use crate::lane::ShardSlot;

/// Both slots of something.
pub(super) type Slots<T> = [(Slot, Result<T, BadBlock>); 2];

/// The good one of the higher generation.
pub(super) fn newest<T>(slots: &Slots<T>, generation: impl Fn(&T) -> u64) -> Option<&T> {
    slots.iter().filter_map(|(_, slot)| slot.as_ref().ok()).max_by_key(|slot| generation(slot))
}

/// A slab of a lane.
#[derive(Debug)]
pub(super) struct SlabView {
    pub(super) generation: u64,
    /// One per extent, as the table and the journal have them.
    pub(super) entries: Vec<Entry>,
}

/// A table page that cannot be used.
#[derive(Debug)]
pub(super) struct BadPage {
    pub(super) slab: Slab,
    pub(super) page: u32,
    pub(super) address: u64,
    pub(super) cause: BadBlock,
}

/// What a block may hold instead of what its checksum page says.
#[derive(Debug, Default, Clone)]
pub(super) struct Chain {
    /// The newest state whose data is durable, if the journal knows it.
    pub(super) floor: Option<Stored>,
    /// States of records whose data may have landed, oldest first.
    pub(super) candidates: Vec<Stored>,
}

/// A lane.
#[derive(Debug)]
pub(super) struct LaneView {
    pub(super) lane: u32,
    pub(super) roots: Slots<Root>,
    /// The journal from the tail on; `None` without a good root.
    pub(super) journal: Option<JournalSummary>,
    pub(super) slabs: BTreeMap<Slab, SlabView>,
    pub(super) shards: BTreeMap<ShardSlot, ShardEntry>,
    pub(super) bad_pages: Vec<BadPage>,
    /// Blocks that the journal has records about.
    pub(super) chains: BTreeMap<Extent, BTreeMap<u32, Chain>>,
}

/// Headers of all slabs, by slab.
pub(super) async fn slab_headers<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
) -> Result<Vec<Slots<SlabHeader>>, DiskError> {
    let layout = &superblock.layout;
    let mut headers = Vec::new();
    for slab in (0..layout.slabs()).map(Slab) {
        let first = layout.slab(slab).header(Slot::Even);
        let both = blocks.read_part(first, 2).await?;
        let [even, odd] = Slot::BOTH.map(|slot| {
            let address = layout.slab(slab).header(slot);
            let at = (address - first) as usize * BLOCK_BYTES;
            let place = Place { device: superblock.device, address };
            (slot, SlabHeader::decode(&both[at..at + BLOCK_BYTES], place, layout, slab))
        });
        headers.push([even, odd]);
    }
    Ok(headers)
}

impl LaneView {
    /// The root that holds.
    pub(super) fn root(&self) -> Option<&Root> {
        newest(&self.roots, |root| root.generation)
    }

    /// Reads everything about a lane but checksum pages and data.
    pub(super) async fn read<W: World>(
        blocks: &Blocks<'_, W>,
        superblock: &Superblock,
        headers: &[Slots<SlabHeader>],
        lane: u32,
    ) -> Result<Self, DiskError> {
        let even = read_root(blocks, superblock, lane, Slot::Even).await?;
        let odd = read_root(blocks, superblock, lane, Slot::Odd).await?;
        let mut view = Self {
            lane,
            roots: [(Slot::Even, even), (Slot::Odd, odd)],
            journal: None,
            slabs: BTreeMap::new(),
            shards: BTreeMap::new(),
            bad_pages: Vec::new(),
            chains: BTreeMap::new(),
        };
        let Some(root) = view.root().cloned() else { return Ok(view) };
        view.read_slabs(blocks, superblock, headers, &root).await?;
        view.shards = root.shards.iter().map(|shard| (shard.slot, *shard)).collect();
        // The marks of later blocks settle records of earlier ones, so the ring is read twice.
        let journal = journal_scan::scan(blocks, superblock, &root).await?;
        let layout = superblock.layout;
        journal_scan::replay(blocks, superblock, lane, &journal, |block| {
            for (number, record) in block.records() {
                let landed = number < journal.landed;
                Replay { view: &mut view, extents: layout.extents_per_slab(), landed }.record(&record);
            }
        })
        .await?;
        view.journal = Some(journal);
        Ok(view)
    }

    /// Slabs that are the lane's: those of the root, but for those that have another owner by now, and those taken
    /// since (PROTOCOL S7).
    async fn read_slabs<W: World>(
        &mut self,
        blocks: &Blocks<'_, W>,
        superblock: &Superblock,
        headers: &[Slots<SlabHeader>],
        root: &Root,
    ) -> Result<(), DiskError> {
        let in_root: BTreeMap<Slab, &SlabEntry> =
            root.slabs.iter().map(|entry| (entry.slab, entry)).collect();
        for (slab, header) in (0..).map(Slab).zip(headers) {
            let header = newest(header, |header| header.generation);
            let named = in_root.get(&slab);
            let generation = match (header, named) {
                (Some(header), _) if header.owner == Some(self.lane) => header.generation,
                // Without a good header, or with an older one, the root is believed: the header is what was lost.
                (header, Some(entry))
                    if header.is_none_or(|header| header.generation < entry.owner_generation) =>
                {
                    entry.owner_generation
                }
                _ => continue,
            };
            let pages = named.filter(|entry| entry.owner_generation == generation).map(|entry| &entry.pages);
            let entries = match pages {
                Some(pages) => self.read_pages(blocks, superblock, slab, pages).await?,
                None => vec![Entry::default(); superblock.layout.extents_per_slab() as usize],
            };
            self.slabs.insert(slab, SlabView { generation, entries });
        }
        Ok(())
    }

    async fn read_pages<W: World>(
        &mut self,
        blocks: &Blocks<'_, W>,
        superblock: &Superblock,
        slab: Slab,
        pages: &[Option<PageRef>],
    ) -> Result<Vec<Entry>, DiskError> {
        let layout = superblock.layout.slab(slab);
        let mut entries = Vec::new();
        for (page, expected) in (0..).zip(pages) {
            let free = vec![Entry::default(); layout.entries(page) as usize];
            let Some(expected) = expected else {
                entries.extend(free);
                continue;
            };
            let address = layout.table_page(page, Slot::of(expected.generation));
            let place = Place { device: superblock.device, address };
            let block = blocks.read_one(address).await?;
            match table::decode_page(&block, place, *expected, &superblock.layout, (slab, page)) {
                Ok(read) => entries.extend(read),
                Err(cause) => {
                    self.bad_pages.push(BadPage { slab, page, address, cause });
                    entries.extend(free);
                }
            }
        }
        Ok(entries)
    }

    /// Every extent that holds something.
    pub(super) fn held(&self, extents_per_slab: u32) -> impl Iterator<Item = (Extent, &Entry, &Held)> {
        self.slabs.iter().flat_map(move |(slab, view)| {
            let first = slab.0 * extents_per_slab;
            (first..)
                .map(Extent)
                .zip(&view.entries)
                .filter_map(|(extent, entry)| entry.held.as_ref().map(|held| (extent, entry, held)))
        })
    }
}

async fn read_root<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
    lane: u32,
    slot: Slot,
) -> Result<Result<Root, BadBlock>, DiskError> {
    let layout = &superblock.layout;
    let area = layout.root(lane, slot);
    let first = blocks.read_one(area.first).await?;
    let header = match RootHeader::decode(&first, layout, superblock.device, lane, slot) {
        Ok(header) => header,
        Err(bad) => return Ok(Err(bad)),
    };
    let body = blocks.read(area.first + 1, header.body_blocks()).await?;
    Ok(header.decode_body(&body, layout))
}

/// Applies a record.
struct Replay<'a> {
    view: &'a mut LaneView,
    extents: u32,
    /// The record's data is durable.
    landed: bool,
}

impl Replay<'_> {
    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Write { subject, .. } | Record::Zero { subject, .. } | Record::Free { subject }
                // It was there before; it is here for replication only.
                if subject.carried => {}
            Record::Write { subject, blocks, sums } => {
                self.change(subject, *blocks, sums.iter());
            }
            Record::Zero { subject, blocks } => {
                // It has no data that could be missing.
                self.landed = true;
                self.change(subject, *blocks, std::iter::repeat(Stored::ZERO));
            }
            Record::Allocate { subject, holds } => {
                self.view.chains.remove(&subject.extent);
                if let Some(entry) = self.entry(subject.extent) {
                    entry.held = Some(Held {
                        extent: *holds,
                        shard: subject.shard,
                        last: subject.version,
                        open: false,
                        suspect: false,
                        checksums: None,
                    });
                }
            }
            Record::Free { subject } => {
                self.view.chains.remove(&subject.extent);
                if let Some(entry) = self.entry(subject.extent) {
                    entry.held = None;
                }
            }
            Record::Open { extent } => self.mark(*extent, |held| held.open = true),
            Record::Close { extent } => self.mark(*extent, |held| held.open = false),
            Record::Verified { extent } => self.mark(*extent, |held| held.suspect = false),
            Record::Committed { shard, version } => {
                if let Some(shard) = self.view.shards.get_mut(shard) {
                    shard.committed = shard.committed.max(*version);
                }
            }
            Record::Shard(entry) => {
                let known = self.view.shards.get(&entry.slot).filter(|known| known.shard == entry.shard);
                let committed = known.map_or(entry.committed, |known| known.committed.max(entry.committed));
                self.view.shards.insert(entry.slot, ShardEntry { committed, ..*entry });
            }
            Record::ShardForgotten { shard } => {
                self.view.shards.remove(shard);
            }
            Record::SlabReleased { slab, generation } => {
                if self.view.slabs.get(slab).is_some_and(|view| view.generation == *generation) {
                    self.view.slabs.remove(slab);
                    let first = slab.0 * self.extents;
                    for extent in (first..first + self.extents).map(Extent) {
                        self.view.chains.remove(&extent);
                    }
                }
            }
            // A slab's header says who owns it, and was written before the record; an empty record changes nothing.
            Record::SlabTaken { .. } | Record::Empty { .. } => {}
        }
    }

    /// The entry of an extent, if its slab is the lane's.
    fn entry(&mut self, extent: Extent) -> Option<&mut Entry> {
        let slab = Slab(extent.0 / self.extents);
        let index = (extent.0 % self.extents) as usize;
        self.view.slabs.get_mut(&slab)?.entries.get_mut(index)
    }

    fn mark(&mut self, extent: Extent, mark: impl FnOnce(&mut Held)) {
        if let Some(held) = self.entry(extent).and_then(|entry| entry.held.as_mut()) {
            mark(held);
        }
    }

    fn change(&mut self, subject: &Subject, blocks: BlockRange, sums: impl Iterator<Item = Stored>) {
        let landed = self.landed;
        let Some(held) = self.entry(subject.extent).and_then(|entry| entry.held.as_mut()) else { return };
        held.last = held.last.max(subject.version);
        let chains = self.view.chains.entry(subject.extent).or_default();
        for (block, sum) in (blocks.first()..blocks.end()).zip(sums) {
            let chain = chains.entry(block).or_default();
            if landed {
                chain.floor = Some(sum);
                chain.candidates.clear();
            } else {
                chain.candidates.push(sum);
            }
        }
    }
}
