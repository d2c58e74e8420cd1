//! Changes of a shard's bytes (PROTOCOL S3).

use std::rc::Rc;

use ashlar_io::{BLOCK_BYTES, Bug, World};
use ashlar_store::lane::{Origin, ReadData};
use ashlar_store::{Blocks, Summer, Version};

use crate::member::Member;
use crate::peer::{Checksums, DataOf, Kind, Peer, PeerError, Update};
use crate::ranges::{MemberBits, Place, Want};
use crate::shard::{Fanout, Inner, Job, Shard, ShardError, Targets};

/// Some bytes of an extent, not at block boundaries. Not empty, within the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The blocks that it touches.
    pub blocks: Blocks,
    /// Bytes before it in the first of them.
    pub skip: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// Does `kind` on all members, as the next version. The place is alone on its blocks.
    ///
    /// From the version on until the first await nothing else runs: versions go out in their order.
    pub(crate) async fn change(
        self: &Rc<Self>,
        place: Place,
        extent: u32,
        kind: Kind<DataOf<W>>,
    ) -> Result<Place, ShardError> {
        let frees = matches!(kind, Kind::Free);
        if matches!(kind, Kind::Write { .. }) {
            self.set_present(extent, true);
        }
        let version = self.sequence.borrow_mut().give();
        place.overtakes();
        let update = Update { extent, version, origin: Origin::Shard, order: self.order.get(), kind };
        let job = Job::Update(Rc::new(update));
        let (place, outcome) = Fanout::start(self, place, job, Targets::All, Some(version)).await;
        outcome?;
        if frees {
            self.set_present(extent, false);
        }
        // Without a failure the place is there.
        place.ok_or(ShardError::Failed { shard: self.id, cause: PeerError::Gone })
    }

    /// Does `kind` on one member, which thereby gets what the others have. Under the newest version that was given,
    /// whose number it does not use (PROTOCOL S3).
    pub(crate) async fn change_one(
        self: &Rc<Self>,
        place: Place,
        member: &Rc<Member<P>>,
        extent: u32,
        kind: Kind<DataOf<W>>,
    ) -> (Option<Place>, Result<(), ShardError>) {
        let newest = self.sequence.borrow().newest();
        let version = if self.world.bug(Bug::AdoptWithoutVersion) { Version::ZERO } else { newest };
        let update = Update { extent, version, origin: Origin::Copy, order: self.order.get(), kind };
        let job = Job::Update(Rc::new(update));
        Fanout::start(self, place, job, Targets::One(Rc::clone(member)), None).await
    }

    /// A write of these bytes, with their checksums.
    pub(crate) fn writing(&self, extent: u32, blocks: Blocks, data: DataOf<W>) -> Kind<DataOf<W>> {
        let checksums: Checksums = Summer::new(self.extent_id(extent)).sums(blocks.first(), &data).collect();
        Kind::Write { blocks, checksums, data }
    }

    /// After a change that not all could accept: fills its number where it is missing, then makes the blocks equal.
    ///
    /// Who has no room for an extent has none of it, so its blocks were zero before, everywhere: zero is what they
    /// become again.
    pub(super) async fn undo(
        self: Rc<Self>,
        place: Place,
        update: Rc<Update<DataOf<W>>>,
        version: Version,
        without_space: MemberBits,
    ) {
        let extent = update.extent;
        let place = if self.world.bug(Bug::LeaveSequenceUnfilled) {
            self.finish(version);
            place
        } else {
            let empty =
                Update { extent, version, origin: Origin::Shard, order: update.order, kind: Kind::Empty };
            let targets = if without_space == 0 { Targets::All } else { Targets::Some(without_space) };
            let job = Job::Update(Rc::new(empty));
            match Fanout::start(&self, place, job, targets, Some(version)).await {
                (Some(place), Ok(())) => place,
                // The last member refuses even this.
                _ => return,
            }
        };
        if let (Kind::Write { blocks, .. }, true) = (&update.kind, without_space != 0) {
            // A failure has been dealt with on its way.
            let _place = self.change(place, extent, Kind::Zero(*blocks)).await;
        }
    }

    /// A change was begun and taken back: who read meanwhile reads again.
    pub(super) fn undone(&self) {
        self.undone.set(self.undone.get() + 1);
    }

    pub(crate) fn set_present(&self, extent: u32, is: bool) {
        let line = self.line(extent);
        let mut present = self.present.borrow_mut();
        if present.len() <= line {
            present.resize(line + 1, false);
        }
        present[line] = is;
    }

    pub(crate) fn is_present(&self, extent: u32) -> bool {
        self.present.borrow().get(self.line(extent)).copied().unwrap_or(false)
    }
}

