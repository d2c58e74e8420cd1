//! Latency histograms: the target's buckets, summed and written as Prometheus wants them.

use std::fmt;

use ashlar_target::target::{Counts, LATENCY_BUCKETS};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::labels::Name;

/// A histogram of latencies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Histogram {
    buckets: [u64; LATENCY_BUCKETS],
    sum_ns: u64,
}

impl Histogram {
    const EMPTY: Histogram = Histogram { buckets: [0; LATENCY_BUCKETS], sum_ns: 0 };

    fn add(&mut self, buckets: &[u64; LATENCY_BUCKETS], sum_ns: u64) {
        for (sum, more) in self.buckets.iter_mut().zip(buckets) {
            *sum = sum.saturating_add(*more);
        }
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
    }

    /// Upper bounds in seconds with their counts; the last one has none.
    fn bounds(&self) -> Vec<(f64, u64)> {
        let bound = |index: usize| match index + 1 == LATENCY_BUCKETS {
            true => f64::MAX,
            // Bucket n: below 2^n µs.
            false => (1_u64 << index) as f64 / 1e6,
        };
        self.buckets.iter().enumerate().map(|(index, count)| (bound(index), *count)).collect()
    }
}

/// Histograms of reads and of everything else, over these counts.
pub(super) fn sums<'a>(counts: impl Iterator<Item = &'a Counts>) -> [(&'static str, Histogram); 2] {
    let (mut reads, mut others) = (Histogram::EMPTY, Histogram::EMPTY);
    for count in counts {
        reads.add(&count.read_latency, count.read_latency_ns);
        others.add(&count.other_latency, count.other_latency_ns);
    }
    [("read", reads), ("other", others)]
}

/// Writes a histogram per set of labels.
pub(super) fn encode<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &Name,
    histograms: impl IntoIterator<Item = (L, Histogram)>,
) -> Result<(), fmt::Error> {
    let unit = name.unit.as_ref();
    let mut metric = encoder.encode_descriptor(name.name, name.help, unit, MetricType::Histogram)?;
    for (labels, histogram) in histograms {
        let count = histogram.buckets.iter().sum();
        let sum_s = histogram.sum_ns as f64 / 1e9;
        let mut family = metric.encode_family(&labels)?;
        family.encode_histogram::<NoLabelSet>(sum_s, count, &histogram.bounds(), None)?;
    }
    Ok(())
}
