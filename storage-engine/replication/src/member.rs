//! A replica, as one shard sees it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ashlar_io::sync::Notify;

use crate::membership::ReplicaId;
use crate::peer::PeerError;
use crate::ranges::MemberBits;

/// Most replicas that a shard writes to at the same time: three in sync and one that catches up.
pub(crate) const MEMBERS_MAX: usize = 4;

/// What a member is to its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// In the in-sync set: gets every write and answers reads. Leaves only by decision of the membership.
    InSync,
    /// In step, and its addition may have been decided already: like in sync, but answers no reads (PROTOCOL R2).
    Joining,
    /// Gets every write, so that it falls no further behind. Leaves at its first failure.
    Attached,
    /// Is asked what it has, to catch up; gets nothing yet. Leaves at its first failure.
    Returning,
    /// Gets nothing.
    Out,
}

impl Role {
    /// Gets writes.
    pub(crate) fn gets_writes(self) -> bool {
        !matches!(self, Role::Returning | Role::Out)
    }

    /// Only the membership can let it go.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Role::InSync | Role::Joining)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Member<P> {
    pub(crate) replica: ReplicaId,
    pub(crate) peer: Rc<P>,
    /// Its bit in the table of waits.
    pub(crate) bit: MemberBits,
    pub(crate) role: Cell<Role>,
    /// It failed, but it is the last one: what it refuses fails.
    pub(crate) must_stay: Cell<bool>,
    /// Reads in flight.
    pub(crate) reads: Cell<u32>,
    /// Changes in flight, also those that nobody waits for any more.
    sent: Cell<u32>,
    drained: Notify,
    /// Why it failed this shard last.
    pub(crate) failure: RefCell<Option<PeerError>>,
}

impl<P> Member<P> {
    pub(crate) fn new(replica: ReplicaId, peer: Rc<P>, bit: MemberBits, role: Role) -> Rc<Self> {
        Rc::new(Self {
            replica,
            peer,
            bit,
            role: Cell::new(role),
            must_stay: Cell::new(false),
            reads: Cell::new(0),
            sent: Cell::new(0),
            drained: Notify::new(),
            failure: RefCell::new(None),
        })
    }

    /// Counts a change as in flight until the guard is dropped.
    pub(crate) fn sending(self: &Rc<Self>) -> Sent<P> {
        self.sent.set(self.sent.get() + 1);
        Sent(Rc::clone(self))
    }

    /// Waits until nothing that was sent to it can still happen (PROTOCOL R6).
    pub(crate) async fn drained(&self) {
        while self.sent.get() > 0 {
            self.drained.notified().await;
        }
    }
}

/// See [`Member::sending`].
#[derive(Debug)]
pub(crate) struct Sent<P>(Rc<Member<P>>);

impl<P> Drop for Sent<P> {
    fn drop(&mut self) {
        let left = self.0.sent.get() - 1;
        self.0.sent.set(left);
        if left == 0 {
            self.0.drained.notify_all();
        }
    }
}
