//! Verifies every structure and every checksum of a device, offline, changing nothing.
//!
//! What a crash explains is no error: a block of an extent that was open may hold old or new bytes until the lane is
//! opened again (PROTOCOL S1, S2). It is told all the same.

use std::collections::BTreeMap;
use std::fmt;

use ashlar_io::{BLOCK_BYTES, DiskError, World};

use super::blocks::Blocks;
use super::catalog;
use super::lane_view::{self, LaneView, Slots, newest};
use super::open::{OpenDevice, OpenError, open};
use crate::checksum::{Stored, Summer};
use crate::format::{
    BadBlock, Entry, Extent, Held, PageRef, Place, Slab, SlabHeader, Slot, Superblock, checksum_page,
};
use crate::ids::{EXTENT_BLOCKS, ExtentId};

/// How much is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All structures, not the data.
    Structures,
    /// The data too: everything that is in use is read.
    Data,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Nothing is lost, but a second copy of something is, or a crash left it to be settled.
    Warning,
    /// Something is lost here, and must come from another replica.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The device as a whole.
    Device,
    /// A copy of the superblock.
    Superblock {
        /// Which one, from 0.
        copy: usize,
    },
    /// The catalog.
    Catalog,
    /// The root of a lane.
    Root {
        /// The lane.
        lane: u32,
    },
    /// The journal of a lane.
    Journal {
        /// The lane.
        lane: u32,
    },
    /// The header of a slab.
    SlabHeader {
        /// The slab.
        slab: Slab,
    },
    /// A table page.
    TablePage {
        /// The slab.
        slab: Slab,
        /// The page.
        page: u32,
    },
    /// The table's entry of an extent.
    Entry {
        /// Where the extent is.
        extent: Extent,
        /// What it holds.
        holds: ExtentId,
    },
    /// The checksum page of an extent.
    ChecksumPage {
        /// Where the extent is.
        extent: Extent,
        /// What it holds.
        holds: ExtentId,
    },
    /// Blocks of an extent.
    Data {
        /// Where the extent is.
        extent: Extent,
        /// What it holds.
        holds: ExtentId,
        /// Which blocks of it.
        blocks: Vec<u32>,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Device => f.write_str("device"),
            Part::Superblock { copy } => write!(f, "superblock copy {copy}"),
            Part::Catalog => f.write_str("catalog"),
            Part::Root { lane } => write!(f, "root of lane {lane}"),
            Part::Journal { lane } => write!(f, "journal of lane {lane}"),
            Part::SlabHeader { slab } => write!(f, "header of slab {slab}"),
            Part::TablePage { slab, page } => write!(f, "table page {page} of slab {slab}"),
            Part::Entry { extent, holds } => write!(f, "extent {extent} ({holds})"),
            Part::ChecksumPage { extent, holds } => write!(f, "checksum page of extent {extent} ({holds})"),
            Part::Data { extent, holds, blocks } => match blocks.as_slice() {
                [block] => write!(f, "block {block} of extent {extent} ({holds})"),
                [first, .., last] => {
                    let count = blocks.len();
                    write!(f, "{count} blocks from {first} to {last} of extent {extent} ({holds})")
                }
                [] => write!(f, "extent {extent} ({holds})"),
            },
        }
    }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub part: Part,
    /// Where that is, as a block of the device, if it is in one place.
    pub address: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.part)?;
        if let Some(address) = self.address {
            write!(f, " at block {address}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Journal blocks between tail and end.
    pub journal_blocks: u64,
    /// Extents that hold something.
    pub extents: u64,
    /// Checksum pages.
    pub checksum_pages: u64,
    /// Blocks of data.
    pub data_blocks: u64,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The device.
    pub device: OpenDevice,
    /// Everything that was found, in the order in which it was.
    pub findings: Vec<Finding>,
    /// What was verified.
    pub counts: Counts,
}

impl CheckReport {
    /// The worst that was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Extents verified.
    pub done: u64,
    /// Extents to verify.
    pub total: u64,
}

/// Verifies a device.
///
/// # Errors
/// It cannot be opened, or a read failed. Everything else is a finding.
pub async fn check<W: World>(
    world: &W,
    disk: &W::Disk,
    depth: Depth,
    mut progress: impl FnMut(Progress),
) -> Result<CheckReport, OpenError> {
    let device = open(world, disk).await?;
    let mut check = Check {
        blocks: Blocks::new(world, disk),
        superblock: device.superblock.clone(),
        findings: Vec::new(),
        counts: Counts::default(),
    };
    check.superblocks(&device);
    check.catalog().await?;
    let headers = lane_view::slab_headers(&check.blocks, &check.superblock).await?;
    let mut lanes = Vec::new();
    for lane in 0..check.superblock.layout.lanes() {
        let view = LaneView::read(&check.blocks, &check.superblock, &headers, lane).await?;
        check.lane(&view);
        lanes.push(view);
    }
    check.owners(&headers, &lanes);
    let extents = check.superblock.layout.extents_per_slab();
    let total = lanes.iter().map(|lane| lane.held(extents).count() as u64).sum();
    for view in &lanes {
        for (extent, entry, held) in view.held(extents) {
            check.extent(view, (extent, entry, held), depth).await?;
            progress(Progress { done: check.counts.extents, total });
        }
    }
    Ok(CheckReport { device, findings: check.findings, counts: check.counts })
}

struct Check<'a, W: World> {
    blocks: Blocks<'a, W>,
    superblock: Superblock,
    findings: Vec<Finding>,
    counts: Counts,
}

