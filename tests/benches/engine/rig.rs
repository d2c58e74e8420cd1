//! Two devices, a volume over both, and work for them.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Disk, World};
use ashlar_reactor::world::{AnyDevice, AnyDisk, FileDevice, MemoryDisk, ReactorWorld};
use ashlar_reactor::{next_turn, now, spawn_join};
use ashlar_replication::{
    InSyncSet, Layout, Limits, LocalPeer, Membership, MembershipEpoch, MembershipError, OpenSegment,
    ReplicaId, Volume,
};
use ashlar_store::device::{self, Existing, FormatOptions, TornBlocks};
use ashlar_store::format::{DeviceId, Label};
use ashlar_store::lane::{Lane, LaneConfig, LaneSite, SlabMap};
use ashlar_store::{SegmentId, ShardId};
use futures_util::future::join;
use uuid::Uuid;

use super::Settings;

const VOLUME: Uuid = Uuid::from_u128(1);
/// Blocks of a memory device: 4 GiB, of which only what is written takes memory.
const MEMORY_BLOCKS: u64 = 1 << 20;

/// Operations between looks at the clock.
const TURN: u64 = 32;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// The same 4 KiB to both devices, nothing else.
    RawWrites,
    /// Through the engine.
    MirroredWrites,
    /// From one device.
    RawReads,
    /// Through the engine, verified.
    VerifiedReads,
}

impl Work {
    pub(crate) const ALL: [Work; 4] =
        [Work::RawWrites, Work::MirroredWrites, Work::RawReads, Work::VerifiedReads];
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::RawWrites => "two raw writes",
            Work::MirroredWrites => "mirrored, checksummed write",
            Work::RawReads => "raw read",
            Work::VerifiedReads => "verified read",
        })
    }
}

/// What one point came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Point {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) journal_writes: u64,
    pub(crate) metadata: u64,
}

/// Nobody ever leaves.
struct Fixed;

impl Membership for Fixed {
    async fn remove(
        &self,
        _: SegmentId,
        _: MembershipEpoch,
        replica: ReplicaId,
        why: &str,
    ) -> Result<InSyncSet, MembershipError> {
        Err(MembershipError::Unavailable(format!("{replica} must stay, although {why}")))
    }

    async fn add(
        &self,
        _: SegmentId,
        _: MembershipEpoch,
        replica: ReplicaId,
    ) -> Result<InSyncSet, MembershipError> {
        Err(MembershipError::Unavailable(format!("{replica} is there already")))
    }
}

type BenchVolume = Volume<ReactorWorld, LocalPeer<ReactorWorld>, Fixed>;

struct Rig {
    disks: Vec<AnyDisk>,
    /// First block of what raw work may overwrite on each disk.
    raw: u64,
    lanes: Vec<Lane<ReactorWorld>>,
    volume: BenchVolume,
    span_blocks: u64,
}

/// A generator that is good enough to spread work, and cheap.
struct Spread(Cell<u64>);

impl Spread {
    fn below(&self, bound: u64) -> u64 {
        let next =
            self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(next);
        ((u128::from(next) * u128::from(bound)) >> 64) as u64
    }
}

fn text(what: &str) -> impl Fn(&dyn fmt::Display) -> String + '_ {
    move |error| format!("{what}: {error}")
}

async fn open(settings: &Settings) -> Result<Rig, String> {
    let world = ReactorWorld;
    let mut disks = Vec::new();
    let mut lanes = Vec::new();
    let mut by_device = Vec::new();
    let mut raw = 0;
    for (number, path) in (1u128..).zip(&settings.devices) {
        let device = match path {
            None => AnyDevice::Memory(MemoryDisk::new(MEMORY_BLOCKS)),
            Some(path) => AnyDevice::File(FileDevice::hold(path).map_err(|error| text("hold it")(&error))?),
        };
        let disk = device.open().map_err(|error| text("open it")(&error))?;
        let options = FormatOptions {
            device: DeviceId(Uuid::from_u128(number)),
            cluster: None,
            node: Uuid::from_u128(7),
            pool: Uuid::from_u128(8),
            lanes: settings.lanes,
            label: Label::new("bench").ok_or("a label")?,
            formatted_at: 1,
            torn: TornBlocks::Log,
            existing: Existing::Overwrite,
        };
        let superblock =
            device::format(&world, &disk, &options).await.map_err(|error| text("format it")(&error))?;
        let (id, layout) = (superblock.device, superblock.layout);
        let slabs = SlabMap::read(&world, &disk, id, &layout).await.map_err(|error| text("slabs")(&error))?;
        let slabs = Arc::new(slabs);
        let mut own = Vec::new();
        for lane in 0..settings.lanes {
            let site = LaneSite { device: id, layout, lane };
            let config = LaneConfig::default();
            let lane = Lane::open(world, disk.clone(), site, Arc::clone(&slabs), config)
                .await
                .map_err(|error| text("open a lane")(&error))?;
            own.push(lane.clone());
            lanes.push(lane);
        }
        raw = disk.geometry().blocks / 2;
        disks.push(disk);
        by_device.push(own);
    }
    let replicas: Vec<ReplicaId> = (0..2).map(|number| ReplicaId(Uuid::from_u128(100 + number))).collect();
    let bytes = 32 << 30;
    let layout = Layout::new(bytes, bytes, 32).map_err(|error| text("a layout")(&error))?;
    let mut shards = Vec::new();
    for index in 0..32u32 {
        let id = ShardId { segment: SegmentId { volume: VOLUME, index: 0 }, index };
        let mut peers = Vec::new();
        for (replica, own) in replicas.iter().zip(&by_device) {
            let lane = own[index as usize % own.len()].clone();
            let peer = LocalPeer::open(world, lane, id).await.map_err(|error| text("a peer")(&error))?;
            peers.push((*replica, Rc::new(peer)));
        }
        shards.push((index, peers));
    }
    let set = InSyncSet { epoch: MembershipEpoch(1), members: replicas };
    let open = vec![OpenSegment { index: 0, set, shards }];
    let volume = Volume::open(world, (VOLUME, layout), (1, Limits::default()), &Rc::new(Fixed), open)
        .await
        .map_err(|error| text("open the volume")(&error))?;
    Ok(Rig { disks, raw, lanes, volume, span_blocks: settings.span * 256 })
}

