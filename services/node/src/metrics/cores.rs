//! Metrics of the data cores: where their time goes, how often they enter the kernel.

use std::fmt;

use ashlar_reactor::CoreCounters;
use ashlar_target::target::{CoreQueues, Metrics};
use prometheus_client::encoding::DescriptorEncoder;

use super::labels::{Labels, Name, counters, gauges};
use super::{CoreSnapshot, latency};

const TIME: Name = Name::seconds(
    "core_time",
    "Time of a data core by what it did: busy with tasks and in system calls, polling for work, asleep.",
);
const TURNS: Name = Name::count("core_turns", "Turns of a data core's loop.");
const SYSCALLS: Name = Name::count("core_syscalls", "System calls into a data core's ring.");
const SUBMISSIONS: Name = Name::count("core_submissions", "Operations submitted to the kernel.");
const COMPLETIONS: Name = Name::count("core_completions", "Completions taken from the kernel.");
const POLLS: Name = Name::count("core_task_polls", "Times that a task ran until it waited or ended.");
const QUEUES: Name = Name::count("core_queues", "Hosts' queues on a data core, one connection each.");
const LATENCY: Name = Name::seconds(
    "core_latency",
    "Time from a command's arrival to its end, on a data core, all namespaces together.",
);
const TASKS: Name = Name::count("core_tasks", "Tasks alive on a data core.");

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, cores: &[CoreSnapshot]) -> Result<(), fmt::Error> {
    let named: Vec<(String, &CoreSnapshot)> =
        cores.iter().enumerate().map(|(core, snapshot)| (core.to_string(), snapshot)).collect();
    counters(encoder, &TIME, named.iter().flat_map(|(core, snapshot)| time(core, snapshot)))?;
    type Value = fn(&CoreCounters) -> u64;
    let each: [(&Name, Value); 5] = [
        (&TURNS, |counters| counters.turns),
        (&SYSCALLS, |counters| counters.enters),
        (&SUBMISSIONS, |counters| counters.submissions),
        (&COMPLETIONS, |counters| counters.completions),
        (&POLLS, |counters| counters.polls),
    ];
    for (name, value) in each {
        counters(
            encoder,
            name,
            named.iter().map(|(core, snapshot)| (labels(core), value(&snapshot.counters))),
        )?;
    }
    gauges(encoder, &TASKS, named.iter().map(|(core, snapshot)| (labels(core), snapshot.counters.tasks)))
}

/// Metrics that the target keeps per core.
pub(super) fn encode_target(encoder: &mut DescriptorEncoder<'_>, target: &Metrics) -> Result<(), fmt::Error> {
    let named: Vec<(String, &CoreQueues)> =
        target.cores.iter().enumerate().map(|(core, queues)| (core.to_string(), queues)).collect();
    let kinds = |(core, queues): &'_ (String, &CoreQueues)| {
        [("io", queues.io), ("admin", queues.admin)].map(|(kind, count)| ((core.clone(), kind), count))
    };
    let queues: Vec<_> = named.iter().flat_map(kinds).collect();
    let labelled =
        queues.iter().map(|((core, kind), count)| (Labels([("core", core), ("kind", kind)]), *count));
    gauges(encoder, &QUEUES, labelled)?;
    let cores = named.iter().map(|(core, _)| core).enumerate();
    let sums = cores.flat_map(|(index, core)| {
        let counts = target.namespaces.iter().filter_map(|namespace| namespace.cores.get(index));
        latency::sums(counts)
            .map(|(operation, sum)| (Labels([("core", core), ("operation", operation)]), sum))
    });
    latency::encode(encoder, &LATENCY, sums)
}

fn labels(core: &str) -> Labels<'_, 1> {
    Labels([("core", core)])
}

/// Seconds by state.
fn time<'a>(core: &'a str, snapshot: &CoreSnapshot) -> [(Labels<'a, 2>, f64); 3] {
    let CoreSnapshot { counters, busy_ns } = snapshot;
    [("busy", *busy_ns), ("spin", counters.spin_ns), ("sleep", counters.sleep_ns)]
        .map(|(state, ns)| (Labels([("core", core), ("state", state)]), ns as f64 / 1e9))
}
