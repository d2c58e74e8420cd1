//! Changes: write, zero, free, empty, accept.

use std::rc::Rc;

use ashlar_io::{Bug, World};
use futures_util::future::join;

use super::journal::{Room, Ticket};
use super::slabs::Owner;
use super::tables::{Life, Openness, Uncommitted, UncommittedKind};
use super::types::{Change, LaneError, Order, Origin, ShardSlot, Write};
use super::{DataOf, Inner, Lane, retry};
use crate::checksum::Stored;
use crate::format::checksum_page::SUMS;
use crate::format::{Extent, Record, Subject};
use crate::ids::{Blocks, Version};

/// How often a lane without a free extent asks the other lanes of its device for a slab before it gives up (S16).
const CLAIMS: u32 = 4;

/// An extent that may be written now, and what has to be told the journal when the write is visible.
struct Ready {
    extent: Extent,
    allocation: Option<Ticket>,
}

impl<W: World> Lane<W> {
    /// Writes blocks in place and journals their checksums. Complete when both are on the device, and all journal
    /// blocks before (PROTOCOL S1, S5); durable, on a device with a volatile cache, after a [`Lane::flush`].
    ///
    /// # Errors
    /// No space is left, or the lane stopped.
    pub async fn write(&self, write: Write<'_, DataOf<W>>) -> Result<(), LaneError> {
        let inner = &self.0;
        let Write { change, blocks, checksums, data, order } = write;
        let Ready { extent, allocation } = inner.make_ready(change, blocks).await?;
        inner.tables.borrow_mut().begin(extent);
        let result = inner.write_ready(change, extent, blocks, checksums, data, order).await;
        if let Some(allocation) = allocation {
            inner.tables.borrow_mut().allocated(extent);
            inner.journal.done(allocation.record);
        }
        inner.tables.borrow_mut().end(extent);
        result
    }

    /// Makes blocks read as zeroes without touching them. Complete when the record is on the device.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn zero(&self, change: Change, blocks: Blocks) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Ordinary).await?;
        let Some(extent) = inner.tables.borrow().find(change.extent) else {
            return self.empty(change.shard, change.version).await;
        };
        let subject = subject(change, extent);
        let ticket = inner.journal.append(&Record::Zero { subject, blocks });
        inner.remember(change, &ticket, UncommittedKind::Zero { subject, blocks });
        inner.journal.completed(ticket.record);
        inner.journal.durable(&ticket).await?;
        inner.show(extent, change.version, blocks, blocks.indices().map(|_| Stored::ZERO));
        inner.journal.applied(ticket.record);
        Ok(())
    }

    /// Gives an extent back: it reads as zeroes. Complete when the record is on the device; its space can be taken
    /// when the record is durable and nothing is in flight on it (PROTOCOL S7).
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn free(&self, change: Change) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Reserve).await?;
        let Some(extent) = inner.tables.borrow().find(change.extent) else {
            return self.empty(change.shard, change.version).await;
        };
        inner.tables.borrow_mut().freeing(extent);
        inner.suspects.borrow_mut().forget(extent);
        let subject = subject(change, extent);
        let ticket = inner.journal.append(&Record::Free { subject });
        inner.remember(change, &ticket, UncommittedKind::Free { subject });
        inner.journal.completed(ticket.record);
        if inner.world.bug(Bug::ReuseBeforeFreeDurable) {
            inner.cache.borrow_mut().forget(extent);
            inner.tables.borrow_mut().freed(extent);
            inner.journal.applied(ticket.record);
            return inner.journal.durable(&ticket).await;
        }
        inner.journal.durable(&ticket).await?;
        let freeing = Rc::clone(inner);
        inner.background(async move {
            // The record must not be lost once the space has another holder. If the lane stopped nobody takes it.
            if freeing.flush().await.is_ok() {
                freeing.cache.borrow_mut().forget(extent);
                freeing.discard(extent).await;
                freeing.tables.borrow_mut().freed(extent);
                freeing.journal.applied(ticket.record);
                freeing.changed.notify_all();
            }
        });
        Ok(())
    }

    /// Records a sequence that was given and not used (PROTOCOL S3).
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn empty(&self, shard: ShardSlot, version: Version) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Ordinary).await?;
        let ticket = inner.journal.append(&Record::Empty { shard, version, carried: false });
        inner.remember_empty(shard, version, &ticket);
        inner.journal.done(ticket.record);
        inner.journal.durable(&ticket).await
    }

    /// Takes the bytes that a suspect block has for its content (PROTOCOL S2, the one exception to D4). The caller
    /// counts and logs it.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn accept(&self, change: Change, block: u32, sum: Stored) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Ordinary).await?;
        let (Some(extent), Some(blocks)) = (inner.tables.borrow().find(change.extent), Blocks::new(block, 1))
        else {
            return Ok(());
        };
        let subject = subject(change, extent);
        let sums = [sum];
        let ticket = inner.journal.append(&Record::Write { subject, blocks, sums: sums[..].into() });
        inner.journal.completed(ticket.record);
        inner.journal.durable(&ticket).await?;
        inner.show(extent, change.version, blocks, sums);
        inner.journal.applied(ticket.record);
        Ok(())
    }
}

