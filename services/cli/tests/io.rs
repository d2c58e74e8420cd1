//! `ashlar io` against a target, across restarts of it too.

mod rig;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use ashlar_target::inventory::LbaSize;
use rig::{BYTES, Rig, file, memory};
use serde_json::Value;

/// Bytes that differ everywhere.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn write_from_stdin(rig: &Rig, words: &str, bytes: &[u8]) {
    let mut command = rig.command(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(bytes).expect("takes it all");
    assert!(child.wait().expect("ends").success());
}

fn read_to_stdout(rig: &Rig, words: &str) -> Vec<u8> {
    let output = rig.command(words).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_file_comes_back_as_it_went_in() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // No multiple of anything.
    let bytes = noise(3_000_001);
    fs::write(&from, &bytes).expect("writes");
    rig.ok(&format!("io write --from {} --offset 8192", from.display()));
    rig.ok(&format!("io read --to {} --offset 8192 --length {}", to.display(), bytes.len()));
    assert!(fs::read(&to).expect("reads") == bytes);
    rig.stop();
}

#[test]
fn pipes_work_and_the_rest_of_the_last_block_stays() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    write_from_stdin(&rig, "io write", &[0xAA; 8192]);
    write_from_stdin(&rig, "io write --offset 4096", &[0xBB; 100]);
    let read = read_to_stdout(&rig, "io read --length 8192");
    assert_eq!(read.len(), 8192);
    assert!(read[..4096].iter().all(|byte| *byte == 0xAA));
    assert!(read[4096..4196].iter().all(|byte| *byte == 0xBB));
    assert!(read[4196..].iter().all(|byte| *byte == 0xAA));
    rig.stop();
}

#[test]
fn what_does_not_fit_is_refused() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large");
    fs::File::create(&large).expect("creates").set_len(BYTES + 1).expect("sizes");
    rig.fails(&format!("io write --from {}", large.display()), 2);
    rig.fails("io write --from /nowhere/file", 3);
    rig.fails("io read --offset 1", 2);
    rig.fails("io read --offset 16m --length 1", 2);
    rig.stop();
}

#[test]
fn a_pattern_is_verified_at_once_in_both_orders() {
    let rig = Rig::start(memory(), LbaSize::B512);
    for order in ["sequential", "random"] {
        let report = rig.json(&format!("io verify --order {order} --passes 2 --size 16k --depth 8 --fua"));
        assert_eq!(report["write"]["newest_generation"], 2);
        assert_eq!(report["check"]["blocks"]["good"], BYTES / 4096);
        assert_eq!(report["check"]["wrong_blocks"], 0);
    }
    rig.stop();
}

fn check_fails(rig: &Rig, words: &str) -> Value {
    let output = rig.command(&format!("{words} -o json")).output().expect("runs");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not what was acknowledged"));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Puts the block at `from` where the one at `to` is.
fn copy_block(path: &Path, from: u64, to: u64) {
    let disk = fs::File::options().read(true).write(true).open(path).expect("opens");
    let mut block = [0; 4096];
    disk.read_exact_at(&mut block, from).expect("reads");
    disk.write_all_at(&block, to).expect("writes");
}

#[test]
fn every_kind_of_damage_is_found_after_a_restart_and_named() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (disk, state) = (folder.path().join("disk"), folder.path().join("state"));
    let verify = |phase: &str| {
        format!("io verify --tag damage --phase {phase} --length 8m --state {}", state.display())
    };

    let rig = Rig::start(file(&disk), LbaSize::B4096);
    let address = rig.address;
    rig.ok(&verify("write"));
    let old = fs::read(&disk).expect("reads");
    rig.ok(&verify("write"));
    rig.stop();

    let rig = Rig::start_at(file(&disk), LbaSize::B4096, address);
    let report = rig.json(&verify("check"));
    assert_eq!(report["check"]["blocks"]["good"], 2048);
    rig.stop();

    let raw = fs::File::options().write(true).open(&disk).expect("opens");
    let block = |number: usize| number * 4096..(number + 1) * 4096;
    raw.write_all_at(&old[block(3)], 3 * 4096).expect("writes");
    raw.write_all_at(&[0; 4096], 5 * 4096).expect("writes");
    copy_block(&disk, 100 * 4096, 7 * 4096);
    raw.write_all_at(&old[block(9)][..2048], 9 * 4096).expect("writes");
    raw.write_all_at(&[0xFF], 11 * 4096 + 700).expect("writes");
    raw.write_all_at(&noise(4096), 13 * 4096).expect("writes");

    let rig = Rig::start_at(file(&disk), LbaSize::B4096, address);
    let report = check_fails(&rig, &verify("check"));
    let found: Vec<_> = report["check"]["wrong"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|range| {
            (range["offset"].as_u64().expect("a number") / 4096, range["kind"].as_str().expect("text"))
        })
        .collect();
    assert_eq!(
        found,
        [(3, "stale"), (5, "lost"), (7, "misplaced"), (9, "torn"), (11, "corrupt"), (13, "foreign")]
    );
    assert_eq!(report["check"]["wrong"][0]["detail"], "generation 1 is there, 2 was acknowledged");
    rig.stop();
}

