//! `ashlar perf` against a target.

mod rig;

use ashlar_target::backends::BackendSource;
use ashlar_target::inventory::LbaSize;
use rig::{BYTES, Rig, memory};
use serde_json::Value;

fn null() -> BackendSource {
    BackendSource::Null { bytes: BYTES }
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report}"))
}

#[test]
fn every_queue_is_driven_and_reported() {
    let rig = Rig::start(null(), LbaSize::B4096);
    let report = rig.json(
        "perf --time 500ms --warmup 100ms --cores 2 --rw mixed --read-percent 70 \
         --group few:queues=3,depth=4 --group many:queues=1,depth=64,size=16k",
    );
    assert_eq!(report["groups"][0]["per_queue"].as_array().map(Vec::len), Some(3));
    for pointer in [
        "/groups/0/per_queue/0/read/ops",
        "/groups/0/per_queue/2/write/ops",
        "/groups/1/per_queue/0/all/iops",
        "/total/all/latency_ns/p99_99",
        "/groups/0/fairness",
    ] {
        assert!(number(&report, pointer) > 0.0, "{pointer} in {report}");
    }
    let reads = number(&report, "/total/read/ops");
    let share = reads / number(&report, "/total/all/ops");
    assert!((0.5..0.9).contains(&share), "70% reads were asked for, {share} came");
    assert_eq!(report["cores"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["target"]["namespace_bytes"], BYTES);
    rig.stop();
}

#[test]
fn writes_sequential_with_digests_and_flow_control() {
    let rig = Rig::start(memory(), LbaSize::B512);
    let report = rig.json(
        "perf --rw write --pattern sequential --size 128k --depth 8 --queues 2 --time 300ms --warmup 0s \
         --header-digest --data-digest --sq-flow-control on",
    );
    assert!(number(&report, "/total/write/ops") > 0.0);
    assert_eq!(report["target"]["sq_flow_control"], true);
    assert_eq!(report["target"]["data_digest"], true);
    assert_eq!(report["target"]["block_bytes"], 512);
    rig.stop();
}

#[test]
fn a_rate_is_kept() {
    let rig = Rig::start(null(), LbaSize::B4096);
    let report = rig.json("perf --rate 2000 --depth 16 --queues 2 --time 1s --warmup 200ms");
    let iops = number(&report, "/total/all/iops");
    // A machine under load may do less, none may do more.
    assert!(iops > 0.0 && iops <= 2_100.0, "{iops}");
    rig.stop();
}

#[test]
fn the_table_fits_a_terminal() {
    let rig = Rig::start(null(), LbaSize::B4096);
    let table = rig.ok("perf --time 200ms --warmup 0s");
    assert!(table.contains("p99.99") && table.contains("IOPS"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    rig.stop();
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_exit_code() {
    let rig = Rig::start(null(), LbaSize::B4096);
    rig.fails("perf --size 1000", 2);
    rig.fails("perf --size 512", 2);
    rig.fails("perf --offset 64m", 2);
    rig.fails("perf --group a:depth=1 --group a:depth=2", 2);
    assert!(rig.fails("perf --nsid 7", 3).contains("nvme list"));
    rig.fails("perf --subsystem nqn.2026-01.io.ashlar:nobody", 3);
    assert!(rig.fails(&format!("perf --subsystem {}", rig::PRIVATE), 5).contains("--host-nqn"));
    rig.stop();
}
