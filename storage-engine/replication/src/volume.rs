//! A volume as one core has it: those of its shards that the core owns.
//!
//! The node routes each [`Piece`] of a request to the core that owns its shard. Decisions that concern whole
//! segments are made by the membership and passed on to every core ([`Volume::adopt`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, World};
use ashlar_store::lane::ReadData;
use ashlar_store::{Blocks, SegmentId, ShardId};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt};
use uuid::Uuid;

use crate::catch_up::progress::Progress;
use crate::catch_up::throttle::Throttle;
use crate::catch_up::{self, CatchUpError};
use crate::layout::{Layout, Piece};
use crate::load::Load;
use crate::member::Role;
use crate::members::{Failures, Members};
use crate::membership::{InSyncSet, Membership, MembershipError, ReplicaId};
use crate::opening::{self, OpenError};
use crate::peer::{DataOf, Peer, PeerError};
use crate::scrub::{Position, Scrub};
use crate::shard::{Limits, Part, Shard, ShardError};
use crate::status::{ReplicaState, SegmentStatus, VolumeStatus};

/// Shards of a core that open or catch up at the same time: enough to keep devices busy, few enough for the buffers.
const SHARDS_AT_ONCE: usize = 8;
/// Pauses between attempts to bring a replica back: at first, and at most.
const ATTEMPT_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The replicas of one shard that this core can reach.
pub type Peers<P> = Vec<(ReplicaId, Rc<P>)>;

/// A segment that is to be opened.
#[derive(Debug)]
pub struct OpenSegment<P> {
    /// Index in the volume.
    pub index: u32,
    /// The in-sync set, as the membership has it.
    pub set: InSyncSet,
    /// The shards that this core owns, by index, with the replicas that are there. A replica of the in-sync set
    /// that is missing for one of them leaves the set: declaring it lost is the caller's decision (PROTOCOL R3).
    pub shards: Vec<(u32, Peers<P>)>,
}

struct Segment<W: World, P, M> {
    members: Rc<Members<W, M>>,
    shards: BTreeMap<u32, Shard<W, P>>,
    catching_up: RefCell<BTreeMap<ReplicaId, Rc<Progress>>>,
}

/// See the module.
pub struct Volume<W: World, P, M> {
    world: W,
    layout: Layout,
    segments: BTreeMap<u32, Segment<W, P, M>>,
    load: Rc<Load>,
    throttle: Throttle<W>,
    scrub: Scrub<W>,
}

impl<W: World, P: Peer<W>, M: Membership> Volume<W, P, M> {
    /// Opens this core's part of a volume under a target epoch that was never used before (PROTOCOL R1): every
    /// doubtful block is equal on all members at return (R8).
    pub async fn open(
        world: W,
        (id, layout): (Uuid, Layout),
        (epoch, limits): (u32, Limits),
        membership: &Rc<M>,
        open: Vec<OpenSegment<P>>,
    ) -> Result<Self, OpenError> {
        let load = Rc::new(Load::default());
        let throttle = Throttle::new(world.clone(), Rc::clone(&load));
        let scrub = Scrub::new(world.clone(), Rc::clone(&load));
        let mut segments = BTreeMap::new();
        for OpenSegment { index, set, shards } in open {
            let segment = SegmentId { volume: id, index };
            let members = Members::new(world.clone(), segment, Rc::clone(membership), set);
            remove_absent(&members, segment, &shards).await?;
            let opening = shards.into_iter().map(|(index, peers)| {
                let shard = ShardId { segment, index };
                let (world, members, load) = (&world, &members, &load);
                async move {
                    let shape = (shard, layout.shards());
                    opening::open(world, members, shape, (epoch, limits, load), peers).await
                }
            });
            let mut opened = BTreeMap::new();
            let mut opening = stream::iter(opening).buffer_unordered(SHARDS_AT_ONCE);
            while let Some(shard) = opening.next().await {
                let shard = shard?;
                opened.insert(shard.id().index, shard);
            }
            drop(opening);
            let segment = Segment { members, shards: opened, catching_up: RefCell::default() };
            segments.insert(index, segment);
        }
        Ok(Self { world, layout, segments, load, throttle, scrub })
    }

