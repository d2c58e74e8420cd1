//! The world's own promises: order, time, death, memory, disks.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::sync::Notify;
use ashlar_io::{BLOCK_BYTES, Buffer, Data, Disk, Tearing, World};
use ashlar_sim::atlas::{Fault, Zone};
use ashlar_sim::disk::{Content, Device, DeviceSettings, Faults, SimDisk};
use ashlar_sim::{Bugs, ProcessSettings, SimWorld, Simulation, Stop};

fn device(simulation: &Simulation, settings: DeviceSettings) -> Device {
    let zones = Rc::new(|block| if block < 8 { Zone::Journal } else { Zone::Data });
    Device::new(simulation, "disk", settings, zones)
}

async fn write(world: &SimWorld, disk: &SimDisk, block: u64, bytes: &[u8]) -> Result<(), String> {
    let mut buffer = world.buffer(bytes.len()).await;
    for (block, byte) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(bytes) {
        block.fill(*byte);
    }
    disk.write(block, buffer.freeze()).await.map_err(|error| error.to_string())
}

async fn read(world: &SimWorld, disk: &SimDisk, block: u64) -> Result<u8, String> {
    let (result, buffer) = disk.read(block, world.buffer(1).await).await;
    result.map(|()| buffer[100]).map_err(|error| error.to_string())
}

fn byte_of(content: &Content) -> u8 {
    content.bytes().map_or(0, |bytes| bytes[100])
}

#[test]
fn deadlock_names_who_waits() {
    let simulation = Simulation::new(1, Bugs::NONE);
    let world = simulation.start(ProcessSettings::named("stuck"));
    world.spawn(pending());
    let stop = simulation.run(pending::<()>()).expect_err("nobody wakes it");
    let Stop::Deadlock { waiting } = stop else { panic!("{stop}") };
    assert!(waiting.iter().any(|task| task.contains("stuck") && task.contains("world.rs")), "{waiting:?}");
}

#[test]
fn busy_task_ends_the_run() {
    let simulation = Simulation::with_limit(1, Bugs::NONE, 1000);
    let world = simulation.world();
    let stop = simulation.run(async move {
        loop {
            world.next_turn().await;
        }
    });
    assert!(matches!(stop, Err::<(), _>(Stop::TooLong { steps: 1000, .. })), "{stop:?}");
}

#[test]
fn ready_tasks_run_in_an_order_of_the_seed() {
    let order = |seed| {
        let simulation = Simulation::new(seed, Bugs::NONE);
        let world = simulation.world();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let all = Rc::clone(&seen);
        let run = simulation.run(async move {
            for index in 0..8 {
                let seen = Rc::clone(&all);
                world.spawn(async move { seen.borrow_mut().push(index) });
            }
            world.sleep(Duration::from_secs(1)).await;
        });
        assert_eq!(run, Ok(()));
        seen.take()
    };
    assert_eq!(order(1), order(1));
    assert!((2..10).any(|seed| order(seed) != order(1)));
}

#[test]
fn time_jumps_to_the_next_timer() {
    let simulation = Simulation::new(1, Bugs::NONE);
    let world = simulation.world();
    let slept = simulation.run(async move {
        let before = world.now();
        world.sleep(Duration::from_secs(3600)).await;
        world.now().since(before)
    });
    let slept = slept.expect("it ends");
    assert!(slept >= Duration::from_secs(3600) && slept < Duration::from_secs(3601), "{slept:?}");
    assert!(simulation.steps() < 10);
}

