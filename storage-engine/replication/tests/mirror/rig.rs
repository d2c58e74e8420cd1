//! Two lanes on two simulated disks, a volume on them, and what is known about its blocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ashlar_io::{Buffer, World};
use ashlar_replication::{
    InSyncSet, Layout, Limits, LocalPeer, Membership, MembershipEpoch, MembershipError, OpenSegment,
    ReplicaId, Volume,
};
use ashlar_sim::atlas::Zone;
use ashlar_sim::bugs::Bugs;
use ashlar_sim::disk::{Content, Device, DeviceSettings};
use ashlar_sim::executor::Simulation;
use ashlar_sim::process::ProcessSettings;
use ashlar_sim::random::Random;
use ashlar_sim::world::SimWorld;
use ashlar_store::format::{DeviceId, Layout as DeviceLayout, Root};
use ashlar_store::lane::{Lane, LaneConfig, LaneSite, ReadData, SlabMap};
use ashlar_store::{Blocks, ExtentId, SegmentId, ShardId};
use uuid::Uuid;

const SEGMENT: SegmentId = SegmentId { volume: Uuid::from_u128(5), index: 0 };
/// Blocks of 1 GiB.
const DEVICE_BLOCKS: u64 = 1 << 18;
const SHARDS: u32 = 2;
/// Extents that are used, and blocks of each.
pub(crate) const EXTENTS: u32 = 4;
pub(crate) const BLOCKS: u32 = 64;

type Peer = LocalPeer<SimWorld>;
pub(crate) type MirrorVolume = Volume<SimWorld, Peer, Decisions>;

/// The in-sync set, which no crash takes.
#[derive(Clone)]
pub(crate) struct Decisions(Rc<RefCell<InSyncSet>>);

impl Decisions {
    fn decide(
        &self,
        at: MembershipEpoch,
        change: impl FnOnce(&mut Vec<ReplicaId>) -> Result<(), MembershipError>,
    ) -> Result<InSyncSet, MembershipError> {
        let mut set = self.0.borrow_mut();
        if set.epoch != at {
            return Err(MembershipError::Stale(set.clone()));
        }
        change(&mut set.members)?;
        set.epoch.0 += 1;
        Ok(set.clone())
    }
}

impl Membership for Decisions {
    async fn remove(
        &self,
        _segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
        _why: &str,
    ) -> Result<InSyncSet, MembershipError> {
        self.decide(at, |members| {
            if members[..] == [replica] {
                return Err(MembershipError::LastMember(replica));
            }
            members.retain(|member| *member != replica);
            Ok(())
        })
    }

    async fn add(
        &self,
        _segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
    ) -> Result<InSyncSet, MembershipError> {
        self.decide(at, |members| {
            members.push(replica);
            Ok(())
        })
    }
}

/// What a block may read as: first bytes, the last one being the newest that was asked for. Acknowledged means alone.
pub(crate) type Model = Rc<RefCell<BTreeMap<(u32, u32), Vec<u8>>>>;

/// See the module.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) simulation: Simulation,
    pub(crate) devices: Vec<Device>,
    layout: DeviceLayout,
    pub(crate) world: Rc<RefCell<SimWorld>>,
    decisions: Decisions,
    epoch: Rc<Cell<u32>>,
    pub(crate) model: Model,
}

/// An open volume with its peers, by shard and replica.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) volume: Rc<MirrorVolume>,
    pub(crate) peers: Vec<(u32, usize, Rc<Peer>)>,
}

pub(crate) fn replica(index: usize) -> ReplicaId {
    ReplicaId(Uuid::from_u128(index as u128 + 1))
}

