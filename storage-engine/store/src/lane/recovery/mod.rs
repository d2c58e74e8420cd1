//! Opening a lane: what a crash left is made sense of (design §6; PROTOCOL S1, S2, S5, S7).
//!
//! The newest root names the tables as the last checkpoint left them. The journal from its tail on says what happened
//! since: records whose data has landed are taken at their word, the others are judged by the bytes on the device. The
//! journal goes on under a new incarnation, and a checkpoint makes it all durable before anyone is served.

mod judge;
mod replay;
mod scan;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use ashlar_io::sync::{Line, Notify};
use ashlar_io::{BLOCK_BYTES, Bug, DiskError, World};

use self::replay::Replay;
use super::cache::Cache;
use super::checkpoint::Close;
use super::flush::Flushes;
use super::journal::{Journal, Resume};
use super::slabs::{Claim, Owner, SlabMap};
use super::suspects::Suspects;
use super::tables::{ShardState, Tables};
use super::types::{LaneConfig, LaneError, LaneSite};
use super::{Inner, Lane, many, retry};
use crate::format::{BadBlock, Entry, PageRef, Place, Root, RootHeader, Slab, SlabEntry, Slot, table};

/// Table pages that are read at a time.
const PAGES_IN_FLIGHT: usize = 32;

/// A lane cannot be opened as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Both roots are bad.
    #[error(
        "both roots of lane {lane} are bad: {even}; {odd}. `ashlar device check` says what else is; what the device held must be rebuilt from other replicas"
    )]
    NoRoot {
        /// The lane.
        lane: u32,
        /// What is wrong with the one.
        even: BadBlock,
        /// What is wrong with the other.
        odd: BadBlock,
    },
    /// A table page is bad.
    #[error(
        "table page {page} of slab {slab} is bad: {cause}. What the device held must be rebuilt from other replicas"
    )]
    BadTable {
        /// The slab.
        slab: u32,
        /// The page.
        page: u32,
        /// What is wrong.
        cause: BadBlock,
    },
    /// Two lanes have the same slab: what the one or the other has there was overwritten.
    #[error(
        "slab {slab} belongs to lane {lane} and to lane {other}. What the device held must be rebuilt from other replicas"
    )]
    TwoOwners {
        /// The slab.
        slab: u32,
        /// The lane that is opened.
        lane: u32,
        /// The lane that its header names.
        other: u32,
    },
    /// The journal lacks a block that was acknowledged (PROTOCOL S5): what it recorded is lost here.
    #[error(
        "journal block {missing} of lane {lane} is missing although it was durable: this replica is stale and must be rebuilt from other replicas"
    )]
    Gap {
        /// The lane.
        lane: u32,
        /// The block.
        missing: u64,
    },
    /// What was recovered could not be made durable.
    #[error("what was recovered could not be written: {0}")]
    Lane(#[from] LaneError),
}

