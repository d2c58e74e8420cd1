//! What is counted per namespace and core: operations, bytes, errors by status, latency, commands in flight.
//!
//! Each core writes its own counters, alone and without read-modify-write; anybody reads them (NVME N7's idea
//! for statistics: no shared cache lines).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use ashlar_nvme::Status;
use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_reactor::CoreId;

/// Kinds of operations that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Compare, alone or fused.
    Compare,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management.
    DatasetManagement,
    /// Verify and everything else.
    Other,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 7] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Compare,
        Operation::WriteZeroes,
        Operation::DatasetManagement,
        Operation::Other,
    ];

    /// The kind of an I/O opcode.
    pub fn of(opcode: u8) -> Operation {
        match NvmOpcode::try_from(opcode) {
            Ok(NvmOpcode::Read) => Operation::Read,
            Ok(NvmOpcode::Write) => Operation::Write,
            Ok(NvmOpcode::Flush) => Operation::Flush,
            Ok(NvmOpcode::Compare) => Operation::Compare,
            Ok(NvmOpcode::WriteZeroes) => Operation::WriteZeroes,
            Ok(NvmOpcode::DatasetManagement) => Operation::DatasetManagement,
            _ => Operation::Other,
        }
    }

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Compare => "compare",
            Operation::WriteZeroes => "write_zeroes",
            Operation::DatasetManagement => "dataset_management",
            Operation::Other => "other",
        }
    }
}

const OPERATIONS: usize = Operation::ALL.len();

/// Buckets of a latency histogram. Bucket `n` holds latencies below 2^n µs that fit into none before; the
/// last one holds the rest, from about 67 s.
pub const LATENCY_BUCKETS: usize = 28;

/// Different failing statuses that are counted apart, per namespace and core; further ones count as the last.
const ERRORS: usize = 16;

/// Counters of one namespace on one core, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CoreCounts {
    operations: [AtomicU64; OPERATIONS],
    bytes: [AtomicU64; OPERATIONS],
    latency: [[AtomicU64; LATENCY_BUCKETS]; 2],
    latency_ns: [AtomicU64; 2],
    errors: [(AtomicU32, AtomicU64); ERRORS],
    in_flight: AtomicU64,
}

/// Only the owning core writes, so a load and a store are enough.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn bucket(latency: Duration) -> usize {
    let us = latency.as_nanos() as u64 / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(LATENCY_BUCKETS - 1)
}

/// Row of the histogram that an operation counts in.
fn row(operation: Operation) -> usize {
    usize::from(operation != Operation::Read)
}

impl CoreCounts {
    pub(crate) fn begin(&self) {
        add(&self.in_flight, 1);
    }

    pub(crate) fn gone(&self) {
        add(&self.in_flight, u64::MAX);
    }

    pub(crate) fn record(&self, operation: Operation, bytes: u32, status: Status, latency: Duration) {
        let kind = operation as usize;
        if let Some(count) = self.operations.get(kind) {
            add(count, 1);
        }
        if let Some(count) = self.latency.get(row(operation)).and_then(|row| row.get(bucket(latency))) {
            add(count, 1);
        }
        if let Some(sum) = self.latency_ns.get(row(operation)) {
            add(sum, latency.as_nanos() as u64);
        }
        if !status.is_success() {
            return self.record_error(status);
        }
        if let Some(count) = self.bytes.get(kind) {
            add(count, u64::from(bytes));
        }
    }

    /// A failure alone: of a command that was refused before it was carried out, and so is no operation.
    pub(crate) fn record_error(&self, status: Status) {
        // 0 is success and so marks a free place.
        let code = u32::from(status.code());
        let place = self.errors.iter().position(|(known, _)| {
            matches!(known.load(Ordering::Relaxed), 0) || known.load(Ordering::Relaxed) == code
        });
        let (known, count) = &self.errors[place.unwrap_or(ERRORS - 1)];
        if known.load(Ordering::Relaxed) == 0 {
            known.store(code, Ordering::Relaxed);
        }
        add(count, 1);
    }

