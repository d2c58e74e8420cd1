//! What is on a device, for people: read offline, changing nothing.

use ashlar_io::{BLOCK_BYTES, DiskError, World};

use super::blocks::Blocks;
use super::catalog;
use super::journal_scan;
pub use super::journal_scan::JournalSummary;
use super::lane_view::{self, LaneView, newest};
use super::open::{OpenDevice, OpenError, open};
use crate::checksum::{Stored, Summer};
use crate::format::{
    BadBlock, Extent, Place, Record, ShardEntry, Slab, Slot, Subject, Superblock, checksum_page,
};
use crate::ids::{Blocks as BlockRange, ExtentId, Version};
use crate::lane::{Origin, ShardSlot};

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its superblock and the copies of that.
    pub device: OpenDevice,
    /// Generation and length in bytes of its catalog; `None` if both slots are bad.
    pub catalog: Option<(u64, u64)>,
    /// Slabs that nobody owns.
    pub slabs_unowned: u32,
    /// Its lanes.
    pub lanes: Vec<LaneReport>,
}

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    /// Its number.
    pub lane: u32,
    /// Its root slots, even and odd.
    pub roots: [Result<RootReport, BadBlock>; 2],
    /// Its journal from the tail on; `None` without a good root.
    pub journal: Option<JournalSummary>,
    /// Its shards.
    pub shards: Vec<ShardEntry>,
    /// Its slabs.
    pub slabs: Vec<SlabReport>,
    /// Its extents that hold something.
    pub extents: Vec<ExtentDetail>,
}

/// The root of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootReport {
    /// Rises with each checkpoint.
    pub generation: u64,
    /// Of the journal when it was written.
    pub incarnation: u32,
    /// Oldest journal block that recovery needs.
    pub tail: u64,
    /// Slabs that it names.
    pub slabs: usize,
    /// Shards that it names.
    pub shards: usize,
}

/// A slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabReport {
    /// Its number.
    pub slab: Slab,
    /// Generation of its owner.
    pub generation: u64,
    /// Extents that hold something.
    pub used: u32,
    /// Free extents.
    pub free: u32,
}

/// An extent that holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentDetail {
    /// Where it is.
    pub extent: Extent,
    /// What it holds.
    pub holds: ExtentId,
    /// The shard.
    pub shard: ShardSlot,
    /// Version of its last change.
    pub last: Version,
    /// It is open.
    pub open: bool,
    /// It was open at a crash and not verified since.
    pub suspect: bool,
    /// Generation of its checksum page, if it has one.
    pub checksum_page: Option<u64>,
}

/// Looks at a device.
///
/// # Errors
/// It cannot be opened, or a read failed.
pub async fn inspect<W: World>(world: &W, disk: &W::Disk) -> Result<DeviceReport, OpenError> {
    let device = open(world, disk).await?;
    let blocks = Blocks::new(world, disk);
    let superblock = &device.superblock;
    let even = catalog::read_slot(&blocks, superblock, Slot::Even).await?;
    let odd = catalog::read_slot(&blocks, superblock, Slot::Odd).await?;
    let slots = [(Slot::Even, even), (Slot::Odd, odd)];
    let catalog =
        newest(&slots, |slot| slot.generation).map(|slot| (slot.generation, slot.bytes.len() as u64));
    let headers = lane_view::slab_headers(&blocks, superblock).await?;
    let mut lanes = Vec::new();
    let mut owned = 0;
    for lane in 0..superblock.layout.lanes() {
        let view = LaneView::read(&blocks, superblock, &headers, lane).await?;
        owned += view.slabs.len() as u32;
        lanes.push(lane_report(&view, superblock.layout.extents_per_slab()));
    }
    let slabs_unowned = superblock.layout.slabs().saturating_sub(owned);
    Ok(DeviceReport { catalog, slabs_unowned, lanes, device })
}

fn lane_report(view: &LaneView, extents_per_slab: u32) -> LaneReport {
    let roots = view.roots.each_ref().map(|(_, root)| match root {
        Ok(root) => Ok(RootReport {
            generation: root.generation,
            incarnation: root.incarnation,
            tail: root.tail,
            slabs: root.slabs.len(),
            shards: root.shards.len(),
        }),
        Err(bad) => Err(*bad),
    });
    let slabs = view.slabs.iter().map(|(slab, state)| {
        let used = state.entries.iter().filter(|entry| entry.held.is_some()).count() as u32;
        let free = state.entries.len() as u32 - used;
        SlabReport { slab: *slab, generation: state.generation, used, free }
    });
    let extents = view.held(extents_per_slab).map(|(extent, entry, held)| ExtentDetail {
        extent,
        holds: held.extent,
        shard: held.shard,
        last: held.last,
        open: held.open,
        suspect: held.suspect,
        checksum_page: entry.page().map(|page| page.generation),
    });
    LaneReport {
        lane: view.lane,
        roots,
        journal: view.journal.clone(),
        shards: view.shards.values().copied().collect(),
        slabs: slabs.collect(),
        extents: extents.collect(),
    }
}

