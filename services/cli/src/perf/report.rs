//! Results of a run: from tallies to a document, and the document as tables.

use std::fmt::Write;

use serde::Serialize;

use super::measure::{Figures, Tally};
use super::plan::{Group, Plan};
use crate::output::{self, Column};
use crate::units::{show_bytes, show_count, show_ns};

/// What one queue measured.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueTally {
    /// Reads.
    pub(crate) read: Tally,
    /// Writes.
    pub(crate) write: Tally,
}

/// What was attached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Attached {
    /// Address and port.
    pub(crate) address: String,
    /// Subsystem NQN.
    pub(crate) subsystem: String,
    /// Namespace.
    pub(crate) nsid: u32,
    /// Logical block in bytes.
    pub(crate) block_bytes: u64,
    /// Size of the namespace in bytes.
    pub(crate) namespace_bytes: u64,
    /// Header digests were in use.
    pub(crate) header_digest: bool,
    /// Data digests were in use.
    pub(crate) data_digest: bool,
    /// Submission queue flow control was in use (NVME N1).
    pub(crate) sq_flow_control: bool,
}

/// One core of the load generator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CoreReport {
    /// CPU that it was pinned to.
    pub(crate) cpu: Option<usize>,
    /// Share of the time that was neither slept nor spent looking for work.
    pub(crate) busy_share: f64,
    /// System calls into the ring.
    pub(crate) enters: u64,
    /// Turns of the loop.
    pub(crate) turns: u64,
}

/// Reads, writes, and both together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Split {
    /// Reads, if any were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<Figures>,
    /// Writes, if any were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write: Option<Figures>,
    /// Both.
    pub(crate) all: Figures,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct QueueReport {
    /// Queue identifier.
    pub(crate) qid: u16,
    /// Index of its core.
    pub(crate) core: usize,
    /// What it measured.
    #[serde(flatten)]
    pub(crate) split: Split,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GroupReport {
    /// What it was asked to do.
    #[serde(flatten)]
    pub(crate) group: Group,
    /// All its queues together.
    pub(crate) total: Split,
    /// IOPS of its slowest queue over that of its fastest; 1 is perfectly fair.
    pub(crate) fairness: f64,
    /// Each queue.
    pub(crate) per_queue: Vec<QueueReport>,
}

/// A run. This is the JSON document of `ashlar perf -o json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Version of this program.
    pub(crate) version: &'static str,
    /// What was attached.
    pub(crate) target: Attached,
    /// Measured time in seconds.
    pub(crate) seconds: f64,
    /// Time before that which is not in the figures, in seconds.
    pub(crate) warmup_seconds: f64,
    /// Everything together.
    pub(crate) total: Split,
    /// By group.
    pub(crate) groups: Vec<GroupReport>,
    /// Cores of this program.
    pub(crate) cores: Vec<CoreReport>,
}

/// Frame of a run that its figures hang in.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// What was attached.
    pub(crate) target: Attached,
    /// Measured time in seconds.
    pub(crate) seconds: f64,
    /// Warm-up in seconds.
    pub(crate) warmup_seconds: f64,
    /// Cores of this program.
    pub(crate) cores: Vec<CoreReport>,
}

/// Collects reads and writes with the bytes that belong to them.
#[derive(Default)]
struct Sum {
    read: Tally,
    write: Tally,
    read_bytes: u64,
    write_bytes: u64,
    reads: bool,
    writes: bool,
}

impl Sum {
    fn add(&mut self, tally: &QueueTally, group: &Group) {
        self.read.add(&tally.read);
        self.write.add(&tally.write);
        self.read_bytes += tally.read.ops() * u64::from(group.load.size);
        self.write_bytes += tally.write.ops() * u64::from(group.load.size);
        self.reads |= group.load.reads() > 0;
        self.writes |= group.load.reads() < 100;
    }

    fn split(&self, seconds: f64) -> Split {
        let mut all = self.read.clone();
        all.add(&self.write);
        Split {
            read: self.reads.then(|| self.read.figures(seconds, self.read_bytes)),
            write: self.writes.then(|| self.write.figures(seconds, self.write_bytes)),
            all: all.figures(seconds, self.read_bytes + self.write_bytes),
        }
    }
}

