//! The metrics page keeps the exposition format's rules, and `docs/metrics.md` tells of every metric.

use std::collections::BTreeSet;

use ashlar_node::metrics::{LastReload, NodeCounts, Snapshot, page};
use ashlar_reactor::CoreCounters;

mod exposition;

use exposition::{parse, value};

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

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
        elapsed_ns: 4_000_000_000,
        cores: vec![core, CoreCounters::default()],
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
        ("ashlar_core_time_seconds_total", vec![("core", "1"), ("state", "busy")], 4.0),
        ("ashlar_core_turns_total", vec![("core", "0")], 10.0),
        ("ashlar_core_syscalls_total", vec![("core", "0")], 11.0),
        ("ashlar_core_submissions_total", vec![("core", "0")], 12.0),
        ("ashlar_core_completions_total", vec![("core", "0")], 13.0),
        ("ashlar_core_task_polls_total", vec![("core", "0")], 14.0),
        ("ashlar_core_tasks", vec![("core", "0")], 3.0),
        ("ashlar_start_time_seconds", vec![], 1_700_000_000.0),
        ("ashlar_config_reloads_total", vec![("result", "applied")], 2.0),
        ("ashlar_config_reloads_total", vec![("result", "failed")], 1.0),
        ("ashlar_config_applied", vec![], 0.0),
        ("ashlar_build_info", vec![("version", env!("CARGO_PKG_VERSION"))], 1.0),
    ] {
        assert_eq!(value(&page, name, &labels), Some(expected), "{name} {labels:?}");
    }
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let page = parse(&page(snapshot()).expect("a page")).expect("a page by the rules");
    let suffixed = |(name, family): (&String, &exposition::Family)| match family.kind.as_str() {
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
