//! A process: opens what is there, brings back what was away.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ashlar_io::World;
use ashlar_io::sync::Notify;
use ashlar_replication::{Layout, Limits, LocalPeer, OpenSegment, ReplicaId, Volume};
use ashlar_store::ids::{EXTENT_BLOCKS, ShardId};
use ashlar_store::lane::{Lane, LaneSite, SlabMap};

use super::decisions::Decisions;
use super::disks::Health;
use super::{EXTENTS, Mirrored, SEGMENT, SHARDS};
use crate::random::Random;
use crate::world::SimWorld;

type Peer = LocalPeer<SimWorld>;
pub(super) type MirrorVolume = Volume<SimWorld, Peer, Decisions>;

/// How long a device may be busy with a predecessor's I/O before it counts as absent (PROTOCOL S18).
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Between two attempts to open it.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A replica that is open in this process.
pub(super) struct Open {
    pub(super) replica: ReplicaId,
    pub(super) lanes: Vec<Lane<SimWorld>>,
    pub(super) peers: Vec<Rc<Peer>>,
}

/// A process, and what it tells the scenario.
#[derive(Clone)]
pub(super) struct Node(Rc<Inner>);

pub(super) struct Inner {
    pub(super) mirror: Mirrored,
    pub(super) world: SimWorld,
    /// By slot.
    open: RefCell<[Option<Rc<Open>>; 2]>,
    volume: RefCell<Option<Rc<MirrorVolume>>>,
    /// Lanes of all devices that are there are open, or cannot be.
    pub(super) lanes_open: Cell<bool>,
    /// The workload shall end.
    pub(super) closing: Cell<bool>,
    /// Workers that have not ended.
    pub(super) workers: Cell<u32>,
    /// Something of this changed.
    pub(super) changed: Notify,
    /// Requests on their way: when each began, and what it is.
    requests: RefCell<BTreeMap<u64, (u64, String)>>,
    next: Cell<u64>,
}

impl std::ops::Deref for Node {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Node {
    pub(super) fn new(mirror: &Mirrored, world: SimWorld) -> Self {
        Self(Rc::new(Inner {
            mirror: mirror.clone(),
            world,
            open: RefCell::default(),
            volume: RefCell::default(),
            lanes_open: Cell::new(false),
            closing: Cell::new(false),
            workers: Cell::new(0),
            changed: Notify::new(),
            requests: RefCell::default(),
            next: Cell::new(0),
        }))
    }

    pub(super) fn fail(&self, what: impl Into<String>) {
        self.world.simulation().fail(what);
    }

    /// The replica in a slot, if it is open.
    pub(super) fn replica(&self, slot: usize) -> Option<Rc<Open>> {
        self.open.borrow()[slot].clone()
    }

    pub(super) fn volume(&self) -> Option<Rc<MirrorVolume>> {
        self.volume.borrow().clone()
    }

    /// A request begins; it ends when the guard is dropped.
    pub(super) fn request(&self, what: String) -> Request {
        let id = self.next.replace(self.next.get() + 1);
        self.requests.borrow_mut().insert(id, (self.world.simulation().now_ns(), what));
        Request(self.clone(), id)
    }

    /// The request that is on its way for longest.
    pub(super) fn oldest(&self) -> Option<(u64, String)> {
        self.requests.borrow().values().min_by_key(|(since, _)| *since).cloned()
    }