impl<W: World> Lane<W> {
    /// Opens a lane after whatever happened to it. When this returns everything that was found is durable, and
    /// [`Lane::reports`] says what replication has to settle.
    ///
    /// # Errors
    /// What cannot be made sense of, and what helps.
    pub async fn open(
        world: W,
        disk: W::Disk,
        site: LaneSite,
        slabs: Arc<SlabMap>,
        config: LaneConfig,
    ) -> Result<Self, OpenError> {
        let root = read_root(&world, &disk, &site).await?;
        let (mut tables, lost) = read_tables(&world, &disk, &site, &slabs, &root).await?;
        for entry in &root.shards {
            tables.add_shard(entry.slot, ShardState::from_entry(entry));
        }
        let cache = Cache::new(config.cache_pages);
        let mut replay = Replay::new(tables, cache, site.lane, Arc::clone(&slabs), lost);
        let end = scan::journal(&world, &disk, &site, &root, &mut replay).await?;
        let resume = Resume {
            sequence: end.sequence,
            tail: root.tail,
            record: end.next_record,
            landed: replay.window.front().map_or(end.next_record, |(number, _)| *number),
            incarnation: match world.bug(Bug::KeepOldIncarnation) {
                true => end.incarnation.max(1),
                false => end.incarnation + 1,
            },
            previous_crc: end.crc,
        };
        let journal = Journal::new(world.clone(), disk.clone(), (site, config.early_bytes), resume);
        journal.set_firsts(end.firsts);
        let Replay { tables, cache, window, tails, released, lost, disputed, .. } = replay;
        if let Some((slab, other)) = disputed {
            return Err(OpenError::TwoOwners { slab: slab.0, lane: site.lane, other });
        }
        let mut inner = Inner {
            world: world.clone(),
            disk,
            site,
            config,
            slabs,
            journal,
            tables: RefCell::new(tables),
            cache: RefCell::new(cache),
            flushes: Rc::new(Flushes::default()),
            suspects: RefCell::new(Suspects::default()),
            fresh: RefCell::default(),
            reports: Vec::new(),
            changed: Notify::new(),
            claims: Line::new(),
            // Extents that nobody wrote since opening have idled for two checkpoints at the third.
            checkpoints: Cell::new(1),
            root_generation: Cell::new(root.generation),
            closing: Cell::new(false),
            ended: Notify::new(),
            tasks: Cell::new(0),
            metadata_writes: Cell::new(0),
            lost_pages: Cell::new(0),
        };
        let bad = inner.judge(window).await?;
        inner.reports = inner.report(tails, &bad).await?;
        inner.suspect_open_extents();
        let inner = Rc::new(inner);
        let marks: Rc<dyn super::journal::Marks> = Rc::clone(&inner) as _;
        inner.journal.set_marks(&marks);
        inner.restore_headers(lost).await?;
        inner.begin_incarnation(released).await?;
        inner.background(Rc::clone(&inner).checkpoints());
        inner.background(Rc::clone(&inner).tick());
        Ok(Self(inner))
    }
}

impl<W: World> Inner<W> {
    /// PROTOCOL S2: in extents that were open, data may have landed whose record did not. In single-replica mode
    /// records are durable first, so there it cannot.
    fn suspect_open_extents(&self) {
        if self.world.bug(Bug::ForgetSuspect) {
            return;
        }
        let mut tables = self.tables.borrow_mut();
        let mut suspects = self.suspects.borrow_mut();
        let open: Vec<_> = tables.open.iter().copied().collect();
        for extent in open {
            let place = tables.place(extent);
            let single = tables.shards.get(&place.shard).is_some_and(|shard| shard.single);
            if single && !place.suspect {
                continue;
            }
            tables.change(extent).suspect = true;
            suspects.add(extent);
        }
    }

    /// Writes headers of slabs again that the lane has by its root or journal, and that were bad (PROTOCOL S7).
    async fn restore_headers(&self, lost: Vec<(Slab, u64)>) -> Result<(), OpenError> {
        for (slab, generation) in lost {
            let kept =
                self.tables.borrow().slabs.get(&slab).is_some_and(|kept| kept.generation == generation);
            if kept {
                let owner = Owner { lane: Some(self.site.lane), generation };
                self.slabs.write_header(&self.world, &self.disk, slab, owner).await?;
                tracing::warn!(device = %self.site.device, slab = slab.0, "a bad slab header was written again");
            }
        }
        Ok(())
    }

    /// PROTOCOL S5: before anything else a block of a new incarnation; then a checkpoint, with which everything that
    /// was recovered is durable.
    async fn begin_incarnation(self: &Rc<Self>, released: Vec<(Slab, u64)>) -> Result<(), OpenError> {
        let barrier = self.journal.barrier();
        self.journal.durable(&barrier).await?;
        self.flush().await?;
        self.checkpoint(Close::Idle).await?;
        self.journal.doubt_is_over();
        // Releases that were durable and not told the others yet (S7).
        for (slab, generation) in released {
            let owner = Owner { lane: None, generation: generation + 1 };
            self.slabs.write_header(&self.world, &self.disk, slab, owner).await?;
            self.slabs.release(slab, generation + 1);
        }
        Ok(())
    }
}

/// Reads the newer of the two roots that is good throughout.
async fn read_root<W: World>(world: &W, disk: &W::Disk, site: &LaneSite) -> Result<Root, OpenError> {
    let even = read_root_slot(world, disk, site, Slot::Even).await?;
    let odd = read_root_slot(world, disk, site, Slot::Odd).await?;
    match (even, odd) {
        (Ok(even), Ok(odd)) => Ok(if even.generation > odd.generation { even } else { odd }),
        (Ok(root), Err(_)) | (Err(_), Ok(root)) => Ok(root),
        (Err(even), Err(odd)) => Err(OpenError::NoRoot { lane: site.lane, even, odd }),
    }
}

