//! Test doubles: a world of virtual time, replicas in memory, a membership in memory.

pub(crate) mod peer;
pub(crate) mod world;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, World};
use ashlar_store::lane::ReadData;
use ashlar_store::{Blocks, SegmentId};
use uuid::Uuid;

pub(crate) use peer::{MemoryPeer, Mood};
pub(crate) use world::{Bytes, Shared, TestWorld};

use crate::layout::Layout;
use crate::membership::{InSyncSet, Membership, MembershipEpoch, MembershipError, ReplicaId};
use crate::opening::OpenError;
use crate::shard::{Limits, Shard};
use crate::volume::{OpenSegment, Volume};

pub(crate) struct MemoryMembership {
    world: TestWorld,
    pub(crate) set: RefCell<InSyncSet>,
    /// How long each decision takes.
    pub(crate) delay: Cell<Duration>,
    /// Decisions that fail first.
    pub(crate) outages: Cell<u32>,
}

impl MemoryMembership {
    async fn decide(
        &self,
        at: MembershipEpoch,
        change: impl FnOnce(&mut Vec<ReplicaId>) -> Result<(), MembershipError>,
    ) -> Result<InSyncSet, MembershipError> {
        self.world.sleep(self.delay.get()).await;
        if self.outages.get() > 0 {
            self.outages.set(self.outages.get() - 1);
            return Err(MembershipError::Unavailable("told to".to_owned()));
        }
        let mut set = self.set.borrow_mut();
        if set.epoch != at {
            return Err(MembershipError::Stale(set.clone()));
        }
        change(&mut set.members)?;
        set.epoch.0 += 1;
        Ok(set.clone())
    }
}

impl Membership for MemoryMembership {
    async fn remove(
        &self,
        _segment: SegmentId,
        at: MembershipEpoch,
        replica: ReplicaId,
        _why: &str,
    ) -> Result<InSyncSet, MembershipError> {
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
            if !members.contains(&replica) {
                members.push(replica);
            }
            Ok(())
        })
        .await
    }
}

pub(crate) type TestVolume = Volume<TestWorld, MemoryPeer, MemoryMembership>;

/// A volume of one segment with one shard, and its replicas.
pub(crate) struct Mirror {
    pub(crate) world: TestWorld,
    pub(crate) membership: Rc<MemoryMembership>,
    pub(crate) peers: Vec<Rc<MemoryPeer>>,
    pub(crate) epoch: Cell<u32>,
}

pub(crate) fn replica(index: usize) -> ReplicaId {
    ReplicaId(Uuid::from_u128(index as u128 + 1))
}

pub(crate) fn segment() -> SegmentId {
    SegmentId { volume: Uuid::from_u128(77), index: 0 }
}

pub(crate) fn blocks(first: u32, count: u32) -> Blocks {
    Blocks::new(first, count).expect("within an extent")
}

impl Mirror {
    pub(crate) fn new(world: &TestWorld, replicas: usize) -> Self {
        let members = (0..replicas).map(replica).collect();
        Self {
            world: world.clone(),
            membership: Rc::new(MemoryMembership {
                world: world.clone(),
                set: RefCell::new(InSyncSet { epoch: MembershipEpoch(1), members }),
                delay: Cell::new(Duration::from_millis(1)),
                outages: Cell::new(0),
            }),
            peers: (0..replicas).map(|_| MemoryPeer::new(world, segment())).collect(),
            epoch: Cell::new(0),
        }
    }

    /// Opens the volume under the next epoch, with those replicas that are there.
    pub(crate) async fn open_with(&self, there: &[usize]) -> Result<TestVolume, OpenError> {
        self.epoch.set(self.epoch.get() + 1);
        let peers = there.iter().map(|&index| (replica(index), Rc::clone(&self.peers[index]))).collect();
        let open =
            OpenSegment { index: 0, set: self.membership.set.borrow().clone(), shards: vec![(0, peers)] };
        let layout = Layout::new(64 << 20, 64 << 20, 1).expect("a sound layout");
        let volume = (segment().volume, layout);
        let how = (self.epoch.get(), Limits::default());
        Volume::open(self.world.clone(), volume, how, &self.membership, vec![open]).await
    }

    pub(crate) async fn open(&self) -> TestVolume {
        let all: Vec<usize> = (0..self.peers.len()).collect();
        self.open_with(&all).await.expect("it opens")
    }

    pub(crate) fn members(&self) -> Vec<ReplicaId> {
        self.membership.set.borrow().members.clone()
    }

    pub(crate) async fn bring_back(&self, volume: &TestVolume, index: usize) {
        let peers = vec![(0, Rc::clone(&self.peers[index]))];
        volume.catch_up(0, replica(index), peers).await.expect("it catches up");
    }

    /// All replicas of the set have the same in this block; its first byte.
    pub(crate) fn same(&self, extent: u32, block: u32) -> u8 {
        let bytes: Vec<u8> = self
            .members()
            .into_iter()
            .map(|member| {
                let index = (0..self.peers.len()).find(|&index| replica(index) == member);
                self.peers[index.expect("a known replica")].first_byte(extent, block)
            })
            .collect();
        assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "block {block} of {extent}: {bytes:?}");
        bytes[0]
    }
}

pub(crate) type TestShard = Shard<TestWorld, MemoryPeer>;

pub(crate) fn shard(volume: &TestVolume) -> TestShard {
    volume.shard(0, 0).expect("it is open").clone()
}

pub(crate) async fn data(world: &TestWorld, count: u32, fill: u8) -> Shared {
    let mut buffer = world.buffer(count as usize).await;
    buffer.fill(fill);
    buffer.freeze()
}

pub(crate) async fn write(world: &TestWorld, shard: &TestShard, extent: u32, at: Blocks, fill: u8) {
    let data = data(world, at.count(), fill).await;
    shard.write(extent, at, data).await.expect("it is written");
}

pub(crate) fn first_of(data: ReadData<Bytes>) -> u8 {
    match data {
        ReadData::Zeroes => 0,
        ReadData::Buffer(buffer) => {
            assert!(buffer.chunks(BLOCK_BYTES).all(|block| block[0] == block[BLOCK_BYTES - 1]));
            buffer[0]
        }
    }
}