fn subject(change: Change, extent: Extent) -> Subject {
    Subject {
        extent,
        shard: change.shard,
        index: change.extent.index,
        version: change.version,
        origin: change.origin,
        carried: false,
    }
}

impl<W: World> Inner<W> {
    async fn write_ready(
        &self,
        change: Change,
        extent: Extent,
        blocks: Blocks,
        sums: &[Stored],
        data: DataOf<W>,
        order: Order,
    ) -> Result<(), LaneError> {
        let subject = subject(change, extent);
        let at = self.site.layout.extent_block(extent, blocks.first());
        let record_first = match order {
            // PROTOCOL S2: with a single in-sync replica an unrecorded mismatch must be corruption.
            Order::RecordFirst if !self.world.bug(Bug::RecordAfterDataWhenSingle) => true,
            _ => self.is_over_fresh(extent, blocks),
        };
        let ticket = self.journal.append(&Record::Write { subject, blocks, sums: sums.into() });
        self.remember(change, &ticket, UncommittedKind::Write { subject, blocks, sums: sums.into() });
        self.note_fresh(extent, blocks, ticket.record);
        if record_first {
            self.journal.durable(&ticket).await?;
            self.flush().await?;
        }
        if self.world.bug(Bug::ShowChecksumEarly) {
            self.show(extent, change.version, blocks, sums.iter().copied());
        }
        let data = async {
            let written = retry::write(&self.world, &self.disk, at, data).await;
            if let Err(error) = &written {
                // The block is neither old nor new: this lane cannot say any more what it holds.
                self.journal.stop(&error.to_string());
            }
            self.journal.completed(ticket.record);
            written
        };
        let (written, durable) = join(data, self.journal.durable(&ticket)).await;
        written?;
        durable?;
        self.show(extent, change.version, blocks, sums.iter().copied());
        self.journal.applied(ticket.record);
        Ok(())
    }

    /// PROTOCOL S12: some of these blocks read as zeroes before a write that may not have landed, as far as recovery
    /// would know. What overwrites it must be recorded first, and not in a cache that the power takes: by the time at
    /// which the data lands the first write may have been flushed, and promised.
    fn is_over_fresh(&self, extent: Extent, blocks: Blocks) -> bool {
        let mut fresh = self.fresh.borrow_mut();
        fresh.forget(self.journal.landed_durable());
        fresh.has_some(extent, blocks) && !self.world.bug(Bug::OverwriteFreshUnrecorded)
    }

    /// Remembers which of these blocks read as zeroes until this record.
    fn note_fresh(&self, extent: Extent, blocks: Blocks, record: u64) {
        let (mut fresh, mut cache) = (self.fresh.borrow_mut(), self.cache.borrow_mut());
        for block in blocks.first()..blocks.end() {
            // A page that is not in memory may say that a block is zero.
            if cache.get(extent, block).is_none_or(|sum| !sum.has_data()) {
                fresh.add(extent, block, record);
            }
        }
    }

