//! Where things are on a device (`docs/on-disk-format.md`, "Where things are").

use std::fmt;
use std::ops::Range;

use crate::ids::EXTENT_BLOCKS;

/// Blocks of the smallest device: 1 GiB. Below that the journals would take a large part of it.
pub const MIN_DEVICE_BLOCKS: u64 = 1 << 18;
/// Blocks of the largest device: 64 TiB, four times the largest that is sold, and extents still fit 32 bits.
pub const MAX_DEVICE_BLOCKS: u64 = 1 << 34;
/// Most lanes of a device (design §6).
pub const MAX_LANES: u32 = 16;
/// Table entries of a table page.
pub const ENTRIES_PER_PAGE: u32 = 63;
/// Most extents of a slab: four full table pages.
pub const MAX_EXTENTS_PER_SLAB: u32 = 4 * ENTRIES_PER_PAGE;
/// Fewest blocks of a lane's journal.
pub const MIN_JOURNAL_BLOCKS: u64 = 256;
/// Most blocks of a lane's journal: 1 GiB, which recovery reads in about a second.
pub const MAX_JOURNAL_BLOCKS: u64 = 1 << 18;
/// Copies of the superblock: two at the front, two at the back.
pub const SUPERBLOCK_COPIES: u32 = 4;

/// A slab holds at most this part of the device (PROTOCOL S16).
const SLAB_PART: u64 = 256;
/// The journals take this part of the device (PROTOCOL S10).
const JOURNAL_PART: u64 = 500;
/// A catalog slot takes this part of the device, within the bounds below.
const CATALOG_PART: u64 = 4096;
const MIN_CATALOG_BLOCKS: u64 = 16;
const MAX_CATALOG_BLOCKS: u64 = 4096;
/// A root has room for a device that grows by this factor (PROTOCOL S17).
const ROOT_GROWTH: u64 = 64;
/// Largest root slot, so that lengths of its body fit 32 bits.
const MAX_ROOT_BLOCKS: u64 = 1 << 19;
/// Superblock copies at one end.
const END_COPIES: u64 = 2;

/// A slab, by its number on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slab(pub u32);

impl fmt::Display for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Space for an extent: slab · extents per slab + index in the slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent(pub u32);

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One of two places that are written alternately (PROTOCOL S4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// For even generations.
    Even,
    /// For odd generations.
    Odd,
}

impl Slot {
    /// Both.
    pub const BOTH: [Slot; 2] = [Slot::Even, Slot::Odd];

    /// Where `generation` is written.
    pub const fn of(generation: u64) -> Self {
        if generation.is_multiple_of(2) { Slot::Even } else { Slot::Odd }
    }

    const fn index(self) -> u64 {
        match self {
            Slot::Even => 0,
            Slot::Odd => 1,
        }
    }
}

/// Consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Area {
    /// The first.
    pub first: u64,
    /// How many.
    pub blocks: u64,
}

impl Area {
    /// First block behind it.
    pub const fn end(self) -> u64 {
        self.first + self.blocks
    }

    /// Its blocks.
    pub const fn range(self) -> Range<u64> {
        self.first..self.end()
    }
}

/// Areas of equal size, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// First block of the first.
    pub first: u64,
    /// Blocks of each.
    pub blocks: u64,
}

/// The numbers of a layout, as the superblock has them: not yet trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Blocks of the device.
    pub device_blocks: u64,
    /// Extents of each slab.
    pub extents_per_slab: u32,
    /// Lanes.
    pub lanes: u32,
    /// Two catalog slots.
    pub catalog: Row,
    /// Two root slots per lane.
    pub roots: Row,
    /// A journal per lane.
    pub journals: Row,
    /// First block of the slabs.
    pub slabs_first: u64,
    /// How many slabs.
    pub slabs: u64,
}

/// A device cannot be laid out so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The device is too small.
    #[error("a device of {blocks} blocks is too small: {MIN_DEVICE_BLOCKS} blocks (1 GiB) are needed")]
    TooSmall {
        /// Its blocks.
        blocks: u64,
    },
    /// The device is too large.
    #[error(
        "a device of {blocks} blocks is too large: at most {MAX_DEVICE_BLOCKS} blocks (64 TiB) can be used"
    )]
    TooLarge {
        /// Its blocks.
        blocks: u64,
    },
    /// There cannot be so many lanes.
    #[error("{lanes} lanes are not possible: 1 to {MAX_LANES} are")]
    Lanes {
        /// How many.
        lanes: u32,
    },
    /// A field has a value that leads out of its place.
    #[error("its {field} cannot be {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// Where things are on a device. Only layouts exist in which everything is within the device and nothing overlaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    geometry: Geometry,
}