impl<W: World, P: Peer<W>> Shard<W, P> {
    /// Writes whole blocks. Complete at return: on all in-sync replicas, as durable as their devices promise.
    ///
    /// `extent` is one of the shard's, as an index of the segment; `data` has the length of `blocks`.
    pub async fn write(&self, extent: u32, blocks: Blocks, data: DataOf<W>) -> Result<(), ShardError> {
        let began = self.0.world.now();
        let place = self.0.place(extent, blocks, Want::Change).await;
        let kind = self.0.writing(extent, blocks, data);
        let outcome = self.0.change(place, extent, kind).await.map(drop);
        self.0.load.served(began, self.0.world.now());
        outcome
    }

    /// Writes bytes that do not fill their blocks: each block gets them as a whole or not at all.
    pub async fn write_part(&self, extent: u32, part: Part, bytes: &[u8]) -> Result<(), ShardError> {
        let place = self.0.place(extent, part.blocks, Want::Change).await;
        let (place, found) = self.0.read_alone(place, extent, part.blocks, None).await;
        let mut buffer = self.0.owned(part.blocks, found?)?;
        let bytes = &bytes[..part.len.min(bytes.len())];
        buffer[part.skip..part.skip + bytes.len()].copy_from_slice(bytes);
        let kind = self.0.writing(extent, part.blocks, ashlar_io::Buffer::freeze(buffer));
        self.0.change(place, extent, kind).await.map(drop)
    }

    /// Writes `data` if the blocks hold `expected`, with nothing in between (NVMe's fused compare and write).
    pub async fn compare_and_write(
        &self,
        extent: u32,
        blocks: Blocks,
        expected: &[u8],
        data: DataOf<W>,
    ) -> Result<(), ShardError> {
        let place = self.0.place(extent, blocks, Want::Change).await;
        let (place, found) = self.0.read_alone(place, extent, blocks, None).await;
        let differs = match found? {
            ReadData::Zeroes => {
                expected.chunks(BLOCK_BYTES).position(|block| block.iter().any(|&byte| byte != 0))
            }
            ReadData::Buffer(found) => found
                .chunks(BLOCK_BYTES)
                .zip(expected.chunks(BLOCK_BYTES))
                .position(|(found, expected)| found != expected),
        };
        if let Some(index) = differs {
            let block = blocks.first() + u32::try_from(index).unwrap_or(0);
            return Err(ShardError::Differs { extent, block });
        }
        let kind = self.0.writing(extent, blocks, data);
        self.0.change(place, extent, kind).await.map(drop)
    }

    /// Makes blocks read as zeroes, and frees the extent if that is all of it.
    pub async fn clear(&self, extent: u32, blocks: Blocks) -> Result<(), ShardError> {
        let place = self.0.place(extent, blocks, Want::Change).await;
        if !self.0.is_present(extent) {
            // Nobody has it: it is zero already.
            return Ok(());
        }
        let kind = if blocks == Blocks::ALL { Kind::Free } else { Kind::Zero(blocks) };
        self.0.change(place, extent, kind).await.map(drop)
    }
}