/// What the device knows about one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHistory {
    /// The lane that has it.
    pub lane: u32,
    /// Where its extent is now.
    pub extent: Extent,
    /// Where the block is.
    pub address: u64,
    /// What its checksum page says, or what is wrong with the page. A page that does not exist says: never written.
    pub page: Result<Stored, BadBlock>,
    /// What the journal says, oldest first.
    pub events: Vec<BlockEvent>,
    /// Checksum of the bytes that are there.
    pub found: Stored,
}

/// Something that the journal says about a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockEvent {
    /// Sequence of the journal block.
    pub sequence: u64,
    /// Number of the record.
    pub record: u64,
    /// Its data is durable.
    pub landed: bool,
    /// Where the extent was then.
    pub extent: Extent,
    /// The version given.
    pub version: Version,
    /// Why.
    pub origin: Origin,
    /// It was carried forward from the tail.
    pub carried: bool,
    /// What it did.
    pub kind: EventKind,
}

/// What a record did to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Wrote it; its checksum.
    Written(Stored),
    /// Zeroed it.
    Zeroed,
    /// Gave its extent a place.
    Allocated,
    /// Freed its extent.
    Freed,
}

/// Looks at one block of an extent of a segment: one entry per lane that holds it, which is at most one unless
/// something is wrong.
///
/// # Errors
/// The device cannot be opened, or a read failed.
pub async fn history<W: World>(
    world: &W,
    disk: &W::Disk,
    id: ExtentId,
    block: u32,
) -> Result<Vec<BlockHistory>, OpenError> {
    let Some(range) = BlockRange::new(block, 1) else { return Ok(Vec::new()) };
    let device = open(world, disk).await?;
    let blocks = Blocks::new(world, disk);
    let superblock = &device.superblock;
    let headers = lane_view::slab_headers(&blocks, superblock).await?;
    let mut histories = Vec::new();
    for lane in 0..superblock.layout.lanes() {
        let view = LaneView::read(&blocks, superblock, &headers, lane).await?;
        let extents = superblock.layout.extents_per_slab();
        let held = view.held(extents).find(|(_, _, held)| held.extent == id);
        let (Some((extent, entry, held)), Some(journal)) = (held, &view.journal) else {
            continue;
        };
        let mut events = Vec::new();
        journal_scan::replay(&blocks, superblock, lane, journal, |found| {
            for (record, content) in found.records() {
                let about = |subject: &Subject| subject.shard == held.shard && subject.index == id.index;
                let Some((subject, kind)) = event(&content, range).filter(|(subject, _)| about(subject))
                else {
                    continue;
                };
                events.push(BlockEvent {
                    sequence: found.header.sequence,
                    record,
                    landed: record < journal.landed,
                    extent: subject.extent,
                    version: subject.version,
                    origin: subject.origin,
                    carried: subject.carried,
                    kind,
                });
            }
        })
        .await?;
        let page = match entry.page() {
            None => Ok(Stored::NEVER),
            Some(page) => {
                let address = superblock.layout.checksum_page(extent, Slot::of(page.generation));
                let bytes = blocks.read_one(address).await?;
                let place = Place { device: superblock.device, address };
                checksum_page::decode(&bytes, place, page).map(|sums| sums[block as usize])
            }
        };
        let address = superblock.layout.extent_block(extent, block);
        let found = read_sum(&blocks, address, id, block).await?;
        histories.push(BlockHistory { lane, extent, address, page, events, found });
    }
    Ok(histories)
}

async fn read_sum<W: World>(
    blocks: &Blocks<'_, W>,
    address: u64,
    id: ExtentId,
    block: u32,
) -> Result<Stored, DiskError> {
    let bytes = blocks.read_one(address).await?;
    Ok(Summer::new(id).sum(block, &bytes[..BLOCK_BYTES]))
}

/// What a record did to a block, if it is about it.
fn event(record: &Record<'_>, block: BlockRange) -> Option<(Subject, EventKind)> {
    match record {
        Record::Write { subject, blocks, sums } if blocks.contains(block) => {
            let index = block.first() - blocks.first();
            Some((*subject, EventKind::Written(sums.iter().nth(index as usize)?)))
        }
        Record::Zero { subject, blocks } if blocks.contains(block) => Some((*subject, EventKind::Zeroed)),
        Record::Allocate { subject, .. } => Some((*subject, EventKind::Allocated)),
        Record::Free { subject } => Some((*subject, EventKind::Freed)),
        _ => None,
    }
}

/// Says which of a device's superblocks names which device: also when they contradict each other and it cannot be
/// opened.
///
/// # Errors
/// A read failed.
pub async fn superblocks<W: World>(
    world: &W,
    disk: &W::Disk,
) -> Result<Vec<(u64, Result<Superblock, crate::format::BadSuperblock>)>, DiskError> {
    let blocks = Blocks::new(world, disk);
    let count = blocks.count();
    let mut found = Vec::new();
    for address in [0, 1, count.saturating_sub(2), count.saturating_sub(1)] {
        found.push((address, Superblock::decode(&blocks.read_one(address).await?, address)));
    }
    Ok(found)
}
