//! Which lane a shard lives in.
//!
//! A shard that is on some lane already stays there. A new one gets a lane number that is the same in every pool, and
//! in each pool the device with the most space for the shards that it has. That is decided when a volume is opened;
//! until a shard is first written nothing of it is on the device, so the next opening may decide otherwise.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_replication::ReplicaId;
use ashlar_store::ShardId;
use uuid::Uuid;

use super::part::LaneId;
use crate::state::SegmentState;

/// A device, as far as placement is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) pool: Uuid,
    pub(super) lanes: u32,
    /// Blocks of the device: what its share of the shards follows.
    pub(super) blocks: u64,
    /// Shards that live there.
    pub(super) shards: u64,
    /// All its lanes are open. Without that nobody knows what it holds.
    pub(super) whole: bool,
}

/// Where everything is.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    pub(super) devices: BTreeMap<Uuid, Room>,
    /// Lanes that hold something of a shard: at most one per pool.
    pub(super) lanes: BTreeMap<ShardId, BTreeSet<LaneId>>,
}

impl Map {
    /// The lane of each replica of `shard` that is there for it. New ones are placed and remembered.
    pub(super) fn place(&mut self, shard: ShardId, segment: &SegmentState) -> Vec<(ReplicaId, LaneId)> {
        let mut placed = Vec::new();
        let mut new = Vec::new();
        for replica in &segment.replicas {
            match self.lane_in(shard, replica.pool) {
                Some(lane) => placed.push((ReplicaId(replica.id), lane)),
                // With a device absent nobody knows whether it holds the shard (PROTOCOL R4).
                None if replica.devices.iter().all(|device| self.is_whole(device)) => new.push(replica),
                None => {}
            }
        }
        let number = placed.first().map(|(_, (_, number))| *number);
        let number = number.unwrap_or_else(|| self.number(shard, segment));
        for replica in new {
            if let Some(device) = self.roomiest(replica.pool, number, &replica.devices) {
                self.remember(shard, (device, number));
                placed.push((ReplicaId(replica.id), (device, number)));
            }
        }
        placed
    }

    /// Notes that a lane holds something of a shard.
    pub(super) fn remember(&mut self, shard: ShardId, lane: LaneId) {
        if self.lanes.entry(shard).or_default().insert(lane)
            && let Some(device) = self.devices.get_mut(&lane.0)
        {
            device.shards += 1;
        }
    }

    fn is_whole(&self, device: &Uuid) -> bool {
        self.devices.get(device).is_some_and(|device| device.whole)
    }

    fn lane_in(&self, shard: ShardId, pool: Uuid) -> Option<LaneId> {
        let in_pool = |lane: &&LaneId| self.devices.get(&lane.0).is_some_and(|device| device.pool == pool);
        self.lanes.get(&shard)?.iter().find(in_pool).copied()
    }

    /// A lane number that every pool of the segment has on all devices: shards take turns.
    fn number(&self, shard: ShardId, segment: &SegmentState) -> u32 {
        let pools: BTreeSet<Uuid> = segment.replicas.iter().map(|replica| replica.pool).collect();
        let lanes = self.devices.values().filter(|device| pools.contains(&device.pool)).map(|one| one.lanes);
        shard.index % lanes.min().unwrap_or(1).max(1)
    }

    fn roomiest(&self, pool: Uuid, number: u32, allowed: &BTreeSet<Uuid>) -> Option<Uuid> {
        let fits = |(id, device): &(&Uuid, &Room)| {
            device.pool == pool && device.lanes > number && device.whole && allowed.contains(id)
        };
        // Most blocks for each shard, counting the new one.
        let room = |(_, device): &(&Uuid, &Room)| device.blocks / (device.shards + 1);
        self.devices.iter().filter(fits).max_by_key(room).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use ashlar_store::SegmentId;

    use super::*;
    use crate::state::{InSync, ReplicaState};

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn shard(index: u32) -> ShardId {
        ShardId { segment: SegmentId { volume: id(9), index: 0 }, index }
    }

    /// Pool 1 has devices 11 and 12, the second three times as large; pool 2 has device 21.
    fn map() -> Map {
        let device = |pool, lanes, blocks| Room { pool: id(pool), lanes, blocks, shards: 0, whole: true };
        let devices =
            [(id(11), device(1, 4, 1000)), (id(12), device(1, 4, 3000)), (id(21), device(2, 2, 4000))];
        Map { devices: devices.into(), lanes: BTreeMap::new() }
    }

    fn segment() -> SegmentState {
        let replica = |number, pool, devices: &[u128]| ReplicaState {
            id: id(number),
            pool: id(pool),
            devices: devices.iter().map(|device| id(*device)).collect(),
            in_sync: InSync::Yes,
        };
        let replicas = vec![replica(101, 1, &[11, 12]), replica(102, 2, &[21])];
        SegmentState { membership_epoch: 1, replicas }
    }

    #[test]
    fn replicas_of_a_shard_have_one_lane_number_and_devices_get_their_share() {
        let mut map = map();
        let mut numbers = BTreeSet::new();
        for index in 0..32 {
            let placed = map.place(shard(index), &segment());
            assert_eq!(placed.len(), 2);
            assert_eq!(placed[0].1.1, placed[1].1.1);
            numbers.insert(placed[0].1.1);
        }
        assert_eq!(numbers, BTreeSet::from([0, 1]), "as many as the device with the fewest lanes has");
        assert_eq!((map.devices[&id(11)].shards, map.devices[&id(12)].shards), (8, 24));
    }

    #[test]
    fn a_shard_stays_where_it_is() {
        let mut map = map();
        map.remember(shard(0), (id(11), 3));
        let placed = map.place(shard(0), &segment());
        assert_eq!(placed[0], (ReplicaId(id(101)), (id(11), 3)));
        assert_eq!(placed.len(), 1, "device 21 has no lane 3");
        assert_eq!(map.place(shard(1), &segment()), map.place(shard(1), &segment()));
    }

    #[test]
    fn with_a_device_absent_only_what_is_found_is_there() {
        let mut map = map();
        map.remember(shard(0), (id(12), 0));
        map.devices.remove(&id(11));
        let replicas =
            |placed: Vec<(ReplicaId, LaneId)>| placed.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(replicas(map.place(shard(0), &segment())), [ReplicaId(id(101)), ReplicaId(id(102))]);
        assert_eq!(replicas(map.place(shard(1), &segment())), [ReplicaId(id(102))]);
    }
}
