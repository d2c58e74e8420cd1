//! A mirror of two lanes on simulated disks: kills, power losses, and a device that goes away and comes back.

mod rig;

use std::time::Duration;

use ashlar_io::World;
use ashlar_sim::disk::DeviceSettings;
use ashlar_sim::random::Random;

use rig::{Rig, replica, run};

const DEVICE_BLOCKS: u64 = 1 << 18;
const WORKERS: u32 = 8;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// Fast devices, on which nothing lands much later than its process died.
fn devices() -> DeviceSettings {
    DeviceSettings { late_max: Duration::from_millis(5), ..DeviceSettings::solid(DEVICE_BLOCKS) }
}

async fn some_time(rig: &Rig, random: &mut Random, micros: u64) {
    rig.simulation.world().sleep(Duration::from_micros(random.below(micros))).await;
}

#[test]
fn kills_lose_nothing_that_was_acknowledged_and_leave_replicas_equal() {
    for seed in SEEDS {
        run(seed, devices(), async move |rig: Rig| {
            let mut random = Random::new(seed);
            for round in 0..4 {
                let open = rig.open(&[0, 1]).await;
                rig.check(&open).await;
                assert_eq!(rig.members().len(), 2, "round {round}: nobody is behind");
                rig.work(&open, WORKERS, &mut random);
                some_time(&rig, &mut random, 5_000).await;
                let process = rig.world.borrow().process();
                if random.below(2) == 0 {
                    rig.simulation.kill(process);
                } else {
                    rig.simulation.power_loss(&[process], &rig.devices);
                }
                drop(open);
                rig.restart();
            }
            let open = rig.open(&[0, 1]).await;
            rig.check(&open).await;
        });
    }
}

#[test]
fn a_device_that_was_away_over_restarts_catches_up_before_it_is_read() {
    for seed in SEEDS {
        run(seed, devices(), async move |rig: Rig| {
            let mut random = Random::new(seed);
            let away = random.below(2) as usize;
            let mut open = rig.open(&[0, 1]).await;
            rig.work(&open, WORKERS, &mut random);
            some_time(&rig, &mut random, 5_000).await;
            for there in [&[1 - away][..], &[1 - away]] {
                rig.simulation.kill(rig.world.borrow().process());
                rig.restart();
                open = rig.open(there).await;
                assert_eq!(rig.members(), [replica(1 - away)]);
                rig.work(&open, WORKERS, &mut random);
                some_time(&rig, &mut random, 3_000).await;
            }
            // It comes back while the workers go on.
            let open = rig.bring_back(&open, away).await;
            assert_eq!(rig.members().len(), 2);
            some_time(&rig, &mut random, 5_000).await;
            drop(open);
            rig.simulation.kill(rig.world.borrow().process());
            rig.restart();
            let open = rig.open(&[0, 1]).await;
            assert_eq!(rig.members().len(), 2, "its history has no hole");
            rig.check(&open).await;
        });
    }
}

#[test]
fn a_device_that_dies_or_hangs_under_load_fails_nothing_and_comes_back() {
    for seed in SEEDS {
        run(seed, devices(), async move |rig: Rig| {
            let mut random = Random::new(seed);
            let fails = random.below(2) as usize;
            let open = rig.open(&[0, 1]).await;
            rig.work(&open, WORKERS, &mut random);
            some_time(&rig, &mut random, 3_000).await;
            // The workers accept no error.
            if random.below(2) == 0 {
                rig.devices[fails].die()
            } else {
                rig.devices[fails].hang()
            }
            while rig.members().len() == 2 {
                some_time(&rig, &mut random, 1_000).await;
            }
            assert_eq!(rig.members(), [replica(1 - fails)]);
            some_time(&rig, &mut random, 3_000).await;
            drop(open);
            rig.simulation.kill(rig.world.borrow().process());
            rig.devices[fails].return_to_work();
            rig.restart();
            let open = rig.open(&[0, 1]).await;
            assert_eq!(rig.members(), [replica(1 - fails)], "it is not trusted before it caught up");
            rig.work(&open, WORKERS, &mut random);
            let open = rig.bring_back(&open, fails).await;
            assert_eq!(rig.members().len(), 2);
            drop(open);
            rig.simulation.kill(rig.world.borrow().process());
            rig.restart();
            let open = rig.open(&[0, 1]).await;
            rig.check(&open).await;
        });
    }
}
