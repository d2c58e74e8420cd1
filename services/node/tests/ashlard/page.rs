//! The metrics page keeps the exposition format's rules, and `docs/metrics.md` tells of every metric.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_node::metrics::{CoreSnapshot, LastReload, NodeCounts, Snapshot, page};
use ashlar_node::volumes::{DeviceStatus, Health, ReplicaStatus, ScrubProgress, ScrubStage, VolumeStatus};
use ashlar_nvme::Status;
use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use ashlar_reactor::CoreCounters;
use ashlar_target::backend::{BackendInfo, Deallocated};
use ashlar_target::inventory::{AnaState, HostAccess, Inventory, LbaSize, Namespace, Subsystem};
use ashlar_target::target::{CoreQueues, Counts, LATENCY_BUCKETS, Metrics, NamespaceMetrics};
use uuid::Uuid;

use crate::exposition::{Family, parse, value};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// An NQN that needs escaping in a label.
fn nqn() -> Nqn {
    Nqn::parse("nqn.2026-01.io.x:a\"b\\c").expect("an NQN")
}

/// What a core has counted; every number times `factor`.
fn counts(factor: u64) -> Counts {
    let mut read_latency = [0; LATENCY_BUCKETS];
    read_latency[3] = 2 * factor;
    read_latency[LATENCY_BUCKETS - 1] = factor;
    let mut other_latency = [0; LATENCY_BUCKETS];
    other_latency[0] = factor;
    Counts {
        operations: [1, 2, 3, 4, 5, 6, 7].map(|count| count * factor),
        bytes: [10, 20, 30, 40, 50, 60, 70].map(|count| count * factor),
        read_latency,
        other_latency,
        read_latency_ns: 100_000_000 * factor,
        other_latency_ns: 500 * factor,
        errors: vec![(Status::LBA_OUT_OF_RANGE, 3 * factor)],
        in_flight: 9 * factor,
    }
}

fn volume() -> VolumeStatus {
    let replica = ReplicaStatus {
        pool: "b".to_owned(),
        in_sync: 3,
        catching_up: 1,
        away: 0,
        done_bytes: 10,
        total_bytes: 40,
        bytes_per_s: 5.0,
        eta_s: Some(6.0),
        why: None,
    };
    VolumeStatus {
        name: "db".to_owned(),
        id: Uuid::from_u128(3).to_string(),
        health: Health::CatchingUp,
        provisioned_bytes: 1 << 30,
        target_epoch: 4,
        replicas: vec![replica],
        corrupted_blocks: 7,
        repaired_blocks: 6,
        lost_blocks: 1,
        chosen_blocks: 0,
        scrub: ScrubProgress {
            stage: ScrubStage::Running,
            done_bytes: 1 << 20,
            verified_bytes: 1 << 21,
            bad_blocks: 3,
            lost_blocks: 2,
            unread_blocks: 0,
            began_s: Some(1000),
            ended_s: Some(900),
        },
    }
}

fn device() -> DeviceStatus {
    DeviceStatus {
        id: "d".to_owned(),
        place: "/dev/x".to_owned(),
        pool: "b".to_owned(),
        used_bytes: 4096,
        free_bytes: 8192,
        journal_writes: 11,
        metadata_writes: 12,
        failure: Some("it hangs".to_owned()),
    }
}

fn inventory() -> Inventory {
    let info = BackendInfo {
        bytes: 1 << 20,
        access_bytes: 512,
        volatile_cache: false,
        deallocated: Deallocated::Zeroes,
    };
    let namespace = Namespace {
        nsid: Nsid(7),
        uuid: Uuid::from_u128(1),
        nguid: Nguid([1; 16]),
        lba: LbaSize::B512,
        blocks: 2048,
        backend: info,
        ana_group: 7,
        ana_state: AnaState::Optimized,
    };
    let subsystem = Subsystem {
        nqn: nqn(),
        serial: "1".to_owned(),
        model: "1".to_owned(),
        hosts: HostAccess::Any,
        namespaces: BTreeMap::from([(Nsid(7), Arc::new(namespace))]),
    };
    Inventory { subsystems: BTreeMap::from([(nqn(), Arc::new(subsystem))]), ..Inventory::default() }
}

