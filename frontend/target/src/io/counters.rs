//! What is counted per namespace and core: written by that core alone, read by anybody.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ashlar_nvme::Status;
use ashlar_reactor::Instant;

/// What kind of command it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management.
    DatasetManagement,
    /// Compare.
    Compare,
    /// Verify.
    Verify,
    /// A fused pair.
    CompareAndWrite,
}

impl CommandKind {
    /// All kinds, in the order of their counters.
    pub const ALL: [CommandKind; 8] = [
        CommandKind::Read,
        CommandKind::Write,
        CommandKind::Flush,
        CommandKind::WriteZeroes,
        CommandKind::DatasetManagement,
        CommandKind::Compare,
        CommandKind::Verify,
        CommandKind::CompareAndWrite,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            CommandKind::Read => "read",
            CommandKind::Write => "write",
            CommandKind::Flush => "flush",
            CommandKind::WriteZeroes => "write_zeroes",
            CommandKind::DatasetManagement => "dataset_management",
            CommandKind::Compare => "compare",
            CommandKind::Verify => "verify",
            CommandKind::CompareAndWrite => "compare_and_write",
        }
    }
}

/// Different statuses that are counted apart; the rest share the last place. Few ever occur in one namespace.
const STATUSES: usize = 16;

/// Buckets of a latency histogram: up to 1.024 µs × 2^index, the last without limit (beyond 8 s).
pub const LATENCY_BUCKETS: usize = 24;

/// Upper limit of a bucket in nanoseconds; `None` for the last.
pub const fn latency_limit_ns(bucket: usize) -> Option<u64> {
    if bucket + 1 < LATENCY_BUCKETS { Some(1024 << bucket) } else { None }
}

fn bucket_of(ns: u64) -> usize {
    let above = u64::BITS - (ns >> 10).leading_zeros();
    (above as usize).min(LATENCY_BUCKETS - 1)
}

/// One writer, so adding needs no locked instruction.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counters of one namespace on one core, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct NamespaceCounters {
    operations: [AtomicU64; CommandKind::ALL.len()],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    in_flight: AtomicU64,
    read_latency: [AtomicU64; LATENCY_BUCKETS],
    write_latency: [AtomicU64; LATENCY_BUCKETS],
    error_codes: [AtomicU32; STATUSES],
    errors: [AtomicU64; STATUSES],
}

/// A copy of the counters at one moment; several cores' can be added up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceCounts {
    /// Commands that ended, by [`CommandKind::ALL`].
    pub operations: [u64; CommandKind::ALL.len()],
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Commands that are running.
    pub in_flight: u64,
    /// Time from a read's start to its end, in buckets of [`latency_limit_ns`].
    pub read_latency: [u64; LATENCY_BUCKETS],
    /// Time from a write's start to its end, the wait for the host's data included.
    pub write_latency: [u64; LATENCY_BUCKETS],
    /// Commands that failed, by status code ([`Status::code`]); `None` for those beyond the first few codes.
    pub errors: Vec<(Option<u16>, u64)>,
}

impl NamespaceCounts {
    /// Adds another core's.
    pub fn add(&mut self, other: &NamespaceCounts) {
        let sum = |into: &mut [u64], from: &[u64]| into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        sum(&mut self.operations, &other.operations);
        sum(&mut self.read_latency, &other.read_latency);
        sum(&mut self.write_latency, &other.write_latency);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.in_flight += other.in_flight;
        for (code, count) in &other.errors {
            match self.errors.iter_mut().find(|(known, _)| known == code) {
                Some((_, sum)) => *sum += count,
                None => self.errors.push((*code, *count)),
            }
        }
    }
}

impl NamespaceCounters {
    pub(super) fn started(&self) -> InFlight<'_> {
        add(&self.in_flight, 1);
        InFlight(self)
    }

    pub(super) fn ended(&self, kind: CommandKind, bytes: u64, took: Took, status: Status) {
        add(&self.operations[kind as usize], 1);
        let histogram = match kind {
            CommandKind::Read => Some((&self.read_bytes, &self.read_latency)),
            CommandKind::Write => Some((&self.written_bytes, &self.write_latency)),
            _ => None,
        };
        if let Some((total, latency)) = histogram {
            add(&latency[bucket_of(took.ns())], 1);
            if status.is_success() {
                add(total, bytes);
            }
        }
        if !status.is_success() {
            self.failed(status);
        }
    }

    fn failed(&self, status: Status) {
        let code = u32::from(status.code());
        let last = STATUSES - 1;
        // Success is 0, so 0 marks a free place; the last place is for all that found none.
        let place = self.error_codes[..last].iter().position(|known| {
            let known = known.load(Ordering::Relaxed);
            known == code || known == 0
        });
        let place = place.unwrap_or(last);
        if place < last {
            self.error_codes[place].store(code, Ordering::Relaxed);
        }
        add(&self.errors[place], 1);
    }

    /// A copy for whoever wants to show them. Fields are read one by one: they may be a few commands apart.
    pub fn snapshot(&self) -> NamespaceCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let codes = self.error_codes.iter().map(|code| code.load(Ordering::Relaxed));
        let errors = codes
            .zip(self.errors.iter().map(load))
            .filter(|(_, count)| *count > 0)
            // Status codes have eleven bits.
            .map(|(code, count)| ((code != 0).then_some(code as u16), count));
        NamespaceCounts {
            operations: std::array::from_fn(|index| load(&self.operations[index])),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
            in_flight: load(&self.in_flight),
            read_latency: std::array::from_fn(|index| load(&self.read_latency[index])),
            write_latency: std::array::from_fn(|index| load(&self.write_latency[index])),
            errors: errors.collect(),
        }
    }
}

/// A command is running. It no longer is when this is dropped.
pub(super) struct InFlight<'a>(&'a NamespaceCounters);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        add(&self.0.in_flight, u64::MAX);
    }
}

/// Time that a command took, in the reactor's clock, which moves once per turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    since: Instant,
}

impl Took {
    pub(super) fn start() -> Self {
        Took { since: ashlar_reactor::now() }
    }

    fn ns(self) -> u64 {
        ashlar_reactor::now().as_ns().saturating_sub(self.since.as_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_first_bucket_that_holds_it() {
        for (ns, bucket) in [(0, 0), (1023, 0), (1024, 1), (2047, 1), (2048, 2), (u64::MAX, 23)] {
            assert_eq!(bucket_of(ns), bucket, "{ns} ns");
            assert!(latency_limit_ns(bucket).is_none_or(|limit| ns < limit));
        }
    }

    #[test]
    fn statuses_beyond_the_places_are_counted_together() {
        let counters = NamespaceCounters::default();
        for sc in 1..=20u8 {
            counters.failed(Status::from_parts(2, sc));
            counters.failed(Status::from_parts(2, 1));
        }
        let errors = counters.snapshot().errors;
        assert_eq!(errors[0], (Some(0x201), 21));
        assert_eq!(errors.last(), Some(&(None, 5)));
        assert_eq!(errors.iter().map(|(_, count)| count).sum::<u64>(), 40);
    }
}
