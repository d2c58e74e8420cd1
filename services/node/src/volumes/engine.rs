//! Opens and closes volumes, over all cores: what control threads call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ashlar_reactor::{CoreId, CoresHandle, Error as ReactorError};
use ashlar_replication::layout::{SEGMENT_BYTES, SHARDS_PER_SEGMENT};
use ashlar_replication::{Layout, LayoutError};
use ashlar_store::lane::{LaneConfig, LaneSite, SlabMap};
use ashlar_store::{SegmentId, ShardId};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::devices::{self, Device, Owner};
use super::membership::{LocalMembership, set_of};
use super::part::{self, SegmentPlan};
use super::placement::{Map, Room};
use super::scrubbing;
use crate::config::{Config, Name, Replicas, VolumeSettings};
use crate::state::{InSync, Keeper, ReplicaState, SegmentState, State, StateError, VolumeState};

/// Part of the machine's memory that checksums of all lanes may take together: the rest is the page tables', the
/// buffers' and the system's.
const CACHE_PART: u64 = 4;

/// A volume could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The state.
    #[error(transparent)]
    State(#[from] StateError),
    /// A data core could not be reached.
    #[error("a data core could not be reached: {0}")]
    Core(#[from] ReactorError),
    /// It cannot be cut into segments.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There are fewer pools with devices than replicas.
    #[error("its replicas need {wanted} pools with devices that can be used, and there are {there}")]
    Pools {
        /// Replicas that are wanted.
        wanted: usize,
        /// Pools that have devices.
        there: usize,
    },
    /// A core could not open its part.
    #[error("core {core}: {why}")]
    Part {
        /// The core.
        core: CoreId,
        /// Why.
        why: String,
    },
    /// It is smaller than it was.
    #[error("volume {name} has {present} bytes and cannot shrink to {wanted}")]
    Shrink {
        /// The volume.
        name: Name,
        /// Its size.
        present: u64,
        /// The size that was asked for.
        wanted: u64,
    },
    /// It is larger than when it was opened.
    #[error("a volume grows when it is opened: restart the node to give {0} its new size")]
    Grow(Name),
}

/// The volumes of this node.
pub struct Engine {
    pub(super) cores: CoresHandle,
    pub(super) keeper: Keeper,
    membership: LocalMembership,
    pools: BTreeMap<Name, Uuid>,
    pub(super) devices: Vec<Device>,
    /// Opening places shards, one volume at a time.
    map: Mutex<Map>,
    volatile: bool,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

/// A volume that is open on all cores that have shards of it.
#[derive(Debug, Clone)]
pub struct OpenVolume {
    pub(super) id: Uuid,
    pub(super) name: Name,
    pub(super) layout: Layout,
    /// Core of each shard: segment · shards + shard.
    pub(super) homes: Arc<[CoreId]>,
    pub(super) volatile: bool,
}

impl OpenVolume {
    /// Its id; never used again.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// What the configuration calls it.
    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl Engine {
    /// Takes up the state, finds the devices and opens their lanes. A device that is not usable is logged and left out.
    ///
    /// # Errors
    /// If the state cannot be taken up, or a core does not answer.
    pub async fn start(cores: CoresHandle, config: &Config) -> Result<Arc<Engine>, EngineError> {
        let keeper = Keeper::start(&config.state_directory, Uuid::new_v4())?;
        let names: Vec<Name> = config.pools.keys().cloned().collect();
        let owner = keeper.change(move |state| owner(state, names)).await?;
        let devices = devices::find(&cores, &config.pools, &owner).await;
        for core in cores.ids() {
            cores.run_on(core, || async { part::begin() }).await?;
        }
        let membership = LocalMembership::new(keeper.clone(), cores.clone());
        let mut map = Map::default();
        let lanes: u64 = devices.iter().map(|device| u64::from(device.superblock.layout.lanes())).sum();
        for device in &devices {
            open_lanes(&cores, device, lane_config(lanes), &mut map).await?;
        }
        let volatile = devices.iter().any(|device| device.device.geometry().volatile_cache);
        let (pools, map) = (owner.pools, Mutex::new(map));
        let engine = Arc::new(Engine { cores, keeper, membership, pools, devices, map, volatile });
        if let Some(settings) = config.scrub {
            tokio::spawn(scrubbing::scrub(Arc::downgrade(&engine), settings));
        }
        Ok(engine)
    }

    /// Opens a volume; makes it if it is not there yet.
    ///
    /// # Errors
    /// If the state cannot be changed, or some shard has no replica that is whole.
    pub async fn open(&self, name: &Name, settings: &VolumeSettings) -> Result<OpenVolume, EngineError> {
        let mut map = self.map.lock().await;
        let pools = self.pools_for(&settings.replicas, &map);
        let present: BTreeMap<Uuid, BTreeSet<Uuid>> = present(&map);
        let (asked, wanted) = (name.clone(), settings.clone());
        let opening = self.keeper.change(move |state| open_in(state, &asked, &wanted, pools, &present));
        let (id, volume) = opening.await??;
        let layout = Layout::new(volume.bytes, volume.segment_bytes, volume.shards)?;
        let (plans, homes) = self.plan(id, &volume, &mut map);
        let membership = &self.membership;
        let opening = plans.into_iter().map(|(core, plan)| {
            let membership = membership.clone();
            let epoch = volume.target_epoch;
            let opened = self.cores.run_on(core, move || async move {
                part::open_volume(id, layout, epoch, membership, plan)
                    .await
                    .map_err(|error| error.to_string())
            });
            async move { opened.await?.map_err(|why| EngineError::Part { core, why }) }
        });
        let opened = futures_util::future::join_all(opening).await;
        if let Some(error) = opened.into_iter().find_map(Result::err) {
            self.close(id).await;
            return Err(error);
        }
        // A core may have been opening when another one's decision was told.
        let state = self.keeper.state().await?;
        for (index, segment) in (0..).zip(state.volumes.get(&id).into_iter().flat_map(|one| &one.segments)) {
            self.membership.tell(SegmentId { volume: id, index }, &set_of(segment)).await;
        }
        tracing::info!(volume = %name, %id, epoch = volume.target_epoch, "volume opened");
        Ok(OpenVolume { id, name: name.clone(), layout, homes, volatile: self.volatile })
    }

    /// Closes a volume, which nothing uses any more.
    pub async fn close(&self, id: Uuid) {
        for core in self.cores.ids() {
            // A core that does not answer is stopping, and closes what it has.
            let _ = self.cores.run_on(core, move || async move { part::close_volume(id) }).await;
        }
        self.membership.forget(id);
    }

    /// Pools for the replicas of a new volume.
    fn pools_for(&self, replicas: &Replicas, map: &Map) -> Vec<Uuid> {
        match replicas {
            Replicas::Pools(names) => names.iter().filter_map(|name| self.pools.get(name)).copied().collect(),
            Replicas::Count(count) => {
                let blocks = |pool: Uuid| -> u64 {
                    map.devices
                        .values()
                        .filter(|device| device.pool == pool)
                        .map(|device| device.blocks)
                        .sum()
                };
                let mut pools: Vec<(u64, Uuid)> = self
                    .pools
                    .values()
                    .map(|&pool| (blocks(pool), pool))
                    .filter(|(room, _)| *room > 0)
                    .collect();
                pools.sort_by_key(|(room, pool)| (std::cmp::Reverse(*room), *pool));
                pools.into_iter().take(*count).map(|(_, pool)| pool).collect()
            }
        }
    }

    /// What each core has of a volume, and the core of each shard.
    fn plan(
        &self,
        id: Uuid,
        volume: &VolumeState,
        map: &mut Map,
    ) -> (BTreeMap<CoreId, Vec<SegmentPlan>>, Arc<[CoreId]>) {
        let cores = u32::try_from(self.cores.count()).unwrap_or(1).max(1);
        let home = |lane: u32| CoreId((lane % cores) as u16);
        let mut plans: BTreeMap<CoreId, Vec<SegmentPlan>> = BTreeMap::new();
        let mut homes = Vec::new();
        for (index, segment) in (0..).zip(&volume.segments) {
            let segment_id = SegmentId { volume: id, index };
            let mut by_core: BTreeMap<CoreId, Vec<_>> = BTreeMap::new();
            for shard in 0..volume.shards {
                let mut placed = map.place(ShardId { segment: segment_id, index: shard }, segment);
                let core = home(placed.first().map_or(shard, |(_, (_, lane))| *lane));
                placed.retain(|(_, (_, lane))| home(*lane) == core);
                homes.push(core);
                by_core.entry(core).or_default().push((shard, placed));
            }
            self.membership.expect(segment_id, by_core.keys().copied().collect());
            for (core, shards) in by_core {
                let plan = SegmentPlan { index, set: set_of(segment), shards };
                plans.entry(core).or_default().push(plan);
            }
        }
        (plans, homes.into())
    }
}

/// Whose devices are looked for; pools that are new get an id.
fn owner(state: &mut State, names: Vec<Name>) -> Owner {
    let mut id = |name: &Name| *state.pools.entry(name.to_string()).or_insert_with(Uuid::new_v4);
    let pools = names.into_iter().map(|name| (name.clone(), id(&name))).collect();
    let segments = state.volumes.values().flat_map(|volume| &volume.segments);
    let replicas = segments.flat_map(|segment| &segment.replicas);
    let known = replicas.flat_map(|replica| &replica.devices).copied().collect();
    Owner { node: state.node, pools, known }
}

/// Devices that are whole, by pool.
fn present(map: &Map) -> BTreeMap<Uuid, BTreeSet<Uuid>> {
    let mut present: BTreeMap<Uuid, BTreeSet<Uuid>> = BTreeMap::new();
    for (id, device) in map.devices.iter().filter(|(_, device)| device.whole) {
        present.entry(device.pool).or_default().insert(*id);
    }
    present
}

/// Begins a new target epoch of a volume (PROTOCOL R1), which is made if it is not there. Replicas may use every device
/// of their pool that is there from now on (R4).
fn open_in(
    state: &mut State,
    name: &Name,
    settings: &VolumeSettings,
    pools: Vec<Uuid>,
    present: &BTreeMap<Uuid, BTreeSet<Uuid>>,
) -> Result<(Uuid, VolumeState), EngineError> {
    let wanted = match &settings.replicas {
        Replicas::Pools(names) => names.len(),
        Replicas::Count(count) => *count,
    };
    let (id, mut volume) = match state.volume(name.as_str()) {
        Some((id, volume)) => (id, volume.clone()),
        None => {
            let there = pools.iter().filter(|pool| present.contains_key(*pool)).count();
            if there < wanted {
                return Err(EngineError::Pools { wanted, there });
            }
            let volume = VolumeState {
                name: name.to_string(),
                bytes: settings.bytes,
                segment_bytes: SEGMENT_BYTES,
                shards: SHARDS_PER_SEGMENT,
                target_epoch: 0,
                segments: Vec::new(),
                scrub: scrubbing::of_new_volume(),
            };
            (Uuid::new_v4(), volume)
        }
    };
    if settings.bytes < volume.bytes {
        let (present, wanted) = (volume.bytes, settings.bytes);
        return Err(EngineError::Shrink { name: name.clone(), present, wanted });
    }
    volume.bytes = settings.bytes;
    let count = Layout::new(volume.bytes, volume.segment_bytes, volume.shards)?.segments();
    // Later segments are in the pools of the first.
    let pools = match volume.segments.first() {
        Some(first) => first.replicas.iter().map(|replica| replica.pool).collect(),
        None => pools,
    };
    while (volume.segments.len() as u64) < u64::from(count) {
        let replica = |pool: &Uuid| ReplicaState {
            id: Uuid::new_v4(),
            pool: *pool,
            devices: BTreeSet::new(),
            in_sync: InSync::Yes,
        };
        let replicas = pools.iter().map(replica).collect();
        volume.segments.push(SegmentState { membership_epoch: 1, replicas });
    }
    for replica in volume.segments.iter_mut().flat_map(|segment| &mut segment.replicas) {
        replica.devices.extend(present.get(&replica.pool).into_iter().flatten());
    }
    volume.target_epoch += 1;
    state.volumes.insert(id, volume.clone());
    Ok((id, volume))
}

/// Checksum pages that each of so many lanes may keep: those of all space if memory allows (PROTOCOL S11).
fn lane_config(lanes: u64) -> LaneConfig {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    let default = LaneConfig::default();
    let pages = kib.map(|kib| kib / 4 / CACHE_PART / lanes.max(1));
    let cache_pages = pages.and_then(|pages| usize::try_from(pages).ok()).unwrap_or(default.cache_pages);
    LaneConfig { cache_pages: cache_pages.max(default.cache_pages / 4), ..default }
}

/// Opens the lanes of a device, each on its core.
async fn open_lanes(
    cores: &CoresHandle,
    device: &Device,
    config: LaneConfig,
    map: &mut Map,
) -> Result<(), EngineError> {
    let superblock = &device.superblock;
    let (id, layout) = (superblock.device, superblock.layout);
    let any = device.device.clone();
    let slabs = cores.run_on(CoreId(0), move || async move {
        let disk = any.open().map_err(|error| error.to_string())?;
        let world = ashlar_reactor::world::ReactorWorld;
        SlabMap::read(&world, &disk, id, &layout).await.map_err(|error| error.to_string())
    });
    let room = Room {
        pool: superblock.pool,
        lanes: layout.lanes(),
        blocks: layout.device_blocks(),
        shards: 0,
        whole: true,
    };
    map.devices.insert(id.0, room);
    let slabs = match slabs.await? {
        Ok(slabs) => Arc::new(slabs),
        Err(why) => {
            tracing::error!(device = %id, why, "a device cannot be used");
            map.devices.remove(&id.0);
            return Ok(());
        }
    };
    let mut opening = Vec::new();
    for lane in 0..layout.lanes() {
        let core = CoreId((lane as usize % cores.count()) as u16);
        let (any, slabs) = (device.device.clone(), Arc::clone(&slabs));
        let site = LaneSite { device: id, layout, lane };
        opening.push((lane, cores.run_on(core, move || part::open_lane(any, site, slabs, config))));
    }
    for (lane, opened) in opening {
        match opened.await? {
            Ok(shards) => shards.into_iter().for_each(|shard| map.remember(shard, (id.0, lane))),
            Err(error) => {
                tracing::error!(device = %id, lane, %error, "a lane cannot be used");
                if let Some(device) = map.devices.get_mut(&id.0) {
                    device.whole = false;
                }
            }
        }
    }
    Ok(())
}
