//! Who decides which replicas are in sync: compares, sets, forgets nothing; slow at times, and replies get lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::World;
use ashlar_replication::{InSyncSet, Membership, MembershipEpoch, MembershipError, ReplicaId};
use ashlar_store::ids::SegmentId;

use crate::executor::Simulation;
use crate::random::Random;

/// The in-sync set, which no crash takes.
#[derive(Clone)]
pub(super) struct Decisions(Rc<Inner>);

struct Inner {
    simulation: Simulation,
    set: RefCell<InSyncSet>,
    random: RefCell<Random>,
}

impl Decisions {
    pub(super) fn new(simulation: &Simulation, members: Vec<ReplicaId>, random: Random) -> Self {
        let set = RefCell::new(InSyncSet { epoch: MembershipEpoch(1), members });
        Self(Rc::new(Inner { simulation: simulation.clone(), set, random: RefCell::new(random) }))
    }

    pub(super) fn set(&self) -> InSyncSet {
        self.0.set.borrow().clone()
    }

    pub(super) fn contains(&self, replica: ReplicaId) -> bool {
        self.0.set.borrow().contains(replica)
    }

    async fn pause(&self) {
        let micros = match self.0.random.borrow_mut().below(8) {
            0 => 200_000,
            1..=3 => 2_000,
            _ => return,
        };
        let pause = self.0.random.borrow_mut().below(micros);
        self.0.simulation.world().sleep(Duration::from_micros(pause)).await;
    }

    fn fails(&self) -> bool {
        self.0.random.borrow_mut().one_in(12)
    }

    async fn decide(
        &self,
        at: MembershipEpoch,
        change: impl FnOnce(&mut Vec<ReplicaId>) -> Result<(), MembershipError>,
    ) -> Result<InSyncSet, MembershipError> {
        self.pause().await;
        if self.fails() {
            return Err(MembershipError::Unavailable("nobody was asked".to_owned()));
        }
        let decided = self.apply(at, change)?;
        self.0.simulation.note(format!("in sync: {:?} from epoch {}", decided.members, decided.epoch.0));
        self.pause().await;
        if self.fails() {
            return Err(MembershipError::Unavailable("the reply was lost".to_owned()));
        }
        Ok(decided)
    }

    fn apply(
        &self,
        at: MembershipEpoch,
        change: impl FnOnce(&mut Vec<ReplicaId>) -> Result<(), MembershipError>,
    ) -> Result<InSyncSet, MembershipError> {
        let mut set = self.0.set.borrow_mut();
        if set.epoch != at {
            return Err(MembershipError::Stale(set.clone()));
        }
        change(&mut set.members)?;
        set.epoch.0 += 1;
        Ok(set.clone())
    }
}

impl Membership for Decisions {
    async fn remove(
        &self,
        _segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
        why: &str,
    ) -> Result<InSyncSet, MembershipError> {
        self.0.simulation.note(format!("{replica} shall leave: {why}"));
        self.decide(at, |members| {
            if members[..] == [replica] {
                return Err(MembershipError::LastMember(replica));
            }
            members.retain(|member| *member != replica);
            Ok(())
        })
        .await
    }

    async fn add(
        &self,
        _segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
    ) -> Result<InSyncSet, MembershipError> {
        self.decide(at, |members| {
            members.push(replica);
            Ok(())
        })
        .await
    }
}
