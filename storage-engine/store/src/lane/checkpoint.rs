//! Checkpoints: what is known in memory goes to the tables, then the journal's tail moves (PROTOCOL S4, S10, S15).
//!
//! In this order: images of changed checksum pages; a flush, which makes their entries' data durable too; images of
//! changed table pages; a flush; records that are not committed everywhere once more at the journal's head (S1); the
//! root, which names it all; a flush; the tail. At no time does the device hold fewer than one complete set.

use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, Bug, Disk, World};

use super::journal::Room;
use super::tables::{Openness, Uncommitted, UncommittedKind};
use super::types::{LaneError, ShardSlot};
use super::{Inner, many, retry};
use crate::format::layout::ENTRIES_PER_PAGE;
use crate::format::{Extent, Place, Record, Root, Slab, SlabEntry, Slot, Subject, table};

/// Metadata I/Os in flight at a time: a bound on memory, deep enough for a device.
pub(super) const PAGES_IN_FLIGHT: usize = 16;

/// Before a checkpoint follows one that gave up nothing.
const PAUSE: Duration = Duration::from_millis(10);

/// Checkpoints that an extent stays open without a write (lazily closed, design §6).
const OPEN_CHECKPOINTS: u64 = 2;

/// Which extents a checkpoint closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    /// Those that were not written for some checkpoints, and as many more as are open beyond the limit.
    Idle,
    /// All: the lane ends.
    All,
}

impl<W: World> Inner<W> {
    /// Writes checkpoints as they become due, until the lane closes or stops.
    pub(super) async fn checkpoints(self: Rc<Self>) {
        loop {
            while !self.closing.get() && self.journal.check().is_ok() && !self.is_checkpoint_due() {
                self.journal.checkpoint_due.notified().await;
            }
            if self.closing.get() || self.journal.check().is_err() {
                return;
            }
            let before = self.journal.tail();
            if let Err(error) = self.checkpoint(Close::Idle).await {
                self.journal.stop(&error.to_string());
                return;
            }
            if self.is_checkpoint_due() && self.journal.tail() == before {
                // Nothing could be given up: what holds the tail is in flight or not committed, extents are suspect.
                self.world.sleep(PAUSE).await;
            }
        }
    }

    fn is_checkpoint_due(&self) -> bool {
        self.journal.is_checkpoint_due()
            || self.cache.borrow().is_checkpoint_due()
            || self.tables.borrow().open.len() > self.config.open_extents
    }

    /// Writes one.
    pub(super) async fn checkpoint(self: &Rc<Self>, close: Close) -> Result<(), LaneError> {
        let target = self.journal.next_tail();
        self.write_checksum_pages().await?;
        let idle = self.idle_extents(close);
        if !self.world.bug(Bug::CloseBeforeDataDurable) {
            self.flush().await?;
        }
        self.close_extents(idle);
        self.write_table_pages().await?;
        self.flush().await?;
        let (tail, first_record) = match self.world.bug(Bug::TailPassesUncommitted) {
            true => target,
            false => self.carry_forward(target).await?,
        };
        self.write_root(tail, first_record).await?;
        self.checkpoints.set(self.checkpoints.get() + 1);
        self.journal.move_tail(tail);
        Ok(())
    }

    pub(super) async fn write_metadata(&self, address: u64, buffer: W::Buffer) -> Result<(), LaneError> {
        self.metadata_writes.set(self.metadata_writes.get() + 1);
        Ok(retry::write(&self.world, &self.disk, address, buffer.freeze()).await?)
    }

