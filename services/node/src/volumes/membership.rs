//! Which replicas are in sync, decided by the keeper of the node's state (PROTOCOL R2, R15).
//!
//! Decisions are made one after the other on the keeper's thread, durable before anybody hears of them, and then
//! brought to every core. A replica is added when every core that has shards of the segment said that they are in step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_reactor::{CoreId, CoresHandle};
use ashlar_replication::{InSyncSet, Membership, MembershipEpoch, MembershipError, ReplicaId};
use ashlar_store::SegmentId;
use tokio::sync::oneshot;

use super::part;
use crate::state::{InSync, Keeper, SegmentState, State};

type Decided = Result<InSyncSet, MembershipError>;

/// Cores that said that they are in step with a replica, and wait for the others.
#[derive(Debug, Default)]
struct Vote {
    cores: BTreeSet<CoreId>,
    waiting: Vec<oneshot::Sender<Decided>>,
}

/// Touched on the keeper's thread and when a volume is opened or closed.
#[derive(Debug, Default)]
struct Ballots {
    /// Cores that have shards of a segment.
    voters: BTreeMap<SegmentId, BTreeSet<CoreId>>,
    votes: BTreeMap<(SegmentId, ReplicaId), Vote>,
}

/// Decides for all volumes of the node. Clones decide together.
#[derive(Debug, Clone)]
pub(super) struct LocalMembership {
    keeper: Keeper,
    cores: CoresHandle,
    ballots: Arc<Mutex<Ballots>>,
}

/// The in-sync set as it is remembered.
pub(super) fn set_of(segment: &SegmentState) -> InSyncSet {
    InSyncSet {
        epoch: MembershipEpoch(segment.membership_epoch),
        members: segment.in_sync().map(ReplicaId).collect(),
    }
}

fn segment_of(state: &mut State, id: SegmentId) -> Result<&mut SegmentState, MembershipError> {
    let volume = state.volumes.get_mut(&id.volume);
    let segment = volume.and_then(|volume| volume.segments.get_mut(id.index as usize));
    segment.ok_or_else(|| MembershipError::Unavailable(format!("segment {id} is not known")))
}

/// The segment, if its set is still that of `at`.
fn unchanged(
    state: &mut State,
    id: SegmentId,
    at: MembershipEpoch,
) -> Result<&mut SegmentState, MembershipError> {
    let segment = segment_of(state, id)?;
    if segment.membership_epoch != at.0 {
        return Err(MembershipError::Stale(set_of(segment)));
    }
    Ok(segment)
}

fn remove(state: &mut State, id: SegmentId, at: MembershipEpoch, replica: ReplicaId) -> Decided {
    let segment = unchanged(state, id, at)?;
    let members: Vec<_> = segment.in_sync().collect();
    if members == [replica.0] {
        return Err(MembershipError::LastMember(replica));
    }
    for one in segment.replicas.iter_mut().filter(|one| one.id == replica.0) {
        one.in_sync = InSync::No;
    }
    segment.membership_epoch += 1;
    Ok(set_of(segment))
}

fn add(state: &mut State, id: SegmentId, at: MembershipEpoch, replica: ReplicaId) -> Decided {
    let segment = unchanged(state, id, at)?;
    let Some(one) = segment.replicas.iter_mut().find(|one| one.id == replica.0) else {
        return Err(MembershipError::Unavailable(format!("{replica} is no replica of segment {id}")));
    };
    one.in_sync = InSync::Yes;
    segment.membership_epoch += 1;
    Ok(set_of(segment))
}

/// What came of a core's vote.
enum Counted {
    /// Others are still to vote.
    Waiting,
    /// All are in step: this was decided, and these are to be told.
    Decided(Decided, Vec<oneshot::Sender<Decided>>),
}

impl LocalMembership {
    pub(super) fn new(keeper: Keeper, cores: CoresHandle) -> Self {
        Self { keeper, cores, ballots: Arc::default() }
    }

