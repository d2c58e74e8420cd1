//! A replica of a shard in this machine: a lane of the same core.

use std::cell::{Cell, RefCell};

use ashlar_io::World;
use ashlar_store::lane::{Change, Lane, LaneError, Memory, Origin, ReadData, ShardReport, ShardSlot, Write};
use ashlar_store::{Blocks, EXTENT_BLOCKS, ExtentId, ShardId, Stored, Version};

use crate::digest::{self, Digest};
use crate::peer::{Condition, DataOf, Kind, Peer, PeerError, Report, Update};

/// What a lane keeps as the base of a shard that follows its watermark.
const FOLLOWS: Version = Version::ZERO;
/// What it keeps for a frozen base below every version: the least that is not [`FOLLOWS`]. Epochs begin with 1.
const NOTHING: Version = Version { epoch: 0, sequence: 1 };

/// See the module.
#[derive(Debug)]
pub struct LocalPeer<W: World> {
    world: W,
    lane: Lane<W>,
    id: ShardId,
    slot: ShardSlot,
    condition: Condition,
    /// As recovery found it, or as it became.
    found: RefCell<Option<ShardReport>>,
    committed: Cell<Version>,
    base: Cell<Option<Version>>,
    single: Cell<bool>,
}

impl<W: World> LocalPeer<W> {
    /// The lane's part of `id`, which it registers if it has none.
    pub async fn open(world: W, lane: Lane<W>, id: ShardId) -> Result<Self, PeerError> {
        Self::open_as(world, lane, id, Condition::Whole).await
    }

    /// The same, if not everything that belongs to the replica is there (PROTOCOL R4).
    pub async fn open_as(
        world: W,
        lane: Lane<W>,
        id: ShardId,
        condition: Condition,
    ) -> Result<Self, PeerError> {
        let slot = lane.shard(id).await.map_err(error)?;
        let found = lane.reports().iter().find(|report| report.shard == id).cloned();
        let (committed, base, single) = match &found {
            Some(report) => {
                (report.committed, (report.base != FOLLOWS).then_some(report.base), report.single)
            }
            None => (Version::ZERO, None, false),
        };
        Ok(Self {
            world,
            lane,
            id,
            slot,
            condition,
            found: RefCell::new(found),
            committed: Cell::new(committed),
            base: Cell::new(base),
            single: Cell::new(single),
        })
    }

    /// The lane that it lives in.
    pub fn lane(&self) -> &Lane<W> {
        &self.lane
    }

    /// Extents that a crash left suspect: [`crate::Shard::verify`] settles each (PROTOCOL S2).
    pub fn suspects(&self) -> Vec<u32> {
        let extents = self.lane.extents(self.slot);
        extents.into_iter().filter(|extent| extent.suspect).map(|extent| extent.index).collect()
    }

    fn extent(&self, index: u32) -> ExtentId {
        ExtentId { segment: self.id.segment, index }
    }
}

fn error(error: LaneError) -> PeerError {
    match error {
        LaneError::NoSpace { extent } => PeerError::NoSpace { extent: extent.index },
        LaneError::Disk(error) => PeerError::Device { cause: error.to_string() },
        LaneError::Mismatch { extent, blocks, suspect } => {
            PeerError::Mismatch { extent: extent.index, blocks, suspect }
        }
        LaneError::Stopped(cause) => PeerError::Stopped { cause },
        other => PeerError::Stopped { cause: other.to_string() },
    }
}

impl<W: World> Peer<W> for LocalPeer<W> {
    async fn report(&self) -> Result<Report, PeerError> {
        if let Some(stopped) = self.lane.stopped() {
            return Err(error(stopped));
        }
        let committed = self.committed.get();
        let mut tail = self.found.borrow().as_ref().map(|found| found.tail.clone()).unwrap_or_default();
        tail.retain(|record| record.version > committed);
        Ok(Report {
            condition: self.condition,
            committed,
            base: self.base.get(),
            single: self.single.get(),
            tail,
            extents: self.lane.extents(self.slot),
        })
    }

    async fn apply(&self, update: &Update<DataOf<W>>) -> Result<(), PeerError> {
        let extent = self.extent(update.extent);
        let change = Change { shard: self.slot, extent, version: update.version, origin: update.origin };
        // A change of this replica alone uses no number, so it leaves nothing where there is nothing to change.
        let nothing_to_do = update.origin == Origin::Copy && !self.lane.has(extent);
        let applied = match &update.kind {
            Kind::Write { blocks, checksums, data } => {
                let write =
                    Write { change, blocks: *blocks, checksums, data: data.clone(), order: update.order };
                self.lane.write(write).await
            }
            Kind::Zero(_) | Kind::Free if nothing_to_do => Ok(()),
            Kind::Zero(blocks) => self.lane.zero(change, *blocks).await,
            Kind::Free => self.lane.free(change).await,
            Kind::Empty => self.lane.empty(self.slot, update.version).await,
        };
        applied.map_err(error)
    }

    async fn read(
        &self,
        extent: u32,
        blocks: Blocks,
        memory: Memory,
    ) -> Result<ReadData<W::Buffer>, PeerError> {
        self.lane.read_into(self.extent(extent), blocks, memory).await.map_err(error)
    }

    async fn read_unverified(
        &self,
        extent: u32,
        blocks: Blocks,
    ) -> Result<(W::Buffer, Vec<Stored>), PeerError> {
        let found = self.lane.read_unverified(self.extent(extent), blocks).await.map_err(error)?;
        if let Some(found) = found {
            return Ok((found.buffer, found.sums));
        }
        let mut buffer = self.world.spare_buffer(blocks.count() as usize);
        buffer.fill(0);
        Ok((buffer, vec![Stored::NEVER; blocks.count() as usize]))
    }

    async fn checksums(&self, extent: u32) -> Result<Box<[Stored; EXTENT_BLOCKS as usize]>, PeerError> {
        self.lane.checksums(self.extent(extent)).await.map_err(error)
    }

    async fn digest(&self, extent: u32, blocks: Blocks) -> Result<Digest, PeerError> {
        digest::by_reading(self, extent, blocks).await
    }

    fn committed(&self, version: Version) {
        self.committed.set(version.max(self.committed.get()));
        self.lane.committed(self.slot, version);
    }

    async fn set_base(&self, base: Option<Version>) -> Result<(), PeerError> {
        let kept = base.map_or(FOLLOWS, |base| base.max(NOTHING));
        self.lane.set_base(self.slot, kept).await.map_err(error)?;
        self.base.set(base);
        Ok(())
    }

    async fn set_single(&self, single: bool) -> Result<(), PeerError> {
        self.lane.set_single(self.slot, single).await.map_err(error)?;
        self.single.set(single);
        Ok(())
    }

    async fn flush(&self) -> Result<(), PeerError> {
        self.lane.flush().await.map_err(error)
    }

    async fn forget(&self) -> Result<(), PeerError> {
        for extent in self.lane.extents(self.slot) {
            let version = extent.last;
            let extent = self.extent(extent.index);
            let change = Change { shard: self.slot, extent, version, origin: Origin::Copy };
            self.lane.free(change).await.map_err(error)?;
        }
        self.lane.forget(self.slot).await.map_err(error)?;
        *self.found.borrow_mut() = None;
        Ok(())
    }

    fn volatile(&self) -> bool {
        self.lane.is_volatile()
    }
}
