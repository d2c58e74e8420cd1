//! Lanes of one small device with a tiny journal: random changes and reads, crashes at any step, power losses, and a
//! model that must agree after each (PROTOCOL S1–S8, S12, S15, S16, S18).
//!
//! The scenario takes the place of the shard: it gives versions, orders what overlaps, tells what is committed, and
//! settles what recovery reports, as replication with one replica would.

mod settle;
mod shard;
mod worker;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ashlar_io::sync::Notify;
use ashlar_io::{Bug, World};
use ashlar_store::lane::{Lane, LaneConfig, LaneSite, SlabMap};

use self::shard::Shard;
use self::worker::Worker;
use crate::disk::{Device, DeviceSettings, SimDisk};
use crate::executor::{Simulation, Stop};
use crate::model::{Durability, Model};
use crate::process::ProcessSettings;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scenarios::small;
use crate::world::SimWorld;

/// Extents that the workload writes.
const EXTENTS: u32 = 6;
/// Blocks that it uses of each: few, so that they meet often.
const BLOCKS: u32 = 24;
/// Shards, each in one of the lanes.
const SHARDS: u32 = 2;
/// How long an operation may take in virtual time: far beyond the slowest device operations and retries.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(super) struct Lanes;

impl Scenario for Lanes {
    fn name(&self) -> &'static str {
        "lane"
    }

    fn about(&self) -> &'static str {
        "lanes of a small device with a tiny journal, crashes and power losses: S1-S8, S12, S15, S16, S18"
    }

    fn play(&self, simulation: &Simulation) -> Result<(), Stop> {
        let mut random = simulation.random();
        let engine = Engine::new(simulation, &mut random);
        let simulation = simulation.clone();
        simulation.clone().run(async move {
            for life in 0..random.between(3, 10) {
                engine.live(life as u32, &mut random).await;
            }
            engine.verify(&mut random).await;
        })
    }
}

/// What outlives the process.
#[derive(Clone)]
struct Engine {
    simulation: Simulation,
    device: Device,
    sites: Rc<Vec<LaneSite>>,
    config: LaneConfig,
    volatile: bool,
    state: Rc<RefCell<State>>,
}

struct State {
    model: Model,
    shards: Vec<Shard>,
}

/// What a process tells the scenario.
#[derive(Default)]
struct Life {
    /// The workload shall end, and the lanes be closed.
    closing: Cell<bool>,
    /// Workers that have not ended.
    workers: Cell<u32>,
    /// Told when something of this changed.
    changed: Notify,
    closed: Cell<bool>,
}

impl Engine {
    fn new(simulation: &Simulation, random: &mut Random) -> Self {
        let layout = small::tiny(EXTENTS, random);
        let id = small::device_id(random);
        let volatile = random.one_in(3);
        let settings = if volatile { DeviceSettings::volatile } else { DeviceSettings::solid };
        let zones = Rc::new(move |block| small::zone(&layout, block));
        let device = Device::new(simulation, "disk", settings(layout.device_blocks()), zones);
        small::write_roots(&device, &layout, id);
        let durability = if volatile { Durability::Flushed } else { Durability::Acknowledged };
        let lanes = layout.lanes();
        let site = |lane| LaneSite { device: id, layout, lane };
        let shards = (0..SHARDS).map(|index| Shard::new(index, lanes, random)).collect();
        let config = LaneConfig {
            cache_pages: random.between(1, 16) as usize,
            open_extents: random.between(1, u64::from(EXTENTS)) as usize,
            // As it is by default, or so that several journal blocks are in flight at any load.
            early_bytes: if random.coin() { 2048 } else { random.between(1, 200) as usize },
        };
        simulation.note(format!("{:?}, {config:?}, volatile {volatile}", layout.geometry()));
        Self {
            simulation: simulation.clone(),
            device,
            sites: Rc::new((0..lanes).map(site).collect()),
            config,
            volatile,
            state: Rc::new(RefCell::new(State { model: Model::new(durability), shards })),
        }
    }

    /// One process: opens, works, and dies.
    async fn live(&self, epoch: u32, random: &mut Random) {
        let world = self.simulation.start(ProcessSettings::named(&format!("life {epoch}")));
        let life = Rc::<Life>::default();
        let (engine, own, task, mut fork) = (self.clone(), world.clone(), Rc::clone(&life), random.fork());
        world.spawn(async move {
            let Some(lanes) = engine.open(&own, epoch).await else { return };
            let workers = fork.between(1, 12) as u32;
            task.workers.set(workers);
            for _ in 0..workers {
                let worker = Worker::new(&engine, &own, &lanes, &task, fork.fork());
                own.spawn(worker.work());
            }
            while task.workers.get() > 0 {
                task.changed.notified().await;
            }
            engine.close(&lanes).await;
            task.closed.set(true);
            task.changed.notify_all();
        });
        let limit = *random.pick(&[300, 2_000, 8_000]);
        let steps = random.between(1, limit);
        self.simulation.after_steps(steps).await;
        if random.one_in(6) {
            life.closing.set(true);
            while !life.closed.get() {
                life.changed.notified().await;
            }
        }
        self.check_patience();
        self.crash(&world, random);
    }

