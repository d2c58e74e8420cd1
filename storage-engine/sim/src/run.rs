//! Many seeds of a scenario, on many threads: each run stays on one.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::bugs::Bugs;
use crate::scenario::{EVENTS_SHOWN, Outcome, Scenario, run};

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// Rules to leave out.
    pub bugs: Bugs,
    /// Threads.
    pub threads: NonZeroUsize,
    /// Failures after which to stop.
    pub failures_max: usize,
    /// Events of a failing run that are kept.
    pub events: usize,
}

impl Plan {
    /// `seeds` seeds from `first` on, all rules kept, on all cores.
    pub fn new(first: u64, seeds: u64) -> Self {
        let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { first, seeds, bugs: Bugs::NONE, threads, failures_max: 1, events: EVENTS_SHOWN }
    }
}

/// How it went.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Runs that ended well.
    pub passed: u64,
    /// Polls of all.
    pub steps: u64,
    /// Those that failed, by seed.
    pub failures: Vec<Outcome>,
}

/// Runs a plan.
pub fn play(scenario: &dyn Scenario, plan: &Plan) -> Summary {
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let enough = || locked(&summary).failures.len() >= plan.failures_max;
            if index >= plan.seeds || enough() {
                return;
            }
            let outcome = run(scenario, plan.first.wrapping_add(index), plan.bugs, plan.events);
            let mut summary = locked(&summary);
            summary.steps += outcome.steps;
            if outcome.failure.is_some() {
                summary.failures.push(outcome);
            } else {
                summary.passed += 1;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.threads.get() {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort_by_key(|outcome| outcome.seed);
    summary
}

fn locked(summary: &Mutex<Summary>) -> std::sync::MutexGuard<'_, Summary> {
    summary.lock().unwrap_or_else(PoisonError::into_inner)
}