/// Blocks of a slab's parts.
const fn table_pages(extents_per_slab: u32) -> u32 {
    extents_per_slab.div_ceil(ENTRIES_PER_PAGE)
}

const fn slab_blocks(extents_per_slab: u32) -> u64 {
    let pages = table_pages(extents_per_slab) as u64;
    let extents = extents_per_slab as u64;
    2 + 2 * pages + 2 * extents + extents * EXTENT_BLOCKS as u64
}

/// Bytes of a slab's entry in a root.
const fn slab_entry_bytes(extents_per_slab: u32) -> u64 {
    16 + 16 * table_pages(extents_per_slab) as u64
}

impl Layout {
    /// The layout that a new device gets.
    ///
    /// # Errors
    /// The device or the number of lanes is out of bounds.
    pub fn plan(device_blocks: u64, lanes: u32) -> Result<Layout, LayoutError> {
        check_size(device_blocks, lanes)?;
        let extents_per_slab = (device_blocks / SLAB_PART / u64::from(EXTENT_BLOCKS))
            .clamp(1, u64::from(MAX_EXTENTS_PER_SLAB)) as u32;
        let slab_blocks = slab_blocks(extents_per_slab);
        let catalog = Row {
            first: END_COPIES,
            blocks: (device_blocks / CATALOG_PART).clamp(MIN_CATALOG_BLOCKS, MAX_CATALOG_BLOCKS),
        };
        let most_slabs = device_blocks / slab_blocks;
        let entries = most_slabs * ROOT_GROWTH * slab_entry_bytes(extents_per_slab);
        let roots = Row {
            first: catalog.first + 2 * catalog.blocks,
            blocks: 1 + 2 * entries.div_ceil(ashlar_io::BLOCK_BYTES as u64),
        };
        let journals = Row {
            first: roots.first + 2 * u64::from(lanes) * roots.blocks,
            blocks: (device_blocks / JOURNAL_PART / u64::from(lanes))
                .clamp(MIN_JOURNAL_BLOCKS, MAX_JOURNAL_BLOCKS),
        };
        let slabs_first = journals.first + u64::from(lanes) * journals.blocks;
        let slabs = (device_blocks - END_COPIES).saturating_sub(slabs_first) / slab_blocks;
        let geometry =
            Geometry { device_blocks, extents_per_slab, lanes, catalog, roots, journals, slabs_first, slabs };
        Self::check(geometry)
    }

    /// The same with the slabs that fit a device that has become larger, as far as the roots have room for them
    /// (PROTOCOL S17).
    ///
    /// # Errors
    /// The device has become smaller, or too large.
    pub fn grown(self, device_blocks: u64) -> Result<Layout, LayoutError> {
        let geometry = self.geometry;
        if device_blocks < geometry.device_blocks {
            return Err(LayoutError::Field { field: "grown size in blocks", value: device_blocks });
        }
        check_size(device_blocks, geometry.lanes)?;
        let room = (geometry.roots.blocks - 1) * ashlar_io::BLOCK_BYTES as u64 / 2;
        let most = (room / slab_entry_bytes(geometry.extents_per_slab)).max(geometry.slabs);
        let slabs = (device_blocks - END_COPIES - geometry.slabs_first) / self.slab_blocks();
        Self::check(Geometry { device_blocks, slabs: slabs.min(most), ..geometry })
    }

