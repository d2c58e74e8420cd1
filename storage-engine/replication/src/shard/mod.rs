//! A shard: the extents of a segment whose index has the same remainder, and the order of all that happens to them.
//!
//! **A change** takes its place in line for its blocks (`ranges`), gets a version, and goes to every member at the same
//! time (`fanout`). It is complete when all have accepted it, or when those who have not are no members any more,
//! which only the membership decides. Nothing that was given a version is ever dropped half-way: if whoever asked
//! loses interest, it ends by itself.
//!
//! **A read** that finds nobody changing its blocks goes to the least busy member. Otherwise it stands in line. A bad
//! copy is repaired from a good one, alone in line (`repair`).
//!
//! **Marks**: everything up to *complete* is accepted by all members, everything up to *committed* is durable on
//! them. On devices without volatile caches that is the same (PROTOCOL S1).

mod fanout;
mod flush;
mod mode;
mod read;
mod repair;
mod watch;
mod write;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::World;
use ashlar_io::sync::Notify;
use ashlar_store::lane::Order;
use ashlar_store::{Blocks, ExtentId, ShardId, Version};

pub(crate) use fanout::{Fanout, Job, Targets};
pub use write::Part;

use crate::load::Load;
use crate::member::{Member, Role};
use crate::members::{Failures, Shards};
use crate::membership::{InSyncSet, ReplicaId};
use crate::peer::{Peer, PeerError};
use crate::ranges::{Place, Ranges, Want};
use crate::sequence::Sequence;
use crate::status::Counters;

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A member that lets a request wait for this long has failed.
    pub hang: Duration,
}

impl Default for Limits {
    /// A hung device must be noticed within 5 s: 4 s leave time to tell everybody.
    fn default() -> Self {
        Self { hang: Duration::from_secs(4) }
    }
}

/// A shard could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A replica has no room for the extent. Its blocks read as before.
    #[error("no space for extent {extent} of shard {shard}")]
    NoSpace {
        /// The shard.
        shard: ShardId,
        /// The extent, as an index of the segment.
        extent: u32,
    },
    /// No replica has good bytes for these blocks (design D4).
    #[error("blocks {blocks:?} of extent {extent} of shard {shard} are lost")]
    Unrecovered {
        /// The shard.
        shard: ShardId,
        /// The extent, as an index of the segment.
        extent: u32,
        /// Exactly the blocks that are lost.
        blocks: Vec<u32>,
    },
    /// The last replica refused.
    #[error("the last replica of shard {shard} failed: {cause}")]
    Failed {
        /// The shard.
        shard: ShardId,
        /// What it said.
        cause: PeerError,
    },
    /// The compared bytes differ from this block on.
    #[error("block {block} of extent {extent} differs from what was expected")]
    Differs {
        /// The extent, as an index of the segment.
        extent: u32,
        /// The first block that differs.
        block: u32,
    },
    /// More bytes than a buffer holds.
    #[error("{blocks} blocks are more than one request can carry")]
    TooLarge {
        /// How many were asked for.
        blocks: u32,
    },
}

/// An open shard. Clones are the same shard.
#[derive(Debug)]
pub struct Shard<W: World, P>(pub(crate) Rc<Inner<W, P>>);

impl<W: World, P> Clone for Shard<W, P> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

/// See [`Shard`].
pub(crate) struct Inner<W: World, P> {
    pub(crate) world: W,
    pub(crate) id: ShardId,
    /// Shards of the segment: what lies between two extents of this one.
    pub(crate) stride: u32,
    pub(crate) limits: Limits,
    pub(crate) members: RefCell<Vec<Rc<Member<P>>>>,
    pub(crate) failures: Rc<dyn Failures>,
    pub(crate) ranges: Rc<Ranges>,
    pub(crate) sequence: RefCell<Sequence>,
    /// *Complete* moved.
    pub(crate) completed: Notify,
    pub(crate) committed: Cell<Version>,
    pub(crate) order: Cell<Order>,
    mode: mode::Mode,
    flush: flush::Flush,
    pub(crate) load: Rc<Load>,
    /// Extents that members have, by their number within the shard.
    pub(crate) present: RefCell<Vec<bool>>,
    pub(crate) counters: Counters,
    /// Changes that members had begun and that were taken back.
    undone: Cell<u64>,
    watching: Cell<bool>,
    next_reader: Cell<usize>,
    /// Extents whose checksums are being restored on some member.
    restoring: RefCell<Vec<u32>>,
    /// The ear of this shard in its segment, which would not keep it alive.
    ear: RefCell<Option<Rc<dyn Shards>>>,
}