    /// These cores have shards of the segment.
    pub(super) fn expect(&self, segment: SegmentId, voters: BTreeSet<CoreId>) {
        lock(&self.ballots).voters.insert(segment, voters);
    }

    /// The volume's segments have no shards open any more.
    pub(super) fn forget(&self, volume: uuid::Uuid) {
        let mut ballots = lock(&self.ballots);
        ballots.voters.retain(|segment, _| segment.volume != volume);
        ballots.votes.retain(|(segment, _), _| segment.volume != volume);
    }

    /// Brings a decision to every core.
    pub(super) async fn tell(&self, segment: SegmentId, set: &InSyncSet) {
        for core in self.cores.ids() {
            let set = set.clone();
            // A core that is too busy to hear of it learns of it when it asks for a change itself.
            let _ = self.cores.run_on(core, move || async move { part::adopt(segment, set) }).await;
        }
    }
}

fn lock(ballots: &Mutex<Ballots>) -> MutexGuard<'_, Ballots> {
    // Whole after every statement that changes it.
    ballots.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unavailable(error: impl ToString) -> MembershipError {
    MembershipError::Unavailable(error.to_string())
}

impl Membership for LocalMembership {
    async fn remove(
        &self,
        segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
        why: &str,
    ) -> Result<InSyncSet, MembershipError> {
        let ballots = Arc::clone(&self.ballots);
        let changed = self.keeper.change(move |state| {
            let set = remove(state, segment, at, replica)?;
            // Votes were for the set before.
            let mut ballots = lock(&ballots);
            let void = ballots.votes.extract_if(.., |(of, _), _| *of == segment);
            let waiting: Vec<_> = void.flat_map(|(_, vote)| vote.waiting).collect();
            Ok((set, waiting))
        });
        let (set, waiting) = changed.await.map_err(unavailable)??;
        for one in waiting {
            // Whoever asked may have gone.
            let _ = one.send(Err(MembershipError::Stale(set.clone())));
        }
        tracing::warn!(%segment, %replica, epoch = set.epoch.0, why, "a replica is not in sync");
        self.tell(segment, &set).await;
        Ok(set)
    }

    async fn add(
        &self,
        segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
    ) -> Result<InSyncSet, MembershipError> {
        let core = ashlar_reactor::current_core().ok_or_else(|| unavailable("asked outside a data core"))?;
        let (answer, answered) = oneshot::channel();
        let ballots = Arc::clone(&self.ballots);
        let counted = self.keeper.change(move |state| {
            unchanged(state, segment, at)?;
            let mut ballots = lock(&ballots);
            let voters = ballots.voters.get(&segment).cloned().unwrap_or_default();
            let vote = ballots.votes.entry((segment, replica)).or_default();
            vote.cores.insert(core);
            vote.waiting.push(answer);
            if !voters.is_subset(&vote.cores) {
                return Ok(Counted::Waiting);
            }
            let all = ballots.votes.remove(&(segment, replica)).unwrap_or_default();
            let decided = add(state, segment, at, replica);
            // Votes on other replicas of the segment were for the set before.
            let void = ballots.votes.extract_if(.., |(of, _), _| *of == segment);
            let stale = segment_of(state, segment).map(|segment| set_of(segment));
            for one in void.flat_map(|(_, vote)| vote.waiting) {
                // Whoever asked may have gone.
                let _ = one.send(stale.clone().and_then(|set| Err(MembershipError::Stale(set))));
            }
            Ok(Counted::Decided(decided, all.waiting))
        });
        if let Counted::Decided(decided, waiting) = counted.await.map_err(unavailable)?? {
            if let Ok(set) = &decided {
                tracing::info!(%segment, %replica, epoch = set.epoch.0, "a replica is in sync");
                self.tell(segment, set).await;
            }
            for one in waiting {
                // Whoever asked may have gone.
                let _ = one.send(decided.clone());
            }
        }
        answered.await.map_err(|_| unavailable("the decision was given up"))?
    }
}