    /// How the volume is cut up.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// A shard that this core owns.
    pub fn shard(&self, segment: u32, shard: u32) -> Option<&Shard<W, P>> {
        self.segments.get(&segment)?.shards.get(&shard)
    }

    fn shard_of(&self, piece: &Piece) -> Result<&Shard<W, P>, VolumeError> {
        self.shard(piece.segment, piece.shard)
            .ok_or(VolumeError::NotHere { segment: piece.segment, shard: piece.shard })
    }

    /// Reads the blocks of a piece, all of them: the piece begins at its `skip`.
    pub async fn read(&self, piece: &Piece) -> Result<ReadData<W::Buffer>, VolumeError> {
        Ok(self.shard_of(piece)?.read(piece.extent, piece.part.blocks).await?)
    }

    /// Writes a piece that consists of whole blocks, with data of its length.
    pub async fn write(&self, piece: &Piece, data: DataOf<W>) -> Result<(), VolumeError> {
        let expected = piece.part.len;
        if !piece.is_aligned() || data.len() != expected {
            return Err(VolumeError::Shape { expected, found: data.len() });
        }
        Ok(self.shard_of(piece)?.write(piece.extent, piece.part.blocks, data).await?)
    }

    /// Writes a piece at any alignment; each of its blocks changes as a whole or not at all.
    pub async fn write_part(&self, piece: &Piece, bytes: &[u8]) -> Result<(), VolumeError> {
        let expected = piece.part.len;
        if bytes.len() != expected {
            return Err(VolumeError::Shape { expected, found: bytes.len() });
        }
        Ok(self.shard_of(piece)?.write_part(piece.extent, piece.part, bytes).await?)
    }

    /// Makes a piece read as zeroes. Whole extents are freed.
    pub async fn clear(&self, piece: &Piece) -> Result<(), VolumeError> {
        const ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        let shard = self.shard_of(piece)?;
        let Part { blocks, skip, len } = piece.part;
        let end = skip + len;
        let first_whole = skip.div_ceil(BLOCK_BYTES);
        let end_whole = end / BLOCK_BYTES;
        // Byte ranges of the parts of blocks at both ends, relative to the first block.
        let head = (skip, (first_whole * BLOCK_BYTES).min(end));
        let tail = ((end_whole * BLOCK_BYTES).max(head.1), end);
        let whole = end_whole
            .checked_sub(first_whole)
            .and_then(|count| {
                let first = blocks.first() + u32::try_from(first_whole).ok()?;
                Blocks::new(first, u32::try_from(count).ok()?)
            })
            .filter(|whole| blocks.contains(*whole));
        if let Some(whole) = whole {
            shard.clear(piece.extent, whole).await?;
        }
        for (from, to) in [head, tail] {
            let block =
                u32::try_from(from / BLOCK_BYTES).ok().and_then(|at| Blocks::new(blocks.first() + at, 1));
            if let (true, Some(block)) = (from < to, block) {
                let part = Part { blocks: block, skip: from % BLOCK_BYTES, len: to - from };
                shard.write_part(piece.extent, part, &ZEROES[..to - from]).await?;
            }
        }
        Ok(())
    }

    /// Makes everything durable that completed on this core's shards (PROTOCOL R18: the node asks every core).
    pub async fn flush(&self) -> Result<(), VolumeError> {
        let shards = self.segments.values().flat_map(|segment| segment.shards.values());
        try_join_all(shards.map(Shard::flush)).await?;
        Ok(())
    }

    /// Takes over an in-sync set that was decided elsewhere. Older ones are ignored.
    pub fn adopt(&self, segment: u32, set: InSyncSet) {
        if let Some(segment) = self.segments.get(&segment) {
            segment.members.adopt(set);
        }
    }

