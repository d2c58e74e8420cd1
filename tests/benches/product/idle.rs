//! An idle target with a hundred connections: how much of a core it takes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::Settings;
use crate::daemon::Daemon;
use crate::error::{BenchError, io};

const NAMESPACES: &str =
    "[[subsystem.namespace]]\nnsid = 1\nbackend = { kind = \"null\", size = \"1 GiB\" }\n";

/// Time over which the idle daemon is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// Time in which a hundred connections are certainly made.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// Jiffies per second that the kernel shows to user space.
const TICKS_PER_SECOND: f64 = 100.0;

fn cpu_seconds(pid: u32) -> Result<f64, BenchError> {
    let stat =
        fs::read_to_string(format!("/proc/{pid}/stat")).map_err(io("reading the daemon's CPU time"))?;
    // The name, in parentheses, may hold spaces; utime and stime are the 12th and 13th fields behind it.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks =
        |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN);
    Ok((ticks(11) + ticks(12)) / TICKS_PER_SECOND)
}

/// Measures and prints the share of a core.
pub(crate) fn run(settings: &Settings) -> Result<(), BenchError> {
    let daemon = Daemon::start(settings, NAMESPACES)?;
    // Four controllers of 24 queues and an admin queue each: a hundred connections that are alive but silent.
    let hosts: Vec<_> = (0..4).map(|_| daemon.hold_connections(settings, 24)).collect::<Result<_, _>>()?;
    let started = Instant::now();
    while daemon.metric("ashlar_connections", "")? < 100.0 {
        if started.elapsed() > CONNECT_LIMIT {
            return Err(BenchError::Output {
                program: "ashlard's /metrics",
                what: "100 connections".to_owned(),
            });
        }
        thread::sleep(Duration::from_millis(100));
    }
    let before = cpu_seconds(daemon.pid())?;
    thread::sleep(WATCHED);
    let share = (cpu_seconds(daemon.pid())? - before) / WATCHED.as_secs_f64();
    drop(hosts);
    println!("Idle with 100 connections: {:.2}% of a core over {} s.\n", share * 100.0, WATCHED.as_secs());
    Ok(())
}