fn snapshot() -> Snapshot {
    let core = CoreCounters {
        turns: 10,
        enters: 11,
        submissions: 12,
        completions: 13,
        polls: 14,
        spin_ns: 1_000_000_000,
        sleep_ns: 2_500_000_000,
        tasks: 3,
    };
    Snapshot {
        cores: vec![CoreSnapshot { counters: core, busy_ns: 500_000_000 }, CoreSnapshot::default()],
        target: Metrics {
            namespaces: vec![NamespaceMetrics {
                subsystem: nqn(),
                nsid: Nsid(7),
                cores: vec![counts(1), counts(10)],
            }],
            cores: vec![CoreQueues { io: 4, admin: 1 }, CoreQueues { io: 3, admin: 2 }],
            connections: 11,
            refused: 5,
        },
        inventory: Arc::new(inventory()),
        volumes: vec![volume()],
        devices: vec![device()],
        node: NodeCounts {
            start_s: 1_700_000_000,
            reloads_applied: 2,
            reloads_failed: 1,
            last_reload: LastReload::Failed,
        },
    }
}

#[test]
fn page_keeps_the_rules_of_the_format() {
    for snapshot in [snapshot(), Snapshot::default()] {
        let page = page(snapshot).expect("a text takes everything");
        parse(&page).expect("a page by the rules");
    }
}

#[test]
fn counters_arrive_under_their_names() {
    let page = parse(&page(snapshot()).expect("a page")).expect("a page by the rules");
    for (name, labels, expected) in [
        ("ashlar_core_time_seconds_total", vec![("core", "0"), ("state", "busy")], 0.5),
        ("ashlar_core_time_seconds_total", vec![("core", "0"), ("state", "spin")], 1.0),
        ("ashlar_core_time_seconds_total", vec![("core", "0"), ("state", "sleep")], 2.5),
        ("ashlar_core_time_seconds_total", vec![("core", "1"), ("state", "busy")], 0.0),
        ("ashlar_core_turns_total", vec![("core", "0")], 10.0),
        ("ashlar_core_syscalls_total", vec![("core", "0")], 11.0),
        ("ashlar_core_submissions_total", vec![("core", "0")], 12.0),
        ("ashlar_core_completions_total", vec![("core", "0")], 13.0),
        ("ashlar_core_task_polls_total", vec![("core", "0")], 14.0),
        ("ashlar_core_tasks", vec![("core", "0")], 3.0),
        ("ashlar_core_queues", vec![("core", "1"), ("kind", "io")], 3.0),
        ("ashlar_core_queues", vec![("core", "1"), ("kind", "admin")], 2.0),
        ("ashlar_core_latency_seconds_count", vec![("core", "1"), ("operation", "read")], 30.0),
        ("ashlar_core_latency_seconds_sum", vec![("core", "1"), ("operation", "read")], 1.0),
        ("ashlar_connections", vec![], 11.0),
        ("ashlar_connections_refused_total", vec![], 5.0),
        ("ashlar_controllers", vec![], 3.0),
        ("ashlar_start_time_seconds", vec![], 1_700_000_000.0),
        ("ashlar_config_reloads_total", vec![("result", "applied")], 2.0),
        ("ashlar_config_reloads_total", vec![("result", "failed")], 1.0),
        ("ashlar_config_applied", vec![], 0.0),
        ("ashlar_volume_size_bytes", vec![("volume", "db")], 1_073_741_824.0),
        ("ashlar_volume_health", vec![("volume", "db"), ("health", "catching_up")], 1.0),
        ("ashlar_volume_health", vec![("volume", "db"), ("health", "healthy")], 0.0),
        ("ashlar_volume_replica_segments", vec![("pool", "b"), ("state", "in_sync")], 3.0),
        ("ashlar_volume_catch_up_bytes", vec![("pool", "b"), ("part", "done")], 10.0),
        ("ashlar_volume_blocks_total", vec![("volume", "db"), ("event", "repaired")], 6.0),
        ("ashlar_device_space_bytes", vec![("device", "d"), ("state", "used")], 4096.0),
        ("ashlar_device_metadata_io_total", vec![("device", "d"), ("kind", "journal")], 11.0),
        ("ashlar_device_failed", vec![("device", "d")], 1.0),
        ("ashlar_build_info", vec![("version", env!("CARGO_PKG_VERSION"))], 1.0),
    ] {
        assert_eq!(value(&page, name, &labels), Some(expected), "{name} {labels:?}");
    }
}