    /// Takes a replica out of a segment's in-sync set, for the node knows that its device has gone. An error only if
    /// it is the last.
    pub async fn remove(&self, segment: u32, replica: ReplicaId, why: &str) -> Result<(), MembershipError> {
        match self.segments.get(&segment) {
            Some(segment) if segment.members.set().contains(replica) => {
                segment.members.remove(replica, why.to_owned()).await
            }
            _ => Ok(()),
        }
    }

    /// How fast replicas are brought into step.
    pub fn throttle(&self) -> &Throttle<W> {
        &self.throttle
    }

    /// Verifies every in-sync copy of what this core owns from `from` on, and repairs what is bad. Never reads more
    /// than `bytes_per_s`, and less while it slows hosts down. When this is dropped, [`ScrubStatus::at`] says where the
    /// next call goes on; one call at a time.
    ///
    /// [`ScrubStatus::at`]: crate::scrub::ScrubStatus::at
    pub async fn scrub(&self, from: Position, bytes_per_s: u64) {
        let pass = self.scrub.begin(from, bytes_per_s);
        for (&index, segment) in self.segments.range(from.segment..) {
            let first = if index == from.segment { from.extent } else { 0 };
            for extent in first..self.layout.extents(index) {
                pass.reach(Position { segment: index, extent }).await;
                if let Some(shard) = segment.shards.get(&(extent % self.layout.shards())) {
                    self.scrub.extent(shard, extent).await;
                }
            }
        }
        pass.end();
    }

    /// State and counters of this core's part.
    pub fn status(&self) -> VolumeStatus {
        let mut status = VolumeStatus { scrub: self.scrub.status(), ..VolumeStatus::default() };
        for (&index, segment) in &self.segments {
            let set = segment.members.set();
            let losses = segment.members.losses();
            let mut replicas: BTreeMap<ReplicaId, ReplicaState> = BTreeMap::new();
            for (replica, loss) in losses {
                replicas.insert(replica, ReplicaState::Out(Some(loss)));
            }
            for (replica, progress) in segment.catching_up.borrow().iter() {
                replicas.insert(*replica, ReplicaState::CatchingUp(progress.status(self.world.now())));
            }
            for replica in &set.members {
                replicas.insert(*replica, ReplicaState::InSync);
            }
            status.segments.push(SegmentStatus { index, epoch: set.epoch, replicas });
            segment.shards.values().for_each(|shard| status.counts.add(shard.counters()));
        }
        status
    }

    /// Brings a replica that returned, or is new, into the in-sync set of a segment: `peers` are its parts of all
    /// shards that this core owns. Tries again until it succeeds; an error is one that only another device cures.
    /// When this is dropped, the replica stays as far as it is, out of the set.
    pub async fn catch_up(
        &self,
        segment: u32,
        replica: ReplicaId,
        peers: Vec<(u32, Rc<P>)>,
    ) -> Result<(), CatchUpError> {
        let Some(segment) = self.segments.get(&segment) else { return Ok(()) };
        let _background = self.load.background();
        let _shown = Shown(&segment.catching_up, replica);
        let mut pause = ATTEMPT_PAUSES.0;
        loop {
            if segment.members.set().contains(replica) {
                return Ok(());
            }
            let error = match self.attempt(segment, replica, &peers).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tracing::warn!(%replica, %error, "catch-up must begin again");
            if !error.passes() {
                return Err(error);
            }
            self.world.sleep(pause).await;
            pause = (pause * 2).min(ATTEMPT_PAUSES.1);
        }
    }