impl<W: World, P> std::fmt::Debug for Inner<W, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("id", &self.id)
            .field("sequence", &self.sequence.borrow())
            .field("committed", &self.committed.get())
            .finish_non_exhaustive()
    }
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// A shard that has not been made equal yet (see [`crate::opening`]).
    pub(crate) fn new(
        world: W,
        (id, stride): (ShardId, u32),
        (limits, load): (Limits, Rc<Load>),
        failures: Rc<dyn Failures>,
        sequence: Sequence,
    ) -> Rc<Self> {
        Rc::new(Self {
            world,
            id,
            stride: stride.max(1),
            limits,
            members: RefCell::default(),
            failures,
            ranges: Rc::default(),
            sequence: RefCell::new(sequence),
            completed: Notify::new(),
            committed: Cell::new(Version::ZERO),
            // The safe order, until the marks of all members are known.
            order: Cell::new(Order::RecordFirst),
            mode: mode::Mode::default(),
            flush: flush::Flush::default(),
            load,
            present: RefCell::default(),
            counters: Counters::default(),
            undone: Cell::new(0),
            watching: Cell::new(false),
            next_reader: Cell::new(0),
            restoring: RefCell::default(),
            ear: RefCell::default(),
        })
    }

    /// Keeps the listener that the segment tells.
    pub(crate) fn keep(&self, listener: Rc<dyn Shards>) {
        *self.ear.borrow_mut() = Some(listener);
    }

    /// Takes a place in line.
    pub(crate) async fn place(self: &Rc<Self>, extent: u32, blocks: Blocks, want: Want) -> Place {
        let place = self.ranges.line_up(self.line(extent), blocks, want);
        if want != Want::Glance {
            place.granted().await;
        }
        place
    }

    /// The number of an extent within the shard.
    pub(crate) fn line(&self, extent: u32) -> usize {
        (extent / self.stride) as usize
    }

    pub(crate) fn extent_id(&self, extent: u32) -> ExtentId {
        ExtentId { segment: self.id.segment, index: extent }
    }

    /// Makes `replica` a member, in the slot that it had before if it had one. `None` if all slots are taken by
    /// members that get writes.
    pub(crate) fn enlist(&self, replica: ReplicaId, peer: Rc<P>, role: Role) -> Option<Rc<Member<P>>> {
        let mut members = self.members.borrow_mut();
        let same = members.iter().position(|member| member.replica == replica);
        let index = match same {
            Some(index) => index,
            None if members.len() < crate::member::MEMBERS_MAX => members.len(),
            None => members.iter().position(|member| member.role.get() == Role::Out)?,
        };
        let member = Member::new(replica, peer, 1 << index, role);
        match members.get_mut(index) {
            Some(slot) => *slot = Rc::clone(&member),
            None => members.push(Rc::clone(&member)),
        }
        Some(member)
    }

    pub(crate) fn member(&self, replica: ReplicaId) -> Option<Rc<Member<P>>> {
        self.members.borrow().iter().find(|member| member.replica == replica).cloned()
    }

    pub(crate) fn in_sync(&self) -> Vec<Rc<Member<P>>> {
        let members = self.members.borrow();
        members.iter().filter(|member| member.role.get() == Role::InSync).cloned().collect()
    }

    /// Something in the shard may be lost with the power until a flush.
    pub(crate) fn volatile(&self) -> bool {
        let members = self.members.borrow();
        members.iter().any(|member| member.role.get().gets_writes() && member.peer.volatile())
    }

    /// A member refused or did not answer.
    pub(crate) fn member_failed(&self, member: &Member<P>, error: PeerError) {
        let why = error.to_string();
        *member.failure.borrow_mut() = Some(error);
        match member.role.get() {
            Role::InSync | Role::Joining => self.failures.failed(member.replica, why),
            Role::Attached | Role::Returning => {
                tracing::warn!(shard = %self.id, replica = %member.replica, why, "a replica falls behind again");
                member.role.set(Role::Out);
                self.ranges.wake_all();
            }
            Role::Out => {}
        }
    }

    /// `version` is complete, or given up for good.
    pub(crate) fn finish(self: &Rc<Self>, version: Version) {
        let moved = self.sequence.borrow_mut().finish(version);
        let Some(complete) = moved else { return };
        self.completed.notify_all();
        if self.volatile() {
            self.flush_by_and_by();
        } else {
            self.commit(complete);
        }
    }

    /// Everything up to `version` is durable everywhere.
    pub(crate) fn commit(&self, version: Version) {
        if version <= self.committed.get() {
            return;
        }
        self.committed.set(version);
        for member in self.members.borrow().iter().filter(|member| member.role.get().gets_writes()) {
            member.peer.committed(version);
        }
    }

    /// Waits until everything that was given a version before this call is complete.
    pub(crate) async fn settled(&self) {
        let newest = self.sequence.borrow().newest();
        while self.sequence.borrow().complete() < newest {
            self.completed.notified().await;
        }
    }
}

impl<W: World, P: Peer<W>> Shard<W, P> {
    /// Which one it is.
    pub fn id(&self) -> ShardId {
        self.0.id
    }

    /// Waits until everything that was begun is complete.
    pub async fn quiesce(&self) {
        self.0.settled().await;
    }

    /// What happened to it since it opened.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Everything up to here is durable on all members.
    pub fn committed(&self) -> Version {
        self.0.committed.get()
    }
}

/// What the segment tells, with the strong reference that tasks need.
#[derive(Debug)]
pub(crate) struct Listener<W: World, P>(pub(crate) std::rc::Weak<Inner<W, P>>);

impl<W: World, P: Peer<W>> Shards for Listener<W, P> {
    fn adopt(&self, set: &InSyncSet) {
        let Some(shard) = self.0.upgrade() else { return };
        let members = shard.members.borrow().clone();
        for member in members {
            member.must_stay.set(false);
            let role = match (set.contains(member.replica), member.role.get()) {
                (true, Role::InSync | Role::Joining) => Role::InSync,
                (true, role) => {
                    // Never take for good what this shard did not bring into step itself.
                    shard.failures.failed(member.replica, format!("shard {} is not in step", shard.id));
                    role
                }
                // It failed elsewhere: what is intact here goes on receiving writes (PROTOCOL R4).
                (false, Role::InSync | Role::Joining) if member.failure.borrow().is_none() => Role::Attached,
                (false, Role::InSync | Role::Joining) => Role::Out,
                (false, role) => role,
            };
            member.role.set(role);
        }
        shard.ranges.wake_all();
        shard.follow_mode();
    }

    fn must_stay(&self, replica: ReplicaId) {
        let Some(shard) = self.0.upgrade() else { return };
        if let Some(member) = shard.member(replica) {
            member.must_stay.set(true);
            shard.ranges.wake_all();
        }
    }
}

#[cfg(test)]
mod tests;