    /// Makes new checksums visible (PROTOCOL S8: at completion).
    fn show(&self, extent: Extent, version: Version, blocks: Blocks, sums: impl IntoIterator<Item = Stored>) {
        {
            let mut cache = self.cache.borrow_mut();
            for (block, sum) in (blocks.first()..).zip(sums) {
                cache.set(extent, block, sum);
            }
            if cache.is_checkpoint_due() {
                self.journal.checkpoint_due.notify_one();
            }
        }
        let mut tables = self.tables.borrow_mut();
        if tables.place(extent).last < version {
            tables.change(extent).last = version;
        }
        let place = tables.touch(extent);
        place.touched = self.checkpoints.get();
        place.writes += 1;
        let suspect = tables.place(extent).suspect;
        drop(tables);
        if suspect {
            self.verified(extent, blocks);
        }
    }

    /// Keeps what must be carried forward until it is committed everywhere (PROTOCOL S1).
    fn remember(&self, change: Change, ticket: &Ticket, kind: UncommittedKind) {
        // Copies are outside the contiguity of sequences: catching up compares them anyway (R5).
        if change.origin == Origin::Copy {
            return;
        }
        let mut tables = self.tables.borrow_mut();
        let Some(shard) = tables.shards.get_mut(&change.shard) else { return };
        if change.version > shard.committed {
            let uncommitted = Uncommitted { version: change.version, record: ticket.record, kind };
            shard.uncommitted.push_back(uncommitted);
        }
    }

    fn remember_empty(&self, shard: ShardSlot, version: Version, ticket: &Ticket) {
        let mut tables = self.tables.borrow_mut();
        let Some(state) = tables.shards.get_mut(&shard) else { return };
        if version > state.committed {
            let kind = UncommittedKind::Empty;
            state.uncommitted.push_back(Uncommitted { version, record: ticket.record, kind });
        }
    }

    /// Finds the extent, or takes one; opens it if it must be open to be written (design §6).
    async fn make_ready(self: &Rc<Self>, change: Change, blocks: Blocks) -> Result<Ready, LaneError> {
        loop {
            self.journal.room(Room::Ordinary).await?;
            let Some(extent) = self.tables.borrow().find(change.extent) else {
                if let Some(ready) = self.allocate(change).await? {
                    return Ok(ready);
                }
                continue;
            };
            let openness = self.tables.borrow().place(extent).open;
            match openness {
                Openness::Open => {}
                Openness::Closed if self.world.bug(Bug::SkipOpenRecord) => {}
                Openness::Closed if self.were_never_written(extent, blocks) => {}
                Openness::Closed => {
                    self.open_extent(extent).await?;
                    continue;
                }
                Openness::Opening => {
                    self.changed.notified().await;
                    continue;
                }
            }
            return Ok(Ready { extent, allocation: None });
        }
    }

    /// PROTOCOL S12: what lands in a block that was never written is not seen without its record.
    fn were_never_written(&self, extent: Extent, blocks: Blocks) -> bool {
        let mut cache = self.cache.borrow_mut();
        let mut blocks = blocks.first()..blocks.end();
        blocks.all(|block| cache.get(extent, block) == Some(Stored::NEVER))
    }

    async fn open_extent(&self, extent: Extent) -> Result<(), LaneError> {
        {
            let mut tables = self.tables.borrow_mut();
            tables.change(extent).open = Openness::Opening;
            tables.open.insert(extent);
            if tables.open.len() > self.config.open_extents {
                self.journal.checkpoint_due.notify_one();
            }
            // It is not closed before the write that opened it was there.
            tables.touch(extent).touched = self.checkpoints.get();
        }
        let ticket = self.journal.append(&Record::Open { extent });
        self.journal.done(ticket.record);
        let result = self.journal.durable(&ticket).await;
        // PROTOCOL S6: the record is flushed before what depends on it.
        let result = match result {
            Ok(()) if !self.world.bug(Bug::OpenNotFlushed) => self.flush().await,
            other => other,
        };
        let mut tables = self.tables.borrow_mut();
        let place = tables.touch(extent);
        if place.open == Openness::Opening {
            place.open = if result.is_ok() { Openness::Open } else { Openness::Closed };
        }
        drop(tables);
        self.changed.notify_all();
        result
    }

