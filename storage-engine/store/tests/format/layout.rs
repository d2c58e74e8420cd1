//! Where things are: within the device, apart from one another, and in the proportions that are promised.

use ashlar_store::EXTENT_BLOCKS;
use ashlar_store::format::layout::{
    ENTRIES_PER_PAGE, Geometry, MAX_DEVICE_BLOCKS, MAX_LANES, MIN_DEVICE_BLOCKS, Row,
};
use ashlar_store::format::{Area, Extent, Layout, LayoutError, Slab, Slot};
use proptest::prelude::*;

/// Sizes of devices, about as many small as large ones.
fn device_blocks() -> impl Strategy<Value = u64> {
    (18_u32..34, any::<u64>()).prop_map(|(log, random)| (1 << log) + random % (1 << log))
}

/// Everything on the device but its slabs, in order.
fn areas(layout: &Layout) -> Vec<Area> {
    let [front, second, back, last] = layout.superblocks();
    let one = |first| Area { first, blocks: 1 };
    let mut areas = vec![one(front), one(second)];
    areas.extend(Slot::BOTH.map(|slot| layout.catalog(slot)));
    for lane in 0..layout.lanes() {
        areas.extend(Slot::BOTH.map(|slot| layout.root(lane, slot)));
    }
    areas.extend((0..layout.lanes()).map(|lane| layout.journal(lane)));
    let first = layout.slab(Slab(0)).header(Slot::Even);
    areas.push(Area { first, blocks: u64::from(layout.slabs()) * layout.slab_blocks() });
    areas.extend([one(back), one(last)]);
    areas
}

fn assert_sound(layout: &Layout) {
    let areas = areas(layout);
    for pair in areas.windows(2) {
        assert!(pair[0].end() <= pair[1].first, "{pair:?} of {layout:?} do not overlap");
    }
    assert_eq!(areas.last().map(|area| area.end()), Some(layout.device_blocks()));
    let room = (layout.root(0, Slot::Even).blocks - 1) * 4096;
    let entries = u64::from(layout.slabs()) * (16 + 16 * u64::from(layout.table_pages()));
    assert!(entries <= room, "a root has room for all slabs of {layout:?}");
}

#[test]
fn the_parts_of_a_slab_follow_one_another() {
    let layout = Layout::plan(1 << 24, 4).expect("64 GiB can be laid out");
    let slab = layout.slab(Slab(3));
    let mut blocks = Vec::from(Slot::BOTH.map(|slot| slab.header(slot)));
    for slot in Slot::BOTH {
        blocks.extend((0..slab.table_pages()).map(|page| slab.table_page(page, slot)));
    }
    for slot in Slot::BOTH {
        blocks.extend(layout.extents_of(Slab(3)).map(|extent| layout.checksum_page(extent, slot)));
    }
    for extent in layout.extents_of(Slab(3)) {
        blocks.extend((0..EXTENT_BLOCKS).map(|block| layout.extent_block(extent, block)));
    }
    let first = slab.header(Slot::Even);
    let expected: Vec<_> = (first..first + layout.slab_blocks()).collect();
    assert_eq!(blocks, expected);
    assert_eq!(layout.slab(Slab(4)).header(Slot::Even), first + layout.slab_blocks());
}

#[test]
fn the_last_table_page_has_the_rest_of_the_entries() {
    let layout = Layout::plan(1 << 24, 4).expect("64 GiB can be laid out");
    let slab = layout.slab(Slab(0));
    assert_eq!((layout.extents_per_slab(), slab.table_pages()), (64, 2));
    assert_eq!((slab.entries(0), slab.entries(1)), (ENTRIES_PER_PAGE, 1));
}

#[test]
fn sizes_and_lanes_out_of_bounds_are_refused() {
    let small = MIN_DEVICE_BLOCKS - 1;
    assert_eq!(Layout::plan(small, 4), Err(LayoutError::TooSmall { blocks: small }));
    let large = MAX_DEVICE_BLOCKS + 1;
    assert_eq!(Layout::plan(large, 4), Err(LayoutError::TooLarge { blocks: large }));
    for lanes in [0, MAX_LANES + 1] {
        assert_eq!(Layout::plan(1 << 24, lanes), Err(LayoutError::Lanes { lanes }));
    }
}

