//! What can be seen of volumes and devices from outside.

use std::collections::BTreeMap;

use ashlar_replication::Layout;
use ashlar_replication::scrub::{Position, ScrubStatus};
use ashlar_replication::status::{Counts, ReplicaState};
use serde::Serialize;

use super::engine::{Engine, EngineError};
use super::part::{self, LaneSeen};
use crate::state::{InSync, ScrubState, State, VolumeState};

/// How a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Every replica is in sync.
    Healthy,
    /// A replica is being brought into step.
    CatchingUp,
    /// A replica is away.
    Degraded,
    /// It is not open: the log says why.
    Closed,
}

/// A replica of a volume: over all its segments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// Its pool.
    pub pool: String,
    /// Segments in which it is in sync.
    pub in_sync: u64,
    /// Segments in which it is being brought into step.
    pub catching_up: u64,
    /// Segments in which it is away.
    pub away: u64,
    /// How far the catch-up is, in bytes that must be compared.
    pub done_bytes: u64,
    /// Bytes that must be compared in all.
    pub total_bytes: u64,
    /// Bytes compared per second.
    pub bytes_per_s: f64,
    /// Seconds that are left at this rate, once there is one.
    pub eta_s: Option<f64>,
    /// Why it left, if that is known.
    pub why: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VolumeStatus {
    /// What the configuration calls it.
    pub name: String,
    /// Its id.
    pub id: String,
    /// How it is.
    pub health: Health,
    /// Size in bytes.
    pub provisioned_bytes: u64,
    /// Its target epoch.
    pub target_epoch: u32,
    /// One per pool.
    pub replicas: Vec<ReplicaStatus>,
    /// Copies of blocks that failed their checksum or could not be read.
    pub corrupted_blocks: u64,
    /// Of these, rewritten from a good copy.
    pub repaired_blocks: u64,
    /// Reads of blocks of which no good copy is left.
    pub lost_blocks: u64,
    /// Blocks of which one copy was chosen after a crash (PROTOCOL S2).
    pub chosen_blocks: u64,
    /// How its scrub gets on.
    pub scrub: ScrubProgress,
}

/// Whether a volume is being scrubbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubStage {
    /// A pass is under way.
    Running,
    /// A pass has begun and does not go on now: other volumes have their turn, or scrubbing is off.
    Interrupted,
    /// The last pass has ended.
    Waiting,
}

/// How the scrub of a volume gets on. Counts are since start, times in seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScrubProgress {
    /// Whether it runs.
    pub stage: ScrubStage,
    /// How far the pass has come in the volume, in bytes; 0 if there is none.
    pub done_bytes: u64,
    /// Bytes of copies that were read.
    pub verified_bytes: u64,
    /// Copies of blocks that failed at first.
    pub bad_blocks: u64,
    /// Blocks of which no good copy was found.
    pub lost_blocks: u64,
    /// Blocks that could not be read because the last replica failed.
    pub unread_blocks: u64,
    /// When the last pass began.
    pub began_s: Option<u64>,
    /// When a pass ended last.
    pub ended_s: Option<u64>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceStatus {
    /// Its id.
    pub id: String,
    /// Where it was found.
    pub place: String,
    /// Its pool.
    pub pool: String,
    /// Bytes of extents that hold data.
    pub used_bytes: u64,
    /// Bytes of extents that are free.
    pub free_bytes: u64,
    /// Journal blocks written since start.
    pub journal_writes: u64,
    /// Reads and writes of other metadata since start.
    pub metadata_writes: u64,
    /// Why a lane of it stopped, if one did.
    pub failure: Option<String>,
}

/// Bytes of an extent.
const EXTENT_BYTES: u64 = ashlar_store::EXTENT_BLOCKS as u64 * ashlar_io::BLOCK_BYTES as u64;

/// What one core sees of all volumes.
type Seen = BTreeMap<uuid::Uuid, ashlar_replication::status::VolumeStatus>;

impl Engine {
    /// All volumes that the node remembers.
    ///
    /// # Errors
    /// If the state's keeper or a core does not answer.
    pub async fn volumes(&self) -> Result<Vec<VolumeStatus>, EngineError> {
        let state = self.keeper.state().await?;
        let mut seen: Vec<Seen> = Vec::new();
        for core in self.cores.ids() {
            seen.push(self.cores.run_on(core, || async { part::statuses() }).await?);
        }
        Ok(state.volumes.keys().filter_map(|id| volume(&state, *id, &seen)).collect())
    }

    /// All devices that are used.
    ///
    /// # Errors
    /// If a core does not answer.
    pub async fn device_statuses(&self) -> Result<Vec<DeviceStatus>, EngineError> {
        let state = self.keeper.state().await?;
        let mut lanes: Vec<LaneSeen> = Vec::new();
        for core in self.cores.ids() {
            lanes.extend(self.cores.run_on(core, || async { part::lanes() }).await?);
        }
        let status = |device: &super::devices::Device| {
            let id = device.superblock.device.0;
            let own = || lanes.iter().filter(|lane| lane.lane.0 == id);
            DeviceStatus {
                id: id.to_string(),
                place: device.place.display().to_string(),
                pool: pool_name(&state, device.superblock.pool),
                used_bytes: own().map(|lane| lane.space.used).sum::<u64>() * EXTENT_BYTES,
                free_bytes: own().map(|lane| lane.space.free).max().unwrap_or(0) * EXTENT_BYTES,
                journal_writes: own().map(|lane| lane.counters.journal_writes).sum(),
                metadata_writes: own().map(|lane| lane.counters.metadata_writes).sum(),
                failure: own().find_map(|lane| lane.stopped.clone()),
            }
        };
        Ok(self.devices.iter().map(status).collect())
    }
}