#[test]
fn clocks_drift_apart() {
    let simulation = Simulation::new(1, Bugs::NONE);
    let fast = simulation.start(ProcessSettings { drift_ppm: 5000, ..ProcessSettings::named("fast") });
    let slow = simulation.start(ProcessSettings { drift_ppm: -5000, ..ProcessSettings::named("slow") });
    let slept = Rc::new(RefCell::new(Vec::new()));
    for world in [fast, slow] {
        let slept = Rc::clone(&slept);
        let task = world.clone();
        world.spawn(async move {
            let (before, true_before) = (task.now(), task.simulation().now_ns());
            task.sleep(Duration::from_secs(100)).await;
            assert!(task.now().since(before) >= Duration::from_secs(100), "by its own clock");
            slept.borrow_mut().push(task.simulation().now_ns() - true_before);
        });
    }
    let world = simulation.world();
    assert_eq!(simulation.run(async move { world.sleep(Duration::from_secs(200)).await }), Ok(()));
    let ratio = slept.borrow()[1] as f64 / slept.borrow()[0] as f64;
    assert!((1.0099..1.0102).contains(&ratio), "{ratio}");
}

#[test]
fn suspended_process_does_nothing_and_its_clock_goes_on() {
    let simulation = Simulation::new(1, Bugs::NONE);
    let world = simulation.start(ProcessSettings::named("sleeper"));
    let notify = Rc::new(Notify::new());
    let woke = Rc::new(Cell::new(Duration::ZERO));
    let (told, seen, task) = (Rc::clone(&notify), Rc::clone(&woke), world.clone());
    world.spawn(async move {
        let before = task.now();
        told.notified().await;
        seen.set(task.now().since(before));
    });
    let (runner, own) = (simulation.clone(), simulation.world());
    let run = simulation.run(async move {
        own.sleep(Duration::from_millis(1)).await;
        runner.suspend(world.process(), Duration::from_secs(2));
        notify.notify_one();
        own.sleep(Duration::from_secs(3)).await;
    });
    assert_eq!(run, Ok(()));
    assert!(woke.get() >= Duration::from_secs(2) && woke.get() < Duration::from_secs(3), "{:?}", woke.get());
}

#[test]
fn killed_process_never_runs_again_and_its_memory_is_dropped() {
    let simulation = Simulation::new(1, Bugs::NONE);
    let world = simulation.start(ProcessSettings::named("victim"));
    let held = Rc::new(());
    let (task, kept) = (world.clone(), Rc::clone(&held));
    world.spawn(async move {
        task.sleep(Duration::from_secs(2)).await;
        drop(kept);
        panic!("it was killed");
    });
    let (runner, own) = (simulation.clone(), simulation.world());
    let run = simulation.run(async move {
        own.sleep(Duration::from_secs(1)).await;
        runner.kill(world.process());
        world.spawn(async { panic!("it is dead") });
        own.sleep(Duration::from_secs(9)).await;
    });
    assert_eq!(run, Ok(()));
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn process_can_be_killed_between_any_two_polls() {
    let mut progress = Vec::new();
    for steps in 1..40 {
        let simulation = Simulation::new(7, Bugs::NONE);
        let world = simulation.start(ProcessSettings::named("victim"));
        let done = Rc::new(Cell::new(0));
        let (task, count) = (world.clone(), Rc::clone(&done));
        world.spawn(async move {
            loop {
                task.sleep(Duration::from_micros(5)).await;
                count.set(count.get() + 1);
            }
        });
        let runner = simulation.clone();
        let run = simulation.run(async move {
            runner.after_steps(steps).await;
            runner.kill(world.process());
        });
        assert_eq!(run, Ok(()));
        progress.push(done.get());
    }
    assert!(progress.is_sorted_by(|a, b| b - a <= 1) && progress[38] > 30, "{progress:?}");
}

#[test]
fn buffers_are_bounded_and_come_back() {
    let simulation = Simulation::new(1, Bugs::NONE);
    let world = simulation.start(ProcessSettings { buffer_blocks: 40, ..ProcessSettings::named("small") });
    let (finished, done) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
    for _ in 0..10 {
        let (task, finished, done) = (world.clone(), Rc::clone(&finished), Rc::clone(&done));
        world.spawn(async move {
            let data = task.buffer(32).await.freeze();
            let part = data.slice(BLOCK_BYTES..2 * BLOCK_BYTES);
            drop(data);
            task.sleep(Duration::from_millis(1)).await;
            drop(part);
            finished.set(finished.get() + 1);
            done.notify_one();
        });
    }
    let seen = Rc::clone(&finished);
    let run = simulation.run(async move {
        while seen.get() < 10 {
            done.notified().await;
        }
    });
    assert_eq!(run, Ok(()));
    assert!(simulation.now_ns() >= 1_010_000_000, "one at a time");
}

/// Runs `work` with an open disk, then gives back the device.
fn with_disk<F: Future<Output = ()> + 'static>(
    seed: u64,
    settings: DeviceSettings,
    work: impl FnOnce(SimWorld, SimDisk) -> F,
) -> (Simulation, Device) {
    let simulation = Simulation::new(seed, Bugs::NONE);
    let device = device(&simulation, settings);
    let world = simulation.world();
    let disk = device.open(&world).expect("nobody has it");
    let run = simulation.run(work(world, disk));
    assert_eq!(run, Ok(()));
    (simulation, device)
}

