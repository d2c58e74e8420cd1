//! A store too simple to be wrong, to test the simulator itself: one block, one write in place.
//!
//! Each block of the scenario is a block of the device. What the device promises about power loss is then all that
//! the model may see: a failure here is the simulator's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ashlar_io::{BLOCK_BYTES, Buffer, Bug, Disk, World};

use crate::atlas::Zone;
use crate::disk::{Device, DeviceSettings, SimDisk};
use crate::executor::{Simulation, Stop};
use crate::model::{Durability, Model};
use crate::process::ProcessSettings;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::value::Value;
use crate::world::SimWorld;

/// Blocks that are written: few, so that they are written often.
const BLOCKS: u64 = 24;
/// The largest write.
const WRITE_BLOCKS_MAX: u64 = 4;
/// Crashes of a run.
const LIVES: u64 = 12;

/// See the module.
#[derive(Debug)]
pub(super) struct Toy;

impl Scenario for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn about(&self) -> &'static str {
        "blocks written in place on one device, with crashes and power losses: tests the simulator itself"
    }

    fn play(&self, simulation: &Simulation) -> Result<(), Stop> {
        let mut random = simulation.random();
        let volatile = random.coin();
        let settings = if volatile { DeviceSettings::volatile } else { DeviceSettings::solid };
        let durability = if volatile { Durability::Flushed } else { Durability::Acknowledged };
        // Large, so that its size is seen to cost nothing.
        let device = Device::new(simulation, "disk", settings(1 << 31), Rc::new(|_| Zone::Data));
        let model = Rc::new(RefCell::new(Model::new(durability)));
        let simulation = simulation.clone();
        simulation.clone().run(async move {
            for life in 0..LIVES {
                let world = simulation.start(ProcessSettings::named(&format!("life {life}")));
                let disk = open(&simulation, &device, &world).await;
                let store =
                    Store { world: world.clone(), disk, model: Rc::clone(&model), taken: Rc::default() };
                for _ in 0..random.between(1, 4) {
                    let (store, random) = (store.clone(), random.fork());
                    world.spawn(async move { store.work(random).await });
                }
                simulation.after_steps(random.between(1, 800)).await;
                if random.coin() {
                    simulation.kill(world.process());
                    model.borrow_mut().crash();
                } else {
                    simulation.power_loss(&[world.process()], std::slice::from_ref(&device));
                    model.borrow_mut().power_loss();
                }
            }
        })
    }
}

/// Waits until nothing of a predecessor is in flight (PROTOCOL S18).
async fn open(simulation: &Simulation, device: &Device, world: &SimWorld) -> SimDisk {
    if simulation.bugs().contains(Bug::OpenBusyDevice) {
        return device.open_busy(world);
    }
    loop {
        match device.open(world) {
            Ok(disk) => return disk,
            Err(_) => simulation.world().sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

#[derive(Clone)]
struct Store {
    world: SimWorld,
    disk: SimDisk,
    model: Rc<RefCell<Model>>,
    /// Blocks that a task is busy with: overlapping operations are the caller's to order.
    taken: Rc<Cell<u64>>,
}

impl Store {
    async fn work(&self, mut random: Random) {
        loop {
            let count = random.between(1, WRITE_BLOCKS_MAX);
            let first = random.below(BLOCKS - count + 1);
            let mask = ((1 << count) - 1) << first;
            if self.taken.get() & mask != 0 {
                self.world.sleep(std::time::Duration::from_micros(10)).await;
                continue;
            }
            self.taken.set(self.taken.get() | mask);
            match random.below(8) {
                0..=3 => self.write(first, count, &mut random).await,
                4 => self.flush().await,
                _ => self.read(first, count).await,
            }
            self.taken.set(self.taken.get() & !mask);
        }
    }

    async fn write(&self, first: u64, count: u64, random: &mut Random) {
        let mut buffer = self.world.buffer(count as usize).await;
        let value = if random.one_in(5) { Value::Zero } else { Value::Write(random.bits() | 1) };
        for (address, block) in (first..).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            value.fill(address, block);
        }
        let write = self.model.borrow_mut().write((first..first + count).map(|address| (address, value)));
        match self.disk.write(first, buffer.freeze()).await {
            Ok(()) => self.model.borrow_mut().acknowledge(write),
            Err(error) => self.world.simulation().fail(error.to_string()),
        }
    }

    async fn flush(&self) {
        let flush = self.model.borrow_mut().flush();
        match self.disk.flush().await {
            Ok(()) => self.model.borrow_mut().flushed(flush),
            Err(error) => self.world.simulation().fail(error.to_string()),
        }
    }

    async fn read(&self, first: u64, count: u64) {
        let buffer = self.world.buffer(count as usize).await;
        let read = self.model.borrow_mut().read(first..first + count);
        let (result, buffer) = self.disk.read(first, buffer).await;
        if let Err(error) = result {
            self.world.simulation().fail(error.to_string());
        }
        if let Err(violation) = self.model.borrow_mut().returned(read, &buffer) {
            self.world.simulation().fail(violation.to_string());
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
    fn device_keeps_its_promises_through_crashes_and_power_losses() {
        let summary = play(&Toy, &Plan::new(1, 100));
        if let Some(failure) = summary.failures.first() {
            panic!("{}seed {}: {:?}", failure.trace, failure.seed, failure.failure);
        }
    }

    #[test]
    fn one_seed_is_one_run() {
        for seed in 0..10 {
            let (first, second) = (run(&Toy, seed, Bugs::NONE, 0), run(&Toy, seed, Bugs::NONE, 0));
            assert_eq!((first.trace_hash, first.steps), (second.trace_hash, second.steps));
            assert_ne!(first.trace_hash, run(&Toy, seed + 1, Bugs::NONE, 0).trace_hash);
        }
    }

    #[test]
    fn late_writes_of_a_dead_process_are_noticed() {
        let mut plan = Plan::new(1, 400);
        plan.bugs = Bugs::NONE.with(Bug::OpenBusyDevice);
        assert!(!play(&Toy, &plan).failures.is_empty());
    }
}