    /// Opens the devices that are there, and the volume on them. Nothing if it failed, which ends the run.
    pub(super) async fn start(&self) -> Option<Rc<MirrorVolume>> {
        for slot in 0..2 {
            if self.mirror.bay(slot).health == Health::Working {
                self.open(slot).await;
            }
        }
        self.lanes_open.set(true);
        let of = |shard: u32| {
            let open = self.open.borrow();
            let peers = open.iter().flatten();
            (shard, peers.map(|open| (open.replica, Rc::clone(&open.peers[shard as usize]))).collect())
        };
        let shards = (0..SHARDS).map(of).collect();
        let segment = OpenSegment { index: 0, set: self.mirror.decisions.set(), shards };
        let bytes = u64::from(EXTENTS) * u64::from(EXTENT_BLOCKS) * ashlar_io::BLOCK_BYTES as u64;
        let layout = Layout::new(bytes, bytes, SHARDS).expect("it consists of whole extents");
        let how = (self.mirror.next_epoch(), Limits::default());
        let membership = Rc::new(self.mirror.decisions.clone());
        let world = self.world.clone();
        match Volume::open(world, (SEGMENT.volume, layout), how, &membership, vec![segment]).await {
            Ok(volume) => {
                self.world.simulation().note("the volume is open");
                let volume = Rc::new(volume);
                *self.volume.borrow_mut() = Some(Rc::clone(&volume));
                Some(volume)
            }
            Err(error) => {
                self.fail(format!("the volume does not open: {error}"));
                None
            }
        }
    }

    /// Opens the device in a slot. One whose medium fails may refuse: then it is absent.
    async fn open(&self, slot: usize) {
        let bay = self.mirror.bay(slot);
        match self.opened(slot).await {
            Ok(Some(open)) => {
                self.mirror.bay_mut(slot).refusals = 0;
                self.open.borrow_mut()[slot] = Some(Rc::new(open));
            }
            Ok(None) => self.world.simulation().note(format!("slot {slot} is busy and counts as absent")),
            Err(why) if bay.faulty => {
                self.world.simulation().note(format!("slot {slot} does not open: {why}"));
                self.mirror.bay_mut(slot).refusals += 1;
            }
            Err(why) => self.fail(format!("slot {slot}, which has no fault, does not open: {why}")),
        }
    }

    async fn opened(&self, slot: usize) -> Result<Option<Open>, String> {
        let bay = self.mirror.bay(slot);
        let began = self.world.now();
        let disk = loop {
            match bay.device.open(&self.world) {
                Ok(disk) => break disk,
                Err(_) if self.world.now().since(began) >= BUSY_MAX => return Ok(None),
                Err(_) => self.world.sleep(BUSY_PAUSE).await,
            }
        };
        let slabs = SlabMap::read(&self.world, &disk, bay.id, &bay.layout).await;
        let slabs = Arc::new(slabs.map_err(|error| error.to_string())?);
        let mut lanes = Vec::new();
        for lane in 0..bay.layout.lanes() {
            let site = LaneSite { device: bay.id, layout: bay.layout, lane };
            let lane =
                Lane::open(self.world.clone(), disk.clone(), site, Arc::clone(&slabs), bay.config).await;
            lanes.push(lane.map_err(|error| error.to_string())?);
        }
        let mut peers = Vec::new();
        for shard in 0..SHARDS {
            let id = ShardId { segment: SEGMENT, index: shard };
            let lane = lanes[shard as usize % lanes.len()].clone();
            let peer = Peer::open(self.world.clone(), lane, id).await;
            peers.push(Rc::new(peer.map_err(|error| error.to_string())?));
        }
        Ok(Some(Open { replica: bay.replica, lanes, peers }))
    }

    /// Brings the replica in a slot back whenever it is there and out of sync.
    pub(super) async fn keep(self, slot: usize, mut random: Random) {
        let Some(volume) = self.volume() else { return };
        let mut tried = false;
        loop {
            self.world.sleep(Duration::from_micros(random.below(20_000))).await;
            let bay = self.mirror.bay(slot);
            if self.mirror.decisions.contains(bay.replica) || bay.health != Health::Working {
                continue;
            }
            if self.replica(slot).is_none() && !tried {
                tried = true;
                self.open(slot).await;
            }
            let Some(open) = self.replica(slot) else { continue };
            if open.lanes.iter().any(|lane| lane.stopped().is_some()) {
                continue;
            }
            let peers = (0..).zip(open.peers.iter().map(Rc::clone)).collect();
            let outcome = volume.catch_up(0, open.replica, peers).await;
            self.world.simulation().note(format!("slot {slot} caught up: {outcome:?}"));
            self.changed.notify_all();
        }
    }
}

/// See [`Node::request`].
pub(super) struct Request(Node, u64);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.requests.borrow_mut().remove(&self.1);
    }
}
