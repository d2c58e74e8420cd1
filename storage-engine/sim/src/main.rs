//! `ashlar-sim`: runs scenarios under many seeds, and says how to see a failure again.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use ashlar_io::Bug;
use ashlar_sim::run::{Plan, Summary, play};
use ashlar_sim::scenario::{EVENTS_SHOWN, Scenario, keep_panics};
use ashlar_sim::scenarios;
use clap::Parser;

/// Runs the storage engine in a simulated world.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this scenario.
    #[arg(long)]
    scenario: Option<String>,
    /// Leave out a rule of the protocol, to see that it is noticed.
    #[arg(long)]
    bug: Vec<Bug>,
    /// Threads; all cores by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// How many of its last events a failing run shows.
    #[arg(long, default_value_t = EVENTS_SHOWN)]
    events: usize,
    /// Stop after so many failures of a scenario.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Name scenarios and deliberate bugs, run nothing.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        list();
        return ExitCode::SUCCESS;
    }
    let wanted =
        |scenario: &&&dyn Scenario| arguments.scenario.as_deref().is_none_or(|name| name == scenario.name());
    let chosen: Vec<_> = scenarios::ALL.iter().filter(wanted).collect();
    if chosen.is_empty() {
        eprintln!("no such scenario; --list names them");
        return ExitCode::FAILURE;
    }
    keep_panics();
    let mut plan = Plan::new(arguments.seed, arguments.seeds);
    plan.bugs = arguments.bug.iter().copied().collect();
    plan.threads = arguments.threads.unwrap_or(plan.threads);
    plan.events = arguments.events;
    plan.failures_max = arguments.failures;
    let mut all_passed = true;
    for scenario in chosen {
        let summary = play(*scenario, &plan);
        report(*scenario, &arguments, &summary);
        all_passed &= summary.failures.is_empty();
    }
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list() {
    println!("scenarios:");
    for scenario in scenarios::ALL {
        println!("  {:<12} {}", scenario.name(), scenario.about());
    }
    println!("deliberate bugs:");
    for bug in Bug::ALL {
        println!("  {:<4} {bug}", bug.rule());
    }
}

fn report(scenario: &dyn Scenario, arguments: &Arguments, summary: &Summary) {
    for failure in &summary.failures {
        println!("{}", failure.trace);
        println!(
            "{} FAILED with seed {}: {}",
            scenario.name(),
            failure.seed,
            failure.failure.as_deref().unwrap_or_default()
        );
        let bugs: String = arguments.bug.iter().map(|bug| format!(" --bug {bug}")).collect();
        println!(
            "again: cargo run --release -p ashlar-sim -- --scenario {} --seed {} --seeds 1{bugs}",
            scenario.name(),
            failure.seed
        );
    }
    println!(
        "{}: {} seeds passed, {} failed, {} steps",
        scenario.name(),
        summary.passed,
        summary.failures.len(),
        summary.steps
    );
}