    /// What was counted up to now.
    pub(crate) fn snapshot(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let errors = self.errors.iter().filter(|(code, _)| code.load(Ordering::Relaxed) != 0);
        Counts {
            operations: self.operations.each_ref().map(load),
            bytes: self.bytes.each_ref().map(load),
            read_latency: self.latency[0].each_ref().map(load),
            other_latency: self.latency[1].each_ref().map(load),
            read_latency_ns: load(&self.latency_ns[0]),
            other_latency_ns: load(&self.latency_ns[1]),
            errors: errors
                .map(|(code, count)| {
                    let code = code.load(Ordering::Relaxed);
                    (Status::from_parts((code >> 8) as u8, code as u8), load(count))
                })
                .collect(),
            in_flight: load(&self.in_flight),
        }
    }
}

/// Counters of one namespace on all cores.
#[derive(Debug)]
pub(crate) struct NamespaceCounts {
    cores: Box<[CoreCounts]>,
}

impl NamespaceCounts {
    pub(crate) fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self { cores: (0..cores).map(|_| CoreCounts::default()).collect() })
    }

    /// One core's.
    pub(crate) fn core(&self, core: CoreId) -> Option<&CoreCounts> {
        self.cores.get(core.index())
    }

    /// Each core's, in order.
    pub(crate) fn snapshot(&self) -> Vec<Counts> {
        self.cores.iter().map(CoreCounts::snapshot).collect()
    }
}

/// What one core has counted for one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Operations that ended, by [`Operation::ALL`].
    pub operations: [u64; OPERATIONS],
    /// Bytes of those that succeeded.
    pub bytes: [u64; OPERATIONS],
    /// Latencies of reads; bucket `n`: below 2^n µs.
    pub read_latency: [u64; LATENCY_BUCKETS],
    /// Latencies of everything else.
    pub other_latency: [u64; LATENCY_BUCKETS],
    /// Sum of the latencies of reads, in nanoseconds.
    pub read_latency_ns: u64,
    /// Sum of all other latencies, in nanoseconds.
    pub other_latency_ns: u64,
    /// Failures by status, those of commands included that were refused before they were carried out.
    pub errors: Vec<(Status, u64)>,
    /// Commands that run now.
    pub in_flight: u64,
}

/// Counters of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceMetrics {
    /// Its subsystem.
    pub subsystem: Nqn,
    /// Its id there.
    pub nsid: Nsid,
    /// Per core.
    pub cores: Vec<Counts>,
}

/// Connections of one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreQueues {
    /// I/O queues.
    pub io: usize,
    /// Admin queues, one per controller.
    pub admin: usize,
}

/// Everything that the target counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Per namespace.
    pub namespaces: Vec<NamespaceMetrics>,
    /// Per core.
    pub cores: Vec<CoreQueues>,
    /// Connections, those included that have not finished Connect.
    pub connections: usize,
    /// Connections refused because a limit was reached.
    pub refused: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_counts_in_the_first_bucket_that_holds_it() {
        for (us, expected) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 40, LATENCY_BUCKETS - 1)] {
            assert_eq!(bucket(Duration::from_micros(us)), expected, "{us} µs");
        }
    }

    #[test]
    fn failures_are_counted_by_status_and_move_no_bytes() {
        let counts = CoreCounts::default();
        counts.record(Operation::Read, 4096, Status::SUCCESS, Duration::ZERO);
        counts.record(Operation::Read, 4096, Status::LBA_OUT_OF_RANGE, Duration::ZERO);
        counts.record(Operation::Write, 4096, Status::LBA_OUT_OF_RANGE, Duration::ZERO);
        let seen = counts.snapshot();
        assert_eq!((seen.operations[0], seen.operations[1]), (2, 1));
        assert_eq!((seen.bytes[0], seen.bytes[1]), (4096, 0));
        assert_eq!(seen.errors, [(Status::LBA_OUT_OF_RANGE, 2)]);
    }

    #[test]
    fn more_kinds_of_failures_than_places_are_still_counted() {
        let counts = CoreCounts::default();
        for status in Status::ALL.iter().filter(|status| !status.is_success()) {
            counts.record(Operation::Other, 0, *status, Duration::ZERO);
        }
        let seen: u64 = counts.snapshot().errors.iter().map(|(_, count)| count).sum();
        assert_eq!(seen as usize, Status::ALL.len() - 1);
    }
}