    /// Extents to be closed once everything that is on its way to them has been flushed, with how often they were
    /// written: those that nobody wrote for some checkpoints, and the longest idle ones beyond the limit.
    fn idle_extents(&self, close: Close) -> Vec<(Extent, u64)> {
        let now = self.checkpoints.get();
        let tables = self.tables.borrow();
        let mut idle: Vec<(u64, Extent, u64)> = tables
            .open
            .iter()
            .map(|extent| (*extent, tables.place(*extent)))
            .filter(|(_, place)| place.is_idle())
            .map(|(extent, place)| (place.touched, extent, place.writes))
            .collect();
        idle.sort_unstable();
        let beyond = match tables.open.len() > self.config.open_extents {
            true => tables.open.len() - self.config.open_extents / 2,
            false => 0,
        };
        let early = self.world.bug(Bug::CloseBeforeDataDurable);
        let due = |at: usize, touched: u64| match close {
            Close::All => true,
            Close::Idle => touched + OPEN_CHECKPOINTS <= now || at < beyond || early,
        };
        let due = idle.into_iter().enumerate().filter(|(at, (touched, ..))| due(*at, *touched));
        due.map(|(_, (_, extent, writes))| (extent, writes)).collect()
    }

    /// Closes those of the extents that nobody wrote since they were found idle: their data is durable.
    fn close_extents(&self, idle: Vec<(Extent, u64)>) {
        for (extent, writes) in idle {
            // Who frees space must not wait for it: another checkpoint will close the rest.
            if !self.journal.has_room(Room::Reserve) {
                return;
            }
            {
                let mut tables = self.tables.borrow_mut();
                if !tables.owns(extent) {
                    continue;
                }
                let place = tables.place(extent);
                if !place.is_idle() || place.writes != writes {
                    continue;
                }
                tables.change(extent).open = Openness::Closed;
                tables.open.remove(&extent);
            }
            let ticket = self.journal.append(&Record::Close { extent });
            self.journal.done(ticket.record);
        }
    }

    async fn write_table_pages(&self) -> Result<(), LaneError> {
        let dirty: Vec<(Slab, u32)> = {
            let tables = self.tables.borrow();
            let pages = tables.slabs.iter().flat_map(|(slab, state)| {
                let dirty = (0u32..).zip(&state.dirty).filter(|(_, dirty)| **dirty);
                dirty.map(|(page, _)| (*slab, page))
            });
            pages.collect()
        };
        many(&dirty, PAGES_IN_FLIGHT, async |(slab, page): &(Slab, u32)| {
            self.write_table_page(*slab, *page).await
        })
        .await
    }

    async fn write_table_page(&self, slab: Slab, page: u32) -> Result<(), LaneError> {
        let mut buffer = self.world.spare_buffer(1);
        let (address, image) = {
            let mut tables = self.tables.borrow_mut();
            let Some(state) = tables.slabs.get_mut(&slab) else { return Ok(()) };
            state.dirty[page as usize] = false;
            let generation = state.pages[page as usize].map_or(0, |old| old.generation) + 1;
            let address = self.site.layout.slab(slab).table_page(page, Slot::of(generation));
            let entries: Vec<_> = state
                .places
                .chunks(ENTRIES_PER_PAGE as usize)
                .nth(page as usize)
                .map(|places| places.iter().map(super::tables::Place::entry).collect())
                .unwrap_or_default();
            let place = Place { device: self.site.device, address };
            (address, table::encode_page(&mut buffer, place, generation, (slab, page), &entries))
        };
        self.write_metadata(address, buffer).await?;
        if let Some(state) = self.tables.borrow_mut().slabs.get_mut(&slab) {
            state.pages[page as usize] = Some(image);
        }
        Ok(())
    }

