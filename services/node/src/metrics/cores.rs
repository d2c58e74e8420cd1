//! Metrics of the data cores: where their time goes, how often they enter the kernel.

use std::fmt;

use ashlar_reactor::CoreCounters;
use prometheus_client::encoding::DescriptorEncoder;

use super::labels::{Labels, Name, counters, gauges};

const TIME: Name = Name::seconds(
    "core_time",
    "Time of a data core by what it did: busy with tasks and in system calls, polling for work, asleep.",
);
const TURNS: Name = Name::count("core_turns", "Turns of a data core's loop.");
const SYSCALLS: Name = Name::count("core_syscalls", "System calls into a data core's ring.");
const SUBMISSIONS: Name = Name::count("core_submissions", "Operations submitted to the kernel.");
const COMPLETIONS: Name = Name::count("core_completions", "Completions taken from the kernel.");
const POLLS: Name = Name::count("core_task_polls", "Times that a task ran until it waited or ended.");
const TASKS: Name = Name::count("core_tasks", "Tasks alive on a data core.");

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    cores: &[CoreCounters],
    elapsed_ns: u64,
) -> Result<(), fmt::Error> {
    let named: Vec<(String, &CoreCounters)> =
        cores.iter().enumerate().map(|(core, counters)| (core.to_string(), counters)).collect();
    counters(encoder, &TIME, named.iter().flat_map(|(core, counters)| time(core, counters, elapsed_ns)))?;
    let each: [(&Name, fn(&CoreCounters) -> u64); 5] = [
        (&TURNS, |counters| counters.turns),
        (&SYSCALLS, |counters| counters.enters),
        (&SUBMISSIONS, |counters| counters.submissions),
        (&COMPLETIONS, |counters| counters.completions),
        (&POLLS, |counters| counters.polls),
    ];
    for (name, value) in each {
        counters(encoder, name, named.iter().map(|(core, counters)| (labels(core), value(counters))))?;
    }
    gauges(encoder, &TASKS, named.iter().map(|(core, counters)| (labels(core), counters.tasks)))
}

fn labels(core: &str) -> Labels<'_, 1> {
    Labels([("core", core)])
}

/// Seconds by state. What is neither polling nor sleeping is work.
fn time<'a>(core: &'a str, counters: &CoreCounters, elapsed_ns: u64) -> [(Labels<'a, 2>, f64); 3] {
    let busy = elapsed_ns.saturating_sub(counters.spin_ns).saturating_sub(counters.sleep_ns);
    [("busy", busy), ("spin", counters.spin_ns), ("sleep", counters.sleep_ns)]
        .map(|(state, ns)| (Labels([("core", core), ("state", state)]), ns as f64 / 1e9))
}