#[test]
fn what_is_written_is_read() {
    let (simulation, device) = with_disk(1, DeviceSettings::solid(1 << 31), |world, disk| async move {
        assert_eq!(read(&world, &disk, 77).await, Ok(0), "never written");
        assert_eq!(write(&world, &disk, (1 << 31) - 2, &[5, 6]).await, Ok(()));
        assert_eq!(read(&world, &disk, (1 << 31) - 1).await, Ok(6));
        let beyond = write(&world, &disk, (1 << 31) - 1, &[5, 6]).await;
        assert!(beyond.is_err_and(|error| error.contains("beyond the end")));
    });
    assert_eq!(device.counts()[&Zone::Data].blocks_written, 4);
    assert!(simulation.trace_tail(100).contains("disk #"));
}

#[test]
fn power_loss_takes_any_subset_of_what_was_not_flushed() {
    let mut kept = [0; 3];
    for seed in 0..60 {
        let (simulation, device) = with_disk(seed, DeviceSettings::volatile(64), |world, disk| async move {
            assert_eq!(write(&world, &disk, 9, &[1]).await, Ok(()));
            assert_eq!(disk.flush().await, Ok(()));
            assert_eq!(write(&world, &disk, 9, &[2]).await, Ok(()));
            assert_eq!(write(&world, &disk, 9, &[3]).await, Ok(()));
            assert_eq!(read(&world, &disk, 9).await, Ok(3));
        });
        simulation.power_loss(&[], std::slice::from_ref(&device));
        kept[usize::from(byte_of(&device.peek(9))) - 1] += 1;
    }
    assert!(kept.iter().all(|count| *count > 5), "{kept:?}");
}

#[test]
fn interrupted_write_lands_in_any_subset_and_is_torn_only_where_that_is_said() {
    for tearing in [Tearing::Atomic, Tearing::Torn] {
        let (mut partly, mut torn) = (0, 0);
        for seed in 0..60 {
            let mut settings = DeviceSettings::solid(64);
            settings.geometry.tearing = tearing;
            let (simulation, device) = with_disk(seed, settings, |world, disk| async move {
                let mut buffer = world.buffer(4).await;
                buffer.fill(1);
                world.spawn(async move {
                    let _ = disk.write(20, buffer.freeze()).await;
                });
                world.sleep(Duration::from_micros(5)).await;
            });
            simulation.power_loss(&[], std::slice::from_ref(&device));
            let blocks = [20, 21, 22, 23].map(|block| device.peek(block));
            let mixed = |bytes: &[u8]| bytes.contains(&0);
            torn += blocks.iter().filter(|block| block.bytes().is_some_and(mixed)).count();
            let landed = blocks.iter().filter(|block| block.bytes().is_some()).count();
            partly += usize::from((1..4).contains(&landed));
        }
        assert!(partly > 20, "{partly}");
        assert_eq!(torn > 0, tearing == Tearing::Torn);
    }
}