impl Report {
    /// Puts together what the queues of `plan` measured, in the plan's order.
    pub(crate) fn new(run: Run, plan: &Plan, tallies: &[QueueTally]) -> Self {
        let mut total = Sum::default();
        let mut groups = Vec::with_capacity(plan.groups.len());
        for (index, group) in plan.groups.iter().enumerate() {
            let mut sum = Sum::default();
            let mut per_queue = Vec::new();
            for (queue, tally) in plan.queues.iter().zip(tallies) {
                if queue.group != index {
                    continue;
                }
                sum.add(tally, group);
                total.add(tally, group);
                let mut own = Sum::default();
                own.add(tally, group);
                let split = own.split(run.seconds);
                per_queue.push(QueueReport { qid: queue.qid, core: queue.core, split });
            }
            groups.push(GroupReport {
                group: group.clone(),
                total: sum.split(run.seconds),
                fairness: fairness(&per_queue),
                per_queue,
            });
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            target: run.target,
            seconds: run.seconds,
            warmup_seconds: run.warmup_seconds,
            total: total.split(run.seconds),
            groups,
            cores: run.cores,
        }
    }

    /// The tables for people.
    pub(crate) fn tables(&self) -> String {
        let mut text = self.head();
        let mut rates = output::table(&[
            Column::Text("group"),
            Column::Number("queues"),
            Column::Number("depth"),
            Column::Text("op"),
            Column::Number("IOPS"),
            Column::Number("MiB/s"),
            Column::Number("slowest/fastest"),
        ]);
        let mut latencies = output::table(&[
            Column::Text("latency"),
            Column::Number("mean"),
            Column::Number("p50"),
            Column::Number("p90"),
            Column::Number("p99"),
            Column::Number("p99.9"),
            Column::Number("p99.99"),
            Column::Number("max"),
        ]);
        for report in &self.groups {
            let load = &report.group.load;
            let fair = if load.queues > 1 { format!("{:.3}", report.fairness) } else { "-".to_owned() };
            for (op, figures) in report.total.rows() {
                rates.add_row([
                    report.group.name.clone(),
                    load.queues.to_string(),
                    load.depth.to_string(),
                    op.to_owned(),
                    show_count(figures.iops.round() as u64),
                    mib_per_s(figures),
                    fair.clone(),
                ]);
                latencies.add_row(latency_row(format!("{} {op}", report.group.name), figures));
            }
        }
        if self.groups.len() > 1 {
            let all = &self.total.all;
            let (iops, mib) = (show_count(all.iops.round() as u64), mib_per_s(all));
            rates.add_row(["total", "", "", "", &iops, &mib, ""]);
            latencies.add_row(latency_row("total".to_owned(), all));
        }
        text.push('\n');
        text.push_str(&output::lines(&rates));
        text.push('\n');
        text.push_str(&output::lines(&latencies));
        text
    }

    fn head(&self) -> String {
        let target = &self.target;
        let on = |on: bool| if on { "on" } else { "off" };
        let mut text = String::new();
        // Writing into a String never fails.
        let _ = writeln!(text, "{} at {}", target.subsystem, target.address);
        let _ = writeln!(
            text,
            "namespace {}: {} in blocks of {} bytes",
            target.nsid,
            show_bytes(target.namespace_bytes),
            target.block_bytes
        );
        let _ = writeln!(
            text,
            "header digest {}, data digest {}, SQ flow control {}",
            on(target.header_digest),
            on(target.data_digest),
            on(target.sq_flow_control)
        );
        for report in &self.groups {
            let load = &report.group.load;
            let ops = match load.reads() {
                100 => "reads".to_owned(),
                0 => "writes".to_owned(),
                percent => format!("{percent}% reads"),
            };
            let pattern = format!("{:?}", load.pattern).to_lowercase();
            let _ =
                writeln!(text, "{}: {pattern} {ops} of {}", report.group.name, show_bytes(load.size.into()));
        }
        let busy: Vec<_> = self.cores.iter().map(|core| format!("{:.0}%", core.busy_share * 100.0)).collect();
        let _ = writeln!(
            text,
            "{:.1} s measured after {:.1} s warm-up; own cores busy: {}",
            self.seconds,
            self.warmup_seconds,
            busy.join(", ")
        );
        text
    }
}

