//! What a queue measures: counts and latencies of reads and writes.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency that is told apart; a longer one counts as this. Beyond any time limit of a command.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Digits of a latency that are kept.
const LATENCY_DIGITS: u8 = 3;

/// Reads or writes of one queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Latencies in nanoseconds; `None` until the first, because a histogram takes 200 KiB.
    latency: Option<Box<Histogram<u32>>>,
    /// Their sum, so that the mean does not suffer from the histogram's digits.
    sum_ns: u128,
    ops: u64,
}

fn histogram() -> Box<Histogram<u32>> {
    // Fixed bounds that satisfy `low >= 1`, `high >= 2 * low` and `digits <= 5`.
    let made = Histogram::new_with_bounds(1, LATENCY_MAX_NS, LATENCY_DIGITS);
    Box::new(made.expect("the bounds are constants that the histogram takes"))
}

impl Tally {
    /// Makes room before the clock runs, so that recording never allocates.
    pub(crate) fn prepare(&mut self) {
        self.latency.get_or_insert_with(histogram);
    }

    /// One command that took `ns`.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.ops += 1;
        self.sum_ns += u128::from(ns);
        self.latency.get_or_insert_with(histogram).saturating_record(ns);
    }

    /// Takes over what another measured.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.ops += other.ops;
        self.sum_ns += other.sum_ns;
        if let Some(from) = &other.latency {
            // Both have the same bounds, so everything fits.
            let _ = self.latency.get_or_insert_with(histogram).add(&**from);
        }
    }

    /// Commands.
    pub(crate) fn ops(&self) -> u64 {
        self.ops
    }

    /// Rates and percentiles over `seconds`, of commands of `size` bytes.
    pub(crate) fn figures(&self, seconds: f64, bytes: u64) -> Figures {
        let at = |quantile: f64| self.latency.as_ref().map_or(0, |h| h.value_at_quantile(quantile));
        let mean = if self.ops == 0 { 0.0 } else { self.sum_ns as f64 / self.ops as f64 };
        Figures {
            ops: self.ops,
            bytes,
            iops: self.ops as f64 / seconds,
            bytes_per_s: bytes as f64 / seconds,
            latency_ns: Latency {
                mean,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p99_9: at(0.999),
                p99_99: at(0.9999),
                max: self.latency.as_ref().map_or(0, |h| h.max()),
            },
        }
    }
}

/// Figures of some commands, as printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Commands that completed in the measured time.
    pub(crate) ops: u64,
    /// Bytes they moved.
    pub(crate) bytes: u64,
    /// Commands per second.
    pub(crate) iops: f64,
    /// Bytes per second.
    pub(crate) bytes_per_s: f64,
    /// From sending the command to seeing its completion, in nanoseconds.
    pub(crate) latency_ns: Latency,
}

/// Latency in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Arithmetic mean.
    pub(crate) mean: f64,
    /// Median.
    pub(crate) p50: u64,
    /// 90 of 100 are not slower.
    pub(crate) p90: u64,
    /// 99 of 100.
    pub(crate) p99: u64,
    /// 999 of 1000.
    pub(crate) p99_9: u64,
    /// 9999 of 10000.
    pub(crate) p99_99: u64,
    /// Slowest.
    pub(crate) max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut tally = Tally::default();
        for ns in 1..=10_000_u64 {
            tally.record(ns * 1_000);
        }
        let figures = tally.figures(2.0, 10_000 * 4096);
        assert_eq!((figures.ops, figures.iops), (10_000, 5_000.0));
        let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 500;
        let latency = &figures.latency_ns;
        assert!(near(latency.p50, 5_000_000), "{latency:?}");
        assert!(near(latency.p99, 9_900_000), "{latency:?}");
        assert!(near(latency.p99_99, 9_999_000), "{latency:?}");
        assert!(near(latency.max, 10_000_000), "{latency:?}");
        assert!((latency.mean - 5_000_500.0).abs() < 1.0, "{latency:?}");
    }

    #[test]
    fn tallies_add_up() {
        let (mut a, mut b) = (Tally::default(), Tally::default());
        a.record(10);
        b.record(30);
        a.add(&b);
        a.add(&Tally::default());
        let figures = a.figures(1.0, 8192);
        assert_eq!((figures.ops, figures.latency_ns.max), (2, 30));
        assert_eq!(figures.latency_ns.mean, 20.0);
    }

    #[test]
    fn nothing_measured_is_all_zero() {
        let figures = Tally::default().figures(1.0, 0);
        assert_eq!((figures.ops, figures.latency_ns.max, figures.latency_ns.mean), (0, 0, 0.0));
    }

    #[test]
    fn absurd_latencies_are_kept_as_the_longest() {
        let mut tally = Tally::default();
        tally.record(u64::MAX);
        assert!(tally.figures(1.0, 0).latency_ns.max >= LATENCY_MAX_NS);
    }
}
