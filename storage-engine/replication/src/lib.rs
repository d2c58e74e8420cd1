//! Replication: the order of what happens to a volume's blocks, and the replicas that all of it happens to (design §5,
//! §7, PROTOCOL R1–R8, R11).
//!
//! | module | what |
//! |---|---|
//! | [`shard`] | the unit of ordering: changes, reads, repair, marks |
//! | [`peer`] | one replica of a shard, as the shard sees it |
//! | [`membership`] | who decides which replicas are in sync |
//! | `members` | the in-sync set, as the shards of a core share it |
//! | [`opening`] | what a crash left in doubt is decided and made equal |
//! | [`catch_up`] | a replica that was away is brought into step |
//! | [`scrub`] | every copy is read and verified, at leisure |
//! | [`layout`] | where the bytes of a volume are |
//! | [`volume`] | the shards of a volume that a core owns |
//! | [`status`] | what can be seen from outside |
//!
//! Everything lives on one core and touches the world through [`ashlar_io::World`] alone.

pub mod catch_up;
mod digest;
#[cfg(test)]
mod double;
pub mod layout;
mod load;
mod local;
mod member;
mod members;
pub mod membership;
pub mod opening;
pub mod peer;
mod ranges;
pub mod scrub;
mod sequence;
pub mod shard;
pub mod status;
pub mod volume;

pub use catch_up::CatchUpError;
pub use catch_up::throttle::Throttle;
pub use digest::Digest;
pub use layout::{Layout, LayoutError, Piece};
pub use local::LocalPeer;
pub use members::Loss;
pub use membership::{InSyncSet, Membership, MembershipEpoch, MembershipError, ReplicaId};
pub use opening::OpenError;
pub use peer::{Peer, PeerError, Report, Update};
pub use shard::{Limits, Part, Shard, ShardError};
pub use volume::{OpenSegment, Volume, VolumeError};