#[test]
fn device_is_busy_while_operations_of_a_dead_process_are_in_flight() {
    let (mut late, mut at_once) = (0, 0);
    for seed in 0..60 {
        let simulation = Simulation::new(seed, Bugs::NONE);
        let device = device(&simulation, DeviceSettings::solid(64));
        let world = simulation.start(ProcessSettings::named("victim"));
        let disk = device.open(&world).expect("nobody has it");
        assert!(device.open(&simulation.world()).is_err(), "the owner lives");
        let task = world.clone();
        world.spawn(async move {
            let _ = write(&task, &disk, 9, &[1]).await;
            pending::<()>().await;
        });
        let (runner, disk) = (simulation.clone(), device.clone());
        let waited = simulation.run(async move {
            let own = runner.world();
            own.sleep(Duration::from_micros(5)).await;
            runner.kill(world.process());
            let before = runner.now_ns();
            while disk.open(&own).is_err() {
                own.sleep(Duration::from_millis(1)).await;
            }
            runner.now_ns() - before
        });
        let waited = waited.expect("it ends");
        assert!(waited < 10_000_000_000, "within the bound");
        late += u32::from(waited > 10_000_000);
        at_once += u32::from(waited == 0);
    }
    assert!(late > 5 && at_once > 5, "{late} {at_once}");
}

#[test]
fn planned_faults_happen() {
    let (_, device) = with_disk(3, DeviceSettings::solid(64), |world, disk| async move {
        let device = disk.device().clone();
        let plan = |fault| device.set_faults(Faults::NONE.then(Zone::Data, fault));
        assert_eq!(write(&world, &disk, 9, &[1]).await, Ok(()));
        plan(Fault::ReadErrorOnce);
        assert!(read(&world, &disk, 9).await.is_err());
        assert_eq!(read(&world, &disk, 9).await, Ok(1));
        plan(Fault::ReadErrorUntilWritten);
        assert!(read(&world, &disk, 9).await.is_err());
        assert!(read(&world, &disk, 9).await.is_err());
        plan(Fault::LostWrite);
        assert_eq!(write(&world, &disk, 10, &[2]).await, Ok(()));
        assert_eq!(read(&world, &disk, 10).await, Ok(0));
        plan(Fault::WriteErrorOnce);
        assert!(write(&world, &disk, 10, &[2]).await.is_err());
        plan(Fault::MisdirectedWrite);
        assert_eq!(write(&world, &disk, 30, &[3]).await, Ok(()));
        assert_eq!(read(&world, &disk, 30).await, Ok(0));
        assert_eq!(write(&world, &disk, 9, &[4]).await, Ok(()));
        assert_eq!(read(&world, &disk, 9).await, Ok(4), "written again");
        device.rot(9);
    });
    assert!(device.peek(9).bytes().is_some_and(|bytes| bytes.iter().any(|byte| *byte != 4)));
    let elsewhere = (8..64).filter(|block| *block != 30 && byte_of(&device.peek(*block)) == 3).count();
    assert_eq!(elsewhere, 1, "it landed in its zone");
}

#[test]
fn hung_device_answers_when_it_is_back_and_a_dead_one_refuses() {
    with_disk(1, DeviceSettings::solid(64), |world, disk| async move {
        let device = disk.device().clone();
        device.hang();
        let done = Rc::new(Cell::new(false));
        let (task, seen, own) = (world.clone(), Rc::clone(&done), disk.clone());
        world.spawn(async move {
            assert_eq!(write(&task, &own, 9, &[1]).await, Ok(()));
            seen.set(true);
        });
        world.sleep(Duration::from_secs(30)).await;
        assert!(!done.get());
        device.return_to_work();
        world.sleep(Duration::from_secs(1)).await;
        assert!(done.get());
        device.die();
        assert!(read(&world, &disk, 9).await.is_err());
        device.return_to_work();
        assert_eq!(read(&world, &disk, 9).await, Ok(1));
        device.shrink(9);
        assert!(read(&world, &disk, 9).await.is_err());
    });
}
