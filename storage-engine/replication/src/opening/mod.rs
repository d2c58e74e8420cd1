//! Opening a shard: what a crash left in doubt is decided and made equal before anybody reads it (PROTOCOL R1, R8).
//!
//! 1. Every member of the in-sync set says what it has. Who is damaged, incomplete or behind leaves the set first.
//! 2. For each block in anybody's tail, the newest version that has valid data anywhere is chosen (`doubt`).
//! 3. It is written to all members as a new write of the new epoch, also where it is zero or free, and also where it
//!    seems to be everywhere: a crash at any point of this leaves nothing but another doubt.
//! 4. The watermark is made durable, and the shard opens.

pub(crate) mod doubt;

use std::collections::BTreeSet;
use std::rc::Rc;

use ashlar_io::{Buffer, Bug, World};
use ashlar_store::lane::ReadData;
use ashlar_store::{Blocks, EXTENT_BLOCKS, ShardId, Version};

use crate::digest::{alike, largest_read};
use crate::load::Load;
use crate::member::{Member, Role};
use crate::members::{Failures, Members, Shards};
use crate::membership::{Membership, MembershipError, ReplicaId};
use crate::peer::{Condition, Kind, Peer, PeerError, Report};
use crate::ranges::{Place, Want};
use crate::sequence::Sequence;
use crate::shard::{Fanout, Inner, Job, Limits, Listener, Shard, ShardError, Targets};
use doubt::{Doubt, Scope, Vouched};

/// A shard cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No replica in sync is whole.
    #[error("shard {shard} stays closed: {why} of the last replica in sync, {replica}")]
    NoCompleteReplica {
        /// The shard.
        shard: ShardId,
        /// The last replica.
        replica: ReplicaId,
        /// What is wrong with it.
        why: String,
    },
    /// None of the replicas in sync is there.
    #[error("shard {shard} stays closed: none of its replicas in sync is here")]
    NoReplica {
        /// The shard.
        shard: ShardId,
    },
    /// The target epoch was used before.
    #[error("shard {shard} has seen epoch {seen}, and cannot open under {epoch}")]
    OldEpoch {
        /// The shard.
        shard: ShardId,
        /// The epoch that was to be opened.
        epoch: u32,
        /// The newest in its replicas.
        seen: u32,
    },
    /// It could not be made equal.
    #[error("could not make the replicas equal: {0}")]
    Equalise(#[from] ShardError),
}

/// What a member said.
struct Answer<P> {
    member: Rc<Member<P>>,
    report: Report,
}

/// Opens `id` under target epoch `epoch`, which nobody used before (PROTOCOL R1). `peers` are the replicas that are
/// there; those that are not in the in-sync set are ignored.
pub(crate) async fn open<W: World, P: Peer<W>, M: Membership>(
    world: &W,
    segment: &Rc<Members<W, M>>,
    (id, stride): (ShardId, u32),
    (epoch, limits, load): (u32, Limits, &Rc<Load>),
    peers: Vec<(ReplicaId, Rc<P>)>,
) -> Result<Shard<W, P>, OpenError> {
    let failures: Rc<dyn Failures> = Rc::clone(segment) as Rc<dyn Failures>;
    let shard =
        Inner::new(world.clone(), (id, stride), (limits, Rc::clone(load)), failures, Sequence::new(epoch, 0));
    for (replica, peer) in peers {
        if segment.set().contains(replica) {
            shard.enlist(replica, peer, Role::InSync);
        }
    }
    shard.listen(segment);
    let answers = collect(&shard, segment).await?;
    let seen = answers.iter().map(|answer| doubt::highest(&answer.report)).fold(Version::ZERO, |all, one| {
        Version { epoch: all.epoch.max(one.epoch), sequence: all.sequence.max(one.sequence) }
    });
    if seen.epoch >= epoch {
        return Err(OpenError::OldEpoch { shard: id, epoch, seen: seen.epoch });
    }
    *shard.sequence.borrow_mut() = Sequence::new(epoch, seen.sequence);
    for extent in answers.iter().flat_map(|answer| &answer.report.extents) {
        shard.set_present(extent.index, true);
    }
    let single = answers.iter().map(|answer| answer.report.single).collect::<BTreeSet<_>>();
    if let (1, Some(&single)) = (single.len(), single.first()) {
        shard.marked(single);
    }
    shard.follow_mode();
    equalise(&shard, &answers).await?;
    settle(&shard, &answers).await?;
    Ok(Shard(shard))
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// Hears of changes of the in-sync set from now on.
    fn listen<M: Membership>(self: &Rc<Self>, segment: &Members<W, M>) {
        let listener: Rc<dyn Shards> = Rc::new(Listener(Rc::downgrade(self)));
        segment.tell(Rc::downgrade(&listener));
        self.keep(listener);
    }

    /// Takes a place that nobody else can be at: the shard is not open.
    async fn alone(self: &Rc<Self>, extent: u32, blocks: Blocks) -> Place {
        self.place(extent, blocks, Want::Change).await
    }
}

