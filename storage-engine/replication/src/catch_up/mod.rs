//! Brings a replica that was away, or is new, into step with a shard (PROTOCOL R5, R7, S13).
//!
//! 1. Nothing that was sent to it before can still happen (R6). It says what it has. Its *base* is what it certainly
//!    has; that is frozen, durably, before anything changes on it.
//! 2. It is attached: from now on it gets every write. What was given a version before that is waited for, so that
//!    all that it missed is visible in the source.
//! 3. Every extent that changed above its base, on either side, is compared, run by run (`run`): what differs is
//!    copied, what the source does not have is freed, what seems equal is proven by a hash.
//! 4. It joins: from now on only the membership can let it go. When all shards of the segment are there, it is added
//!    to the in-sync set, and then the base is released, durably.
//!
//! Each run is alone in line while it is compared and copied, so no copy overtakes a write (R7): a later write waits
//! for the copy, an earlier one is part of it. Writes to the replica are waited for like all others, so its backlog is
//! bounded by what is in flight.
//!
//! A failure at any point leaves the base frozen and the replica out; the next attempt starts at step 1.

pub(crate) mod progress;
mod run;
pub(crate) mod throttle;

use std::collections::BTreeSet;
use std::rc::Rc;

use ashlar_io::{BLOCK_BYTES, Bug, World};
use ashlar_store::lane::TailKind;
use ashlar_store::{Blocks, EXTENT_BLOCKS, Version};

use crate::member::{Member, Role};
use crate::peer::{Condition, Peer, PeerError, Report};
use crate::ranges::Want;
use crate::shard::{Inner, ShardError};
use progress::Progress;
use throttle::Throttle;

/// Bytes of an extent.
pub(crate) const EXTENT_BYTES: u64 = EXTENT_BLOCKS as u64 * BLOCK_BYTES as u64;

/// A base below every version that was ever given: nothing is certain.
const NOTHING: Version = Version { epoch: 0, sequence: 0 };

/// A catch-up did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatchUpError {
    /// The replica failed again.
    #[error("the replica failed: {0}")]
    Replica(PeerError),
    /// The shard has no slot for another replica.
    #[error("too many replicas are being written to")]
    TooMany,
    /// There is nothing to copy from.
    #[error("the source failed: {0}")]
    Source(ShardError),
    /// It could not be added.
    #[error("the replica could not be added: {0}")]
    Membership(crate::membership::MembershipError),
}

impl CatchUpError {
    /// Another attempt can succeed without anybody's help.
    pub(crate) fn passes(&self) -> bool {
        !matches!(self, CatchUpError::Replica(PeerError::Stopped { .. }))
    }
}

/// What a replica certainly has (PROTOCOL R5).
fn base<W: World>(world: &W, report: &Report) -> Version {
    if world.bug(Bug::HoleInBase) {
        return report.tail.iter().map(|record| record.version).fold(report.committed, Version::max);
    }
    match report.condition {
        // Without holes up to the watermark, because the watermark is told only to who has everything below it.
        Condition::Whole => report.base.unwrap_or(report.committed).min(report.committed),
        // Whole lists are compared (PROTOCOL R4).
        Condition::Incomplete | Condition::Damaged => NOTHING,
    }
}

/// The extents to compare.
fn changed<W: World>(world: &W, base: Version, source: &Report, target: &Report) -> BTreeSet<u32> {
    let above = |report: &Report| {
        report
            .extents
            .iter()
            .filter(|extent| extent.last > base)
            .map(|extent| extent.index)
            .collect::<Vec<_>>()
    };
    let mut changed: BTreeSet<u32> = above(source).into_iter().collect();
    if world.bug(Bug::CompareOneSide) {
        return changed;
    }
    changed.extend(above(target));
    let named = target.tail.iter().filter(|record| record.kind != TailKind::Empty);
    changed.extend(named.map(|record| record.extent));
    let indices =
        |report: &Report| -> BTreeSet<u32> { report.extents.iter().map(|extent| extent.index).collect() };
    let (here, there) = (indices(source), indices(target));
    if world.bug(Bug::KeepFreedExtents) {
        changed.retain(|extent| here.contains(extent));
        changed.extend(here.difference(&there));
    } else {
        changed.extend(here.symmetric_difference(&there));
    }
    changed
}

