//! A volume with two replicas on two small devices: random requests, faults of one medium, devices that hang, die, are
//! away and return, crashes at any step, power losses; a model that must agree at every read, and copies that must be
//! equal at rest (PROTOCOL R1-R5, R7, R8, R11, S1-S5, S8, S13-S16).
//!
//! Whatever happens to a device, the other one is in sync and well meanwhile: that is all that two replicas promise.
//! In a run, either one medium has faults, or both are sound and either device may be missing.

mod decisions;
mod disks;
mod node;
mod rest;
mod worker;

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::World;
use ashlar_io::sync::Notify;
use ashlar_store::ids::{Blocks, EXTENT_BLOCKS, SegmentId};
use uuid::Uuid;

use self::decisions::Decisions;
use self::disks::{Bay, Health, Kind};
use self::node::Node;
use self::worker::Worker;
use crate::disk::{Device, Faults};
use crate::executor::{Simulation, Stop};
use crate::model::{Durability, Model};
use crate::process::ProcessSettings;
use crate::random::Random;
use crate::scenario::Scenario;

/// The only segment.
const SEGMENT: SegmentId = SegmentId { volume: Uuid::from_u128(0x3177), index: 0 };
/// Its shards.
const SHARDS: u32 = 2;
/// Extents that the workload writes.
const EXTENTS: u32 = 6;
/// Blocks that it uses of each: few, so that they meet often.
const BLOCKS: u32 = 24;
/// The first of them are also written in part.
const PARTS: u32 = 6;
/// Bytes that are written at least: the model's registers are halves of blocks.
const HALF: usize = ashlar_io::BLOCK_BYTES / 2;
/// How long a request may take: a device that hangs is given up after 4 s, retries and decisions take less.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take until both are in sync, once nothing disturbs them.
const HEALING: Duration = Duration::from_secs(120);

/// The model's addresses of the halves of some blocks.
fn halves(extent: u32, blocks: Blocks) -> impl Iterator<Item = u64> {
    let first = u64::from(extent) * u64::from(EXTENT_BLOCKS);
    2 * (first + u64::from(blocks.first()))..2 * (first + u64::from(blocks.end()))
}

/// See the module.
#[derive(Debug)]
pub(super) struct Mirror;

impl Scenario for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn about(&self) -> &'static str {
        "two replicas on two small devices, faults, absences, crashes and power losses: R1-R5, R7, R8, R11, S13"
    }

    fn play(&self, simulation: &Simulation) -> Result<(), Stop> {
        let mut random = simulation.random();
        let mirror = Mirrored::new(simulation, &mut random);
        simulation.clone().run(async move {
            for life in 0..random.between(3, 9) {
                mirror.live(life, &mut random).await;
            }
            mirror.heal(&mut random).await;
        })
    }
}

/// What outlives a process.
#[derive(Clone)]
struct Mirrored {
    simulation: Simulation,
    kind: Kind,
    bays: Rc<RefCell<[Bay; 2]>>,
    /// Devices so far.
    devices: Rc<Cell<u32>>,
    decisions: Decisions,
    epoch: Rc<Cell<u32>>,
    model: Rc<RefCell<Model>>,
}

impl Mirrored {
    fn new(simulation: &Simulation, random: &mut Random) -> Self {
        let kind = Kind { volatile: random.one_in(4), per_million: *random.pick(&[300, 2_000, 8_000]) };
        let faulty = random.coin().then(|| random.index(2));
        let bay = |number: u32, random: &mut Random| {
            Bay::new(simulation, number, kind, faulty == Some(number as usize), random)
        };
        let bays = [bay(0, random), bay(1, random)];
        let members = bays.iter().map(|bay| bay.replica).collect();
        let durability = if kind.volatile { Durability::Flushed } else { Durability::Acknowledged };
        simulation.note(format!("{kind:?}"));
        Self {
            simulation: simulation.clone(),
            kind,
            bays: Rc::new(RefCell::new(bays)),
            devices: Rc::new(Cell::new(2)),
            decisions: Decisions::new(simulation, members, random.fork()),
            epoch: Rc::default(),
            model: Rc::new(RefCell::new(Model::new(durability))),
        }
    }