/// Hears all members of the in-sync set, after those that are not worth hearing have left it.
async fn collect<W: World, P: Peer<W>, M: Membership>(
    shard: &Rc<Inner<W, P>>,
    segment: &Rc<Members<W, M>>,
) -> Result<Vec<Answer<P>>, OpenError> {
    loop {
        let members = shard.in_sync();
        if members.is_empty() {
            return Err(OpenError::NoReplica { shard: shard.id });
        }
        let mut answers = Vec::new();
        let mut leaves: Option<(ReplicaId, String)> = None;
        for member in members {
            let place = shard.place(0, Blocks::ALL, Want::Glance).await;
            match shard.ask(&member, &place, member.peer.report()).await {
                Ok(report) => {
                    if let Some(why) = flaw(shard, &report) {
                        leaves = Some((member.replica, why.to_owned()));
                    }
                    answers.push(Answer { member, report });
                }
                // It left while it was asked.
                Err(PeerError::Gone) => {}
                Err(error) => leaves = Some((member.replica, format!("no report ({error})"))),
            }
        }
        let leaves = leaves.or_else(|| behind(&answers));
        let Some((replica, why)) = leaves else {
            if answers.is_empty() {
                return Err(OpenError::NoReplica { shard: shard.id });
            }
            return Ok(answers);
        };
        if let Err(MembershipError::LastMember(_)) = segment.remove(replica, why.clone()).await {
            return Err(OpenError::NoCompleteReplica { shard: shard.id, replica, why });
        }
        if let Some(member) = shard.member(replica) {
            member.role.set(Role::Out);
        }
    }
}

/// Why a report is not worth anything.
fn flaw<W: World, P: Peer<W>>(shard: &Inner<W, P>, report: &Report) -> Option<&'static str> {
    match report.condition {
        Condition::Whole => None,
        // PROTOCOL R4
        Condition::Incomplete if shard.world.bug(Bug::ServeIncomplete) => None,
        Condition::Incomplete => Some("a device is absent"),
        Condition::Damaged => Some("the journal is damaged"),
    }
}

/// A member whose history ends before what another knows to be everywhere: it lost the end of its journal (S5).
fn behind<P>(answers: &[Answer<P>]) -> Option<(ReplicaId, String)> {
    let committed = answers.iter().map(|answer| answer.report.committed.sequence).max()?;
    let ends = answers.iter().map(|answer| (answer, doubt::end(&answer.report)));
    let (answer, end) = ends.into_iter().find(|(_, end)| *end < committed)?;
    Some((answer.member.replica, format!("history ends at {end}, {committed} is committed")))
}

/// Writes every doubtful block to all members (PROTOCOL R8).
async fn equalise<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    answers: &[Answer<P>],
) -> Result<(), ShardError> {
    if shard.world.bug(Bug::OpenBeforeEqual) {
        return Ok(());
    }
    let writes_only = shard.world.bug(Bug::EqualiseWritesOnly);
    let scope = if writes_only { Scope::WritesOnly } else { Scope::All };
    let doubts = doubt::doubts(answers.iter().map(|answer| &answer.report), scope);
    for (&extent, doubt) in &doubts {
        let vouched: Vec<Vouched> =
            answers.iter().map(|answer| doubt::vouched(&answer.report, extent)).collect();
        equalise_extent(shard, answers, (extent, doubt), &vouched).await?;
        shard.world.next_turn().await;
    }
    Ok(())
}

