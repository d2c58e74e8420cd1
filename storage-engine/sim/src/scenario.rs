//! A scenario: what runs in a simulation, and what must hold there.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use crate::bugs::Bugs;
use crate::executor::{Simulation, Stop};

/// Something to run under many seeds.
pub trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// In one line: what runs, and which rules it checks.
    fn about(&self) -> &'static str;

    /// Runs it. Everything that it chooses comes from [`Simulation::random`].
    fn play(&self, simulation: &Simulation) -> Result<(), Stop>;
}

/// How a run went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What did not hold.
    pub failure: Option<String>,
    /// Polls that it took.
    pub steps: u64,
    /// Hash of everything that happened: equal for equal runs.
    pub trace_hash: u64,
    /// The last events, if it failed.
    pub trace: String,
}

/// Events that a failure shows.
pub const EVENTS_SHOWN: usize = 200;

thread_local! {
    /// Where and why this thread panicked last.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics kept for the outcome instead of printed. A panic within a run is a finding like any other.
pub fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |location| format!(" at {location}"));
        let text = format!("panic{place}: {}", payload(info.payload()));
        PANIC.with(|last| last.replace(Some(text)));
    }));
}

fn payload(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("of an unknown kind")
}

/// Runs a scenario under a seed.
pub fn run(scenario: &dyn Scenario, seed: u64, bugs: Bugs, events_shown: usize) -> Outcome {
    let simulation = Simulation::new(seed, bugs);
    let played = panic::catch_unwind(AssertUnwindSafe(|| scenario.play(&simulation)));
    let failure = match played {
        Ok(result) => result.err().map(|stop| stop.to_string()),
        Err(panicked) => {
            let kept = PANIC.with(|last| last.take());
            Some(kept.unwrap_or_else(|| format!("panic: {}", payload(&*panicked))))
        }
    };
    let trace = if failure.is_some() { simulation.trace_tail(events_shown) } else { String::new() };
    let outcome =
        Outcome { seed, failure, steps: simulation.steps(), trace_hash: simulation.trace_hash(), trace };
    simulation.finish();
    outcome
}
