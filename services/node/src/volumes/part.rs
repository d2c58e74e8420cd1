//! What one core has: lanes of the devices, and its part of each volume.
//!
//! A task of the core owns it, so that it ends with the core, while everything in it still belongs to a running one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use ashlar_reactor::world::{AnyDevice, ReactorWorld};
use ashlar_replication::peer::PeerError;
use ashlar_replication::scrub::Position;
use ashlar_replication::{
    InSyncSet, Layout, LocalPeer, OpenError as ShardOpenError, OpenSegment, ReplicaId, Volume,
};
use ashlar_store::lane::{
    Lane, LaneConfig, LaneCounters, LaneSite, OpenError as LaneOpenError, SlabMap, Space,
};
use ashlar_store::{SegmentId, ShardId};
use uuid::Uuid;

use super::membership::LocalMembership;
use super::tending;

/// A replica of a shard, on this core.
pub(super) type Peer = LocalPeer<ReactorWorld>;

/// A core's part of a volume.
pub(super) type VolumePart = Volume<ReactorWorld, Peer, LocalMembership>;

/// A lane: device and number.
pub(super) type LaneId = (Uuid, u32);

/// Peers of a segment's shards on this core, by shard and replica.
pub(super) type Peers = BTreeMap<(u32, ReplicaId), Rc<Peer>>;

/// See the module.
#[derive(Default)]
pub(super) struct Part {
    lanes: RefCell<BTreeMap<LaneId, Lane<ReactorWorld>>>,
    volumes: RefCell<BTreeMap<Uuid, Rc<Opened>>>,
}

/// A volume that is open on this core.
pub(super) struct Opened {
    pub(super) volume: Rc<VolumePart>,
    /// By segment; also those that are not in sync.
    pub(super) peers: BTreeMap<u32, Peers>,
}

/// Where the shards of a segment are, as far as they belong to one core.
#[derive(Debug, Clone)]
pub(super) struct SegmentPlan {
    pub(super) index: u32,
    pub(super) set: InSyncSet,
    /// Shard, and the lane of each replica that is there for it.
    pub(super) shards: Vec<(u32, Vec<(ReplicaId, LaneId)>)>,
}

/// A core's part of a volume could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum PartError {
    /// A replica of a shard.
    #[error("replica {replica} of shard {shard}: {cause}")]
    Peer { shard: ShardId, replica: ReplicaId, cause: PeerError },
    /// A shard.
    #[error(transparent)]
    Shard(#[from] ShardOpenError),
    /// The core is stopping.
    #[error("the data core is stopping")]
    Stopping,
}

thread_local! {
    static PART: RefCell<Weak<Part>> = const { RefCell::new(Weak::new()) };
}

/// This core's part.
pub(super) fn this() -> Option<Rc<Part>> {
    PART.with_borrow(Weak::upgrade)
}

/// Begins this core's part; it ends with the core, after its lanes are closed.
pub(super) fn begin() {
    let part = Rc::new(Part::default());
    PART.set(Rc::downgrade(&part));
    ashlar_reactor::spawn(async move {
        ashlar_reactor::stop_requested().await;
        part.volumes.take();
        let lanes = part.lanes.take();
        for ((device, number), lane) in lanes {
            if let Err(error) = lane.close().await {
                tracing::warn!(%device, lane = number, %error, "a lane was not closed well, and recovers later");
            }
        }
    });
}

/// Opens a lane on this core. Returns the shards that it holds.
pub(super) async fn open_lane(
    device: AnyDevice,
    site: LaneSite,
    slabs: Arc<SlabMap>,
    config: LaneConfig,
) -> Result<Vec<ShardId>, LaneOpenError> {
    let disk = device.open().map_err(|error| {
        LaneOpenError::Disk(ashlar_io::DiskError {
            operation: ashlar_io::DiskOperation::Read,
            block: 0,
            cause: error.to_string(),
        })
    })?;
    let lane = Lane::open(ReactorWorld, disk, site, slabs, config).await?;
    let shards = lane.shards().into_values().collect();
    if let Some(part) = this() {
        part.lanes.borrow_mut().insert((site.device.0, site.lane), lane);
    }
    Ok(shards)
}

