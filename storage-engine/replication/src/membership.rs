//! Who decides which replicas are in sync: one small trait, a durable local file now, Raft later (PROTOCOL R15).

use std::fmt;
use std::future::Future;

use ashlar_store::SegmentId;
use uuid::Uuid;

/// A replica of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub Uuid);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the changes of a segment's in-sync set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MembershipEpoch(pub u64);

/// The in-sync set of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSyncSet {
    /// Rises with each change.
    pub epoch: MembershipEpoch,
    /// The replicas that hold every acknowledged write. Never empty.
    pub members: Vec<ReplicaId>,
}

impl InSyncSet {
    /// `replica` is in it.
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.members.contains(&replica)
    }
}

/// The in-sync set was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// It changed meanwhile: this is how it is now.
    #[error("the in-sync set changed meanwhile, to epoch {}", .0.epoch.0)]
    Stale(InSyncSet),
    /// The last member never leaves.
    #[error("{0} is the last replica in sync")]
    LastMember(ReplicaId),
    /// Another core's shards could not be brought into step.
    #[error("{0} is not in step with all shards of the segment")]
    NotInStep(ReplicaId),
    /// Whoever decides cannot be asked now: try again.
    #[error("the in-sync set cannot be changed now: {0}")]
    Unavailable(String),
}

/// Decides. Each change compares and sets the membership epoch, is durable at return, and concerns one segment.
pub trait Membership: 'static {
    /// Takes a replica out, or withdraws one whose addition is undecided. The epoch rises in either case, also if
    /// the replica is no member, so that a late addition fails (PROTOCOL R2).
    fn remove(
        &self,
        segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
        why: &str,
    ) -> impl Future<Output = Result<InSyncSet, MembershipError>>;

    /// The shards of the segment that this core owns are in step with `replica`. Ends when those of all cores are
    /// and the replica has been added, the same for all cores, or when one of them could not.
    fn add(
        &self,
        segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
    ) -> impl Future<Output = Result<InSyncSet, MembershipError>>;
}