    /// Takes a free extent, or a slab to find one in. `None`: look again.
    async fn allocate(self: &Rc<Self>, change: Change) -> Result<Option<Ready>, LaneError> {
        for _ in 0..CLAIMS {
            let taken = self.tables.borrow_mut().allocate(change.extent, change.shard);
            if let Some(extent) = taken {
                let record = Record::Allocate { subject: subject(change, extent), holds: change.extent };
                let ticket = self.journal.append(&record);
                // Shared with the first write's journal block (S12).
                self.journal.completed(ticket.record);
                let mut cache = self.cache.borrow_mut();
                if !self.world.bug(Bug::KeepChecksumsAtAllocation) {
                    cache.forget(extent);
                }
                cache.install(extent, Box::new([Stored::NEVER; SUMS]));
                return Ok(Some(Ready { extent, allocation: Some(ticket) }));
            }
            self.claim_slab().await?;
            if self.tables.borrow().find(change.extent).is_some() {
                return Ok(None);
            }
        }
        Err(LaneError::NoSpace { extent: change.extent })
    }

    /// Takes a slab that nobody owns (PROTOCOL S7), or waits a moment for one that another lane gives up.
    async fn claim_slab(&self) -> Result<(), LaneError> {
        let turn = self.claims.turn().await;
        if self.tables.borrow().counts().1 > 0 {
            return Ok(());
        }
        let Some((slab, generation)) = self.slabs.take(self.site.lane) else {
            drop(turn);
            self.world.sleep(super::TICK).await;
            return Ok(());
        };
        let owner = Owner { lane: Some(self.site.lane), generation };
        self.slabs.write_header(&self.world, &self.disk, slab, owner).await?;
        let ticket = self.journal.append(&Record::SlabTaken { slab, generation });
        self.journal.done(ticket.record);
        let pages = vec![None; self.site.layout.table_pages() as usize];
        self.tables.borrow_mut().add_slab(slab, generation, pages, &[]);
        Ok(())
    }

    /// Gives a slab with nothing in it to whoever takes it (PROTOCOL S7): its release is durable first.
    pub(super) async fn release_slab(&self) -> Result<(), LaneError> {
        let turn = self.claims.turn().await;
        let spare = {
            let mut tables = self.tables.borrow_mut();
            let spare = tables.spare_slab();
            spare.map(|slab| {
                let generation = tables.slabs[&slab].generation;
                tables.remove_slab(slab);
                (slab, generation)
            })
        };
        let Some((slab, generation)) = spare else { return Ok(()) };
        self.journal.room(Room::Reserve).await?;
        let ticket = self.journal.append(&Record::SlabReleased { slab, generation });
        self.journal.done(ticket.record);
        if !self.world.bug(Bug::TakeSlabBeforeReleaseDurable) {
            self.journal.durable(&ticket).await?;
            self.flush().await?;
        }
        let owner = Owner { lane: None, generation: generation + 1 };
        self.slabs.write_header(&self.world, &self.disk, slab, owner).await?;
        self.slabs.release(slab, generation + 1);
        drop(turn);
        Ok(())
    }

    /// Tells the device that an extent's bytes are of no use any more. A hint: its failure is of no consequence.
    async fn discard(&self, extent: Extent) {
        use ashlar_io::Disk;
        if !self.disk.geometry().discard {
            return;
        }
        let first = self.site.layout.extent_block(extent, 0);
        let blocks = first..first + u64::from(crate::ids::EXTENT_BLOCKS);
        if let Err(error) = self.disk.discard(blocks).await {
            tracing::debug!(%error, "a freed extent was not discarded");
        }
    }

    /// Some blocks of a suspect extent are what their checksums say.
    pub(super) fn verified(&self, extent: Extent, blocks: Blocks) {
        if !self.suspects.borrow_mut().verified(extent, blocks) {
            return;
        }
        {
            let mut tables = self.tables.borrow_mut();
            if tables.place(extent).life != Life::Held {
                return;
            }
            tables.change(extent).suspect = false;
        }
        self.changed.notify_all();
    }
}
