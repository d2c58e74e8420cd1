//! Compares one run of blocks after another with the source, and copies what differs.
//!
//! A run is alone in line from the comparison to the end of its copies (PROTOCOL R7).

use std::rc::Rc;

use ashlar_io::{BLOCK_BYTES, Buffer, Bug, World};
use ashlar_store::lane::ReadData;
use ashlar_store::{Blocks, EXTENT_BLOCKS, Stored};
use futures_util::future::join;

use super::progress::Progress;
use super::throttle::Throttle;
use super::{CatchUpError, EXTENT_BYTES, still_here};
use crate::digest::{Digest, RUN_BLOCKS, alike, largest_read, parts};
use crate::member::Member;
use crate::peer::{Checksums, Kind, Peer, PeerError};
use crate::ranges::{Place, Want};
use crate::shard::{Inner, ShardError};

/// What is to be done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Nothing: it reads as zero on both sides.
    Nothing,
    /// The checksums are the same: proof is needed that the bytes are (PROTOCOL S13).
    Proof,
    /// The bytes differ.
    Copy,
    /// The source has zeroes.
    Zero,
}

fn need(ours: Stored, theirs: Stored) -> Need {
    match (ours.has_data(), theirs.has_data()) {
        (true, _) if ours == theirs => Need::Proof,
        (true, _) => Need::Copy,
        (false, true) => Need::Zero,
        // A tombstone is carried over: a parent must not shine through (PROTOCOL S14).
        (false, false) if ours == Stored::ZERO && theirs == Stored::NEVER => Need::Zero,
        (false, false) => Need::Nothing,
    }
}

/// One extent under way.
struct Extent<'a, W: World, P> {
    shard: &'a Rc<Inner<W, P>>,
    member: &'a Rc<Member<P>>,
    index: u32,
    progress: &'a Progress,
}

/// Makes an extent of `member` what it is in the shard.
pub(super) async fn extent<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    member: &Rc<Member<P>>,
    index: u32,
    throttle: &Throttle<W>,
    progress: &Progress,
) -> Result<(), CatchUpError> {
    let extent = Extent { shard, member, index, progress };
    if !shard.is_present(index) {
        throttle.take(BLOCK_BYTES as u64).await;
        if extent.free().await? {
            progress.compared(EXTENT_BYTES);
            return Ok(());
        }
    }
    for blocks in parts(Blocks::ALL, RUN_BLOCKS) {
        let bytes = u64::from(blocks.count()) * BLOCK_BYTES as u64;
        throttle.take(bytes).await;
        still_here(member)?;
        let place = shard.place(index, blocks, Want::Change).await;
        extent.run(place, blocks).await?;
        progress.compared(bytes);
    }
    Ok(())
}

