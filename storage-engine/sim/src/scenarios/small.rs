//! A device so small that everything runs out all the time.

use ashlar_io::BLOCK_BYTES;
use ashlar_store::format::layout::{Geometry, MIN_DEVICE_BLOCKS, Row};
use ashlar_store::format::{Area, DeviceId, Layout, Root, Slot};
use uuid::Uuid;

use crate::atlas::Zone;
use crate::disk::{Content, Device};
use crate::random::Random;

/// Blocks of each catalog and root slot: a root has room for more slabs and shards than there are.
const SLOT_BLOCKS: u64 = 3;

/// Draws a layout with one or two lanes, a journal of few blocks, and about as many extents as are `used`.
pub(super) fn tiny(used: u32, random: &mut Random) -> Layout {
    let lanes = random.between(1, 2);
    let extents_per_slab = random.between(1, 3) as u32;
    let extents = u64::from(used) + random.below(4);
    let catalog = Row { first: 2, blocks: SLOT_BLOCKS };
    let roots = Row { first: catalog.first + 2 * SLOT_BLOCKS, blocks: SLOT_BLOCKS };
    let journals =
        Row { first: roots.first + 2 * lanes * SLOT_BLOCKS, blocks: *random.pick(&[64, 100, 200]) };
    let geometry = Geometry {
        device_blocks: MIN_DEVICE_BLOCKS,
        extents_per_slab,
        lanes: lanes as u32,
        catalog,
        roots,
        journals,
        slabs_first: journals.first + lanes * journals.blocks,
        slabs: extents.div_ceil(u64::from(extents_per_slab)),
    };
    Layout::check(geometry).expect("everything is in order within the smallest device")
}

/// Any id.
pub(super) fn device_id(random: &mut Random) -> DeviceId {
    DeviceId(Uuid::from_u64_pair(random.bits(), random.bits()))
}

/// Writes what a new device has: roots of lanes that were never open.
pub(super) fn write_roots(device: &Device, layout: &Layout, id: DeviceId) {
    for lane in 0..layout.lanes() {
        let root = Root {
            generation: 1,
            lane,
            incarnation: 0,
            tail: 1,
            first_record: 1,
            slabs: Vec::new(),
            shards: Vec::new(),
        };
        let image = root.encode(layout, id).expect("an empty root has room");
        device.poke(image.slot.first, Content::new(image.first));
        for (block, bytes) in (image.slot.first + 1..).zip(image.body.chunks_exact(BLOCK_BYTES)) {
            device.poke(block, Content::new(bytes.to_vec()));
        }
    }
}

/// What lies at a block.
pub(super) fn zone(layout: &Layout, block: u64) -> Zone {
    let within = |area: Area| area.range().contains(&block);
    let geometry = layout.geometry();
    if layout.superblocks().contains(&block) {
        return Zone::Superblock;
    }
    if Slot::BOTH.into_iter().any(|slot| within(layout.catalog(slot))) {
        return Zone::Catalog;
    }
    for lane in 0..layout.lanes() {
        if Slot::BOTH.into_iter().any(|slot| within(layout.root(lane, slot))) {
            return Zone::Root;
        }
        if within(layout.journal(lane)) {
            return Zone::Journal;
        }
    }
    let pages = u64::from(2 * layout.table_pages());
    let extents = u64::from(2 * geometry.extents_per_slab);
    match block.checked_sub(geometry.slabs_first).map(|behind| behind % layout.slab_blocks()) {
        None => Zone::Superblock,
        Some(0..2) => Zone::SlabHeader,
        Some(at) if at < 2 + pages => Zone::TablePage,
        Some(at) if at < 2 + pages + extents => Zone::ChecksumPage,
        Some(_) => Zone::Data,
    }
}