    /// Checks numbers that came from a superblock.
    ///
    /// # Errors
    /// The first number that leads out of the device, or into another part of it.
    pub fn check(geometry: Geometry) -> Result<Layout, LayoutError> {
        let Geometry { device_blocks, extents_per_slab, lanes, catalog, roots, journals, slabs_first, slabs } =
            geometry;
        check_size(device_blocks, lanes)?;
        if extents_per_slab == 0 || extents_per_slab > MAX_EXTENTS_PER_SLAB {
            let value = u64::from(extents_per_slab);
            return Err(LayoutError::Field { field: "number of extents per slab", value });
        }
        let end = device_blocks - END_COPIES;
        let behind = |row: Row, count: u64, least: u64, after: u64, names: [&'static str; 2]| {
            if row.first < after || row.first > end {
                return Err(LayoutError::Field { field: names[0], value: row.first });
            }
            match row.blocks.checked_mul(count).and_then(|blocks| blocks.checked_add(row.first)) {
                Some(behind) if row.blocks >= least && behind <= end => Ok(behind),
                _ => Err(LayoutError::Field { field: names[1], value: row.blocks }),
            }
        };
        let lanes = u64::from(lanes);
        let after = behind(catalog, 2, 2, END_COPIES, ["catalog's first block", "catalog's size"])?;
        let after = behind(roots, 2 * lanes, 2, after, ["roots' first block", "size of a root"])?;
        let after = behind(journals, lanes, 2, after, ["journals' first block", "size of a journal"])?;
        let row = Row { first: slabs_first, blocks: slab_blocks(extents_per_slab) };
        let names = ["slabs' first block", "size of a slab"];
        // The roots must have room for every slab in one lane.
        let room = (roots.blocks - 1) * ashlar_io::BLOCK_BYTES as u64;
        let entries = slabs.checked_mul(slab_entry_bytes(extents_per_slab));
        if slabs == 0
            || entries.is_none_or(|entries| entries > room)
            || behind(row, slabs, 1, after, names).is_err()
        {
            return Err(LayoutError::Field { field: "number of slabs", value: slabs });
        }
        if roots.blocks > MAX_ROOT_BLOCKS {
            return Err(LayoutError::Field { field: "size of a root", value: roots.blocks });
        }
        Ok(Layout { geometry })
    }

    /// Its numbers.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Blocks of the device.
    pub const fn device_blocks(&self) -> u64 {
        self.geometry.device_blocks
    }

    /// Lanes of the device.
    pub const fn lanes(&self) -> u32 {
        self.geometry.lanes
    }

    /// Slabs of the device.
    pub const fn slabs(&self) -> u32 {
        // Checked: they are fewer than the blocks of the largest device divided by those of the smallest slab.
        self.geometry.slabs as u32
    }

    /// Extents of each slab.
    pub const fn extents_per_slab(&self) -> u32 {
        self.geometry.extents_per_slab
    }

    /// Extents of the device.
    pub const fn extents(&self) -> u32 {
        self.slabs() * self.extents_per_slab()
    }

    /// Table pages of each slab.
    pub const fn table_pages(&self) -> u32 {
        table_pages(self.geometry.extents_per_slab)
    }

    /// Blocks of each slab.
    pub const fn slab_blocks(&self) -> u64 {
        slab_blocks(self.geometry.extents_per_slab)
    }

    /// The device has this slab.
    pub const fn has_slab(&self, slab: Slab) -> bool {
        slab.0 < self.slabs()
    }

    /// The device has this extent.
    pub const fn has_extent(&self, extent: Extent) -> bool {
        extent.0 < self.extents()
    }

    /// Where superblock copies stand, in the order of their numbers.
    pub const fn superblocks(&self) -> [u64; SUPERBLOCK_COPIES as usize] {
        let blocks = self.geometry.device_blocks;
        [0, 1, blocks - 2, blocks - 1]
    }

    /// A catalog slot.
    pub const fn catalog(&self, slot: Slot) -> Area {
        let Row { first, blocks } = self.geometry.catalog;
        Area { first: first + slot.index() * blocks, blocks }
    }

