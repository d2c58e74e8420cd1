//! What can be seen of a volume from outside.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::members::Loss;
use crate::membership::{MembershipEpoch, ReplicaId};
use crate::scrub::ScrubStatus;

/// Counts up.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// What a shard found, in blocks.
#[derive(Debug, Default)]
pub struct Counters {
    /// Copies that failed their checksum or could not be read.
    pub corrupted: Counter,
    /// Bad copies that were rewritten from good ones.
    pub repaired: Counter,
    /// Reads of blocks of which no good copy is left.
    pub lost: Counter,
    /// Blocks without a matching copy after a crash, of which one copy was chosen (PROTOCOL S2).
    pub chosen: Counter,
    /// Blocks that were made equal when the shard opened (PROTOCOL R8).
    pub equalised: Counter,
}

/// The same, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// See [`Counters::corrupted`].
    pub corrupted: u64,
    /// See [`Counters::repaired`].
    pub repaired: u64,
    /// See [`Counters::lost`].
    pub lost: u64,
    /// See [`Counters::chosen`].
    pub chosen: u64,
    /// See [`Counters::equalised`].
    pub equalised: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, counters: &Counters) {
        self.corrupted += counters.corrupted.get();
        self.repaired += counters.repaired.get();
        self.lost += counters.lost.get();
        self.chosen += counters.chosen.get();
        self.equalised += counters.equalised.get();
    }
}

/// How a catch-up gets on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CatchUpStatus {
    /// Bytes of extents that must be compared, as far as that is known.
    pub total_bytes: u64,
    /// Of these, compared and made equal.
    pub done_bytes: u64,
    /// Bytes that differed and were copied.
    pub copied_bytes: u64,
    /// Bytes compared per second, since it began.
    pub bytes_per_s: f64,
    /// Time that is left at this rate, once there is one.
    pub eta: Option<Duration>,
}

impl CatchUpStatus {
    /// From 0 to 100.
    pub fn percent(&self) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        self.done_bytes as f64 * 100.0 / self.total_bytes as f64
    }
}

/// What a replica is to its segment.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicaState {
    /// In sync.
    InSync,
    /// Being brought into step.
    CatchingUp(CatchUpStatus),
    /// Out, and why it left, if this core saw it.
    Out(Option<Loss>),
}

/// A segment's state, as one core sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentStatus {
    /// Index in the volume.
    pub index: u32,
    /// Epoch of the in-sync set.
    pub epoch: MembershipEpoch,
    /// Every replica that is or was a member, and those that catch up.
    pub replicas: BTreeMap<ReplicaId, ReplicaState>,
}

/// A volume's state, as one core sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VolumeStatus {
    /// Its segments that have shards on this core.
    pub segments: Vec<SegmentStatus>,
    /// What its shards on this core found.
    pub counts: Counts,
    /// How the scrub of its shards on this core gets on.
    pub scrub: ScrubStatus,
}
