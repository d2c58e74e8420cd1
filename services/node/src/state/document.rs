//! What is remembered, as it is written.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Everything that the node remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The node, as its devices name it.
    pub node: Uuid,
    /// Ids of pools, by what the configuration calls them.
    #[serde(default)]
    pub pools: BTreeMap<String, Uuid>,
    /// Volumes by id. An id is never used again (PROTOCOL R10).
    pub volumes: BTreeMap<Uuid, VolumeState>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeState {
    /// What the configuration calls it.
    pub name: String,
    /// Size in bytes; it only grows.
    pub bytes: u64,
    /// Bytes of each segment but the last.
    pub segment_bytes: u64,
    /// Shards of each segment.
    pub shards: u32,
    /// Target epoch of the last opening (PROTOCOL R1).
    pub target_epoch: u32,
    /// Its segments, in order.
    pub segments: Vec<SegmentState>,
    /// How far its scrub is.
    #[serde(default)]
    pub scrub: ScrubState,
}

/// How far the scrub of a volume is. Times are in seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubState {
    /// When the last pass began. A volume that was just made counts as scrubbed.
    pub began_s: Option<u64>,
    /// When a pass ended last.
    pub ended_s: Option<u64>,
    /// Segment and extent at which the pass is, if it did not end: everything before was verified.
    pub at: Option<(u32, u32)>,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentState {
    /// Rises with each change of the in-sync set (PROTOCOL R15).
    pub membership_epoch: u64,
    /// All its replicas, each in another pool.
    pub replicas: Vec<ReplicaState>,
}

/// A replica of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaState {
    /// The replica; never used again.
    pub id: Uuid,
    /// Its pool.
    pub pool: Uuid,
    /// Devices of the pool that hold some of its shards (PROTOCOL R4).
    pub devices: BTreeSet<Uuid>,
    /// Whether it holds every acknowledged write.
    pub in_sync: InSync,
}

/// Whether a replica holds every acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InSync {
    /// It does.
    Yes,
    /// It may have missed some.
    No,
}

impl State {
    /// Of a node that has no volumes yet.
    pub fn new(node: Uuid) -> State {
        State { node, pools: BTreeMap::new(), volumes: BTreeMap::new() }
    }

    /// The volume that the configuration calls so.
    pub fn volume(&self, name: &str) -> Option<(Uuid, &VolumeState)> {
        self.volumes.iter().find(|(_, volume)| volume.name == name).map(|(id, volume)| (*id, volume))
    }
}

impl SegmentState {
    /// Replicas that hold every acknowledged write.
    pub fn in_sync(&self) -> impl Iterator<Item = Uuid> {
        self.replicas.iter().filter(|replica| replica.in_sync == InSync::Yes).map(|replica| replica.id)
    }
}