/// Opens this core's part of a volume under a new target epoch.
pub(super) async fn open_volume(
    id: Uuid,
    layout: Layout,
    epoch: u32,
    membership: LocalMembership,
    plan: Vec<SegmentPlan>,
) -> Result<(), PartError> {
    let part = this().ok_or(PartError::Stopping)?;
    let mut open = Vec::new();
    let mut peers: BTreeMap<u32, Peers> = BTreeMap::new();
    for SegmentPlan { index, set, shards } in plan {
        let mut there = Vec::new();
        for (shard, replicas) in shards {
            let id = ShardId { segment: SegmentId { volume: id, index }, index: shard };
            let mut of_shard = Vec::new();
            for (replica, lane) in replicas {
                let Some(lane) = part.lanes.borrow().get(&lane).cloned() else { continue };
                let peer = Peer::open(ReactorWorld, lane, id).await;
                let peer = Rc::new(peer.map_err(|cause| PartError::Peer { shard: id, replica, cause })?);
                peers.entry(index).or_default().insert((shard, replica), Rc::clone(&peer));
                of_shard.push((replica, peer));
            }
            there.push((shard, of_shard));
        }
        open.push(OpenSegment { index, set, shards: there });
    }
    let limits = ashlar_replication::Limits::default();
    let volume =
        Volume::open(ReactorWorld, (id, layout), (epoch, limits), &Rc::new(membership), open).await?;
    let opened = Rc::new(Opened { volume: Rc::new(volume), peers });
    part.volumes.borrow_mut().insert(id, Rc::clone(&opened));
    ashlar_reactor::spawn(tending::tend(Rc::downgrade(&opened)));
    Ok(())
}

/// Closes this core's part of a volume, once nothing of it is in flight.
pub(super) fn close_volume(id: Uuid) {
    if let Some(part) = this() {
        part.volumes.borrow_mut().remove(&id);
    }
}

/// This core's part of a volume.
pub(super) fn volume(id: Uuid) -> Option<Rc<Opened>> {
    this()?.volumes.borrow().get(&id).cloned()
}

/// Takes over an in-sync set that was decided.
pub(super) fn adopt(segment: SegmentId, set: InSyncSet) {
    if let Some(opened) = volume(segment.volume) {
        opened.volume.adopt(segment.index, set);
    }
}

/// Scrubs this core's part of a volume from a position on, at so many bytes per second. False if the volume was closed
/// before the end.
pub(super) async fn scrub(id: Uuid, from: Position, bytes_per_s: u64) -> bool {
    let Some((volume, held)) = volume(id).map(|opened| (Rc::clone(&opened.volume), Rc::downgrade(&opened)))
    else {
        return false;
    };
    let pass = std::pin::pin!(volume.scrub(from, bytes_per_s));
    tending::until_closed(&held, pass).await.is_some()
}

/// Where this core's scrub of a volume is, if one runs.
pub(super) fn scrubbing(id: Uuid) -> Option<Position> {
    volume(id)?.volume.status().scrub.at
}

/// Volumes of which this core has a part.
pub(super) fn open_volumes() -> Vec<Uuid> {
    this().map_or_else(Vec::new, |part| part.volumes.borrow().keys().copied().collect())
}

/// What this core sees of each volume.
pub(super) fn statuses() -> BTreeMap<Uuid, ashlar_replication::status::VolumeStatus> {
    let Some(part) = this() else { return BTreeMap::new() };
    let volumes = part.volumes.borrow();
    volumes.iter().map(|(id, opened)| (*id, opened.volume.status())).collect()
}

/// What a lane did and holds.
#[derive(Debug, Clone)]
pub(super) struct LaneSeen {
    pub(super) lane: LaneId,
    pub(super) space: Space,
    pub(super) counters: LaneCounters,
    pub(super) stopped: Option<String>,
}

/// This core's lanes, as they are now.
pub(super) fn lanes() -> Vec<LaneSeen> {
    let Some(part) = this() else { return Vec::new() };
    let lanes = part.lanes.borrow();
    let seen = |(&id, lane): (&LaneId, &Lane<ReactorWorld>)| LaneSeen {
        lane: id,
        space: lane.space(),
        counters: lane.counters(),
        stopped: lane.stopped().map(|error| error.to_string()),
    };
    lanes.iter().map(seen).collect()
}