impl Rig {
    async fn operation(&self, work: Work, block: u64) -> Result<(), String> {
        let world = ReactorWorld;
        let piece = || {
            let mut pieces = self.volume.layout().pieces(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
            pieces.next().ok_or("a block is one piece")
        };
        match work {
            Work::RawWrites => {
                let data = world.buffer(1).await.freeze();
                let at = self.raw + block;
                let (first, second) =
                    join(self.disks[0].write(at, data.clone()), self.disks[1].write(at, data)).await;
                first.and(second).map_err(|error| error.to_string())
            }
            Work::MirroredWrites => {
                let mut buffer = world.buffer(1).await;
                buffer[..8].copy_from_slice(&block.to_le_bytes());
                self.volume.write(&piece()?, buffer.freeze()).await.map_err(|error| error.to_string())
            }
            Work::RawReads => {
                let buffer = world.buffer(1).await;
                let disk = &self.disks[(block % 2) as usize];
                disk.read(self.raw + block, buffer).await.0.map_err(|error| error.to_string())
            }
            Work::VerifiedReads => {
                self.volume.read(&piece()?).await.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Counts of all lanes: journal blocks, and other metadata.
    fn counts(&self) -> (u64, u64) {
        let counters = self.lanes.iter().map(Lane::counters);
        counters.fold((0, 0), |(journal, tables), one| {
            (journal + one.journal_writes, tables + one.metadata_writes)
        })
    }
}

/// User and all processor time of this thread, in seconds. The kernel counts user time in ticks of 10 ms.
fn times() -> (f64, f64) {
    let read = |name| std::fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap_or_default();
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let run = read("schedstat");
    let ns = run.split_whitespace().next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) / 100.0, ns / 1e9)
}

async fn point(rig: &Rc<Rig>, settings: &Settings, work: Work) -> Result<Point, String> {
    let began = now();
    let until = began + Duration::from_secs(settings.seconds);
    let (user, cpu) = times();
    let (journal, tables) = rig.counts();
    let done = Rc::new(Cell::new(0u64));
    let most = settings.count.unwrap_or(u64::MAX);
    let timed = settings.count.is_none();
    let workers: Vec<_> = (0..settings.depth)
        .map(|worker| {
            let (rig, done) = (Rc::clone(rig), Rc::clone(&done));
            spawn_join(async move {
                let spread = Spread(Cell::new(worker as u64 * 7919 + 1));
                while done.get() < most && !(timed && now() >= until) {
                    done.set(done.get() + 1);
                    // Memory is never waited for: without this one worker would go on alone, and the clock stand still.
                    if done.get().is_multiple_of(TURN) {
                        next_turn().await;
                    }
                    rig.operation(work, spread.below(rig.span_blocks)).await?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(|error| error.to_string())??;
    }
    let (user_end, cpu_end) = times();
    let (journal_end, tables_end) = rig.counts();
    Ok(Point {
        operations: done.get(),
        seconds: (now() - began).as_secs_f64(),
        user_seconds: user_end - user,
        cpu_seconds: cpu_end - cpu,
        journal_writes: (journal_end - journal) / 2,
        metadata: (tables_end - tables) / 2,
    })
}

/// Measures all points, in turns.
pub(crate) async fn measure(settings: &Settings) -> Result<Vec<(Work, Point)>, String> {
    let rig = Rc::new(open(settings).await?);
    // Every block once, so that nothing is written for the first time while it is measured.
    for block in 0..rig.span_blocks {
        rig.operation(Work::MirroredWrites, block).await?;
        rig.operation(Work::RawWrites, block).await?;
    }
    let most = if settings.only.is_some() { 1 } else { Work::ALL.len() };
    let mut results = Vec::new();
    for _ in 0..settings.rounds {
        for work in Work::ALL.into_iter().skip(settings.only.unwrap_or(0)).take(most) {
            results.push((work, point(&rig, settings, work).await?));
        }
    }
    for lane in &rig.lanes {
        lane.close().await.map_err(|error| error.to_string())?;
    }
    Ok(results)
}