#[cfg(test)]
mod tests {
    use ashlar_reactor::{Cores, CoresConfig};
    use uuid::Uuid;

    use super::*;
    use crate::state::{ReplicaState, VolumeState};

    const SEGMENT: SegmentId = SegmentId { volume: Uuid::from_u128(1), index: 0 };

    fn replica(number: u128) -> ReplicaId {
        ReplicaId(Uuid::from_u128(number))
    }

    fn at(epoch: u64) -> MembershipEpoch {
        MembershipEpoch(epoch)
    }

    /// Two cores that both have shards of a segment with replicas 10 (in sync) and 11 (not).
    struct Rig {
        cores: Cores,
        membership: LocalMembership,
        _folder: tempfile::TempDir,
    }

    impl Rig {
        fn start() -> Rig {
            let folder = tempfile::tempdir().expect("a folder");
            let cores = Cores::start(&CoresConfig::floating(2)).expect("cores");
            let keeper = Keeper::start(folder.path(), Uuid::from_u128(7)).expect("a keeper");
            let one = |number, in_sync| ReplicaState {
                id: Uuid::from_u128(number),
                pool: Uuid::nil(),
                devices: BTreeSet::new(),
                in_sync,
            };
            let replicas = vec![one(10, InSync::Yes), one(11, InSync::No)];
            let segments = vec![SegmentState { membership_epoch: 5, replicas }];
            let volume = VolumeState {
                name: "v".to_owned(),
                bytes: 4096,
                segment_bytes: 4 << 20,
                shards: 1,
                target_epoch: 1,
                segments,
                scrub: crate::state::ScrubState::default(),
            };
            let membership = LocalMembership::new(keeper.clone(), cores.handle());
            membership.expect(SEGMENT, cores.handle().ids().collect());
            let made = keeper.change(move |state| state.volumes.insert(SEGMENT.volume, volume));
            block_on(made).expect("made");
            Rig { cores, membership, _folder: folder }
        }

        fn add(&self, core: u16, epoch: u64, number: u128) -> ashlar_reactor::Reply<Decided> {
            let membership = self.membership.clone();
            self.cores.handle().run_on(CoreId(core), move || async move {
                membership.add(SEGMENT, at(epoch), replica(number)).await
            })
        }

        fn remove(&self, epoch: u64, number: u128) -> Decided {
            let membership = self.membership.clone();
            let asked = self.cores.handle().run_on(CoreId(0), move || async move {
                membership.remove(SEGMENT, at(epoch), replica(number), "a test").await
            });
            asked.wait().expect("the core answers")
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn a_replica_is_added_when_every_core_is_in_step() {
        let rig = Rig::start();
        let (first, second) = (rig.add(0, 5, 11), rig.add(1, 5, 11));
        let set = first.wait().expect("answers").expect("added");
        assert_eq!((set.epoch, set.members.len()), (at(6), 2));
        assert_eq!(second.wait().expect("answers").expect("added"), set);
    }

    #[test]
    fn a_removal_voids_the_votes_before_it() {
        let rig = Rig::start();
        let voted = rig.add(0, 5, 11);
        // The vote may come before or after; it is stale in either case.
        let set = rig.remove(5, 11).expect("withdrawn");
        assert_eq!(set.epoch, at(6));
        assert_eq!(voted.wait().expect("answers"), Err(MembershipError::Stale(set)));
    }

    #[test]
    fn the_last_member_stays_and_stale_changes_are_refused() {
        let rig = Rig::start();
        assert_eq!(rig.remove(5, 10), Err(MembershipError::LastMember(replica(10))));
        assert!(matches!(rig.remove(4, 11), Err(MembershipError::Stale(set)) if set.epoch == at(5)));
    }
}