    fn crash(&self, world: &SimWorld, random: &mut Random) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let power = random.coin();
        if power {
            self.simulation.power_loss(&[world.process()], std::slice::from_ref(&self.device));
            state.model.power_loss();
        } else {
            self.simulation.kill(world.process());
            state.model.crash();
        }
        let lost = power && self.volatile;
        state.shards.iter_mut().for_each(|shard| shard.crash(lost));
    }

    /// Nothing was kept waiting for long.
    fn check_patience(&self) {
        let now = self.simulation.now_ns();
        for shard in &self.state.borrow().shards {
            if let Some((since, what)) = shard.oldest()
                && now - since > PATIENCE.as_nanos() as u64
            {
                self.simulation.fail(format!("{what} was not done within {PATIENCE:?}"));
            }
        }
    }

    /// Opens the device and its lanes; none if that failed, which ends the run.
    async fn open(&self, world: &SimWorld, epoch: u32) -> Option<Vec<Lane<SimWorld>>> {
        let disk = self.open_device(world).await;
        let site = self.sites[0];
        let slabs = match SlabMap::read(world, &disk, site.device, &site.layout).await {
            Ok(slabs) => Arc::new(slabs),
            Err(error) => {
                self.simulation.fail(format!("the slabs cannot be read: {error}"));
                return None;
            }
        };
        let mut lanes = Vec::new();
        for site in self.sites.iter() {
            let opened =
                Lane::open(world.clone(), disk.clone(), *site, Arc::clone(&slabs), self.config).await;
            match opened {
                Ok(lane) => lanes.push(lane),
                Err(error) => {
                    self.simulation.fail(format!("lane {} cannot be opened: {error}", site.lane));
                    return None;
                }
            }
        }
        self.simulation.note("lanes are open");
        self.settle(&lanes, epoch).await;
        Some(lanes)
    }

    /// PROTOCOL S18: waits until nothing of a predecessor is in flight.
    async fn open_device(&self, world: &SimWorld) -> SimDisk {
        if self.simulation.bugs().contains(Bug::OpenBusyDevice) {
            return self.device.open_busy(world);
        }
        loop {
            match self.device.open(world) {
                Ok(disk) => return disk,
                Err(_) => world.sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn close(&self, lanes: &[Lane<SimWorld>]) {
        for lane in lanes {
            if let Err(error) = lane.close().await {
                self.simulation.fail(format!("a lane cannot be closed: {error}"));
            }
        }
        self.simulation.note("lanes are closed");
    }

    /// Opens once more and reads everything that was ever written.
    async fn verify(&self, random: &mut Random) {
        let world = self.simulation.start(ProcessSettings::named("verifier"));
        let done = Rc::new(Notify::new());
        let (engine, own, told, fork) = (self.clone(), world.clone(), Rc::clone(&done), random.fork());
        world.spawn(async move {
            if let Some(lanes) = engine.open(&own, u32::MAX).await {
                let worker = Worker::new(&engine, &own, &lanes, &Rc::default(), fork);
                worker.read_all().await;
                engine.check_space(&lanes);
            }
            told.notify_one();
        });
        done.notified().await;
    }

    /// Each used extent is one that a shard has.
    fn check_space(&self, lanes: &[Lane<SimWorld>]) {
        for lane in lanes {
            let known: usize = lane.shards().keys().map(|shard| lane.extents(*shard).len()).sum();
            let used = lane.space().used;
            if used != known as u64 {
                self.simulation.fail(format!("{used} extents are used, and shards have {known} (S7)"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bugs::Bugs;
    use crate::run::{Plan, play};
    use crate::scenario::run;

    #[test]
    fn acknowledged_writes_survive_crashes_and_power_losses() {
        if let Some(failure) = play(&Lanes, &Plan::new(1, 60)).failures.first() {
            panic!("{}seed {}: {:?}", failure.trace, failure.seed, failure.failure);
        }
    }

    #[test]
    fn rules_that_are_left_out_are_missed() {
        let noticed = [
            Bug::CheckpointUnlanded,
            Bug::ForgetSuspect,
            Bug::HideInvalidTail,
            Bug::JudgeRecordsSingly,
            Bug::KeepChecksumsAtAllocation,
            Bug::MarkLandedEarly,
            Bug::OneSlotPages,
            Bug::OverwriteFreshUnrecorded,
            Bug::RecordAfterDataWhenSingle,
            Bug::SkipOpenRecord,
            Bug::TailPassesUncommitted,
        ];
        for bug in noticed {
            let mut plan = Plan::new(1, 100);
            plan.bugs = Bugs::NONE.with(bug);
            assert!(!play(&Lanes, &plan).failures.is_empty(), "{bug} goes unnoticed");
        }
    }

    #[test]
    fn one_seed_is_one_run() {
        for seed in 0..5 {
            let (first, second) = (run(&Lanes, seed, Bugs::NONE, 0), run(&Lanes, seed, Bugs::NONE, 0));
            assert_eq!((first.trace_hash, first.steps), (second.trace_hash, second.steps));
        }
    }
}
