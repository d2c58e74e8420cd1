//! What a scrub finds, and what it leaves alone.

use std::pin::pin;
use std::time::Duration;

use ashlar_io::World;
use ashlar_store::Blocks;
use futures_util::future::{Either, join, select};

use super::Position;
use crate::double::{Mirror, Mood, TestVolume, TestWorld, blocks, shard, write};

const MS: Duration = Duration::from_millis(1);
const FAST: u64 = 1 << 40;
const BEGIN: Position = Position { segment: 0, extent: 0 };
/// Bytes of the copies of one extent that two replicas have.
const BOTH_COPIES: u64 = 2 * (4 << 20);

/// A mirror of two with so many extents, and their first 8 blocks written.
async fn filled(world: &TestWorld, extents: u32) -> (Mirror, TestVolume) {
    let mirror = Mirror::new(world, 2);
    let volume = mirror.open().await;
    for extent in 0..extents {
        write(world, &shard(&volume), extent, blocks(0, 8), 1).await;
    }
    // Until no host is there any more.
    world.sleep(100 * MS).await;
    (mirror, volume)
}

#[test]
fn every_copy_is_verified_and_bad_ones_are_repaired() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = filled(&world, 3).await;
        mirror.peers[0].rot(0, 3);
        mirror.peers[1].rot(2, 7);
        volume.scrub(BEGIN, FAST).await;
        let status = volume.status();
        assert_eq!((status.counts.corrupted, status.counts.repaired, status.counts.lost), (2, 2, 0));
        assert_eq!((status.scrub.bad_blocks, status.scrub.lost_blocks, status.scrub.at), (2, 0, None));
        assert_eq!(status.scrub.verified_bytes, 3 * BOTH_COPIES);
        volume.scrub(BEGIN, FAST).await;
        assert_eq!(volume.status().scrub.bad_blocks, 2, "what was repaired is good");
    });
}

#[test]
fn what_is_not_there_is_not_read() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = filled(&world, 2).await;
        shard(&volume).clear(0, Blocks::ALL).await.expect("it is freed");
        volume.scrub(BEGIN, FAST).await;
        assert_eq!(volume.status().scrub.verified_bytes, BOTH_COPIES);
        let reads: Vec<u32> = mirror.peers.iter().map(|peer| peer.reads.get()).collect();
        assert_eq!(reads, [16, 16], "runs of one extent");
    });
}

#[test]
fn lost_blocks_are_counted_and_the_rest_is_verified() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = filled(&world, 2).await;
        mirror.peers[0].rot(0, 3);
        mirror.peers[1].rot(0, 3);
        mirror.peers[1].rot(0, 4);
        mirror.peers[0].rot(1, 5);
        volume.scrub(BEGIN, FAST).await;
        let status = volume.status();
        assert_eq!((status.scrub.lost_blocks, status.counts.lost), (1, 1));
        assert_eq!(status.counts.repaired, 2, "blocks 4 of the first and 5 of the second extent");
    });
}

#[test]
fn a_pass_goes_on_where_it_was_left() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = filled(&world, 6).await;
        // An extent takes 64 ms.
        {
            let pass = pin!(volume.scrub(BEGIN, BOTH_COPIES * 1000 / 64));
            let time = pin!(world.sleep(150 * MS));
            assert!(matches!(select(pass, time).await, Either::Right(_)), "it is not at its end");
        }
        let at = volume.status().scrub.at.expect("it was under way");
        assert_eq!(at, Position { segment: 0, extent: 2 });
        drop(volume);
        let volume = mirror.open().await;
        mirror.peers[1].rot(1, 0);
        mirror.peers[1].rot(2, 0);
        volume.scrub(at, FAST).await;
        let status = volume.status().scrub;
        assert_eq!((status.verified_bytes, status.bad_blocks), (4 * BOTH_COPIES, 1));
    });
}

#[test]
fn the_rate_is_kept() {
    let world = TestWorld::default();
    world.run(async {
        let (_mirror, volume) = filled(&world, 4).await;
        let began = world.now();
        volume.scrub(BEGIN, BOTH_COPIES).await;
        let took = world.now().since(began);
        // The first run starts at once.
        assert!(took > Duration::from_millis(3900) && took <= Duration::from_secs(4), "{took:?}");
    });
}

#[test]
fn writes_under_way_are_not_taken_for_corruption() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = filled(&world, 2).await;
        mirror.peers[0].delay.set(MS);
        mirror.peers[1].delay.set(2 * MS);
        let writes = async {
            for fill in 2..60 {
                write(&world, &shard(&volume), u32::from(fill) % 2, blocks(u32::from(fill) % 8, 2), fill)
                    .await;
            }
        };
        join(volume.scrub(BEGIN, FAST), writes).await;
        let status = volume.status();
        assert_eq!((status.counts.corrupted, status.scrub.bad_blocks), (0, 0));
        assert_eq!(mirror.same(1, 4), 59);
    });
}

#[test]
fn a_member_that_fails_meanwhile_is_gone_and_the_rest_is_verified() {
    let world = TestWorld::default();
    world.run(async {
        let (mirror, volume) = filled(&world, 2).await;
        mirror.peers[1].become_(Mood::Stopped);
        mirror.peers[0].rot(1, 2);
        volume.scrub(BEGIN, FAST).await;
        // A removal takes its time.
        world.sleep(10 * MS).await;
        let status = volume.status();
        assert_eq!(mirror.members().len(), 1);
        assert_eq!((status.scrub.lost_blocks, status.scrub.unread_blocks), (1, 0));
    });
}