/// Runs a test on two formatted devices.
pub(crate) fn run(seed: u64, settings: DeviceSettings, test: impl AsyncFnOnce(Rig) + 'static) {
    let simulation = Simulation::new(seed, Bugs::default());
    let layout = DeviceLayout::plan(DEVICE_BLOCKS, 1).expect("it can be laid out");
    let devices: Vec<Device> = (0..2)
        .map(|index| {
            let name = format!("disk{index}");
            let device = Device::new(&simulation, &name, settings.clone(), Rc::new(|_| Zone::Data));
            let root = Root {
                generation: 1,
                lane: 0,
                incarnation: 0,
                tail: 1,
                first_record: 0,
                slabs: Vec::new(),
                shards: Vec::new(),
            };
            let image = root.encode(&layout, id(index)).expect("it fits");
            device.poke(image.slot.first, Content::new(image.first));
            device
        })
        .collect();
    let world = Rc::new(RefCell::new(simulation.start(ProcessSettings::named("node"))));
    let members = vec![replica(0), replica(1)];
    let rig = Rig {
        simulation: simulation.clone(),
        devices,
        layout,
        world,
        decisions: Decisions(Rc::new(RefCell::new(InSyncSet { epoch: MembershipEpoch(1), members }))),
        epoch: Rc::default(),
        model: Rc::default(),
    };
    if let Err(stop) = simulation.run(async move { test(rig).await }) {
        panic!("seed {seed}: {stop:?}\n{}", simulation.trace_tail(40));
    }
}

fn id(index: usize) -> DeviceId {
    DeviceId(Uuid::from_u128(100 + index as u128))
}

impl Rig {
    pub(crate) fn members(&self) -> Vec<ReplicaId> {
        self.decisions.0.borrow().members.clone()
    }

    async fn lane(&self, index: usize) -> Lane<SimWorld> {
        let world = self.world.borrow().clone();
        let disk = loop {
            match self.devices[index].open(&world) {
                Ok(disk) => break disk,
                Err(_) => self.simulation.world().sleep(Duration::from_millis(10)).await,
            }
        };
        let slabs = SlabMap::read(&world, &disk, id(index), &self.layout).await.expect("headers are read");
        let site = LaneSite { device: id(index), layout: self.layout, lane: 0 };
        Lane::open(world, disk, site, Arc::new(slabs), LaneConfig::default()).await.expect("it opens")
    }

    /// Opens the volume on these devices.
    pub(crate) async fn open(&self, there: &[usize]) -> Open {
        let world = self.world.borrow().clone();
        let mut peers = Vec::new();
        for &index in there {
            let lane = self.lane(index).await;
            for shard in 0..SHARDS {
                let id = ShardId { segment: SEGMENT, index: shard };
                let peer = Peer::open(world.clone(), lane.clone(), id).await.expect("it opens");
                peers.push((shard, index, Rc::new(peer)));
            }
        }
        let of = |shard| {
            let peers = peers.iter().filter(|(of, ..)| *of == shard);
            (shard, peers.map(|(_, index, peer)| (replica(*index), Rc::clone(peer))).collect())
        };
        let set = self.decisions.0.borrow().clone();
        let open = OpenSegment { index: 0, set, shards: (0..SHARDS).map(of).collect() };
        self.epoch.set(self.epoch.get() + 1);
        let layout = Layout::new(64 << 20, 64 << 20, SHARDS).expect("a sound layout");
        let how = (self.epoch.get(), Limits::default());
        let membership = Rc::new(self.decisions.clone());
        let volume = Volume::open(world, (SEGMENT.volume, layout), how, &membership, vec![open]).await;
        Open { volume: Rc::new(volume.expect("it opens")), peers }
    }

    /// A process that starts anew.
    pub(crate) fn restart(&self) {
        *self.world.borrow_mut() = self.simulation.start(ProcessSettings::named("node"));
    }

    /// Workers change and read blocks until their process dies; each has blocks of its own.
    pub(crate) fn work(&self, open: &Open, workers: u32, random: &mut Random) {
        for worker in 0..workers {
            let (rig, open) = (self.clone(), open.clone());
            let mut random = Random::new(random.bits());
            let world = self.world.borrow().clone();
            self.world.borrow().spawn(async move {
                loop {
                    rig.one(&world, &open, (worker, workers), &mut random).await;
                }
            });
        }
    }

