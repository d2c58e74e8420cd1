//! Volumes as a connected host sees them, over restarts and kills.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ashlar_initiator::{Controller, Fua, HostConfig, IoQueue, Payload};
use ashlar_nvme::ids::{HostId, Lba, Nqn, Nsid, Qid};
use ashlar_reactor::world::{AnyDevice, FileDevice, ReactorWorld};
use ashlar_reactor::{CoreId, Cores, CoresConfig, IoBuf};
use ashlar_store::device::{Existing, FormatOptions, TornBlocks, format};
use ashlar_store::format::{DeviceId, Label};
use uuid::Uuid;

use crate::running::{Daemon, SETTINGS};

const NSID: Nsid = Nsid(1);

/// Room for a small device.
const DEVICE_BYTES: u64 = 1 << 30;

fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).expect("an NQN")
}

/// Runs something on a data core of the test's own.
fn on_core<T: Send + 'static, F: Future<Output = T> + 'static>(
    work: impl FnOnce() -> F + Send + 'static,
) -> T {
    let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
    let result = cores.handle().run_on(CoreId(0), work).wait().expect("the core answers");
    cores.stop(std::time::Duration::from_secs(60)).expect("nothing is left over");
    result
}

/// Connects to the volume `db`, does something with a queue, and leaves.
fn as_host<T: Send + 'static, F: Future<Output = T> + 'static>(
    portal: SocketAddr,
    work: impl FnOnce(std::rc::Rc<IoQueue>) -> F + Send + 'static,
) -> T {
    on_core(move || async move {
        let config = HostConfig::new(nqn("nqn.2026-01.io.x:host"), HostId([7; 16]));
        let volume = nqn("nqn.2026-01.io.ashlar:volume:db");
        let controller = Controller::connect(portal, &volume, &config).await.expect("it may connect");
        let queue = std::rc::Rc::new(IoQueue::connect(&controller.ticket(), Qid(1)).await.expect("a queue"));
        let result = work(std::rc::Rc::clone(&queue)).await;
        queue.close();
        drop(queue);
        controller.shut_down().await.expect("an orderly end");
        result
    })
}

/// A file that is formatted as a device.
fn device(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a file");
    let held = AnyDevice::File(FileDevice::hold(&path).expect("nobody has it"));
    on_core(move || async move {
        let options = FormatOptions {
            device: DeviceId(Uuid::new_v4()),
            cluster: None,
            node: Uuid::nil(),
            pool: Uuid::nil(),
            lanes: 4,
            label: Label::default(),
            formatted_at: SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs(),
            torn: TornBlocks::Refuse,
            existing: Existing::Refuse,
        };
        format(&ReactorWorld, &held.open().expect("open"), &options).await.expect("format");
    });
    path
}

/// A folder on a file system with direct I/O.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A node with a pool per place, and a volume with a replica in each.
fn config(state: &Path, places: &[&str]) -> String {
    let mut text = format!("{SETTINGS}[state]\ndirectory = \"{}\"\n", state.display());
    for (pool, place) in places.iter().enumerate() {
        text +=
            &format!("[[pool]]\nname = \"p{pool}\"\n[[device]]\npath = \"{place}\"\npool = \"p{pool}\"\n");
    }
    text += &format!(
        "[[volume]]\nname = \"db\"\nsize = \"200 MiB\"\nreplicas = {}\nallow_any_host = true\n",
        places.len()
    );
    text
}

