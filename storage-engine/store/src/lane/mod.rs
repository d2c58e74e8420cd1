//! A lane: the part of a device that one core owns, with its own journal, tables and extents (design §6).
//!
//! The caller orders changes that overlap: of those only one is in the lane at a time. A change must be driven to its
//! end: whoever may be dropped at an await lets a task of its own do it.
//!
//! | module | what |
//! |---|---|
//! | `journal` | group commit, marks, space |
//! | `pages` | checksum pages between memory and device |
//! | `tables`, `cache` | what is known in memory |
//! | `change`, `read` | what the shard asks for |
//! | `checkpoint` | what makes the journal's tail move |
//! | `recovery` | what makes sense of a device after a crash |
//! | `slabs` | space that lanes of a device hand to each other |

mod cache;
mod change;
mod checkpoint;
mod flush;
mod fresh;
mod journal;
mod pages;
mod read;
mod recovery;
mod retry;
mod slabs;
mod suspects;
mod tables;
mod types;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ashlar_io::sync::{Line, Notify};
use ashlar_io::{Buffer, World};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use self::cache::Cache;
use self::flush::Flushes;
use self::fresh::Fresh;
use self::journal::{Journal, Room};
use self::suspects::Suspects;
use self::tables::{Life, ShardState, Tables};
use crate::format::{JournalBuilder, Record};
use crate::ids::{ShardId, Version};

pub use self::recovery::OpenError;
pub use self::slabs::SlabMap;
pub use self::types::{
    Change, ExtentReport, LaneConfig, LaneError, LaneSite, Memory, Order, Origin, ReadData, ShardReport,
    ShardSlot, Space, TailKind, TailRecord, Verdict, Write,
};

/// Final content of a world's buffers.
type DataOf<W> = <<W as World>::Buffer as Buffer>::Data;

/// How often a lane looks for marks that no block has said, flushes that are due, and slabs that others want (S1, S6).
const TICK: Duration = Duration::from_millis(500);

/// Works through `items`, at most `limit` at a time; ends at the first failure.
async fn many<'a, T: 'a, E>(
    items: &'a [T],
    limit: usize,
    work: impl AsyncFn(&'a T) -> Result<(), E>,
) -> Result<(), E> {
    let work = &work;
    stream::iter(items.iter().map(|item| work(item))).buffer_unordered(limit).try_collect().await
}

/// A lane, open on one core. Clones are the same lane.
pub struct Lane<W: World>(Rc<Inner<W>>);

impl<W: World> Clone for Lane<W> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<W: World> std::fmt::Debug for Lane<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("lane", &self.0.site.lane).finish_non_exhaustive()
    }
}

struct Inner<W: World> {
    world: W,
    disk: W::Disk,
    site: LaneSite,
    config: LaneConfig,
    slabs: Arc<SlabMap>,
    journal: Rc<Journal<W>>,
    tables: RefCell<Tables>,
    cache: RefCell<Cache>,
    flushes: Rc<Flushes>,
    suspects: RefCell<Suspects>,
    fresh: RefCell<Fresh>,
    reports: Vec<ShardReport>,
    /// Told when an extent was opened or a slab taken.
    changed: Notify,
    /// One slab is taken at a time.
    claims: Line,
    /// Checkpoints so far; extents remember the one after which they were written.
    checkpoints: Cell<u64>,
    root_generation: Cell<u64>,
    closing: Cell<bool>,
    /// Told when a background task has ended.
    ended: Notify,
    tasks: Cell<u32>,
    metadata_writes: Cell<u64>,
    lost_pages: Cell<u64>,
}

/// What a lane did since it was opened, for metrics and for the bound of S10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneCounters {
    /// Journal blocks written.
    pub journal_writes: u64,
    /// Reads and writes of tables, checksum pages and roots.
    pub metadata_writes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Checksum pages in memory.
    pub cached_pages: u64,
    /// Checksum pages that were bad on the device (PROTOCOL S4).
    pub lost_pages: u64,
}

impl<W: World> Inner<W> {
    /// Starts a task that ends before [`Lane::close`] does.
    fn background(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        self.tasks.set(self.tasks.get() + 1);
        let inner = Rc::clone(self);
        self.world.spawn(async move {
            task.await;
            inner.tasks.set(inner.tasks.get() - 1);
            inner.ended.notify_all();
        });
    }

    async fn flush(&self) -> Result<(), LaneError> {
        self.flushes.flush(&self.world, &self.disk, &self.journal).await
    }

    /// Marks, flushes and slabs that are due although nobody asks for anything.
    async fn tick(self: Rc<Self>) {
        while !self.closing.get() && self.journal.check().is_ok() {
            self.world.sleep(TICK).await;
            if self.journal.is_flush_due() && self.flush().await.is_err() {
                return;
            }
            self.journal.mark_idle();
            if self.slabs.is_wanted() && self.release_slab().await.is_err() {
                return;
            }
        }
    }
}

impl<W: World> journal::Marks for Inner<W> {
    fn append(&self, block: &mut JournalBuilder<Vec<u8>>) -> u64 {
        let mut tables = self.tables.borrow_mut();
        let mut added = 0;
        while let Some(slot) = tables.to_mark.first().copied() {
            let Some(shard) = tables.shards.get_mut(&slot) else {
                tables.to_mark.pop_first();
                continue;
            };
            if block.push(&Record::Committed { shard: slot, version: shard.committed }).is_none() {
                break;
            }
            tables.to_mark.pop_first();
            added += 1;
        }
        added
    }

    fn pending(&self) -> bool {
        !self.tables.borrow().to_mark.is_empty()
    }
}

