//! The speed of the whole product, measured as its users meet it: `ashlard` on one core, `ashlar perf` on another,
//! NVMe/TCP over the loopback. Prints the tables of `docs/performance.md`.
//!
//! Runs are interleaved (A B C A B C …), so that a machine that changes its mind hits all of them; figures are
//! medians. `product [table|fairness|idle|raw|ceiling|mirror]… [--rounds N] [--seconds N]` picks and bounds.

mod ceiling;
mod daemon;
mod error;
mod fairness;
mod idle;
mod load;
mod mirror;
mod raw;
mod reference;
mod table;

use std::process::ExitCode;

use error::BenchError;

/// What to run and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Times that each point is measured.
    pub(crate) rounds: usize,
    /// Seconds of each.
    pub(crate) seconds: u64,
    /// CPU of the daemon's data core.
    pub(crate) target_cpu: usize,
    /// CPU of the load.
    pub(crate) load_cpu: usize,
}

const PARTS: [&str; 6] = ["ceiling", "table", "fairness", "idle", "raw", "mirror"];

fn settings(arguments: &[String]) -> Result<(Settings, Vec<&str>), BenchError> {
    let mut settings = Settings { rounds: 3, seconds: 3, target_cpu: 0, load_cpu: 1 };
    let mut parts = Vec::new();
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let mut number = || {
            rest.next()
                .and_then(|text| text.parse::<u64>().ok())
                .filter(|&number| number > 0)
                .ok_or_else(|| BenchError::Usage(format!("{argument} takes a number above 0")))
        };
        match argument {
            "--rounds" => settings.rounds = number()? as usize,
            "--seconds" => settings.seconds = number()?,
            // Cargo passes this to every bench.
            "--bench" => {}
            part if PARTS.contains(&part) => parts.push(part),
            other => {
                return Err(BenchError::Usage(format!("{other}? It can be one of {}", PARTS.join(", "))));
            }
        }
    }
    if parts.is_empty() {
        parts = PARTS.to_vec();
    }
    Ok((settings, parts))
}

fn run() -> Result<(), BenchError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (settings, parts) = settings(&arguments)?;
    println!(
        "{} rounds of {} s per point, interleaved; medians. Target on CPU {}, load on CPU {}.\n",
        settings.rounds, settings.seconds, settings.target_cpu, settings.load_cpu
    );
    for part in parts {
        match part {
            "ceiling" => ceiling::run(&settings)?,
            "table" => table::run(&settings)?,
            "fairness" => fairness::run(&settings)?,
            "idle" => idle::run(&settings)?,
            "mirror" => mirror::run(&settings)?,
            _ => raw::run(&settings)?,
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