fn pool_name(state: &State, id: uuid::Uuid) -> String {
    let name = state.pools.iter().find(|(_, pool)| **pool == id).map(|(name, _)| name.clone());
    name.unwrap_or_else(|| id.to_string())
}

/// Puts together what all cores see of a volume.
fn volume(state: &State, id: uuid::Uuid, seen: &[Seen]) -> Option<VolumeStatus> {
    let volume = state.volumes.get(&id)?;
    let parts: Vec<_> = seen.iter().filter_map(|seen| seen.get(&id)).collect();
    let mut replicas: BTreeMap<String, ReplicaStatus> = BTreeMap::new();
    for (index, segment) in (0_u32..).zip(&volume.segments) {
        for replica in &segment.replicas {
            let pool = pool_name(state, replica.pool);
            let status = replicas.entry(pool.clone()).or_insert_with(|| ReplicaStatus::of(pool));
            if replica.in_sync == InSync::Yes {
                status.in_sync += 1;
                continue;
            }
            let of_segment = parts.iter().flat_map(|part| &part.segments).filter(|one| one.index == index);
            let states: Vec<_> = of_segment
                .filter_map(|segment| segment.replicas.get(&ashlar_replication::ReplicaId(replica.id)))
                .collect();
            status.add(&states);
        }
    }
    let counts = parts.iter().fold(Counts::default(), |sum, part| Counts {
        corrupted: sum.corrupted + part.counts.corrupted,
        repaired: sum.repaired + part.counts.repaired,
        lost: sum.lost + part.counts.lost,
        chosen: sum.chosen + part.counts.chosen,
        equalised: sum.equalised + part.counts.equalised,
    });
    let replicas: Vec<_> = replicas.into_values().collect();
    let health = match () {
        () if parts.is_empty() => Health::Closed,
        () if replicas.iter().any(|replica| replica.away > 0) => Health::Degraded,
        () if replicas.iter().any(|replica| replica.catching_up > 0) => Health::CatchingUp,
        () => Health::Healthy,
    };
    Some(VolumeStatus {
        name: volume.name.clone(),
        id: id.to_string(),
        health,
        provisioned_bytes: volume.bytes,
        target_epoch: volume.target_epoch,
        replicas,
        corrupted_blocks: counts.corrupted,
        repaired_blocks: counts.repaired,
        lost_blocks: counts.lost,
        chosen_blocks: counts.chosen,
        scrub: scrub(volume, &parts),
    })
}

/// Puts together how far the cores are.
fn scrub(volume: &VolumeState, parts: &[&ashlar_replication::status::VolumeStatus]) -> ScrubProgress {
    let sum = |count: fn(&ScrubStatus) -> u64| parts.iter().map(|part| count(&part.scrub)).sum();
    let ScrubState { began_s, ended_s, at } = volume.scrub;
    let running = parts.iter().filter_map(|part| part.scrub.at).min();
    let kept = at.map(|(segment, extent)| Position { segment, extent });
    let (stage, at) = match (running, kept) {
        (Some(at), _) => (ScrubStage::Running, Some(at)),
        (None, Some(at)) => (ScrubStage::Interrupted, Some(at)),
        (None, None) => (ScrubStage::Waiting, None),
    };
    let layout = Layout::new(volume.bytes, volume.segment_bytes, volume.shards).ok();
    let offset = layout.zip(at).map(|(layout, at)| layout.offset(at.segment, at.extent));
    ScrubProgress {
        stage,
        done_bytes: offset.unwrap_or(0),
        verified_bytes: sum(|scrub| scrub.verified_bytes),
        bad_blocks: sum(|scrub| scrub.bad_blocks),
        lost_blocks: sum(|scrub| scrub.lost_blocks),
        unread_blocks: sum(|scrub| scrub.unread_blocks),
        began_s,
        ended_s,
    }
}

impl ReplicaStatus {
    fn of(pool: String) -> Self {
        Self {
            pool,
            in_sync: 0,
            catching_up: 0,
            away: 0,
            done_bytes: 0,
            total_bytes: 0,
            bytes_per_s: 0.0,
            eta_s: None,
            why: None,
        }
    }

    /// Adds a segment in which it is not in sync, as each core sees it.
    fn add(&mut self, states: &[&ReplicaState]) {
        let mut catching_up = false;
        for state in states {
            match state {
                ReplicaState::CatchingUp(status) => {
                    catching_up = true;
                    self.done_bytes += status.done_bytes;
                    self.total_bytes += status.total_bytes;
                    self.bytes_per_s += status.bytes_per_s;
                    let eta_s = status.eta.map(|eta| eta.as_secs_f64());
                    self.eta_s = match (self.eta_s, eta_s) {
                        (Some(one), Some(other)) => Some(one.max(other)),
                        (one, other) => one.or(other),
                    };
                }
                ReplicaState::Out(Some(loss)) if self.why.is_none() => self.why = Some(loss.why.clone()),
                ReplicaState::Out(_) | ReplicaState::InSync => {}
            }
        }
        if catching_up { self.catching_up += 1 } else { self.away += 1 }
    }
}
