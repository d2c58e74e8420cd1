//! How long a core looks for work before it sleeps: bounded, and adapted to what looking brought before.

use std::time::Duration;

use crate::clock::Instant;
use crate::limits::{SPIN_MAX, SPIN_MIN};

/// Looks between two readings of the clock, which is not free.
const LOOKS_PER_READING: u32 = 16;

/// The time that a core may poll before it sleeps. A look that finds work, or a sleep so short that a longer
/// look would have spared it, doubles it up to the limit; a look followed by a long sleep halves it: a core
/// whose work comes seldom soon sleeps at once.
#[derive(Debug)]
pub(crate) struct Spin {
    budget: Duration,
    most: Duration,
}

impl Spin {
    pub(crate) fn new(most: Duration) -> Self {
        let most = most.min(SPIN_MAX);
        Self { budget: most, most }
    }

    /// Looks until `found` is true, the budget is spent, or `deadline` has come. Says whether it was found.
    pub(crate) fn look(
        &mut self,
        start: Instant,
        deadline: Option<Instant>,
        mut found: impl FnMut() -> bool,
    ) -> bool {
        let end = start + self.budget;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        loop {
            for _ in 0..LOOKS_PER_READING {
                if found() {
                    self.lengthen();
                    return true;
                }
                std::hint::spin_loop();
            }
            if crate::clock::read() >= end {
                return false;
            }
        }
    }

    /// Learns how long the core slept after a look in vain.
    pub(crate) fn slept(&mut self, time: Duration) {
        if time <= self.most {
            self.lengthen();
        } else {
            self.budget = (self.budget / 2).max(SPIN_MIN.min(self.most));
        }
    }

    fn lengthen(&mut self) {
        self.budget = (self.budget * 2).clamp(SPIN_MIN.min(self.most), self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_in_vain_gets_shorter_and_success_longer() {
        let mut spin = Spin::new(SPIN_MAX);
        let past = Instant::from_ns(0);
        for _ in 0..10 {
            assert!(!spin.look(past, Some(past), || false));
            spin.slept(Duration::from_millis(1));
        }
        assert_eq!(spin.budget, SPIN_MIN);
        for _ in 0..10 {
            assert!(spin.look(past, None, || true));
        }
        assert_eq!(spin.budget, SPIN_MAX);
    }

    #[test]
    fn a_core_that_was_woken_soon_after_it_fell_asleep_looks_longer_next_time() {
        let mut spin = Spin::new(SPIN_MAX);
        for _ in 0..10 {
            spin.slept(Duration::from_secs(1));
        }
        for _ in 0..10 {
            spin.slept(Duration::from_micros(10));
        }
        assert_eq!(spin.budget, SPIN_MAX);
    }
}