    /// A root slot of a lane.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub const fn root(&self, lane: u32, slot: Slot) -> Area {
        assert!(lane < self.geometry.lanes, "the device has this lane");
        let Row { first, blocks } = self.geometry.roots;
        Area { first: first + (2 * lane as u64 + slot.index()) * blocks, blocks }
    }

    /// The journal of a lane.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub const fn journal(&self, lane: u32) -> Area {
        assert!(lane < self.geometry.lanes, "the device has this lane");
        let Row { first, blocks } = self.geometry.journals;
        Area { first: first + lane as u64 * blocks, blocks }
    }

    /// Where journal block `sequence` of a lane stands.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub const fn journal_block(&self, lane: u32, sequence: u64) -> u64 {
        let journal = self.journal(lane);
        journal.first + sequence % journal.blocks
    }

    /// The parts of a slab.
    ///
    /// # Panics
    /// If the device has no such slab: whatever is decoded from the device has been checked with
    /// [`Layout::has_slab`].
    pub const fn slab(&self, slab: Slab) -> SlabLayout {
        assert!(self.has_slab(slab), "the device has this slab");
        SlabLayout {
            first: self.geometry.slabs_first + slab.0 as u64 * self.slab_blocks(),
            extents: self.geometry.extents_per_slab,
        }
    }

    /// The slab of an extent, and the extent's index there.
    pub const fn slab_of(&self, extent: Extent) -> (Slab, u32) {
        let extents = self.geometry.extents_per_slab;
        (Slab(extent.0 / extents), extent.0 % extents)
    }

    /// An extent of a slab.
    pub const fn extent(&self, slab: Slab, index: u32) -> Extent {
        Extent(slab.0 * self.geometry.extents_per_slab + index)
    }

    /// Extents of a slab.
    pub fn extents_of(&self, slab: Slab) -> impl Iterator<Item = Extent> + use<> {
        let first = self.extent(slab, 0).0;
        (first..first + self.geometry.extents_per_slab).map(Extent)
    }

    /// Where a block of an extent stands.
    ///
    /// # Panics
    /// If the device has no such extent, or the extent no such block.
    pub const fn extent_block(&self, extent: Extent, block: u32) -> u64 {
        let (slab, index) = self.slab_of(extent);
        self.slab(slab).extent_block(index, block)
    }

    /// Where a checksum page of an extent stands.
    ///
    /// # Panics
    /// If the device has no such extent.
    pub const fn checksum_page(&self, extent: Extent, slot: Slot) -> u64 {
        let (slab, index) = self.slab_of(extent);
        self.slab(slab).checksum_page(index, slot)
    }
}

fn check_size(device_blocks: u64, lanes: u32) -> Result<(), LayoutError> {
    if device_blocks < MIN_DEVICE_BLOCKS {
        return Err(LayoutError::TooSmall { blocks: device_blocks });
    }
    if device_blocks > MAX_DEVICE_BLOCKS {
        return Err(LayoutError::TooLarge { blocks: device_blocks });
    }
    if lanes == 0 || lanes > MAX_LANES {
        return Err(LayoutError::Lanes { lanes });
    }
    Ok(())
}

/// Where the parts of one slab are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlabLayout {
    first: u64,
    extents: u32,
}

impl SlabLayout {
    /// A slot of its header.
    pub const fn header(&self, slot: Slot) -> u64 {
        self.first + slot.index()
    }

    /// Its table pages.
    pub const fn table_pages(&self) -> u32 {
        table_pages(self.extents)
    }

    /// Table entries of one of its table pages: 63 but in the last.
    pub const fn entries(&self, page: u32) -> u32 {
        let before = page * ENTRIES_PER_PAGE;
        let left = self.extents.saturating_sub(before);
        if left < ENTRIES_PER_PAGE { left } else { ENTRIES_PER_PAGE }
    }

    /// A slot of a table page. Pages of a slot are adjacent (PROTOCOL S10).
    ///
    /// # Panics
    /// If the slab has no such page.
    pub const fn table_page(&self, page: u32, slot: Slot) -> u64 {
        let pages = self.table_pages();
        assert!(page < pages, "the slab has this page");
        self.first + 2 + slot.index() * pages as u64 + page as u64
    }

    /// A slot of the checksum page of its extent `index`.
    ///
    /// # Panics
    /// If the slab has no such extent.
    pub const fn checksum_page(&self, index: u32, slot: Slot) -> u64 {
        assert!(index < self.extents, "the slab has this extent");
        let before = 2 + 2 * self.table_pages() as u64;
        self.first + before + slot.index() * self.extents as u64 + index as u64
    }

    /// A block of its extent `index`.
    ///
    /// # Panics
    /// If the slab has no such extent, or the extent no such block.
    pub const fn extent_block(&self, index: u32, block: u32) -> u64 {
        assert!(index < self.extents && block < EXTENT_BLOCKS, "the slab has this block");
        let before = 2 + 2 * self.table_pages() as u64 + 2 * self.extents as u64;
        self.first + before + index as u64 * EXTENT_BLOCKS as u64 + block as u64
    }
}