    async fn attempt(
        &self,
        segment: &Segment<W, P, M>,
        replica: ReplicaId,
        peers: &[(u32, Rc<P>)],
    ) -> Result<(), CatchUpError> {
        let progress = Rc::new(Progress::new(self.world.now(), peers.len() as u64));
        segment.catching_up.borrow_mut().insert(replica, Rc::clone(&progress));
        let mut joining = Vec::new();
        for (index, peer) in peers {
            let Some(shard) = segment.shards.get(index) else { continue };
            let member = match shard.0.member(replica) {
                Some(member) if Rc::ptr_eq(&member.peer, peer) => member,
                // It has been opened anew: nothing that was sent to it before may still happen (PROTOCOL R6).
                Some(former) if former.role.get() == Role::Out => {
                    former.drained().await;
                    shard.0.enlist(replica, Rc::clone(peer), Role::Out).ok_or(CatchUpError::TooMany)?
                }
                Some(former) => {
                    shard.0.member_failed(&former, PeerError::Gone);
                    return Err(CatchUpError::Replica(PeerError::Gone));
                }
                None => shard.0.enlist(replica, Rc::clone(peer), Role::Out).ok_or(CatchUpError::TooMany)?,
            };
            joining.push((Rc::clone(&shard.0), member));
        }
        let steps = joining.iter().map(|(shard, member)| {
            let (throttle, progress) = (&self.throttle, &progress);
            async move {
                if member.role.get() == Role::Joining {
                    // An earlier attempt failed elsewhere.
                    progress.lists(0);
                    return Ok(());
                }
                let outcome = catch_up::catch_up(shard, member, throttle, progress).await;
                if member.role.get() == Role::Returning {
                    member.role.set(Role::Out);
                }
                outcome
            }
        });
        let mut steps = stream::iter(steps).buffer_unordered(SHARDS_AT_ONCE);
        while let Some(outcome) = steps.next().await {
            outcome?;
        }
        drop(steps);
        let in_step = || joining.iter().all(|(_, member)| member.role.get().counts());
        self.add(segment, replica, in_step).await?;
        for (shard, member) in &joining {
            catch_up::release(shard, member).await?;
        }
        Ok(())
    }

    async fn add(
        &self,
        segment: &Segment<W, P, M>,
        replica: ReplicaId,
        in_step: impl Fn() -> bool,
    ) -> Result<(), CatchUpError> {
        loop {
            // Asked under the epoch of this moment. If it fails later, it is withdrawn under the same epoch, and one of
            // the two comes too late (PROTOCOL R2).
            if !in_step() {
                return Err(CatchUpError::Replica(PeerError::Gone));
            }
            match segment.members.add(replica).await {
                Ok(()) => return Ok(()),
                // Someone else changed the set: the addition did not happen.
                Err(MembershipError::Stale(set)) if set.epoch > segment.members.set().epoch => {
                    segment.members.adopt(set);
                    if segment.members.set().contains(replica) {
                        return Ok(());
                    }
                }
                Err(error) => {
                    // It may still be decided, unless it is withdrawn (PROTOCOL R2). Until then it counts.
                    let _never_last = segment.members.remove(replica, error.to_string()).await;
                    return Err(CatchUpError::Membership(error));
                }
            }
        }
    }
}

/// A replica that is shown as catching up, until this is dropped.
struct Shown<'a>(&'a RefCell<BTreeMap<ReplicaId, Rc<Progress>>>, ReplicaId);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().remove(&self.1);
    }
}

/// Removes the members of a set that are not there for every shard (PROTOCOL R4).
async fn remove_absent<W: World, P, M: Membership>(
    members: &Rc<Members<W, M>>,
    segment: SegmentId,
    shards: &[(u32, Peers<P>)],
) -> Result<(), OpenError> {
    for replica in members.set().members {
        let absent = shards.iter().find(|(_, peers)| peers.iter().all(|(id, _)| *id != replica));
        let Some(&(index, _)) = absent else { continue };
        let shard = ShardId { segment, index };
        if !members.set().contains(replica) {
            continue;
        }
        let why = format!("it is absent for shard {shard}");
        if members.remove(replica, why.clone()).await.is_err() {
            return Err(OpenError::NoCompleteReplica { shard, replica, why });
        }
    }
    Ok(())
}

/// A volume could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The shard could not.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// Another core owns the shard, or nobody.
    #[error("shard {shard} of segment {segment} is not open on this core")]
    NotHere {
        /// Index of the segment.
        segment: u32,
        /// Index of the shard.
        shard: u32,
    },
    /// Data and range do not fit each other.
    #[error("a request for {expected} bytes came with {found}, or does not begin and end with a block")]
    Shape {
        /// Bytes of the range.
        expected: usize,
        /// Bytes of the data.
        found: usize,
    },
}