/// Brings `member` into step with `shard`: at return it is joining.
pub(crate) async fn catch_up<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    member: &Rc<Member<P>>,
    throttle: &Throttle<W>,
    progress: &Progress,
) -> Result<(), CatchUpError> {
    let replica = CatchUpError::Replica;
    if member.role.get() == Role::Out {
        // One that was never left alone has nothing late in flight, and something in flight always.
        member.drained().await;
        member.role.set(Role::Returning);
    }
    *member.failure.borrow_mut() = None;
    let place = shard.place(0, Blocks::ALL, Want::Glance).await;
    let theirs = shard.ask(member, &place, member.peer.report()).await.map_err(replica)?;
    let base = base(&shard.world, &theirs);
    if !shard.world.bug(Bug::BaseDuringCatchUp) {
        shard.ask(member, &place, member.peer.set_base(Some(base))).await.map_err(replica)?;
    }
    if theirs.single {
        shard.ask(member, &place, member.peer.set_single(false)).await.map_err(replica)?;
    }
    if member.role.get() == Role::Returning {
        member.role.set(Role::Attached);
    }
    shard.settled().await;
    if !shard.world.bug(Bug::TrustReturnedInstance) {
        let ours = source_report(shard).await?;
        let changed = changed(&shard.world, base, &ours, &theirs);
        progress.lists(changed.len() as u64 * EXTENT_BYTES);
        tracing::info!(
            shard = %shard.id, replica = %member.replica, %base, extents = changed.len(), "catching up"
        );
        for extent in changed {
            run::extent(shard, member, extent, throttle, progress).await?;
        }
    }
    join(shard, member, base).await
}

async fn source_report<W: World, P: Peer<W>>(shard: &Rc<Inner<W, P>>) -> Result<Report, CatchUpError> {
    let mut last = PeerError::Gone;
    for source in shard.in_sync() {
        let place = shard.place(0, Blocks::ALL, Want::Glance).await;
        match shard.ask(&source, &place, source.peer.report()).await {
            Ok(report) => return Ok(report),
            Err(error) => last = error,
        }
    }
    Err(CatchUpError::Source(ShardError::Failed { shard: shard.id, cause: last }))
}

/// It has everything: only the membership lets it go now (PROTOCOL R2).
async fn join<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    member: &Rc<Member<P>>,
    base: Version,
) -> Result<(), CatchUpError> {
    still_here(member)?;
    member.role.set(Role::Joining);
    // Everything up to here is on it, durably: a crash after its addition finds its history without a hole.
    shard.settled().await;
    shard.flush().await.map_err(CatchUpError::Source)?;
    member.peer.committed(shard.committed.get());
    let place = shard.place(0, Blocks::ALL, Want::Glance).await;
    let base = (!shard.world.bug(Bug::BaseDuringCatchUp)).then_some(base);
    shard.ask(member, &place, member.peer.set_base(base)).await.map_err(CatchUpError::Replica)
}

/// It has been added: its base follows the watermark again (PROTOCOL R5).
pub(crate) async fn release<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    member: &Rc<Member<P>>,
) -> Result<(), CatchUpError> {
    member.peer.committed(shard.committed.get());
    let place = shard.place(0, Blocks::ALL, Want::Glance).await;
    shard.ask(member, &place, member.peer.set_base(None)).await.map_err(CatchUpError::Replica)
}

/// It did not fail meanwhile.
fn still_here<P>(member: &Member<P>) -> Result<(), CatchUpError> {
    if member.role.get().gets_writes() {
        return Ok(());
    }
    Err(CatchUpError::Replica(member.failure.borrow().clone().unwrap_or(PeerError::Gone)))
}

#[cfg(test)]
mod tests;
