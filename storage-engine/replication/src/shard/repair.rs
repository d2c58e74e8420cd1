//! Reads that find bad copies: each block comes from wherever it is good, and the bad copies are rewritten (design D4).
//!
//! All of it happens alone in line for the blocks, after a confirming reread (PROTOCOL S8), so that a mismatch is one
//! and not a write in flight.

use std::rc::Rc;

use ashlar_io::{BLOCK_BYTES, Buffer, Bug, World};
use ashlar_store::lane::ReadData;
use ashlar_store::{Blocks, EXTENT_BLOCKS};

use crate::digest::{alike, largest_read, parts};
use crate::member::{Member, Role};
use crate::peer::{Kind, Peer, PeerError};
use crate::ranges::{Place, Want};
use crate::shard::{Inner, Shard, ShardError};

/// What each block of a range is worth, once all members were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Good,
    /// No copy has its checksum, but a crash explains it: one was chosen (PROTOCOL S2).
    Chosen,
    Lost,
}

/// A member that could not read these blocks.
struct Bad<P> {
    member: Rc<Member<P>>,
    blocks: Vec<u32>,
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    pub(crate) fn fits(&self, blocks: Blocks) -> Result<(), ShardError> {
        let fits = blocks.count() as usize <= W::MAX_BUFFER_BLOCKS;
        if fits { Ok(()) } else { Err(ShardError::TooLarge { blocks: blocks.count() }) }
    }

    /// The bytes in a buffer of one's own.
    pub(crate) fn owned(&self, blocks: Blocks, data: ReadData<W::Buffer>) -> Result<W::Buffer, ShardError> {
        match data {
            ReadData::Buffer(buffer) => Ok(buffer),
            ReadData::Zeroes => {
                self.fits(blocks)?;
                let mut buffer = self.world.spare_buffer(blocks.count() as usize);
                buffer.fill(0);
                Ok(buffer)
            }
        }
    }

    fn joining(&self) -> Vec<Rc<Member<P>>> {
        let members = self.members.borrow();
        members.iter().filter(|member| member.role.get() == Role::Joining).cloned().collect()
    }

    /// Reads blocks of a place that is alone on them, `first` being asked first, and repairs what it finds bad.
    pub(crate) async fn read_alone(
        self: &Rc<Self>,
        place: Place,
        extent: u32,
        blocks: Blocks,
        first: Option<Rc<Member<P>>>,
    ) -> (Place, Result<ReadData<W::Buffer>, ShardError>) {
        if let Err(error) = self.fits(blocks) {
            return (place, Err(error));
        }
        let mut members = self.in_sync();
        if let Some(first) = &first {
            members.sort_by_key(|member| !Rc::ptr_eq(member, first));
        }
        // One that is in step, and may have been added without this core knowing it yet (PROTOCOL R2), is asked last:
        // the others may rely on it already and fail.
        members.extend(self.joining());
        let mut bad = Vec::new();
        let mut cause = PeerError::Gone;
        for member in &members {
            match self.read_twice(member, &place, extent, blocks).await {
                Ok(data) => return self.mend(place, (extent, blocks), data, bad).await,
                Err(error) => {
                    match error.bad_blocks(blocks) {
                        Some(blocks) => bad.push(Bad { member: Rc::clone(member), blocks }),
                        None => self.member_failed(member, error.clone()),
                    }
                    if matches!(error, PeerError::BadPage { .. }) {
                        self.restore_extent(extent);
                    }
                    cause = error;
                }
            }
        }
        if bad.is_empty() {
            return (place, Err(ShardError::Failed { shard: self.id, cause }));
        }
        self.piece_together(place, (extent, blocks), bad).await
    }

    /// Reads, and once more if that fails: what passes is not corruption.
    async fn read_twice(
        self: &Rc<Self>,
        member: &Member<P>,
        place: &Place,
        extent: u32,
        blocks: Blocks,
    ) -> Result<ReadData<W::Buffer>, PeerError> {
        match self.read_from(member, place, extent, blocks).await {
            Err(error) if error.bad_blocks(blocks).is_some() && !self.world.bug(Bug::RepairWithoutReread) => {
                self.read_from(member, place, extent, blocks).await
            }
            answer => answer,
        }
    }