async fn read_root_slot<W: World>(
    world: &W,
    disk: &W::Disk,
    site: &LaneSite,
    slot: Slot,
) -> Result<Result<Root, BadBlock>, DiskError> {
    let area = site.layout.root(site.lane, slot);
    let (result, buffer) = retry::read(world, disk, area.first, world.spare_buffer(1)).await;
    result?;
    let header = match RootHeader::decode(&buffer, &site.layout, site.device, site.lane, slot) {
        Ok(header) => header,
        Err(bad) => return Ok(Err(bad)),
    };
    let blocks = header.body_blocks();
    let mut body = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
    let mut at = 0;
    while at < blocks {
        let count = (blocks - at).min(W::MAX_BUFFER_BLOCKS as u64);
        let buffer = world.spare_buffer(count as usize);
        let (result, buffer) = retry::read(world, disk, area.first + 1 + at, buffer).await;
        result?;
        body.extend_from_slice(&buffer);
        at += count;
    }
    Ok(header.decode_body(&body, &site.layout))
}

/// Reads what the root names of the slabs that the lane owns, and says which of their headers are bad. Slabs that it
/// took since are empty as far as tables are concerned (S7).
async fn read_tables<W: World>(
    world: &W,
    disk: &W::Disk,
    site: &LaneSite,
    slabs: &SlabMap,
    root: &Root,
) -> Result<(Tables, Vec<(Slab, u64)>), OpenError> {
    let tables = RefCell::new(Tables::new(site.layout));
    let mut entries = Vec::new();
    let mut lost = Vec::new();
    for entry in &root.slabs {
        match slabs.claim(entry.slab, site.lane, entry.owner_generation) {
            Claim::Agreed => entries.push(entry),
            Claim::Lost => {
                entries.push(entry);
                lost.push((entry.slab, entry.owner_generation));
            }
            // PROTOCOL S7: what an older owner had is not ours any more.
            _ if world.bug(Bug::ReplayOldOwner) => entries.push(entry),
            Claim::Outdated => {}
            Claim::Disputed(other) => {
                return Err(OpenError::TwoOwners { slab: entry.slab.0, lane: site.lane, other });
            }
        }
    }
    many(&entries, PAGES_IN_FLIGHT, async |entry: &&SlabEntry| {
        let held = read_slab(world, disk, site, entry).await?;
        tables.borrow_mut().add_slab(entry.slab, entry.owner_generation, entry.pages.clone(), &held);
        Ok::<_, OpenError>(())
    })
    .await?;
    let mut tables = tables.into_inner();
    for (slab, generation) in slabs.of(site.lane) {
        if !tables.slabs.contains_key(&slab) {
            tables.add_slab(slab, generation, vec![None; site.layout.table_pages() as usize], &[]);
        }
    }
    Ok((tables, lost))
}

async fn read_slab<W: World>(
    world: &W,
    disk: &W::Disk,
    site: &LaneSite,
    entry: &SlabEntry,
) -> Result<Vec<Entry>, OpenError> {
    let mut held = Vec::new();
    let layout = site.layout.slab(entry.slab);
    for (page, expected) in (0u32..).zip(&entry.pages) {
        match expected {
            None => held.resize(held.len() + layout.entries(page) as usize, Entry::default()),
            Some(expected) => held.extend(read_page(world, disk, site, (entry.slab, page), *expected).await?),
        }
    }
    Ok(held)
}

async fn read_page<W: World>(
    world: &W,
    disk: &W::Disk,
    site: &LaneSite,
    (slab, page): (Slab, u32),
    expected: PageRef,
) -> Result<Vec<Entry>, OpenError> {
    let address = site.layout.slab(slab).table_page(page, Slot::of(expected.generation));
    let (result, buffer) = retry::read(world, disk, address, world.spare_buffer(1)).await;
    result?;
    let place = Place { device: site.device, address };
    table::decode_page(&buffer, place, expected, &site.layout, (slab, page))
        .map_err(|cause| OpenError::BadTable { slab: slab.0, page, cause })
}
