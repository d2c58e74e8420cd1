//! The in-sync set of one segment, as the shards of one core share it.
//!
//! Whoever finds that a member fails says so here, once or often; the removal is asked for once, and every shard is
//! told when it is decided. Until then the shards wait (PROTOCOL R2): nothing fails, and nothing counts without the
//! member.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use ashlar_io::sync::Notify;
use ashlar_io::{Instant, World};
use ashlar_store::SegmentId;

use crate::membership::{InSyncSet, Membership, MembershipError, ReplicaId};

/// Pause before whoever decides is asked again. Much shorter than what hosts notice, long enough not to be load.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A shard, as seen from its segment.
pub(crate) trait Shards {
    /// The set is now this.
    fn adopt(&self, set: &InSyncSet);

    /// The replica cannot leave: it is the last one.
    fn must_stay(&self, replica: ReplicaId);
}

/// A segment, as seen from its shards.
pub(crate) trait Failures {
    /// A member of the set failed for this reason. Heard once per removal.
    fn failed(&self, replica: ReplicaId, why: String);

    /// The set as this core knows it.
    fn set(&self) -> InSyncSet;
}

/// Why and when a replica left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What it did.
    pub why: String,
    /// When it was noticed.
    pub when: Instant,
}

/// See the module.
pub(crate) struct Members<W, M> {
    this: Weak<Self>,
    world: W,
    segment: SegmentId,
    membership: Rc<M>,
    set: RefCell<InSyncSet>,
    /// Replicas that are being removed, or were, and why.
    losses: RefCell<BTreeMap<ReplicaId, Loss>>,
    asking: RefCell<Vec<ReplicaId>>,
    shards: RefCell<Vec<Weak<dyn Shards>>>,
    changed: Notify,
    /// Removals, for the counters.
    pub(crate) removals: Cell<u64>,
}

impl<W: World, M: Membership> Members<W, M> {
    pub(crate) fn new(world: W, segment: SegmentId, membership: Rc<M>, set: InSyncSet) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            world,
            segment,
            membership,
            set: RefCell::new(set),
            losses: RefCell::default(),
            asking: RefCell::default(),
            shards: RefCell::default(),
            changed: Notify::new(),
            removals: Cell::new(0),
        })
    }

    /// `shard` is told of changes from now on.
    pub(crate) fn tell(&self, shard: Weak<dyn Shards>) {
        let mut shards = self.shards.borrow_mut();
        shards.retain(|shard| shard.strong_count() > 0);
        shards.push(shard);
    }

    /// Takes over a newer set, whoever decided it.
    pub(crate) fn adopt(&self, set: InSyncSet) {
        if set.epoch <= self.set.borrow().epoch {
            return;
        }
        self.losses.borrow_mut().retain(|replica, _| !set.contains(*replica));
        tracing::info!(segment = %self.segment, epoch = set.epoch.0, members = set.members.len(), "in-sync set");
        *self.set.borrow_mut() = set.clone();
        // Told outside the borrow: a shard may report the next failure at once.
        let shards: Vec<_> = self.shards.borrow().iter().filter_map(Weak::upgrade).collect();
        for shard in shards {
            shard.adopt(&set);
        }
        self.changed.notify_all();
    }

    /// Why replicas that are not in the set left it, as far as this core knows.
    pub(crate) fn losses(&self) -> BTreeMap<ReplicaId, Loss> {
        self.losses.borrow().clone()
    }

    /// Takes `replica` out and waits until that is decided. An error only if it is the last.
    pub(crate) async fn remove(&self, replica: ReplicaId, why: String) -> Result<(), MembershipError> {
        self.losses
            .borrow_mut()
            .entry(replica)
            .or_insert_with(|| Loss { why: why.clone(), when: self.world.now() });
        loop {
            let at = self.set.borrow().epoch;
            match self.membership.remove(self.segment, at, replica, &why).await {
                Ok(set) => {
                    self.removals.set(self.removals.get() + 1);
                    self.adopt(set);
                    return Ok(());
                }
                Err(MembershipError::Stale(set)) if set.epoch > at => {
                    let gone = !set.contains(replica);
                    self.adopt(set);
                    if gone {
                        return Ok(());
                    }
                }
                Err(error @ MembershipError::LastMember(_)) => {
                    self.losses.borrow_mut().remove(&replica);
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(segment = %self.segment, %replica, %error, "removal must wait");
                    self.world.sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    /// The shards of this core are in step with `replica`: asks to add it.
    pub(crate) async fn add(&self, replica: ReplicaId) -> Result<(), MembershipError> {
        let at = self.set.borrow().epoch;
        let set = self.membership.add(self.segment, at, replica).await?;
        self.adopt(set);
        Ok(())
    }
}

impl<W: World, M: Membership> Failures for Members<W, M> {
    fn failed(&self, replica: ReplicaId, why: String) {
        let Some(this) = self.this.upgrade() else { return };
        if self.asking.borrow().contains(&replica) {
            return;
        }
        self.asking.borrow_mut().push(replica);
        tracing::warn!(segment = %self.segment, %replica, why, "a replica fails");
        self.world.spawn(async move {
            let outcome = this.remove(replica, why).await;
            this.asking.borrow_mut().retain(|asked| *asked != replica);
            if outcome.is_err() {
                let shards: Vec<_> = this.shards.borrow().iter().filter_map(Weak::upgrade).collect();
                for shard in shards {
                    shard.must_stay(replica);
                }
            }
        });
    }

    fn set(&self) -> InSyncSet {
        self.set.borrow().clone()
    }
}
