//! A mirror of two memory devices, checksums and journal included, through NVMe/TCP: next to the `null` backend in the
//! same run, and to SPDK's raid1 of two memory devices (see `reference`).

use crate::Settings;
use crate::daemon::{Daemon, VOLUME};
use crate::error::BenchError;
use crate::load::{median, number, thousands};

const VOLUME_LINES: &str = "[[pool]]\nname = \"a\"\n[[pool]]\nname = \"b\"\n\
     [[device]]\npath = \"memory:4 GiB\"\npool = \"a\"\n[[device]]\npath = \"memory:4 GiB\"\npool = \"b\"\n\
     [[volume]]\nname = \"bench\"\nsize = \"1 GiB\"\nreplicas = 2\nallow_any_host = true\n";

/// IOPS of SPDK's raid1 of two memory devices: neither checksums nor journal.
const SPDK_RAID1: [(&str, u32, f64); 4] =
    [("read", 32, 459_000.0), ("read", 128, 525_000.0), ("write", 32, 235_000.0), ("write", 128, 282_000.0)];

/// Measures and prints.
pub(crate) fn run(settings: &Settings) -> Result<(), BenchError> {
    let daemon = Daemon::start_with_volume(settings, VOLUME_LINES)?;
    // Every block once, in order, so that reads find data.
    daemon.perf_on(
        VOLUME,
        settings,
        "--nsid 1 --rw write --pattern sequential --size 128k --depth 8 --time 20s",
    )?;
    println!(
        "| mirror of two memory devices | depth | IOPS | p50 | target core per I/O | SPDK's raid1 | ratio |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (direction, depth, spdk) in SPDK_RAID1 {
        let (mut iops, mut p50, mut cost) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..settings.rounds {
            let before = daemon.core_time()?;
            let arguments = format!(
                "--nsid 1 --rw {direction} --pattern random --size 4096 --depth {depth} --queues 1 --time {}s",
                settings.seconds
            );
            let report = daemon.perf_on(VOLUME, settings, &arguments)?;
            let after = daemon.core_time()?;
            let get = |pointer: &str| number("ashlar perf", &report, pointer);
            let rate = get("/total/all/iops")?;
            let operations = rate * (get("/seconds")? + get("/warmup_seconds")?);
            iops.push(rate);
            p50.push(get("/total/all/latency_ns/p50")? / 1000.0);
            cost.push((after.busy_s - before.busy_s) * 1e6 / operations);
        }
        let rate = median(iops);
        println!(
            "| {direction} | {depth} | {} | {:.1} µs | {:.2} µs | {} | {:.2} |",
            thousands(rate),
            median(p50),
            median(cost),
            thousands(spdk),
            rate / spdk
        );
    }
    println!();
    Ok(())
}
