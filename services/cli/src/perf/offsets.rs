//! Which command comes next: offset and direction, without a division or a system call.

use super::plan::{Part, Pattern};
use crate::random::Random;

/// Where the next command goes, in units of the command's size, from 0 to below the number of units.
#[derive(Debug, Clone)]
pub(crate) enum Offsets {
    /// Anywhere.
    Random {
        /// Source.
        random: Random,
        /// Number of units.
        units: u64,
    },
    /// One after the other from `first`, at `end` again from `first`.
    Sequential {
        /// Start of the queue's part.
        first: u64,
        /// End of the queue's part.
        end: u64,
        /// Next.
        next: u64,
    },
}

impl Offsets {
    /// For a range of `units` units, at least one.
    pub(crate) fn new(pattern: Pattern, part: Part, units: u64, seed: u64) -> Self {
        match pattern {
            Pattern::Random => Offsets::Random { random: Random::new(seed), units: units.max(1) },
            Pattern::Sequential => {
                let at =
                    |index: u64| (u128::from(units) * u128::from(index) / u128::from(part.of.max(1))) as u64;
                let first = at(part.index);
                // A range with fewer units than queues leaves some parts empty: those share a unit.
                let end = at(part.index + 1).max(first + 1).min(units.max(1));
                let first = first.min(end - 1);
                Offsets::Sequential { first, end, next: first }
            }
        }
    }

    /// The next unit.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Offsets::Random { random, units } => random.below(*units),
            Offsets::Sequential { first, end, next } => {
                let unit = *next;
                *next = if unit + 1 == *end { *first } else { unit + 1 };
                unit
            }
        }
    }
}

/// How many commands a rate limit allows so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Nanoseconds between commands.
    gap_ns: f64,
    /// When the next is due, in nanoseconds from the start.
    due_ns: f64,
}

/// How far behind its schedule a queue may fall and still catch up. A longer stall of the target is not
/// followed by a burst that nobody asked for.
const CATCH_UP_NS: f64 = 10_000_000.0;

impl Pace {
    /// `rate` commands per second.
    pub(crate) fn new(rate: f64) -> Self {
        Self { gap_ns: 1e9 / rate, due_ns: 0.0 }
    }

    /// Takes one command if it is due at `elapsed_ns`.
    #[inline]
    pub(crate) fn take(&mut self, elapsed_ns: u64) -> bool {
        let now = elapsed_ns as f64;
        if now < self.due_ns {
            return false;
        }
        self.due_ns = (self.due_ns + self.gap_ns).max(now - CATCH_UP_NS);
        true
    }

    /// When the next command is due, in nanoseconds from the start.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_offsets_cover_the_range_evenly() {
        let part = Part { index: 0, of: 1 };
        let mut offsets = Offsets::new(Pattern::Random, part, 16, 7);
        let mut hits = [0_u32; 16];
        for _ in 0..16_000 {
            hits[offsets.next() as usize] += 1;
        }
        assert!(hits.iter().all(|&count| (700..1300).contains(&count)), "{hits:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_offsets() {
        let part = Part { index: 0, of: 1 };
        let run = |seed| {
            let mut offsets = Offsets::new(Pattern::Random, part, 1 << 40, seed);
            (0..8).map(|_| offsets.next()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn sequential_queues_walk_their_own_part_and_wrap() {
        let mut offsets = Offsets::new(Pattern::Sequential, Part { index: 1, of: 3 }, 10, 0);
        let walked: Vec<_> = (0..7).map(|_| offsets.next()).collect();
        assert_eq!(walked, [3, 4, 5, 3, 4, 5, 3]);
    }

    #[test]
    fn more_queues_than_units_stay_in_range() {
        for index in 0..5 {
            let mut offsets = Offsets::new(Pattern::Sequential, Part { index, of: 5 }, 2, 0);
            assert!((0..4).all(|_| offsets.next() < 2));
        }
    }

    #[test]
    fn a_pace_lets_its_rate_through() {
        let mut pace = Pace::new(1_000.0);
        let taken = (0..1_000_000_u64).step_by(10_000).filter(|&ns| pace.take(ns)).count();
        assert_eq!(taken, 1, "one per millisecond");
        let taken = (1_000_000..101_000_000_u64).step_by(10_000).filter(|&ns| pace.take(ns)).count();
        assert_eq!(taken, 100);
    }

    #[test]
    fn a_stall_is_not_followed_by_an_endless_burst() {
        let mut pace = Pace::new(1_000.0);
        assert!(pace.take(0));
        let burst = (0..1_000).filter(|_| pace.take(60_000_000_000)).count();
        assert!((10..=12).contains(&burst), "{burst}: what 10 ms of schedule hold");
    }
}
