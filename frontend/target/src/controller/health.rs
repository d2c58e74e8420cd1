//! Where the SMART log's counters come from.

/// Counters of the subsystem since the target started (NVMe Base 2.0 figure 208).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthCounters {
    /// Bytes read by hosts.
    pub bytes_read: u64,
    /// Bytes written by hosts.
    pub bytes_written: u64,
    /// Read and Compare commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Media and data integrity errors.
    pub media_errors: u64,
    /// Minutes since the target started.
    pub busy_minutes: u64,
}

/// Gives the counters when the SMART log is read.
pub trait HealthSource {
    /// Now.
    fn health(&self) -> HealthCounters;
}
