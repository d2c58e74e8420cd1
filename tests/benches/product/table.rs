//! The table: IOPS by backend, direction and depth, next to SPDK's figures, and what each I/O cost the target.

use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::load::{median, number, thousands};
use crate::{Settings, reference};

/// Reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// Data digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digests {
    /// None.
    Off,
    /// Header and data.
    On,
}

/// Submission queue flow control (NVME N1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowControl {
    /// On: every command gets a response capsule.
    On,
    /// Off: reads end with the success flag.
    Off,
}

/// What one measurement is about.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) backend: &'static str,
    pub(crate) direction: Direction,
    pub(crate) bytes: u32,
    pub(crate) depth: u32,
    pub(crate) digests: Digests,
    pub(crate) flow_control: FlowControl,
}

const NAMESPACES: &str = "[[subsystem.namespace]]\nnsid = 1\nbackend = { kind = \"null\", size = \"1 GiB\" }\n\
                          [[subsystem.namespace]]\nnsid = 2\nbackend = { kind = \"memory\", size = \"1 GiB\" }\n";

fn points() -> Vec<Point> {
    let mut points = Vec::new();
    let mut add = |backend, direction, bytes, depth, digests, flow_control| {
        points.push(Point { backend, direction, bytes, depth, digests, flow_control });
    };
    for backend in ["null", "memory"] {
        for direction in [Direction::Read, Direction::Write] {
            for depth in [1, 32, 128] {
                add(backend, direction, 4096, depth, Digests::Off, FlowControl::Off);
            }
        }
    }
    for direction in [Direction::Read, Direction::Write] {
        add("null", direction, 4096, 128, Digests::On, FlowControl::Off);
        add("null", direction, 4096, 128, Digests::Off, FlowControl::On);
        add("null", direction, 131_072, 32, Digests::Off, FlowControl::Off);
    }
    points
}

impl Point {
    fn arguments(&self) -> String {
        let nsid = if self.backend == "null" { 1 } else { 2 };
        let rw = if self.direction == Direction::Read { "read" } else { "write" };
        let digests = if self.digests == Digests::On { "--header-digest --data-digest" } else { "" };
        let flow = if self.flow_control == FlowControl::On { "on" } else { "off" };
        format!(
            "--nsid {nsid} --rw {rw} --pattern random --size {} --depth {} --queues 1 {digests} --sq-flow-control {flow}",
            self.bytes, self.depth
        )
    }

    fn label(&self) -> String {
        let direction = if self.direction == Direction::Read { "read" } else { "write" };
        let mut label = format!("{} {direction}", self.backend);
        if self.bytes != 4096 {
            label.push_str(&format!(" {}k", self.bytes / 1024));
        }
        if self.digests == Digests::On {
            label.push_str(" digests");
        }
        if self.flow_control == FlowControl::On {
            label.push_str(" flow control");
        }
        label
    }
}

/// What one run of a point gave.
#[derive(Debug, Clone, Copy)]
struct Sample {
    iops: f64,
    p50_us: f64,
    target_ns: f64,
    target_calls: f64,
    load_busy: f64,
}

fn measure(daemon: &Daemon, settings: &Settings, point: &Point) -> Result<Sample, BenchError> {
    let before = daemon.core_time()?;
    let report = daemon.perf(settings, &point.arguments())?;
    let after = daemon.core_time()?;
    let get = |pointer: &str| number("ashlar perf", &report, pointer);
    let (iops, seconds, warmup) = (get("/total/all/iops")?, get("/seconds")?, get("/warmup_seconds")?);
    // The warm-up runs at the same rate and is in the target's counters.
    let operations = iops * (seconds + warmup);
    Ok(Sample {
        iops,
        p50_us: get("/total/all/latency_ns/p50")? / 1000.0,
        target_ns: (after.busy_s - before.busy_s) * 1e9 / operations,
        target_calls: (after.system_calls - before.system_calls) / operations,
        load_busy: get("/cores/0/busy_share")?,
    })
}

/// Measures and prints the table.
pub(crate) fn run(settings: &Settings) -> Result<(), BenchError> {
    let daemon = Daemon::start(settings, NAMESPACES)?;
    let points = points();
    let mut samples = vec![Vec::new(); points.len()];
    for round in 0..settings.rounds {
        for (point, samples) in points.iter().zip(&mut samples) {
            eprint!("\rround {} of {}: {:<40}", round + 1, settings.rounds, point.label());
            samples.push(measure(&daemon, settings, point)?);
        }
    }
    eprintln!("\r{:<70}", "");
    println!(
        "| load | depth | IOPS | p50 | target core per I/O | system calls per I/O | load's core busy | SPDK | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (point, samples) in points.iter().zip(&samples) {
        let of = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick).collect());
        let iops = of(|sample| sample.iops);
        let (spdk, ratio) = match reference::spdk(point) {
            Some(spdk) => (thousands(spdk), format!("{:.2}", iops / spdk)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        println!(
            "| {} | {} | {} | {:.1} µs | {:.2} µs | {:.3} | {:.0}% | {spdk} | {ratio} |",
            point.label(),
            point.depth,
            thousands(iops),
            of(|sample| sample.p50_us),
            of(|sample| sample.target_ns) / 1000.0,
            of(|sample| sample.target_calls),
            of(|sample| sample.load_busy) * 100.0,
        );
    }
    println!();
    Ok(())
}