    async fn one(&self, world: &SimWorld, open: &Open, (worker, of): (u32, u32), random: &mut Random) {
        let extent = random.below(u64::from(EXTENTS)) as u32;
        let block = random.below(u64::from(BLOCKS / of)) as u32 * of + worker;
        let one = Blocks::new(block, 1).expect("within an extent");
        let shard = open.volume.shard(0, extent % SHARDS).expect("it is open").clone();
        let value = (1 + random.below(250)) as u8;
        match random.below(10) {
            0..=5 => {
                let mut buffer = world.buffer(1).await;
                buffer.fill(value);
                self.begins(extent, block, value);
                shard.write(extent, one, buffer.freeze()).await.expect("it is written");
                self.ends(extent, block, value);
            }
            6 => {
                self.begins(extent, block, 0);
                shard.clear(extent, one).await.expect("it is cleared");
                self.ends(extent, block, 0);
            }
            _ => {
                let found = first(shard.read(extent, one).await.expect("it is read"));
                self.saw(extent, block, found);
            }
        }
    }

    fn begins(&self, extent: u32, block: u32, value: u8) {
        self.model.borrow_mut().entry((extent, block)).or_insert_with(|| vec![0]).push(value);
    }

    fn ends(&self, extent: u32, block: u32, value: u8) {
        self.model.borrow_mut().insert((extent, block), vec![value]);
    }

    /// A read brought this: nothing else is possible from now on.
    fn saw(&self, extent: u32, block: u32, found: u8) {
        let mut model = self.model.borrow_mut();
        let allowed = model.entry((extent, block)).or_insert_with(|| vec![0]);
        assert!(allowed.contains(&found), "block {block} of {extent}: {found}, not of {allowed:?}");
        *allowed = vec![found];
    }

    /// Every block of every member, against each other and against what is known.
    pub(crate) async fn check(&self, open: &Open) {
        for extent in 0..EXTENTS {
            let shard = open.volume.shard(0, extent % SHARDS).expect("it is open");
            shard.quiesce().await;
            // What a crash left suspect is verified in the background (PROTOCOL S2).
            shard.verify(extent).await.expect("every block is good somewhere");
            for block in 0..BLOCKS {
                let one = Blocks::new(block, 1).expect("within an extent");
                self.saw(extent, block, first(shard.read(extent, one).await.expect("it is read")));
            }
            let members = self.members();
            for (of, index, peer) in &open.peers {
                if *of != extent % SHARDS || !members.contains(&replica(*index)) {
                    continue;
                }
                let id = ExtentId { segment: SEGMENT, index: extent };
                for block in 0..BLOCKS {
                    let one = Blocks::new(block, 1).expect("within an extent");
                    let found = first(peer.lane().read(id, one).await.expect("each copy is good"));
                    let known = self.model.borrow()[&(extent, block)].clone();
                    assert_eq!(vec![found], known, "replica {index}, block {block} of {extent}");
                }
            }
        }
    }

    /// Brings a replica back, with its lane as it is now.
    pub(crate) async fn bring_back(&self, open: &Open, index: usize) -> Open {
        let mut peers = open.peers.clone();
        if peers.iter().all(|(_, of, _)| *of != index) {
            let lane = self.lane(index).await;
            let world = self.world.borrow().clone();
            for shard in 0..SHARDS {
                let id = ShardId { segment: SEGMENT, index: shard };
                let peer = Peer::open(world.clone(), lane.clone(), id).await.expect("it opens");
                peers.push((shard, index, Rc::new(peer)));
            }
        }
        let there = peers.iter().filter(|(_, of, _)| *of == index);
        let there = there.map(|(shard, _, peer)| (*shard, Rc::clone(peer))).collect();
        open.volume.catch_up(0, replica(index), there).await.expect("it catches up");
        Open { volume: Rc::clone(&open.volume), peers }
    }
}

pub(crate) fn first<B: std::ops::Deref<Target = [u8]>>(data: ReadData<B>) -> u8 {
    match data {
        ReadData::Zeroes => 0,
        ReadData::Buffer(buffer) => {
            assert!(buffer.iter().all(|byte| *byte == buffer[0]), "a block is one write");
            buffer[0]
        }
    }
}
