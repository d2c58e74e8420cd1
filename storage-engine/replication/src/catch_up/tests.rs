//! Replicas that come back, whatever happened meanwhile.

use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{Bug, World};
use ashlar_store::Blocks;

use crate::double::{
    MemoryPeer, Mirror, Mood, TestVolume, TestWorld, blocks, replica, segment, shard, write,
};
use crate::status::ReplicaState;

const MS: Duration = Duration::from_millis(1);

/// A mirror whose second replica left after two extents were written.
async fn degraded(world: &TestWorld) -> (Mirror, TestVolume) {
    let mirror = Mirror::new(world, 2);
    let volume = mirror.open().await;
    let shard = shard(&volume);
    for extent in 0..3 {
        write(world, &shard, extent, blocks(0, 8), 1).await;
    }
    mirror.peers[1].become_(Mood::Stopped);
    write(world, &shard, 0, blocks(0, 1), 2).await;
    assert_eq!(mirror.members(), [replica(0)]);
    (mirror, volume)
}

fn equal(mirror: &Mirror) {
    for extent in 0..6 {
        for block in 0..16 {
            mirror.same(extent, block);
        }
        let has: Vec<bool> = mirror.peers.iter().map(|peer| peer.has(extent)).collect();
        assert_eq!(has[0], has[1], "extent {extent}");
    }
}

#[test]
fn only_what_changed_is_copied() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(4, 2), 3).await;
        shard.clear(1, Blocks::ALL).await.expect("it is freed");
        shard.clear(2, blocks(2, 3)).await.expect("it is zeroed");
        write(&world, &shard, 4, blocks(9, 1), 4).await;
        mirror.peers[1].become_(Mood::Works);
        mirror.bring_back(&volume, 1).await;
        assert_eq!(mirror.members().len(), 2);
        equal(&mirror);
        assert_eq!(mirror.peers[1].base.get(), None, "the base follows the watermark again");
        assert_eq!([mirror.same(0, 4), mirror.same(2, 2), mirror.same(4, 9)], [3, 0, 4]);
        assert!(!mirror.peers[1].has(1), "what was freed is free");
    });
}

#[test]
fn the_base_is_frozen_until_the_replica_is_in_sync() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        mirror.peers[1].delay.set(5 * MS);
        mirror.membership.delay.set(50 * MS);
        let back = async {
            mirror.bring_back(&volume, 1).await;
            true
        };
        let watch = async {
            world.sleep(12 * MS).await;
            write(&world, &shard(&volume), 5, blocks(0, 1), 9).await;
            while mirror.members().len() == 1 {
                assert_eq!(mirror.peers[1].base.get().map(|base| base.sequence), Some(3));
                world.sleep(MS).await;
            }
        };
        futures_util::future::join(back, watch).await;
        assert_eq!(mirror.same(5, 0), 9, "writes go to it while it catches up");
        equal(&mirror);
    });
}

#[test]
fn a_new_replica_gets_everything() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        let fresh = MemoryPeer::new(&world, segment());
        let mirror = Mirror { peers: vec![Rc::clone(&mirror.peers[0]), fresh], ..mirror };
        mirror.bring_back(&volume, 1).await;
        equal(&mirror);
        assert_eq!(mirror.same(2, 7), 1);
    });
}

#[test]
fn copies_never_overtake_writes() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        let shard = shard(&volume);
        mirror.peers[1].become_(Mood::Works);
        mirror.peers[1].delay.set(3 * MS);
        let writes = async {
            for round in 0..60_u8 {
                let block = u32::from(round) % 8;
                write(&world, &shard, u32::from(round) % 3, blocks(block, 1), round + 50).await;
                if round % 20 == 7 {
                    shard.clear(1, Blocks::ALL).await.expect("it is freed");
                }
            }
        };
        futures_util::future::join(mirror.bring_back(&volume, 1), writes).await;
        shard.quiesce().await;
        equal(&mirror);
    });
}

#[test]
fn what_looks_equal_is_proven_by_a_hash() {
    for (bug, noticed) in [(None, true), (Some(Bug::SkipHashProof), false)] {
        let world = bug.map_or_else(TestWorld::default, TestWorld::with_bug);
        world.run(async {
            let (mirror, volume) = degraded(&world).await;
            mirror.peers[1].become_(Mood::Works);
            // As if other bytes had the same CRC.
            mirror.peers[1].rot(0, 5);
            mirror.bring_back(&volume, 1).await;
            let shard = shard(&volume);
            shard.verify(0).await.expect("one copy is good");
            assert_eq!(shard.counters().corrupted.get() == 0, noticed);
        });
    }
}