    /// What is in a slot now.
    fn bay(&self, slot: usize) -> Bay {
        self.bays.borrow()[slot].clone()
    }

    fn bay_mut(&self, slot: usize) -> RefMut<'_, Bay> {
        RefMut::map(self.bays.borrow_mut(), |bays| &mut bays[slot])
    }

    fn next_epoch(&self) -> u32 {
        self.epoch.set(self.epoch.get() + 1);
        self.epoch.get()
    }

    /// One medium has faults.
    fn is_intact(&self) -> bool {
        self.bays.borrow().iter().all(|bay| !bay.faulty)
    }

    /// Something may happen to a device: the other is in sync and well, and nothing happens to it now.
    fn is_spare(&self, slot: usize) -> bool {
        let other = self.bay(1 - slot);
        let well = other.health == Health::Working && self.decisions.contains(other.replica);
        well && (self.is_intact() || self.bay(slot).faulty)
    }

    /// Puts a blank device in place of one that does not open.
    fn replace(&self, slot: usize, random: &mut Random) {
        let number = self.devices.replace(self.devices.get() + 1);
        self.simulation.note(format!("slot {slot} gets device {number}"));
        let bay = Bay::new(&self.simulation, number, self.kind, true, random);
        *self.bay_mut(slot) = bay;
    }

    /// One process: opens, works, and dies.
    async fn live(&self, life: u64, random: &mut Random) {
        self.between_lives(random);
        let world = self.simulation.start(ProcessSettings::named(&format!("life {life}")));
        let node = Node::new(self, world.clone());
        let (task, mut fork) = (node.clone(), random.fork());
        world.spawn(async move {
            let Some(volume) = task.start().await else { return };
            for slot in 0..2 {
                task.world.spawn(task.clone().keep(slot, fork.fork()));
            }
            let workers = fork.between(1, 10) as u32;
            task.workers.set(workers);
            for _ in 0..workers {
                task.world.spawn(Worker::new(&task, &volume, fork.fork()).work());
            }
        });
        let limit = *random.pick(&[500, 4_000, 16_000]);
        self.some_steps(limit, random).await;
        self.trouble(&node, limit, random).await;
        if random.one_in(5) {
            self.come_to_rest(&node, random).await;
        }
        self.check_patience(&node);
        self.crash(&node, random);
    }

    async fn some_steps(&self, limit: u64, random: &mut Random) {
        self.simulation.after_steps(random.between(1, limit)).await;
    }

    /// Devices return or stay away while no process runs.
    fn between_lives(&self, random: &mut Random) {
        for slot in 0..2 {
            if self.bay(slot).health != Health::Working && random.coin() {
                self.bay_mut(slot).comes_back();
            }
            if self.bay(slot).refusals >= 2 {
                self.replace(slot, random);
            }
        }
        let slot = random.index(2);
        if random.one_in(3) && self.bay(slot).health == Health::Working && self.is_spare(slot) {
            self.simulation.note(format!("slot {slot} is away"));
            self.bay_mut(slot).health = Health::Away;
        }
    }

    /// A device hangs, dies or returns while the process works.
    async fn trouble(&self, node: &Node, limit: u64, random: &mut Random) {
        if !random.coin() {
            return;
        }
        let slot = random.index(2);
        let health = self.bay(slot).health;
        match health {
            Health::Away => {
                self.simulation.note(format!("slot {slot} comes back"));
                self.bay_mut(slot).comes_back();
            }
            Health::Working => {
                let other_works = node
                    .replica(1 - slot)
                    .is_some_and(|other| other.lanes.iter().all(|lane| lane.stopped().is_none()));
                if !node.lanes_open.get() || !other_works || !self.is_spare(slot) {
                    return;
                }
                if random.coin() {
                    self.bay(slot).device.hang();
                    self.bay_mut(slot).health = Health::Hung;
                } else {
                    self.bay(slot).device.die();
                    self.bay_mut(slot).health = Health::Dead;
                }
            }
            // One that hangs or is dead since an earlier life.
            Health::Hung | Health::Dead => self.bay_mut(slot).comes_back(),
        }
        self.some_steps(limit, random).await;
        if health == Health::Working && random.coin() {
            self.bay_mut(slot).comes_back();
            self.some_steps(limit, random).await;
        }
    }

    /// The workload ends; if both are in sync then, everything is compared.
    async fn come_to_rest(&self, node: &Node, random: &mut Random) {
        node.closing.set(true);
        let began = self.simulation.now_ns();
        while node.volume().is_none() || node.workers.get() > 0 {
            self.simulation.world().sleep(Duration::from_millis(1)).await;
            if self.simulation.now_ns() - began > HEALING.as_nanos() as u64 {
                return self.simulation.fail("a workload does not end");
            }
        }
        let all_well = self
            .bays
            .borrow()
            .iter()
            .all(|bay| bay.health == Health::Working && self.decisions.contains(bay.replica));
        if all_well && self.is_intact() {
            self.rest(node, random).await;
        }
    }

    async fn rest(&self, node: &Node, random: &mut Random) {
        let Some(volume) = node.volume() else { return };
        let done = Rc::new(Notify::new());
        let (told, own, fork, intact) = (Rc::clone(&done), node.clone(), random.fork(), self.is_intact());
        node.world.spawn(async move {
            own.rest(&volume, intact, fork).await;
            told.notify_one();
        });
        done.notified().await;
    }

    /// No request was kept waiting for long.
    fn check_patience(&self, node: &Node) {
        let now = self.simulation.now_ns();
        if let Some((since, what)) =
            node.oldest().filter(|(since, _)| now - since > PATIENCE.as_nanos() as u64)
        {
            self.simulation.fail(format!("{what} began at {since} ns and is not done within {PATIENCE:?}"));
        }
    }

    fn crash(&self, node: &Node, random: &mut Random) {
        let process = node.world.process();
        if random.coin() {
            self.simulation.kill(process);
            return self.model.borrow_mut().crash();
        }
        let devices: Vec<Device> = self.bays.borrow().iter().map(|bay| bay.device.clone()).collect();
        self.simulation.power_loss(&[process], &devices);
        for bay in self.bays.borrow_mut().iter_mut().filter(|bay| bay.health == Health::Hung) {
            bay.health = Health::Working;
        }
        self.model.borrow_mut().power_loss();
    }

    /// Everything works again: both must come into sync, and be equal.
    async fn heal(&self, random: &mut Random) {
        for slot in 0..2 {
            self.bay_mut(slot).comes_back();
            self.bay(slot).device.set_faults(Faults::NONE);
        }
        for life in 0..3 {
            let world = self.simulation.start(ProcessSettings::named(&format!("verifier {life}")));
            let node = Node::new(self, world.clone());
            let (task, mut fork) = (node.clone(), random.fork());
            world.spawn(async move {
                if task.start().await.is_some() {
                    for slot in 0..2 {
                        task.world.spawn(task.clone().keep(slot, fork.fork()));
                    }
                }
            });
            let began = self.simulation.now_ns();
            while node.volume().is_none() || !self.both_in_sync() {
                self.simulation.world().sleep(Duration::from_millis(50)).await;
                let refused = (0..2).find(|slot| self.bay(*slot).refusals > 0);
                if let (Some(slot), true) = (refused, node.volume().is_some()) {
                    // What its medium lost is lost: another device takes its place.
                    self.replace(slot, random);
                    self.bay(slot).device.set_faults(Faults::NONE);
                    break;
                }
                if self.simulation.now_ns() - began > HEALING.as_nanos() as u64 {
                    let members = self.decisions.set().members;
                    return self.simulation.fail(format!("only {members:?} in sync after {HEALING:?}"));
                }
            }
            if self.both_in_sync() && node.volume().is_some() {
                return self.rest(&node, random).await;
            }
            self.crash(&node, random);
        }
        self.simulation.fail("both are well, and do not come into sync");
    }

    fn both_in_sync(&self) -> bool {
        self.bays.borrow().iter().all(|bay| self.decisions.contains(bay.replica))
    }
}

#[cfg(test)]
mod tests;
