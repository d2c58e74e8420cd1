//! One lane on one simulated disk.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, World};
use ashlar_sim::atlas::Zone;
use ashlar_sim::bugs::Bugs;
use ashlar_sim::disk::{Content, Device, DeviceSettings};
use ashlar_sim::executor::Simulation;
use ashlar_sim::process::ProcessSettings;
use ashlar_sim::world::SimWorld;
use ashlar_store::format::{DeviceId, Layout, Root, Slab, Slot};
use ashlar_store::lane::{
    Change, Lane, LaneConfig, LaneError, LaneSite, Order, Origin, ShardSlot, SlabMap, Write,
};
use ashlar_store::{Blocks, ExtentId, SegmentId, ShardId, Stored, Summer, Version};
use uuid::Uuid;

const DEVICE: DeviceId = DeviceId(Uuid::from_u128(77));
const SEGMENT: SegmentId = SegmentId { volume: Uuid::from_u128(5), index: 0 };

/// Blocks of 1 GiB.
const DEVICE_BLOCKS: u64 = 1 << 18;

pub(crate) fn extent(index: u32) -> ExtentId {
    ExtentId { segment: SEGMENT, index }
}

/// `count` blocks of `byte`.
pub(crate) fn filled(count: u32, byte: u8) -> Vec<u8> {
    vec![byte; count as usize * BLOCK_BYTES]
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) simulation: Simulation,
    pub(crate) device: Device,
    layout: Layout,
    world: Rc<RefCell<SimWorld>>,
    version: Rc<Cell<u64>>,
}

/// Runs a test on a formatted device.
pub(crate) fn run(test: impl AsyncFnOnce(Rig) + 'static) {
    let simulation = Simulation::new(1, Bugs::default());
    let settings = DeviceSettings::solid(DEVICE_BLOCKS);
    let device = Device::new(&simulation, "disk", settings, Rc::new(|_| Zone::Data));
    let layout = Layout::plan(DEVICE_BLOCKS, 1).expect("it can be laid out");
    let root = Root {
        generation: 1,
        lane: 0,
        incarnation: 0,
        tail: 1,
        first_record: 0,
        slabs: Vec::new(),
        shards: Vec::new(),
    };
    let image = root.encode(&layout, DEVICE).expect("it fits");
    device.poke(image.slot.first, Content::new(image.first));
    let world = simulation.start(ProcessSettings::named("store"));
    let world = Rc::new(RefCell::new(world));
    let rig = Rig { simulation: simulation.clone(), device, layout, world, version: Rc::default() };
    simulation.run(async move { test(rig).await }).expect("it comes to its end");
}

impl Rig {
    pub(crate) fn world(&self) -> SimWorld {
        self.world.borrow().clone()
    }

    pub(crate) async fn open(&self) -> Lane<SimWorld> {
        let world = self.world();
        let disk = loop {
            match self.device.open(&world) {
                Ok(disk) => break disk,
                Err(_) => self.simulation.world().sleep(Duration::from_millis(10)).await,
            }
        };
        let slabs = SlabMap::read(&world, &disk, DEVICE, &self.layout).await.expect("headers are read");
        let site = LaneSite { device: DEVICE, layout: self.layout, lane: 0 };
        Lane::open(world, disk, site, Arc::new(slabs), LaneConfig::default()).await.expect("it opens")
    }

    /// Kills the process at once and starts another.
    pub(crate) async fn kill(&self, lane: Lane<SimWorld>) {
        self.simulation.kill(self.world().process());
        drop(lane);
        *self.world.borrow_mut() = self.simulation.start(ProcessSettings::named("store"));
    }

    pub(crate) async fn shard(&self, lane: &Lane<SimWorld>) -> ShardSlot {
        lane.shard(ShardId { segment: SEGMENT, index: 0 }).await.expect("it is added")
    }

    fn change(&self, shard: ShardSlot, extent: ExtentId) -> Change {
        self.version.set(self.version.get() + 1);
        let version = Version { epoch: 1, sequence: self.version.get() };
        Change { shard, extent, version, origin: Origin::Shard }
    }

    pub(crate) async fn write(
        &self,
        lane: &Lane<SimWorld>,
        shard: ShardSlot,
        extent: ExtentId,
        blocks: Blocks,
        byte: u8,
    ) -> Result<Version, LaneError> {
        let mut buffer = self.world().buffer(blocks.count() as usize).await;
        buffer.fill(byte);
        let checksums: Vec<Stored> = Summer::new(extent).sums(blocks.first(), &buffer).collect();
        let change = self.change(shard, extent);
        let data = buffer.freeze();
        lane.write(Write { change, blocks, checksums: &checksums, data, order: Order::Parallel }).await?;
        Ok(change.version)
    }

    pub(crate) async fn zero(
        &self,
        lane: &Lane<SimWorld>,
        shard: ShardSlot,
        extent: ExtentId,
        blocks: Blocks,
    ) -> Result<(), LaneError> {
        lane.zero(self.change(shard, extent), blocks).await
    }

    pub(crate) async fn free(
        &self,
        lane: &Lane<SimWorld>,
        shard: ShardSlot,
        extent: ExtentId,
    ) -> Result<(), LaneError> {
        lane.free(self.change(shard, extent)).await
    }

    /// Lets the header of the slab rot that the lane took first.
    pub(crate) fn rot_slab_header(&self) {
        self.device.rot(self.layout.slab(Slab(0)).header(Slot::of(1)));
    }

    /// Blocks of the device with these bytes.
    pub(crate) fn find(&self, bytes: &[u8]) -> Vec<u64> {
        (0..DEVICE_BLOCKS).filter(|block| self.device.peek(*block).bytes() == Some(bytes)).collect()
    }
}