impl<W: World> Check<'_, W> {
    fn find(&mut self, severity: Severity, part: Part, address: Option<u64>, what: impl Into<String>) {
        self.findings.push(Finding { severity, part, address, what: what.into() });
    }

    fn superblocks(&mut self, device: &OpenDevice) {
        let newest = device.superblock.generation;
        for (number, copy) in device.copies.iter().enumerate() {
            let what = match copy.state {
                Ok(generation) if newest - generation <= 1 => continue,
                Ok(generation) => format!("it is left behind at generation {generation} of {newest}"),
                Err(bad) => format!("{bad}; it is written again when the device is opened"),
            };
            self.find(Severity::Warning, Part::Superblock { copy: number }, Some(copy.address), what);
        }
        if device.grown_by > 0 {
            let what = format!("the disk has {} blocks more than the device uses", device.grown_by);
            self.find(Severity::Note, Part::Device, None, what);
        }
    }

    async fn catalog(&mut self) -> Result<(), DiskError> {
        let even = catalog::read_slot(&self.blocks, &self.superblock, Slot::Even).await?;
        let odd = catalog::read_slot(&self.blocks, &self.superblock, Slot::Odd).await?;
        let address = |slot| self.superblock.layout.catalog(slot).first;
        let slots = [(Slot::Even, even), (Slot::Odd, odd)];
        let addresses = Slot::BOTH.map(address);
        self.slots(&slots, Part::Catalog, addresses, |catalog| catalog.generation);
        Ok(())
    }

    /// Two slots of which one must be good; the other is bad only until it was written once.
    fn slots<T>(
        &mut self,
        slots: &Slots<T>,
        part: Part,
        addresses: [u64; 2],
        generation: impl Fn(&T) -> u64,
    ) {
        let good = newest(slots, &generation).map(&generation);
        for ((_, slot), address) in slots.iter().zip(addresses) {
            let Err(bad) = slot else { continue };
            match good {
                // The first generation stands alone.
                Some(1) if matches!(bad, BadBlock::Magic { .. } | BadBlock::Device { .. }) => {}
                Some(generation) => {
                    let what = format!("{bad}; generation {generation} in the other slot holds");
                    self.find(Severity::Warning, part.clone(), Some(address), what);
                }
                None => self.find(Severity::Error, part.clone(), Some(address), bad.to_string()),
            }
        }
    }

    fn lane(&mut self, view: &LaneView) {
        let lane = view.lane;
        let addresses = Slot::BOTH.map(|slot| self.superblock.layout.root(lane, slot).first);
        self.slots(&view.roots, Part::Root { lane }, addresses, |root| root.generation);
        for bad in &view.bad_pages {
            let part = Part::TablePage { slab: bad.slab, page: bad.page };
            self.find(Severity::Error, part, Some(bad.address), bad.cause.to_string());
        }
        if let Some(journal) = &view.journal {
            self.counts.journal_blocks += journal.end - journal.tail;
            if let Some(missing) = journal.gap {
                let address = self.superblock.layout.journal_block(lane, missing);
                let what = format!("block {missing} was durable and is not there: what it recorded is lost");
                self.find(Severity::Error, Part::Journal { lane }, Some(address), what);
            }
        }
        self.entries(view);
    }

    /// Each extent of a segment is in one place, and belongs to a shard that the lane knows.
    fn entries(&mut self, view: &LaneView) {
        let extents = self.superblock.layout.extents_per_slab();
        let mut seen: BTreeMap<ExtentId, Extent> = BTreeMap::new();
        for (extent, _, held) in view.held(extents) {
            let part = Part::Entry { extent, holds: held.extent };
            if let Some(other) = seen.insert(held.extent, extent) {
                self.find(Severity::Error, part.clone(), None, format!("extent {other} holds the same"));
            }
            match view.shards.get(&held.shard) {
                Some(shard) if shard.shard.segment == held.extent.segment => {}
                Some(shard) => {
                    let what = format!("its shard is one of another segment, {}", shard.shard);
                    self.find(Severity::Error, part, None, what);
                }
                None => {
                    let what = format!("its shard, slot {}, is unknown to lane {}", held.shard.0, view.lane);
                    self.find(Severity::Error, part, None, what);
                }
            }
        }
    }

    /// Slabs have one owner, and their headers say the same as the roots (PROTOCOL S7).
    fn owners(&mut self, headers: &[Slots<SlabHeader>], lanes: &[LaneView]) {
        let mut owners: BTreeMap<Slab, u32> = BTreeMap::new();
        for view in lanes {
            for (slab, owned) in &view.slabs {
                let part = Part::SlabHeader { slab: *slab };
                if let Some(other) = owners.insert(*slab, view.lane) {
                    let what = format!("lanes {other} and {} both own it", view.lane);
                    self.find(Severity::Error, part.clone(), None, what);
                }
                let header =
                    headers.get(slab.0 as usize).and_then(|slots| newest(slots, |slot| slot.generation));
                if header.is_none_or(|header| header.generation < owned.generation) {
                    let address = self.superblock.layout.slab(*slab).header(Slot::of(owned.generation));
                    let what = format!(
                        "it is bad or older than generation {}, in which the root of lane {} has it; it is written \
                         again when the device is opened",
                        owned.generation, view.lane
                    );
                    self.find(Severity::Warning, part, Some(address), what);
                }
            }
        }
    }

    /// The checksum page of an extent, and its data.
    async fn extent(
        &mut self,
        view: &LaneView,
        (extent, entry, held): (Extent, &Entry, &Held),
        depth: Depth,
    ) -> Result<(), DiskError> {
        self.counts.extents += 1;
        let sums = match entry.page() {
            None => Box::new([Stored::NEVER; checksum_page::SUMS]),
            Some(page) => match self.checksums(extent, held, page).await? {
                Some(sums) => sums,
                // Without it nothing can be said about the data.
                None => return Ok(()),
            },
        };
        if depth == Depth::Structures {
            return Ok(());
        }
        let bad = self.data(view, extent, held, &sums).await?;
        if bad.is_empty() {
            return Ok(());
        }
        let single = view.shards.get(&held.shard).is_some_and(|shard| shard.single);
        // PROTOCOL S2: data may have landed whose record did not, but with records first.
        let explained = held.suspect || held.open && !single;
        let (severity, what) = match explained {
            true => (
                Severity::Warning,
                "the bytes are none that were recorded: the extent was open at a crash, and data landed whose record did \
                 not; it is settled with the other replicas",
            ),
            false => (Severity::Error, "the bytes do not have the checksum that is stored for them"),
        };
        let first = bad.first().map(|block| self.superblock.layout.extent_block(extent, *block));
        self.find(severity, Part::Data { extent, holds: held.extent, blocks: bad }, first, what);
        Ok(())
    }

    async fn checksums(
        &mut self,
        extent: Extent,
        held: &Held,
        page: PageRef,
    ) -> Result<Option<Box<[Stored; checksum_page::SUMS]>>, DiskError> {
        let address = self.superblock.layout.checksum_page(extent, Slot::of(page.generation));
        let place = Place { device: self.superblock.device, address };
        let block = self.blocks.read_one(address).await?;
        self.counts.checksum_pages += 1;
        match checksum_page::decode(&block, place, page) {
            Ok(sums) => Ok(Some(sums)),
            Err(bad) => {
                let part = Part::ChecksumPage { extent, holds: held.extent };
                self.find(Severity::Error, part, Some(address), bad.to_string());
                Ok(None)
            }
        }
    }

    /// Blocks whose bytes are none that they may be.
    async fn data(
        &mut self,
        view: &LaneView,
        extent: Extent,
        held: &Held,
        sums: &[Stored; checksum_page::SUMS],
    ) -> Result<Vec<u32>, DiskError> {
        let chains = view.chains.get(&extent);
        let summer = Summer::new(held.extent);
        let mut bad = Vec::new();
        let part = W::MAX_BUFFER_BLOCKS.min(EXTENT_BLOCKS as usize);
        for first in (0..EXTENT_BLOCKS).step_by(part) {
            let last = (first + part as u32).min(EXTENT_BLOCKS);
            let states: Vec<States<'_>> =
                (first..last).map(|block| States::of(sums[block as usize], chains, block)).collect();
            if !states.iter().any(States::has_data) {
                continue;
            }
            let address = self.superblock.layout.extent_block(extent, first);
            let buffer = self.blocks.read_part(address, states.len()).await?;
            for ((block, bytes), states) in (first..).zip(buffer.chunks_exact(BLOCK_BYTES)).zip(states) {
                if states.has_data() {
                    self.counts.data_blocks += 1;
                    if !states.allow(summer.sum(block, bytes)) {
                        bad.push(block);
                    }
                }
            }
            self.blocks.world.next_turn().await;
        }
        Ok(bad)
    }
}

/// What a block may hold.
struct States<'a> {
    floor: Stored,
    candidates: &'a [Stored],
}

impl<'a> States<'a> {
    fn of(page: Stored, chains: Option<&'a BTreeMap<u32, lane_view::Chain>>, block: u32) -> Self {
        let chain = chains.and_then(|chains| chains.get(&block));
        let floor = chain.and_then(|chain| chain.floor).unwrap_or(page);
        Self { floor, candidates: chain.map_or(&[], |chain| &chain.candidates) }
    }

    /// Some bytes must be right.
    fn has_data(&self) -> bool {
        // A floor without bytes needs none, whatever else may have been written.
        self.floor.has_data()
    }

    fn allow(&self, found: Stored) -> bool {
        self.floor == found || self.candidates.contains(&found)
    }
}