#[test]
fn acknowledged_writes_survive_a_restart_of_the_target() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (disk, state) = (folder.path().join("disk"), folder.path().join("state"));
    let rig = Rig::start(file(&disk), LbaSize::B4096);
    let address = rig.address;
    let words = format!("io verify --order random --time 4s --size 16k --state {} -o json", state.display());
    let writing = rig.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    // The state file grows past its head's first generation once writes are acknowledged.
    let started = std::time::Instant::now();
    while !fs::read(&state)
        .is_ok_and(|bytes| bytes.get(4096..).is_some_and(|floors| floors.iter().any(|b| *b != 0)))
    {
        assert!(started.elapsed().as_secs() < 30, "nothing was acknowledged");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    rig.stop();
    let rig = Rig::start_at(file(&disk), LbaSize::B4096, address);
    let output = writing.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(report["check"]["wrong_blocks"], 0, "{report}");
    let report = rig.json(&format!("io verify --phase check --state {}", state.display()));
    assert_eq!(report["check"]["wrong_blocks"], 0, "{report}");
    rig.stop();
}

#[test]
fn copying_goes_on_when_the_target_comes_back() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let disk = folder.path().join("disk");
    let rig = Rig::start(file(&disk), LbaSize::B4096);
    let address = rig.address;
    let bytes = noise(4 << 20);
    let (before, after) = bytes.split_at(2 << 20);
    let mut command = rig.command("io write --size 16k --depth 4 -o json");
    let mut copying = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut input = copying.stdin.take().expect("piped");
    input.write_all(before).expect("takes the first half");
    // What no longer fits into the pipe and the window was written.
    let started = std::time::Instant::now();
    while !fs::read(&disk).is_ok_and(|disk| disk.iter().any(|byte| *byte != 0)) {
        assert!(started.elapsed().as_secs() < 30, "nothing was written");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    rig.stop();
    let rig = Rig::start_at(file(&disk), LbaSize::B4096, address);
    input.write_all(after).expect("takes the second half");
    drop(input);
    let output = copying.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(report["reconnects"].as_u64() >= Some(1), "{report}");
    assert!(read_to_stdout(&rig, "io read --length 4m") == bytes);
    rig.stop();
}

#[test]
fn a_check_without_anything_to_go_by_is_refused() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    rig.fails("io verify --phase check", 2);
    assert!(rig.fails("io verify --phase check --state /nowhere/state", 3).contains("--phase write"));
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    rig.ok(&format!("io verify --phase write --length 1m --state {}", state.display()));
    let error = rig.fails(&format!("io verify --phase check --length 2m --state {}", state.display()), 4);
    assert!(error.contains("length 1048576"), "{error}");
    rig.stop();
}

#[test]
fn a_seed_alone_finds_what_was_never_written() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    rig.ok("io verify --seed 5 --phase write --length 1m");
    let report = rig.json("io verify --seed 5 --phase check --length 1m");
    assert_eq!(report["check"]["blocks"]["good"], 256);
    let report = check_fails(&rig, "io verify --seed 5 --phase check --length 2m");
    assert_eq!(report["check"]["blocks"]["lost"], 256);
    let report = check_fails(&rig, "io verify --seed 6 --phase check --length 1m");
    assert_eq!(report["check"]["blocks"]["foreign"], 256);
    rig.stop();
}