impl<W: World> Lane<W> {
    /// The slot of a shard, which is added if the lane does not know it. It becomes durable with the first record that
    /// names it.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn shard(&self, id: ShardId) -> Result<ShardSlot, LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Ordinary).await?;
        let mut tables = inner.tables.borrow_mut();
        if let Some(slot) = tables.slot(id) {
            return Ok(slot);
        }
        let slot = tables.unused_slot();
        let state = ShardState::new(id);
        let entry = state.entry(slot);
        tables.add_shard(slot, state);
        drop(tables);
        let ticket = inner.journal.append(&Record::Shard(entry));
        inner.journal.done(ticket.record);
        Ok(slot)
    }

    /// Shards as recovery found them: what they hold above their commit watermarks is for replication to settle
    /// (PROTOCOL S1, R5).
    pub fn reports(&self) -> &[ShardReport] {
        &self.0.reports
    }

    /// The extents that a shard has here.
    pub fn extents(&self, shard: ShardSlot) -> Vec<ExtentReport> {
        let tables = self.0.tables.borrow();
        let report = |(index, extent)| {
            let place = tables.place(extent);
            ExtentReport { index, last: place.last, suspect: place.suspect }
        };
        tables.extents_of(shard).into_iter().map(report).collect()
    }

    /// Everything of the shard up to `version` is durable on every in-sync replica (PROTOCOL S1). Goes out with the
    /// next journal block, or within a second.
    pub fn committed(&self, shard: ShardSlot, version: Version) {
        let mut tables = self.0.tables.borrow_mut();
        let news = tables.shards.get_mut(&shard).is_some_and(|shard| shard.commit(version));
        if news {
            tables.to_mark.insert(shard);
        }
    }

    /// Sets a shard's base (PROTOCOL R5); durable when this returns.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn set_base(&self, shard: ShardSlot, base: Version) -> Result<(), LaneError> {
        self.update(shard, |state| state.base = base).await
    }

    /// Switches single-replica mode (PROTOCOL S2); durable when this returns. To begin it, all parallel writes must
    /// have ended.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn set_single(&self, shard: ShardSlot, single: bool) -> Result<(), LaneError> {
        // What was written in parallel must have landed before the mark says that nothing unrecorded does.
        self.0.flush().await?;
        self.update(shard, |state| state.single = single).await
    }

    async fn update(&self, slot: ShardSlot, change: impl FnOnce(&mut ShardState)) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Reserve).await?;
        let entry = {
            let mut tables = inner.tables.borrow_mut();
            let Some(state) = tables.shards.get_mut(&slot) else { return Ok(()) };
            change(state);
            state.entry(slot)
        };
        let ticket = inner.journal.append(&Record::Shard(entry));
        inner.journal.done(ticket.record);
        inner.journal.durable(&ticket).await?;
        inner.flush().await
    }

    /// Forgets a shard, whose extents the caller has freed; durable when this returns.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn forget(&self, shard: ShardSlot) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.journal.room(Room::Reserve).await?;
        inner.tables.borrow_mut().remove_shard(shard);
        let ticket = inner.journal.append(&Record::ShardForgotten { shard });
        inner.journal.done(ticket.record);
        inner.journal.durable(&ticket).await?;
        inner.flush().await
    }

    /// Makes every change that was acknowledged before durable. Costs nothing on a device without a volatile cache.
    ///
    /// # Errors
    /// The lane stopped.
    pub async fn flush(&self) -> Result<(), LaneError> {
        self.0.flush().await
    }

    /// The device has a volatile cache.
    pub fn is_volatile(&self) -> bool {
        use ashlar_io::Disk;
        self.0.disk.geometry().volatile_cache
    }

    /// Used and free space. Slabs that no lane owns count as free in every lane of the device.
    pub fn space(&self) -> Space {
        let tables = self.0.tables.borrow();
        let (used, free) = tables.counts();
        let unowned = self.0.slabs.unowned() * u64::from(tables.layout.extents_per_slab());
        Space { used, free: free + unowned }
    }

    /// Why the lane stopped, if it did.
    pub fn stopped(&self) -> Option<LaneError> {
        self.0.journal.check().err()
    }

    /// Waits until the lane stops by a failure.
    pub async fn failure(&self) -> LaneError {
        loop {
            if let Err(error) = self.0.journal.check() {
                return error;
            }
            self.0.journal.on_stop.notified().await;
        }
    }

    /// What it did.
    pub fn counters(&self) -> LaneCounters {
        LaneCounters {
            journal_writes: self.0.journal.blocks_written.get(),
            metadata_writes: self.0.metadata_writes.get(),
            checkpoints: self.0.checkpoints.get(),
            cached_pages: self.0.cache.borrow().len() as u64,
            lost_pages: self.0.lost_pages.get(),
        }
    }

    /// Closes the lane when nothing is in flight any more: closes its extents, writes a checkpoint, ends its tasks.
    ///
    /// # Errors
    /// The lane stopped before.
    pub async fn close(&self) -> Result<(), LaneError> {
        let inner = &self.0;
        inner.closing.set(true);
        inner.journal.checkpoint_due.notify_all();
        inner.journal.freed.notify_all();
        while inner.tasks.get() > 0 {
            inner.ended.notified().await;
        }
        inner.journal.check()?;
        inner.checkpoint(checkpoint::Close::All).await
    }

    /// Extents by shard, for a listing.
    pub fn shards(&self) -> BTreeMap<ShardSlot, ShardId> {
        self.0.tables.borrow().shards.iter().map(|(slot, state)| (*slot, state.id)).collect()
    }

    /// The extent is stored here.
    pub fn has(&self, extent: crate::ids::ExtentId) -> bool {
        let tables = self.0.tables.borrow();
        tables.find(extent).is_some_and(|at| matches!(tables.place(at).life, Life::Held | Life::Allocating))
    }
}