impl<W: World, P: Peer<W>> Extent<'_, W, P> {
    /// The shard does not have the extent: the member shall not have it. False if it has been written meanwhile.
    async fn free(&self) -> Result<bool, CatchUpError> {
        let racing = self.shard.world.bug(Bug::FreeRacingWrite);
        let want = if racing { Want::Glance } else { Want::Change };
        let place = self.shard.place(self.index, Blocks::ALL, want).await;
        if !racing && self.shard.is_present(self.index) {
            return Ok(false);
        }
        if racing {
            self.shard.world.next_turn().await;
        }
        self.give(place, Kind::Free).await?;
        Ok(true)
    }

    /// Changes the member alone.
    async fn give(
        &self,
        place: Place,
        kind: Kind<<W::Buffer as Buffer>::Data>,
    ) -> Result<Place, CatchUpError> {
        still_here(self.member)?;
        let (place, outcome) = self.shard.change_one(place, self.member, self.index, kind).await;
        match (outcome, place) {
            (Ok(()), Some(place)) => Ok(place),
            (Err(ShardError::Failed { cause, .. }), _) => {
                let said = self.member.failure.borrow().clone();
                Err(CatchUpError::Replica(said.unwrap_or(cause)))
            }
            (Err(ShardError::NoSpace { extent, .. }), _) => {
                Err(CatchUpError::Replica(PeerError::NoSpace { extent }))
            }
            _ => Err(CatchUpError::Replica(PeerError::Gone)),
        }
    }

    async fn run(&self, mut place: Place, blocks: Blocks) -> Result<(), CatchUpError> {
        let theirs = self.shard.ask(self.member, &place, self.member.peer.checksums(self.index)).await;
        let theirs = match theirs {
            Ok(sums) => Some(sums),
            // Then all of it is copied.
            Err(PeerError::BadPage { .. }) => None,
            Err(error) => return Err(CatchUpError::Replica(error)),
        };
        let ours = self.source_sums(&place).await;
        let need_of = |block: u32| {
            let at = |sums: &[Stored; EXTENT_BLOCKS as usize]| sums.get(block as usize).copied();
            match (ours.as_deref().and_then(at), theirs.as_deref().and_then(at)) {
                (Some(ours), Some(theirs)) => need(ours, theirs),
                (Some(ours), None) if !ours.has_data() => Need::Zero,
                _ => Need::Copy,
            }
        };
        for (part, need) in alike(blocks, largest_read::<W>(), need_of) {
            place = match need {
                Need::Nothing => place,
                Need::Zero if self.shard.world.bug(Bug::ForgetDeallocations) => place,
                Need::Zero => self.give(place, Kind::Zero(part)).await?,
                Need::Copy => self.copy(place, part).await?,
                Need::Proof if self.proven(&place, part).await? => place,
                Need::Proof => self.copy(place, part).await?,
            };
        }
        Ok(())
    }

    async fn source_sums(&self, place: &Place) -> Option<Box<[Stored; EXTENT_BLOCKS as usize]>> {
        for source in self.shard.in_sync() {
            let sums = self.shard.ask(&source, place, source.peer.checksums(self.index)).await;
            if let Ok(sums) = sums {
                return Some(sums);
            }
        }
        None
    }

    async fn source_digest(&self, part: Blocks) -> Option<Digest> {
        let place = self.shard.place(self.index, part, Want::Glance).await;
        for source in self.shard.in_sync() {
            let digest = source.peer.digest(self.index, part);
            if let Ok(digest) = self.shard.ask(&source, &place, digest).await {
                return Some(digest);
            }
        }
        None
    }

    /// The bytes of both sides have the same hash. False also if a side cannot read: copying sees to that.
    async fn proven(&self, place: &Place, part: Blocks) -> Result<bool, CatchUpError> {
        let shard = self.shard;
        if shard.world.bug(Bug::SkipHashProof) {
            return Ok(true);
        }
        let theirs = shard.ask(self.member, place, self.member.peer.digest(self.index, part));
        // At the same time, so in a place of its own: each wait is watched over.
        let (theirs, ours) = join(theirs, self.source_digest(part)).await;
        match theirs {
            Ok(theirs) => Ok(ours == Some(theirs)),
            Err(error) if error.bad_blocks(part).is_some() => Ok(false),
            Err(error) => Err(CatchUpError::Replica(error)),
        }
    }

    /// Copies from whoever in sync has good bytes.
    async fn copy(&self, place: Place, part: Blocks) -> Result<Place, CatchUpError> {
        let (mut place, found) = self.shard.read_alone(place, self.index, part, None).await;
        match found {
            Ok(found) => {
                if self.shard.world.bug(Bug::CopyOvertakesWrite) {
                    drop(place);
                    self.shard.world.next_turn().await;
                    place = self.shard.place(self.index, part, Want::Glance).await;
                }
                let kind = match found {
                    ReadData::Zeroes => Kind::Zero(part),
                    ReadData::Buffer(buffer) => self.shard.writing(self.index, part, buffer.freeze()),
                };
                self.progress.copied(u64::from(part.count()) * BLOCK_BYTES as u64);
                self.give(place, kind).await
            }
            Err(ShardError::Unrecovered { .. }) => {
                for block in (part.first()..part.end()).filter_map(|block| Blocks::new(block, 1)) {
                    place = self.copy_bad(place, block).await?;
                }
                Ok(place)
            }
            Err(error) => Err(CatchUpError::Source(error)),
        }
    }

    /// Copies a block that may be lost in all sources. If the returning replica has what the source should have, it
    /// heals the source. Otherwise it gets the same bad bytes with the same checksum: lost here is lost there, and
    /// not something older (design D2, D4).
    async fn copy_bad(&self, place: Place, one: Blocks) -> Result<Place, CatchUpError> {
        let (mut place, found) = self.shard.read_alone(place, self.index, one, None).await;
        match found {
            Ok(ReadData::Zeroes) => return self.give(place, Kind::Zero(one)).await,
            Ok(ReadData::Buffer(buffer)) => {
                let kind = self.shard.writing(self.index, one, buffer.freeze());
                return self.give(place, kind).await;
            }
            Err(ShardError::Unrecovered { .. }) => {}
            Err(error) => return Err(CatchUpError::Source(error)),
        }
        let Some(source) = self.shard.in_sync().into_iter().next() else {
            return Err(CatchUpError::Source(ShardError::Failed {
                shard: self.shard.id,
                cause: PeerError::Gone,
            }));
        };
        let unverified = self.shard.ask(&source, &place, source.peer.read_unverified(self.index, one)).await;
        let failed = |cause| CatchUpError::Source(ShardError::Failed { shard: self.shard.id, cause });
        let (bytes, sums) = unverified.map_err(failed)?;
        if let Ok(ReadData::Buffer(good)) = self.shard.read_from(self.member, &place, self.index, one).await {
            let kind = self.shard.writing(self.index, one, good.freeze());
            let heals = matches!(&kind, Kind::Write { checksums, .. } if checksums.first() == sums.first());
            if heals {
                let (back, outcome) = self.shard.change_one(place, &source, self.index, kind).await;
                outcome.map_err(CatchUpError::Source)?;
                self.shard.counters.repaired.add(1);
                return back.ok_or(CatchUpError::Replica(PeerError::Gone));
            }
        }
        let checksums: Checksums = sums.into_iter().collect();
        place = self.give(place, Kind::Write { blocks: one, checksums, data: bytes.freeze() }).await?;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_follow_from_the_checksums() {
        let (one, other) = (Stored(7), Stored(8));
        assert_eq!(need(one, one), Need::Proof);
        assert_eq!(need(one, other), Need::Copy);
        assert_eq!(need(one, Stored::NEVER), Need::Copy);
        assert_eq!(need(Stored::NEVER, one), Need::Zero);
        assert_eq!(need(Stored::ZERO, Stored::NEVER), Need::Zero);
        assert_eq!(need(Stored::NEVER, Stored::ZERO), Need::Nothing);
    }
}