    /// No member has all of the range: block by block, from whoever has it.
    async fn piece_together(
        self: &Rc<Self>,
        mut place: Place,
        (extent, blocks): (u32, Blocks),
        bad: Vec<Bad<P>>,
    ) -> (Place, Result<ReadData<W::Buffer>, ShardError>) {
        let mut buffer = self.world.spare_buffer(blocks.count() as usize);
        let mut worth = Vec::new();
        for (block, bytes) in (blocks.first()..blocks.end()).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            worth.push(self.find_block(&place, extent, block, &bad, bytes).await);
        }
        let worth_of =
            |block: u32| worth.get((block - blocks.first()) as usize).copied().unwrap_or(Block::Lost);
        for (chosen, _) in
            alike(blocks, EXTENT_BLOCKS, worth_of).into_iter().filter(|(_, is)| *is == Block::Chosen)
        {
            tracing::error!(shard = %self.id, extent, blocks = %chosen, "no copy matches after a crash: chose one");
            self.counters.chosen.add(u64::from(chosen.count()));
            let kind = self.writing(extent, chosen, self.copied(blocks, &buffer, chosen));
            match self.change(place, extent, kind).await {
                Ok(back) => place = back,
                Err(error) => return (self.place(extent, blocks, Want::Change).await, Err(error)),
            }
        }
        let lost: Vec<u32> =
            (blocks.first()..blocks.end()).filter(|&block| worth_of(block) == Block::Lost).collect();
        let mendable = bad.into_iter().map(|mut bad| {
            bad.blocks.retain(|&block| worth_of(block) == Block::Good);
            bad
        });
        let (place, data) =
            self.mend(place, (extent, blocks), ReadData::Buffer(buffer), mendable.collect()).await;
        if lost.is_empty() {
            return (place, data);
        }
        self.counters.lost.add(lost.len() as u64);
        tracing::error!(shard = %self.id, extent, blocks = ?lost, "no good copy is left");
        (place, Err(ShardError::Unrecovered { shard: self.id, extent, blocks: lost }))
    }

    async fn find_block(
        self: &Rc<Self>,
        place: &Place,
        extent: u32,
        block: u32,
        candidates: &[Bad<P>],
        bytes: &mut [u8],
    ) -> Block {
        let Some(one) = Blocks::new(block, 1) else { return Block::Lost };
        let mut suspect = None;
        for Bad { member, .. } in candidates {
            match self.read_from(member, place, extent, one).await {
                Ok(ReadData::Zeroes) => {
                    bytes.fill(0);
                    return Block::Good;
                }
                Ok(ReadData::Buffer(found)) => {
                    bytes.copy_from_slice(&found);
                    return Block::Good;
                }
                Err(PeerError::Mismatch { suspect: true, .. }) => suspect = suspect.or(Some(member)),
                Err(_) => {}
            }
        }
        let Some(member) = suspect else { return Block::Lost };
        match self.ask(member, place, member.peer.read_unverified(extent, one)).await {
            Ok((found, _)) => {
                bytes.copy_from_slice(&found);
                Block::Chosen
            }
            Err(_) => Block::Lost,
        }
    }

    /// Rewrites bad copies with the good `data`, which is answered.
    async fn mend(
        self: &Rc<Self>,
        mut place: Place,
        (extent, whole): (u32, Blocks),
        data: ReadData<W::Buffer>,
        bad: Vec<Bad<P>>,
    ) -> (Place, Result<ReadData<W::Buffer>, ShardError>) {
        for Bad { member, blocks } in bad {
            self.counters.corrupted.add(blocks.len() as u64);
            let is_bad = |block: u32| blocks.contains(&block);
            for (part, _) in alike(whole, EXTENT_BLOCKS, is_bad).into_iter().filter(|(_, is_bad)| *is_bad) {
                let kind = match &data {
                    ReadData::Zeroes => Kind::Zero(part),
                    ReadData::Buffer(buffer) => self.writing(extent, part, self.copied(whole, buffer, part)),
                };
                let (back, outcome) = self.change_one(place, &member, extent, kind).await;
                place = match back {
                    Some(place) => place,
                    None => self.place(extent, whole, Want::Change).await,
                };
                if outcome.is_ok() {
                    self.counters.repaired.add(u64::from(part.count()));
                    tracing::warn!(
                        shard = %self.id, extent, blocks = %part, replica = %member.replica, "repaired a bad copy"
                    );
                }
            }
        }
        (place, Ok(data))
    }

    /// A copy of the bytes of `part` of `whole`, to be written.
    fn copied(&self, whole: Blocks, bytes: &[u8], part: Blocks) -> <W::Buffer as Buffer>::Data {
        let mut buffer = self.world.spare_buffer(part.count() as usize);
        let first = (part.first() - whole.first()) as usize * BLOCK_BYTES;
        let len = part.count() as usize * BLOCK_BYTES;
        buffer.copy_from_slice(&bytes[first..first + len]);
        buffer.freeze()
    }

    /// A member lost the checksums of an extent: writes all of it there again, in the background (PROTOCOL S4).
    fn restore_extent(self: &Rc<Self>, extent: u32) {
        if self.restoring.borrow().contains(&extent) {
            return;
        }
        self.restoring.borrow_mut().push(extent);
        let shard = Rc::clone(self);
        self.world.spawn(async move {
            let outcome = shard.verify(extent).await;
            tracing::warn!(shard = %shard.id, extent, ok = outcome.is_ok(), "restored lost checksums");
            shard.restoring.borrow_mut().retain(|restoring| *restoring != extent);
        });
    }

    async fn verify(self: &Rc<Self>, extent: u32) -> Result<(), ShardError> {
        let mut outcome = Ok(());
        for part in parts(Blocks::ALL, largest_read::<W>()) {
            for member in self.in_sync() {
                if let Err(error) = self.verify_copy(member, extent, part).await.1 {
                    outcome = Err(error);
                }
            }
            self.world.next_turn().await;
        }
        outcome
    }

    /// Reads one copy of some blocks and repairs what is bad. Returns how many of them failed at first, and the error
    /// if some have no good copy anywhere.
    pub(crate) async fn verify_copy(
        self: &Rc<Self>,
        member: Rc<Member<P>>,
        extent: u32,
        part: Blocks,
    ) -> (u64, Result<(), ShardError>) {
        let place = self.place(extent, part, Want::Read).await;
        let failed = match self.read_from(&member, &place, extent, part).await {
            Ok(_) => return (0, Ok(())),
            Err(error) => error.bad_blocks(part).map_or(0, |bad| bad.len() as u64),
        };
        drop(place);
        // A write may be what was seen: only what is read again, alone, is bad (PROTOCOL S8).
        let place = self.place(extent, part, Want::Change).await;
        let (_place, found) = self.read_alone(place, extent, part, Some(member)).await;
        (failed, found.map(drop))
    }
}

impl<W: World, P: Peer<W>> Shard<W, P> {
    /// Reads every copy of an extent and repairs what is bad: what a scrub asks for, or an extent that a crash left
    /// suspect. The last error, if some blocks could not be repaired.
    pub async fn verify(&self, extent: u32) -> Result<(), ShardError> {
        self.0.verify(extent).await
    }
}
