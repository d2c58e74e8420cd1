//! One busy queue must not starve the others: six readers of depth 4 beside one of depth 1024.

use crate::Settings;
use crate::daemon::Daemon;
use crate::error::BenchError;
use crate::load::{median, number, thousands};

const NAMESPACES: &str =
    "[[subsystem.namespace]]\nnsid = 1\nbackend = { kind = \"null\", size = \"1 GiB\" }\n";

/// Measures and prints how evenly the readers are served.
pub(crate) fn run(settings: &Settings) -> Result<(), BenchError> {
    let daemon = Daemon::start(settings, NAMESPACES)?;
    let (mut fairness, mut readers, mut hog) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        let groups = "--nsid 1 --rw read --sq-flow-control off --group readers:queues=6,depth=4 \
                      --group hog:queues=1,depth=1023";
        let report = daemon.perf(settings, groups)?;
        fairness.push(number("ashlar perf", &report, "/groups/0/fairness")?);
        readers.push(number("ashlar perf", &report, "/groups/0/total/all/iops")? / 6.0);
        hog.push(number("ashlar perf", &report, "/groups/1/total/all/iops")?);
    }
    println!("Six readers of depth 4 beside one of depth 1023 (null backend, 4 KiB, one target core):\n");
    println!("| slowest / fastest reader | mean reader | the deep queue |");
    println!("|---|---|---|");
    println!("| {:.3} | {} | {} |\n", median(fairness), thousands(median(readers)), thousands(median(hog)));
    Ok(())
}