#[test]
fn the_smallest_and_the_largest_device_have_room_for_data() {
    for lanes in [1, 4, MAX_LANES] {
        for blocks in [MIN_DEVICE_BLOCKS, MAX_DEVICE_BLOCKS] {
            let layout = Layout::plan(blocks, lanes).expect("the bounds are possible");
            assert_sound(&layout);
            let data = u64::from(layout.extents()) * u64::from(EXTENT_BLOCKS);
            let least = if lanes == MAX_LANES { 94 } else { 97 };
            assert!(data * 100 >= blocks * least, "{data} of {blocks} blocks hold data, with {lanes} lanes");
        }
    }
}

#[test]
fn a_device_grows_no_further_than_its_roots_have_room() {
    let small = Layout::plan(MIN_DEVICE_BLOCKS, 1).expect("1 GiB can be laid out");
    let grown = small.grown(MAX_DEVICE_BLOCKS).expect("it only grew");
    assert_sound(&grown);
    assert!(grown.slabs() >= 64 * small.slabs(), "{} slabs became {}", small.slabs(), grown.slabs());
}

proptest! {
    #[test]
    fn a_planned_layout_is_sound(blocks in device_blocks(), lanes in 1..=MAX_LANES) {
        let layout = Layout::plan(blocks, lanes);
        prop_assert!(layout.is_ok(), "{:?}", layout);
        let layout = layout.expect("just checked");
        assert_sound(&layout);
        prop_assert_eq!(Layout::check(layout.geometry()), Ok(layout));
        let slab = layout.slab_blocks();
        // One slab of a single extent may be a little more than the part that S16 allows.
        prop_assert!(slab <= (blocks / 256 + blocks / 256 / 50).max(1030), "a slab has {} blocks", slab);
        let behind = layout.superblocks()[2] - layout.slab(Slab(layout.slabs() - 1)).header(Slot::Even);
        prop_assert!(behind < 2 * slab, "no further slab fits");
    }

    #[test]
    fn a_grown_layout_moves_nothing(
        blocks in device_blocks(), more in 0_u64..1 << 26, lanes in 1..=MAX_LANES, random: u32,
    ) {
        let before = Layout::plan(blocks, lanes).expect("the size is possible");
        let after = before.grown((blocks + more).min(MAX_DEVICE_BLOCKS).max(blocks));
        prop_assert!(after.is_ok(), "{:?}", after);
        let after = after.expect("just checked");
        assert_sound(&after);
        prop_assert!(after.slabs() >= before.slabs());
        let extent = Extent(random % before.extents());
        prop_assert_eq!(before.extent_block(extent, 1023), after.extent_block(extent, 1023));
        prop_assert_eq!(before.journal(lanes - 1), after.journal(lanes - 1));
        prop_assert!(before.grown(blocks - 1).is_err(), "a layout does not shrink");
    }

    /// Whatever a superblock says: it is refused, or leads nowhere outside.
    #[test]
    fn no_accepted_geometry_leads_out_of_the_device(
        blocks in device_blocks(), lanes in 1..=MAX_LANES, field in 0_usize..12, value: u64, shift in 0_u32..64,
        near in -3_i64..=3, relative: bool,
    ) {
        let planned = Layout::plan(blocks, lanes).expect("the size is possible").geometry();
        let mut geometry = planned;
        let change = |old: u64| if relative { old.wrapping_add_signed(near) } else { value >> shift };
        let row = |row: &mut Row, first: bool| {
            let number = if first { &mut row.first } else { &mut row.blocks };
            *number = change(*number);
        };
        match field {
            0 => geometry.device_blocks = change(geometry.device_blocks),
            1 => geometry.extents_per_slab = change(geometry.extents_per_slab.into()) as u32,
            2 => geometry.lanes = change(geometry.lanes.into()) as u32,
            3 => row(&mut geometry.catalog, true),
            4 => row(&mut geometry.catalog, false),
            5 => row(&mut geometry.roots, true),
            6 => row(&mut geometry.roots, false),
            7 => row(&mut geometry.journals, true),
            8 => row(&mut geometry.journals, false),
            9 => geometry.slabs_first = change(geometry.slabs_first),
            10 => geometry.slabs = change(geometry.slabs),
            _ => geometry = Geometry { roots: Row { first: value, blocks: value >> shift }, ..geometry },
        }
        if let Ok(layout) = Layout::check(geometry) {
            assert_sound(&layout);
        }
    }
}