impl Split {
    fn rows(&self) -> Vec<(&'static str, &Figures)> {
        let mut rows = Vec::new();
        rows.extend(self.read.as_ref().map(|figures| ("read", figures)));
        rows.extend(self.write.as_ref().map(|figures| ("write", figures)));
        if rows.len() != 1 {
            rows.push(("all", &self.all));
        }
        rows
    }
}

fn fairness(queues: &[QueueReport]) -> f64 {
    let iops = || queues.iter().map(|queue| queue.split.all.iops);
    let fastest = iops().fold(0.0, f64::max);
    let slowest = iops().fold(f64::INFINITY, f64::min);
    if fastest > 0.0 { slowest / fastest } else { 0.0 }
}

fn mib_per_s(figures: &Figures) -> String {
    format!("{:.1}", figures.bytes_per_s / f64::from(1 << 20))
}

fn latency_row(label: String, figures: &Figures) -> [String; 8] {
    let latency = &figures.latency_ns;
    let ns = |value: u64| show_ns(value as f64);
    [
        label,
        show_ns(latency.mean),
        ns(latency.p50),
        ns(latency.p90),
        ns(latency.p99),
        ns(latency.p99_9),
        ns(latency.p99_99),
        ns(latency.max),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::{GroupSpec, Load, Pattern, Rw};

    fn report(specs: &[&str]) -> Report {
        let base = Load {
            rw: Rw::Mixed,
            read_percent: 70,
            pattern: Pattern::Random,
            size: 4096,
            depth: 128,
            queues: 1,
            rate: None,
        };
        let specs: Vec<GroupSpec> = specs.iter().map(|spec| spec.parse().expect("a group")).collect();
        let plan = Plan::new(&base, &specs, 1).expect("a plan");
        let tallies: Vec<_> = plan
            .queues
            .iter()
            .map(|queue| {
                let mut tally = QueueTally::default();
                for _ in 0..u64::from(queue.qid) * 100 {
                    tally.read.record(123_456);
                    tally.write.record(12_345_678);
                }
                tally
            })
            .collect();
        let target = Attached {
            address: "127.0.0.1:4420".into(),
            subsystem: "nqn.2024-01.io.ashlar:test".into(),
            nsid: 1,
            block_bytes: 4096,
            namespace_bytes: 1 << 30,
            header_digest: false,
            data_digest: true,
            sq_flow_control: false,
        };
        let cores = vec![CoreReport { cpu: Some(1), busy_share: 0.97, enters: 10, turns: 20 }];
        Report::new(Run { target, seconds: 2.0, warmup_seconds: 1.0, cores }, &plan, &tallies)
    }

    #[test]
    fn tables_fit_80_columns_and_name_what_matters() {
        let text = report(&["readers:queues=6,depth=4", "hog:depth=1024"]).tables();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        for word in
            ["readers", "hog", "total", "p99.99", "IOPS", "MiB/s", "data digest on", "70% reads", "123 µs"]
        {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
    }

    #[test]
    fn every_queue_has_its_own_figures() {
        let report = report(&["readers:queues=3"]);
        let json = serde_json::to_value(&report).expect("serializes");
        let queues = json["groups"][0]["per_queue"].as_array().expect("a list");
        let iops: Vec<_> = queues.iter().map(|queue| queue["read"]["iops"].as_f64()).collect();
        assert_eq!(iops, [Some(50.0), Some(100.0), Some(150.0)]);
        let fairness = json["groups"][0]["fairness"].as_f64().expect("a number");
        assert!((fairness - 1.0 / 3.0).abs() < 1e-9, "{fairness}");
        assert_eq!(json["groups"][0]["name"], "readers");
        assert_eq!(json["groups"][0]["depth"], 128);
        assert_eq!(json["total"]["all"]["ops"], 1200);
        assert_eq!(json["total"]["all"]["bytes"], 1200 * 4096);
    }

    #[test]
    fn what_was_not_asked_for_is_not_reported() {
        let json = serde_json::to_value(report(&["r:rw=read"])).expect("serializes");
        assert!(json["total"].get("write").is_none());
        assert!(json["total"].get("read").is_some());
    }
}