#[test]
fn a_replica_that_fails_again_begins_again() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        mirror.peers[1].delay.set(2 * MS);
        let flap = async {
            for _ in 0..3 {
                world.sleep(30 * MS).await;
                mirror.peers[1].become_(Mood::Stumbles(8));
            }
        };
        futures_util::future::join(mirror.bring_back(&volume, 1), flap).await;
        equal(&mirror);
        assert_eq!(mirror.members().len(), 2);
    });
}

#[test]
fn a_replica_that_hangs_while_it_catches_up_delays_writes_but_fails_none() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        mirror.peers[1].delay.set(MS);
        let hangs = async {
            world.sleep(5 * MS).await;
            mirror.peers[1].become_(Mood::Hangs);
            for fill in 0..4 {
                write(&world, &shard(&volume), 0, blocks(0, 64), 100 + fill).await;
            }
            assert!(world.now().as_ns() < 10_000_000_000);
            mirror.peers[1].become_(Mood::Works);
        };
        futures_util::future::join(mirror.bring_back(&volume, 1), hangs).await;
        equal(&mirror);
    });
}

#[test]
fn an_addition_that_cannot_be_decided_is_withdrawn_and_tried_again() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        mirror.membership.outages.set(3);
        mirror.bring_back(&volume, 1).await;
        assert_eq!(mirror.members().len(), 2);
        equal(&mirror);
    });
}

#[test]
fn a_block_that_is_lost_in_the_source_is_healed_by_the_returning_replica() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        mirror.peers[0].rot(0, 5);
        mirror.bring_back(&volume, 1).await;
        shard(&volume).verify(0).await.expect("every copy is good");
        assert_eq!(mirror.same(0, 5), 1);
    });
}

#[test]
fn a_block_that_is_lost_everywhere_does_not_become_an_older_one() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        // Written while the other one was away: it has an older version.
        mirror.peers[0].rot(0, 0);
        mirror.bring_back(&volume, 1).await;
        for _ in 0..4 {
            shard(&volume).read(0, blocks(0, 1)).await.expect_err("it is lost on both");
        }
        assert_eq!(mirror.members().len(), 2);
    });
}

#[test]
fn status_tells_who_is_out_and_who_catches_up() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        let state = |volume: &TestVolume| volume.status().segments[0].replicas[&replica(1)].clone();
        assert!(matches!(state(&volume), ReplicaState::Out(Some(loss)) if loss.why.contains("told to")));
        mirror.peers[1].become_(Mood::Works);
        mirror.peers[1].delay.set(2 * MS);
        let watch = async {
            world.sleep(20 * MS).await;
            let ReplicaState::CatchingUp(status) = state(&volume) else { panic!("it catches up") };
            assert!(status.percent() > 0.0 && status.percent() < 100.0 && status.eta.is_some());
        };
        futures_util::future::join(mirror.bring_back(&volume, 1), watch).await;
        assert_eq!(state(&volume), ReplicaState::InSync);
    });
}

#[test]
fn a_limit_slows_catching_up_down() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = degraded(&world).await;
        mirror.peers[1].become_(Mood::Works);
        volume.throttle().set_limit(Some(1 << 20));
        let before = world.now().as_ns();
        mirror.bring_back(&volume, 1).await;
        assert!(world.now().as_ns() - before > 3_000_000_000, "4 MiB at 1 MiB/s");
    });
}

#[test]
fn every_bug_of_catching_up_shows() {
    let bugs = [Bug::KeepFreedExtents, Bug::ForgetDeallocations, Bug::TrustReturnedInstance, Bug::HoleInBase];
    for bug in bugs {
        let world = TestWorld::with_bug(bug);
        let equal = world.run(async {
            let (mirror, volume) = degraded(&world).await;
            let shard = shard(&volume);
            shard.clear(1, Blocks::ALL).await.expect("it is freed");
            shard.clear(2, blocks(2, 3)).await.expect("it is zeroed");
            mirror.peers[1].become_(Mood::Works);
            if bug == Bug::HoleInBase {
                // One that applied a later number without the earlier ones.
                let version = shard.committed();
                let update = crate::peer::Update {
                    extent: 5,
                    version,
                    origin: ashlar_store::lane::Origin::Shard,
                    order: ashlar_store::lane::Order::Parallel,
                    kind: crate::peer::Kind::Empty,
                };
                crate::peer::Peer::apply(&*mirror.peers[1], &update).await.expect("it is applied");
            }
            mirror.bring_back(&volume, 1).await;
            let content = |peer: &MemoryPeer| -> Vec<u8> {
                (0..3)
                    .flat_map(|extent| (0..8).map(move |block| (extent, block)))
                    .map(|(extent, block)| peer.first_byte(extent, block))
                    .collect()
            };
            content(&mirror.peers[0]) == content(&mirror.peers[1])
        });
        assert!(!equal, "{bug} makes no difference");
    }
}