/// The content of a block that was written as `generation`.
fn content(block: u64, generation: u8) -> Vec<u8> {
    let mut bytes = vec![generation; 4096];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// Whether the volume is so.
fn health(daemon: &Daemon, how: &str) -> Option<f64> {
    daemon.metric("ashlar_volume_health", &[("volume", "db"), ("health", how)])
}

/// Blocks in different shards, and so on both cores, and one at the end.
const BLOCKS: [u64; 7] = [0, 1, 1023, 1024, 5000, 9216, 51_199];

async fn write_all(queue: &IoQueue, generation: u8) {
    for block in BLOCKS {
        let data = Payload::copy_of(&content(block, generation));
        queue.write(NSID, Lba(block), 1, data, Fua::No).await.expect("a write");
    }
    queue.flush(NSID).await.expect("a flush");
}

async fn check_all(queue: &IoQueue, generation: u8) {
    for block in BLOCKS {
        let read = queue.read(NSID, Lba(block), 1, IoBuf::heap(4096)).await.expect("a read");
        assert!(read[..] == content(block, generation), "block {block} is not that of {generation}");
    }
    let between = queue.read(NSID, Lba(3000), 1, IoBuf::heap(4096)).await.expect("a read");
    assert!(between.iter().all(|byte| *byte == 0), "what was never written is zero");
}

#[test]
fn a_volume_in_memory_keeps_what_is_written() {
    let state = folder();
    let mut daemon = Daemon::start(&config(state.path(), &["memory:1 GiB", "memory:1 GiB"]));
    as_host(daemon.portals()[0], |queue| async move {
        write_all(&queue, 1).await;
        check_all(&queue, 1).await;
        // Over the boundary of two shards, and parts of it.
        let mut across = content(2047, 9);
        across.extend(content(2048, 9));
        queue.write(NSID, Lba(2047), 2, Payload::copy_of(&across), Fua::Yes).await.expect("a write");
        let read = queue.read(NSID, Lba(2047), 2, IoBuf::heap(8192)).await.expect("a read");
        assert!(read[..] == across[..]);
    });
    assert!(daemon.stop().success());
}

#[test]
fn a_volume_survives_restarts() {
    let place = folder();
    let devices = [device(place.path(), "a"), device(place.path(), "b")];
    let places = devices.each_ref().map(|path| path.to_str().expect("text"));
    let text = config(&place.path().join("state"), &places);
    for generation in 1..=3 {
        let mut daemon = Daemon::start(&text);
        as_host(daemon.portals()[0], move |queue| async move {
            if generation > 1 {
                check_all(&queue, generation - 1).await;
            }
            write_all(&queue, generation).await;
        });
        assert!(daemon.stop().success());
    }
}

#[test]
fn acknowledged_writes_survive_kills() {
    let place = folder();
    let devices = [device(place.path(), "a"), device(place.path(), "b")];
    let places = devices.each_ref().map(|path| path.to_str().expect("text"));
    let text = config(&place.path().join("state"), &places);
    for generation in 1..=4 {
        let daemon = Daemon::start(&text);
        as_host(daemon.portals()[0], move |queue| async move {
            if generation > 1 {
                check_all(&queue, generation - 1).await;
            }
            write_all(&queue, generation).await;
        });
        // Dropped, it is killed.
        drop(daemon);
    }
}

#[test]
fn a_device_is_found_at_another_path_and_a_replica_that_was_away_comes_back() {
    let place = folder();
    let devices = [device(place.path(), "a"), device(place.path(), "b")];
    let places = devices.each_ref().map(|path| path.to_str().expect("text"));
    let state = place.path().join("state");
    let mut daemon = Daemon::start(&config(&state, &places));
    as_host(daemon.portals()[0], |queue| async move { write_all(&queue, 1).await });
    assert!(daemon.stop().success());
    // The second device is away: the volume is served from the first.
    let hidden = place.path().join("hidden");
    std::fs::rename(&devices[1], &hidden).expect("rename");
    let mut daemon = Daemon::start(&config(&state, &places));
    as_host(daemon.portals()[0], |queue| async move {
        check_all(&queue, 1).await;
        write_all(&queue, 2).await;
    });
    assert_eq!(health(&daemon, "degraded"), Some(1.0));
    let (_, told) = daemon.get("/volumes");
    assert!(told.contains("\"degraded\"") && told.contains("\"name\":\"db\""), "{told}");
    assert!(daemon.stop().success());
    // Both are back, at each other's place.
    std::fs::rename(&devices[0], &devices[1]).expect("rename");
    std::fs::rename(&hidden, &devices[0]).expect("rename");
    let mut daemon = Daemon::start(&config(&state, &places));
    daemon.log_line_ever("a replica is in sync");
    assert_eq!(health(&daemon, "healthy"), Some(1.0));
    assert!(daemon.stop().success());
    // The one that was away has everything now.
    std::fs::rename(&devices[1], &hidden).expect("rename");
    let mut daemon = Daemon::start(&config(&state, &places));
    as_host(daemon.portals()[0], |queue| async move { check_all(&queue, 2).await });
    assert!(daemon.stop().success());
}

#[test]
fn two_devices_that_claim_to_be_the_same_are_left_alone() {
    let place = folder();
    let first = device(place.path(), "a");
    let twin = place.path().join("twin");
    std::fs::copy(&first, &twin).expect("copy");
    let text = config(&place.path().join("state"), &[first.to_str().expect("text")]);
    let both = format!("{text}[[device]]\npath = \"{}\"\npool = \"p0\"\n", twin.display());
    let mut daemon = Daemon::start(&both);
    let line = daemon.seen().iter().map(ToString::to_string).find(|line| line.contains("both claim"));
    let line = line.expect("the log tells");
    assert!(line.contains("twin") && line.contains(first.to_str().expect("text")), "{line}");
    assert!(daemon.stop().success());
}

/// Damages this block wherever it is on a device; returns how many times it was there.
fn rot(device: &Path, content: &[u8]) -> usize {
    let file = File::options().read(true).write(true).open(device).expect("the device");
    let mut piece = vec![0; 1 << 20];
    let mut found = 0;
    for at in (0..DEVICE_BYTES).step_by(piece.len()) {
        file.read_exact_at(&mut piece, at).expect("a read");
        for (index, _) in piece.chunks_exact(4096).enumerate().filter(|(_, block)| *block == content) {
            file.write_all_at(b"rot", at + index as u64 * 4096 + 100).expect("a write");
            found += 1;
        }
    }
    found
}

#[test]
fn what_rots_where_no_host_reads_is_repaired_by_a_scrub() {
    let place = folder();
    let devices = [device(place.path(), "a"), device(place.path(), "b")];
    let places = devices.each_ref().map(|path| path.to_str().expect("text"));
    let text = config(&place.path().join("state"), &places);
    let mut daemon = Daemon::start(&text);
    as_host(daemon.portals()[0], |queue| async move { write_all(&queue, 7).await });
    assert!(daemon.stop().success());
    assert_eq!([rot(&devices[0], &content(5000, 7)), rot(&devices[1], &content(1023, 7))], [1, 1]);
    let mut daemon = Daemon::start(&format!("{text}[scrub]\nrate = \"1 GiB\"\ninterval_h = 0\n"));
    daemon.log_line_ever("scrubbed");
    let blocks = |event| daemon.metric("ashlar_volume_blocks_total", &[("volume", "db"), ("event", event)]);
    assert_eq!([blocks("repaired"), blocks("lost")], [Some(2.0), Some(0.0)]);
    let db = [("volume", "db")];
    assert!(daemon.metric("ashlar_volume_scrub_ended_seconds", &db).is_some_and(|ended_s| ended_s > 0.0));
    // The extents that were written, of both copies.
    let verified = daemon.metric("ashlar_volume_scrub_verified_bytes_total", &db);
    assert!(verified.is_some_and(|bytes| bytes >= f64::from(2 * 4 * (4 << 20))), "{verified:?}");
    assert!(daemon.stop().success());
    // Each copy alone is whole again.
    for device in &devices {
        let hidden = place.path().join("hidden");
        std::fs::rename(device, &hidden).expect("rename");
        let mut daemon = Daemon::start(&text);
        as_host(daemon.portals()[0], |queue| async move { check_all(&queue, 7).await });
        assert!(daemon.stop().success());
        std::fs::rename(&hidden, device).expect("rename");
        let mut daemon = Daemon::start(&text);
        daemon.log_line_ever("a replica is in sync");
        assert!(daemon.stop().success());
    }
}
