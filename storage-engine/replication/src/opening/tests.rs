//! What crashes leave, and what opening makes of it.

use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{Buffer, Bug, World};
use ashlar_store::lane::{Order, Origin};
use ashlar_store::{Blocks, ExtentId, Summer, Version};

use crate::double::{Mirror, Mood, TestWorld, blocks, first_of, replica, segment, shard, write};
use crate::opening::OpenError;
use crate::peer::{Condition, Kind, Peer, Update};

/// A change that reached this replica alone when everything died.
async fn only_at(mirror: &Mirror, index: usize, sequence: u64, kind: Kind<crate::double::Shared>) {
    let version = Version { epoch: mirror.epoch.get(), sequence };
    let update = Update { extent: 0, version, origin: Origin::Shard, order: Order::Parallel, kind };
    mirror.peers[index].apply(&update).await.expect("it is applied");
}

async fn writing(world: &TestWorld, at: Blocks, fill: u8) -> Kind<crate::double::Shared> {
    let mut buffer = world.buffer(at.count() as usize).await;
    buffer.fill(fill);
    let summer = Summer::new(ExtentId { segment: segment(), index: 0 });
    let checksums = summer.sums(at.first(), &buffer).collect();
    Kind::Write { blocks: at, checksums, data: buffer.freeze() }
}

#[test]
fn what_reached_one_replica_is_on_all_before_anybody_reads() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 3);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 8), 1).await;
        drop(volume);
        only_at(&mirror, 1, 2, writing(&world, blocks(2, 3), 2).await).await;
        only_at(&mirror, 2, 3, Kind::Zero(blocks(6, 1))).await;
        let volume = mirror.open().await;
        let found: Vec<u8> = (0..8).map(|block| mirror.same(0, block)).collect();
        assert_eq!(found, [1, 1, 2, 2, 2, 1, 0, 1]);
        assert_eq!(shard(&volume).counters().equalised.get(), 4);
        let committed = shard(&volume).committed();
        assert!(committed.epoch == 2 && committed.sequence > 3, "numbers go on, under the new epoch");
    });
}

#[test]
fn a_free_that_reached_one_replica_frees_all() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 8), 1).await;
        drop(volume);
        only_at(&mirror, 1, 2, Kind::Free).await;
        let _volume = mirror.open().await;
        assert!(mirror.peers.iter().all(|peer| !peer.has(0)));
    });
}

#[test]
fn the_simulators_bug_equalises_writes_only() {
    let world = TestWorld::with_bug(Bug::EqualiseWritesOnly);
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 1), 1).await;
        drop(volume);
        only_at(&mirror, 1, 2, Kind::Zero(blocks(0, 1))).await;
        let _volume = mirror.open().await;
        assert_eq!([mirror.peers[0].first_byte(0, 0), mirror.peers[1].first_byte(0, 0)], [1, 0]);
    });
}

#[test]
fn a_rotten_newest_copy_falls_back_to_the_next() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 2), 1).await;
        drop(volume);
        only_at(&mirror, 1, 2, writing(&world, blocks(0, 2), 2).await).await;
        mirror.peers[1].rot(0, 0);
        let volume = mirror.open().await;
        assert_eq!([mirror.same(0, 0), mirror.same(0, 1)], [1, 2]);
        shard(&volume).verify(0).await.expect("every copy is good");
    });
}

#[test]
fn a_history_that_ends_too_early_leaves_the_set() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 2), 1).await;
        drop(volume);
        let lost = crate::double::MemoryPeer::new(&world, segment());
        let mirror = Mirror { peers: vec![Rc::clone(&mirror.peers[0]), lost], ..mirror };
        let volume = mirror.open().await;
        assert_eq!(mirror.members(), [replica(0)]);
        assert_eq!(first_of(shard(&volume).read(0, blocks(0, 2)).await.expect("it is read")), 1);
    });
}

#[test]
fn incomplete_replicas_leave_the_set_and_the_last_one_keeps_the_shard_closed() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        mirror.peers[0].condition.set(Condition::Incomplete);
        let _volume = mirror.open().await;
        assert_eq!(mirror.members(), [replica(1)]);
        mirror.peers[1].condition.set(Condition::Damaged);
        let closed = mirror.open_with(&[0, 1]).await.err();
        assert!(matches!(closed, Some(OpenError::NoCompleteReplica { .. })), "{closed:?}");
        assert_eq!(mirror.members(), [replica(1)]);
    });
}

#[test]
fn an_absent_replica_leaves_the_set_and_the_absence_of_all_keeps_the_volume_closed() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let _volume = mirror.open_with(&[1]).await.expect("one is enough");
        assert_eq!(mirror.members(), [replica(1)]);
        let closed = mirror.open_with(&[0]).await.err();
        assert!(matches!(closed, Some(OpenError::NoCompleteReplica { .. })), "{closed:?}");
        assert_eq!(mirror.members(), [replica(1)]);
    });
}

#[test]
fn an_epoch_opens_once() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 2), 1).await;
        drop(volume);
        mirror.epoch.set(0);
        let refused = mirror.open_with(&[0, 1]).await.err();
        assert!(matches!(refused, Some(OpenError::OldEpoch { epoch: 1, seen: 1, .. })), "{refused:?}");
    });
}

#[test]
fn a_member_that_fails_while_the_shard_opens_is_left_behind() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        write(&world, &shard(&volume), 0, blocks(0, 2), 1).await;
        drop(volume);
        only_at(&mirror, 0, 2, writing(&world, blocks(0, 1), 2).await).await;
        mirror.peers[1].delay.set(Duration::from_millis(1));
        mirror.peers[1].become_(Mood::Hangs);
        let volume = mirror.open().await;
        assert_eq!(mirror.members(), [replica(0)]);
        assert_eq!(first_of(shard(&volume).read(0, blocks(0, 1)).await.expect("it is read")), 2);
    });
}