#[test]
fn namespaces_are_counted_per_core_and_operation() {
    let page = parse(&page(snapshot()).expect("a page")).expect("a page by the rules");
    let nqn = nqn();
    let value = |name: &str, labels: &[(&str, &str)]| {
        value(&page, name, &[&[("subsystem", nqn.as_str()), ("nsid", "7")], labels].concat())
    };
    let on_1 = |operation| [("core", "1"), ("operation", operation)];
    assert_eq!(value("ashlar_namespace_operations_total", &on_1("read")), Some(10.0));
    assert_eq!(value("ashlar_namespace_operations_total", &on_1("other")), Some(70.0));
    assert_eq!(value("ashlar_namespace_data_bytes_total", &on_1("write")), Some(200.0));
    let out_of_range = [("core", "0"), ("status", "LBA Out of Range")];
    assert_eq!(value("ashlar_namespace_errors_total", &out_of_range), Some(3.0));
    assert_eq!(value("ashlar_namespace_commands", &[("core", "0")]), Some(9.0));
    assert_eq!(value("ashlar_namespace_size_bytes", &[]), Some(1048576.0));
}

#[test]
fn latencies_of_all_cores_are_one_histogram() {
    let page = parse(&page(snapshot()).expect("a page")).expect("a page by the rules");
    let bucket = |operation, le| {
        value(&page, "ashlar_namespace_latency_seconds_bucket", &[("operation", operation), ("le", le)])
    };
    // Bucket 3 holds what took less than 8 µs.
    assert_eq!(bucket("read", "0.000004"), Some(0.0));
    assert_eq!(bucket("read", "0.000008"), Some(22.0));
    assert_eq!(bucket("read", "+Inf"), Some(33.0));
    assert_eq!(bucket("other", "0.000001"), Some(11.0));
    let sum = value(&page, "ashlar_namespace_latency_seconds_sum", &[("operation", "read")]);
    assert_eq!(sum, Some(1.1));
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let page = parse(&page(snapshot()).expect("a page")).expect("a page by the rules");
    let suffixed = |(name, family): (&String, &Family)| match family.kind.as_str() {
        "counter" => format!("{name}_total"),
        "info" => format!("{name}_info"),
        _ => name.clone(),
    };
    let served: BTreeSet<String> = page.iter().map(suffixed).collect();
    let documented: BTreeSet<String> = DOCUMENT
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.starts_with("ashlar_") && !code.contains(['{', '(', ' ']))
        .map(str::to_owned)
        .collect();
    assert_eq!(served, documented);
}

#[test]
fn broken_pages_are_found() {
    for (page, reason) in [
        ("x 1\n", "the page does not end with # EOF"),
        ("x 1\n# EOF\n", "a sample before any family: x 1"),
        ("# TYPE x gauge\nx 1\n# EOF\n", "x lacks help or type"),
        ("# HELP x y\n# TYPE x counter\nx 1\n# EOF\n", "x does not belong to the counter x"),
        ("# HELP x y\n# TYPE x gauge\nx{a=\"b} 1\n# EOF\n", "no sample: x{a=\"b} 1"),
        ("# HELP x y\n# TYPE x gauge\nx{} 1\n# EOF\n", "no sample: x{} 1"),
        ("# HELP x y\n# TYPE x gauge\nx 1\nx 2\n# EOF\n", "there twice: x 2"),
        (
            "# HELP x y\n# TYPE x gauge\n# UNIT x seconds\nx 1\n# EOF\n",
            "x does not end in its unit, \
         seconds",
        ),
        (
            "# HELP x y\n# TYPE x histogram\nx_sum 1\nx_count 2\nx_bucket{le=\"1.0\"} \
             3\nx_bucket{le=\"+Inf\"} 2\n\
             # EOF\n",
            "buckets of x {} do not rise",
        ),
    ] {
        assert_eq!(parse(page).map(|_| ()), Err(reason.to_owned()));
    }
}