    /// PROTOCOL S1: the tail passes an uncommitted record only after a copy of it was appended at the head. Goes as far
    /// towards `target` as the journal has room for the copies, and says how far.
    async fn carry_forward(&self, target: (u64, u64)) -> Result<(u64, u64), LaneError> {
        let slots: Vec<_> = self.tables.borrow().shards.keys().copied().collect();
        let mut sizes: Vec<(u64, usize)> = {
            let tables = self.tables.borrow();
            let shards = tables.shards.iter();
            let old = shards.flat_map(|(slot, shard)| shard.uncommitted.iter().map(|old| (*slot, old)));
            old.filter(|(_, old)| old.record < target.1)
                .map(|(slot, old)| (old.record, carried(slot, old).encoded_bytes()))
                .collect()
        };
        sizes.sort_unstable();
        let (tail, first_record) = self.journal.carriable(target, &sizes);
        let mut newest = None;
        for slot in slots {
            // Without a pause: the room that was counted is there.
            while let Some(old) = self.next_to_carry(slot, first_record) {
                let ticket = self.journal.append(&carried(slot, &old));
                self.journal.done(ticket.record);
                let mut tables = self.tables.borrow_mut();
                let Some(shard) = tables.shards.get_mut(&slot) else { break };
                // Not by version: a copy has the version of a write (S3).
                if let Some(place) = shard.uncommitted.iter_mut().find(|place| place.record == old.record) {
                    place.record = ticket.record;
                }
                newest = Some(ticket);
            }
        }
        if let Some(ticket) = newest {
            self.journal.durable(&ticket).await?;
            self.flush().await?;
        }
        Ok((tail, first_record))
    }

    /// An uncommitted record of a shard that stands before the new tail.
    fn next_to_carry(&self, slot: ShardSlot, first_record: u64) -> Option<Uncommitted> {
        let tables = self.tables.borrow();
        tables.shards.get(&slot)?.uncommitted.iter().find(|old| old.record < first_record).cloned()
    }

    async fn write_root(&self, tail: u64, first_record: u64) -> Result<(), LaneError> {
        let generation = self.root_generation.get() + 1;
        let root = {
            let tables = self.tables.borrow();
            let slabs = tables.slabs.iter().map(|(slab, state)| SlabEntry {
                slab: *slab,
                owner_generation: state.generation,
                pages: state.pages.clone(),
            });
            let shards = tables.shards.iter().map(|(slot, shard)| shard.entry(*slot));
            Root {
                generation,
                lane: self.site.lane,
                incarnation: self.journal.incarnation(),
                tail,
                first_record,
                slabs: slabs.collect(),
                shards: shards.collect(),
            }
        };
        let image = root.encode(&self.site.layout, self.site.device).map_err(|error| {
            LaneError::Stopped(format!("its root has no room for what it must name: {error}"))
        })?;
        let chunk = W::MAX_BUFFER_BLOCKS * BLOCK_BYTES;
        let parts: Vec<(u64, &[u8])> = image
            .body
            .chunks(chunk)
            .enumerate()
            .map(|(index, part)| (image.slot.first + 1 + (index * W::MAX_BUFFER_BLOCKS) as u64, part))
            .collect();
        many(&parts, PAGES_IN_FLIGHT, async |(address, part): &(u64, &[u8])| {
            let mut buffer = self.world.spare_buffer(part.len().div_ceil(BLOCK_BYTES));
            buffer[..part.len()].copy_from_slice(part);
            buffer[part.len()..].fill(0);
            self.write_metadata(*address, buffer).await
        })
        .await?;
        // A flush of the device itself: the root must not be durable before what it names.
        self.disk.flush().await?;
        let mut buffer = self.world.spare_buffer(1);
        buffer.copy_from_slice(&image.first);
        self.write_metadata(image.slot.first, buffer).await?;
        self.disk.flush().await?;
        self.root_generation.set(generation);
        Ok(())
    }
}

/// The copy of a record that goes to the journal's head.
fn carried(slot: ShardSlot, old: &Uncommitted) -> Record<'_> {
    let carried = |subject: &Subject| Subject { carried: true, ..*subject };
    match &old.kind {
        UncommittedKind::Write { subject, blocks, sums } => {
            Record::Write { subject: carried(subject), blocks: *blocks, sums: sums[..].into() }
        }
        UncommittedKind::Zero { subject, blocks } => {
            Record::Zero { subject: carried(subject), blocks: *blocks }
        }
        UncommittedKind::Free { subject } => Record::Free { subject: carried(subject) },
        UncommittedKind::Empty => Record::Empty { shard: slot, version: old.version, carried: true },
    }
}