async fn equalise_extent<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    answers: &[Answer<P>],
    (extent, doubt): (u32, &Doubt),
    vouched: &[Vouched],
) -> Result<(), ShardError> {
    let newest = |block: u32| doubt.contains(block).then(|| doubt::order(vouched, block).first().copied());
    let runs = alike(Blocks::ALL, EXTENT_BLOCKS, newest);
    if doubt.is_all()
        && let [(_, Some(Some(source)))] = runs[..]
        && let Some(answer) = answers.get(source)
        && answer.report.extents.iter().all(|held| held.index != extent)
    {
        // Freed as a whole.
        let place = shard.alone(extent, Blocks::ALL).await;
        shard.counters.equalised.add(u64::from(EXTENT_BLOCKS));
        return shard.change(place, extent, Kind::Free).await.map(drop);
    }
    for (run, source) in runs {
        let Some(source) = source else { continue };
        let sums = match source.and_then(|source| answers.get(source)) {
            Some(answer) => answer.member.peer.checksums(extent).await.ok(),
            None => None,
        };
        // Where the checksums are not to be had, a read tells.
        let has_data = |block: u32| {
            sums.as_ref().is_none_or(|sums| sums.get(block as usize).is_none_or(|stored| stored.has_data()))
        };
        for (part, has_data) in alike(run, largest_read::<W>(), has_data) {
            shard.counters.equalised.add(u64::from(part.count()));
            if has_data {
                equalise_part(shard, answers, (extent, part), vouched).await?;
            } else {
                let place = shard.alone(extent, part).await;
                shard.change(place, extent, Kind::Zero(part)).await?;
            }
        }
    }
    Ok(())
}

/// Blocks of which the same member has the newest bytes.
async fn equalise_part<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    answers: &[Answer<P>],
    (extent, part): (u32, Blocks),
    vouched: &[Vouched],
) -> Result<(), ShardError> {
    let place = shard.alone(extent, part).await;
    let order = doubt::order(vouched, part.first());
    if let Some(answer) = order.first().and_then(|&index| answers.get(index))
        && let Ok(found) = shard.read_from(&answer.member, &place, extent, part).await
    {
        return adopt(shard, place, extent, found).await;
    }
    drop(place);
    for block in part.first()..part.end() {
        let Some(one) = Blocks::new(block, 1) else { continue };
        let place = shard.alone(extent, one).await;
        let mut found = None;
        for answer in doubt::order(vouched, block).into_iter().filter_map(|index| answers.get(index)) {
            found = shard.read_from(&answer.member, &place, extent, one).await.ok();
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(found) => adopt(shard, place, extent, found).await?,
            None => {
                // Nobody vouches for it. Either a crash explains it and one copy is chosen, or it is lost everywhere,
                // which reading it will say.
                let (_place, _lost) = shard.read_alone(place, extent, one, None).await;
            }
        }
    }
    Ok(())
}

/// Writes what one member has to all.
async fn adopt<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    place: Place,
    extent: u32,
    found: ReadData<W::Buffer>,
) -> Result<(), ShardError> {
    let blocks = place.blocks();
    let kind = match found {
        ReadData::Zeroes => Kind::Zero(blocks),
        ReadData::Buffer(buffer) => shard.writing(extent, blocks, Buffer::freeze(buffer)),
    };
    match shard.change(place, extent, kind).await {
        // Then it was never complete, and it has been undone everywhere.
        Ok(_) | Err(ShardError::NoSpace { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the end of the old epoch durable, so that its abandoned numbers are no holes (PROTOCOL R15).
async fn settle<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    answers: &[Answer<P>],
) -> Result<(), ShardError> {
    shard.settled().await;
    shard.flush().await?;
    let unsettled = |report: &Report| !report.tail.is_empty() || report.base.is_some();
    if !answers.iter().any(|answer| unsettled(&answer.report)) {
        return Ok(());
    }
    let place = shard.place(0, Blocks::ALL, Want::Glance).await;
    let (_place, outcome) = Fanout::start(shard, place, Job::Base(None), Targets::All, None).await;
    outcome
}

#[cfg(test)]
mod tests;
