//! What the storage engine costs: mirrored, checksummed 4 KiB writes and reads on one data core, without network or
//! protocol, beside the same two raw writes.
//!
//! `engine [--device memory|PATH]… [--depth N] [--seconds N] [--rounds N] [--lanes N] [--span MIB] [--count N]
//! [--only 1..4]`. A path is
//! formatted whatever it carries. With `--count` each point ends after so many operations instead, for instruction
//! counts (`docs/performance.md` says how).

mod rig;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ashlar_reactor::{BufferCounts, CoreId, Cores, CoresConfig};

use rig::{Point, Work};

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Two devices: `None` for memory.
    devices: Vec<Option<PathBuf>>,
    /// Requests in flight.
    depth: usize,
    /// Time of a point.
    seconds: u64,
    /// Times that each point is measured.
    rounds: usize,
    /// Lanes of each device.
    lanes: u32,
    /// MiB of the volume that are used.
    span: u64,
    /// End after so many operations instead of a time.
    count: Option<u64>,
    /// Only this of [`Work::ALL`].
    only: Option<usize>,
}

fn number(value: Option<String>, name: &str) -> Result<u64, String> {
    let parsed = value.and_then(|text| text.parse().ok()).filter(|&number| number > 0);
    parsed.ok_or_else(|| format!("{name} takes a number above 0"))
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings {
        devices: Vec::new(),
        depth: 128,
        seconds: 3,
        rounds: 3,
        lanes: 4,
        span: 512,
        count: None,
        only: None,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--device" => {
                let device = rest.next().ok_or("--device takes memory or a path")?;
                settings.devices.push((device != "memory").then(|| PathBuf::from(device)));
            }
            "--depth" => settings.depth = number(rest.next(), "--depth")? as usize,
            "--seconds" => settings.seconds = number(rest.next(), "--seconds")?,
            "--rounds" => settings.rounds = number(rest.next(), "--rounds")? as usize,
            "--lanes" => settings.lanes = number(rest.next(), "--lanes")? as u32,
            "--span" => settings.span = number(rest.next(), "--span")?,
            "--count" => settings.count = Some(number(rest.next(), "--count")?),
            "--only" => settings.only = Some(number(rest.next(), "--only")? as usize - 1),
            // Cargo passes this to every bench.
            "--bench" => {}
            other => return Err(format!("{other}? See the first lines of tests/benches/engine/main.rs")),
        }
    }
    settings.devices.resize(2, None);
    Ok(settings)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(work: Work, points: &[Point]) {
    let of = |value: fn(&Point) -> f64| median(points.iter().map(value).collect());
    println!(
        "| {work} | {:.1}k | {:.2} µs | {:.2} µs | {:.4} | {:.4} |",
        of(|point| point.operations as f64 / point.seconds / 1000.0),
        of(|point| point.user_seconds * 1e6 / point.operations as f64),
        of(|point| point.cpu_seconds * 1e6 / point.operations as f64),
        of(|point| point.journal_writes as f64 / point.operations as f64),
        of(|point| point.metadata as f64 / point.operations as f64),
    );
}

fn run() -> Result<(), String> {
    let settings = settings()?;
    let says = |what: &'static str| move |error: &dyn Display| format!("{what}: {error}");
    let config = CoresConfig {
        cpus: vec![Some(0)],
        buffers: BufferCounts { blocks: 8192, capsules: 64, slices: 256 },
        spin: Duration::from_micros(50),
    };
    let cores = Cores::start(&config).map_err(|error| says("start a core")(&error))?;
    let handle = cores.handle();
    let wanted = settings.clone();
    let results = handle
        .run_on(CoreId(0), move || async move { rig::measure(&wanted).await })
        .wait()
        .map_err(|error| says("ask the core")(&error))??;
    cores.stop(Duration::from_secs(5)).map_err(|error| says("stop the core")(&error))?;
    println!(
        "{} rounds, depth {}, {} lanes per device, {} MiB used; medians, one core.\n",
        settings.rounds, settings.depth, settings.lanes, settings.span
    );
    println!(
        "| work | IOPS | user time | all time of the core | journal I/O per write and device | tables |"
    );
    println!("|---|---|---|---|---|---|");
    for work in Work::ALL {
        let points: Vec<Point> =
            results.iter().filter(|(done, _)| *done == work).map(|(_, point)| *point).collect();
        if !points.is_empty() {
            row(work, &points);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine: {error}");
            ExitCode::FAILURE
        }
    }
}
