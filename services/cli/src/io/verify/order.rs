//! The order in which a pass visits its units: one after the other, or each exactly once at random.

use clap::ValueEnum;

use crate::random::Random;

/// Order of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// From the first to the last.
    Sequential,
    /// Each exactly once, in an order that the seed decides.
    Random,
}

/// Rounds of the permutation; four make its order look random.
const ROUNDS: usize = 4;

/// A pass over `units` units.
#[derive(Debug, Clone)]
pub(crate) struct Visits {
    units: u64,
    keys: Option<[u64; ROUNDS]>,
    half_bits: u32,
}

impl Visits {
    /// `seed` decides the order if it is random.
    pub(crate) fn new(order: Order, units: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bits = u64::BITS - units.saturating_sub(1).leading_zeros();
        Self {
            units,
            keys: (order == Order::Random).then(|| std::array::from_fn(|_| random.next())),
            half_bits: bits.div_ceil(2).max(1),
        }
    }

    /// The unit that is visited as the `turn`-th, from 0.
    pub(crate) fn unit(&self, turn: u64) -> Option<u64> {
        if turn >= self.units {
            return None;
        }
        let Some(keys) = &self.keys else { return Some(turn) };
        // A Feistel network permutes a power of four; numbers beyond the units are sent through it again
        // until they are not, which keeps it a permutation of the units. Fewer than four steps on average.
        let mut unit = turn;
        loop {
            unit = self.permute(unit, keys);
            if unit < self.units {
                return Some(unit);
            }
        }
    }

    fn permute(&self, number: u64, keys: &[u64; ROUNDS]) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = ((number >> self.half_bits) & mask, number & mask);
        for key in keys {
            let mixed = (right ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (left, right) = (right, left ^ ((mixed ^ (mixed >> 32)) & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_random_pass_visits_every_unit_once() {
        for units in [1, 2, 3, 5, 64, 1000, 4097] {
            let visits = Visits::new(Order::Random, units, 7);
            let seen: BTreeSet<u64> = (0..units).filter_map(|turn| visits.unit(turn)).collect();
            assert_eq!(seen.len() as u64, units, "{units} units");
            assert_eq!(seen.last(), Some(&(units - 1)));
            assert_eq!(visits.unit(units), None);
        }
    }

    #[test]
    fn a_random_pass_is_not_in_order_and_its_seed_decides() {
        let order = |seed| {
            let visits = Visits::new(Order::Random, 1000, seed);
            (0..1000).filter_map(|turn| visits.unit(turn)).collect::<Vec<_>>()
        };
        let rising = order(1).windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((300..700).contains(&rising), "{rising} of 999 steps rise");
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn a_sequential_pass_is_in_order() {
        let visits = Visits::new(Order::Sequential, 3, 7);
        assert_eq!(
            [visits.unit(0), visits.unit(1), visits.unit(2), visits.unit(3)],
            [Some(0), Some(1), Some(2), None]
        );
    }

    #[test]
    fn nothing_to_visit_is_no_visit() {
        assert_eq!(Visits::new(Order::Random, 0, 1).unit(0), None);
    }
}
