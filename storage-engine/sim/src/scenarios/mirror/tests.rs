//! Fixed seeds of the mirror, with every rule and without one at a time.

use ashlar_io::Bug;

use super::*;
use crate::bugs::Bugs;
use crate::run::{Plan, play};
use crate::scenario::run;

#[test]
fn what_was_acknowledged_is_read_and_both_replicas_are_equal_at_rest() {
    if let Some(failure) = play(&Mirror, &Plan::new(1, 8)).failures.first() {
        panic!("{}seed {}: {:?}", failure.trace, failure.seed, failure.failure);
    }
}

#[test]
fn one_seed_is_one_run() {
    let (first, second) = (run(&Mirror, 8, Bugs::NONE, 0), run(&Mirror, 8, Bugs::NONE, 0));
    assert_eq!((first.trace_hash, first.steps), (second.trace_hash, second.steps));
}

#[test]
fn rules_that_are_left_out_are_missed() {
    let noticed = [
        Bug::AcknowledgeBeforeAll,
        Bug::BaseDuringCatchUp,
        Bug::CompareOneSide,
        Bug::ForgetDeallocations,
        Bug::HoleInBase,
        Bug::KeepFreedExtents,
        Bug::ReadStaleReplica,
        Bug::TrustReturnedInstance,
    ];
    for bug in noticed {
        let mut plan = Plan::new(1, 40);
        plan.bugs = Bugs::NONE.with(bug);
        assert!(!play(&Mirror, &plan).failures.is_empty(), "{bug} goes unnoticed");
    }
}
