//! What a shard promises, with replicas that misbehave.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{Bug, World};
use ashlar_store::Blocks;
use ashlar_store::lane::Order;

use crate::double::{Mirror, Mood, TestWorld, blocks, data, first_of, replica, shard, write};
use crate::shard::{Part, ShardError};

const MS: Duration = Duration::from_millis(1);

/// Starts a write; the cell says when it is complete, in virtual time.
fn start(world: &TestWorld, shard: &crate::double::TestShard, at: Blocks, fill: u8) -> Rc<Cell<Option<u64>>> {
    let done = Rc::new(Cell::new(None));
    let (world2, shard, told) = (world.clone(), shard.clone(), Rc::clone(&done));
    world.spawn(async move {
        let data = data(&world2, at.count(), fill).await;
        shard.write(0, at, data).await.expect("it is written");
        told.set(Some(world2.now().as_ns()));
    });
    done
}

#[test]
fn a_write_is_complete_when_every_member_has_it() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 3);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.peers[2].delay.set(50 * MS);
        write(&world, &shard, 0, blocks(3, 2), 7).await;
        assert!(world.now().as_ns() >= 50_000_000);
        assert_eq!(mirror.same(0, 4), 7);
        assert_eq!(shard.committed().sequence, 1);
        assert!(mirror.peers.iter().all(|peer| peer.committed.get().sequence == 1));
    });
}

#[test]
fn the_simulators_bug_acknowledges_early() {
    let world = TestWorld::with_bug(Bug::AcknowledgeBeforeAll);
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        mirror.peers[1].delay.set(50 * MS);
        write(&world, &shard(&volume), 0, blocks(3, 1), 7).await;
        assert_eq!(mirror.peers[1].first_byte(0, 3), 0, "one member was not waited for");
    });
}

#[test]
fn overlapping_writes_keep_their_order_everywhere() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.peers[0].delay.set(3 * MS);
        mirror.peers[1].delay.set(MS);
        let writes: Vec<_> =
            (1..=20).map(|fill| start(&world, &shard, blocks(u32::from(fill) % 3, 2), fill)).collect();
        // The double asserts that no two overlapping changes are in flight.
        while writes.iter().any(|done| done.get().is_none()) {
            world.sleep(MS).await;
        }
        let last: Vec<u8> = (0..4).map(|block| mirror.same(0, block)).collect();
        assert_eq!(last, [18, 19, 20, 20]);
    });
}

#[test]
fn a_slow_block_holds_up_nobody_else() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.peers[1].delay.set(100 * MS);
        let slow = start(&world, &shard, blocks(0, 1), 1);
        let behind = start(&world, &shard, blocks(0, 1), 2);
        world.sleep(MS).await;
        mirror.peers[1].delay.set(Duration::ZERO);
        let beside = start(&world, &shard, blocks(1, 1), 3);
        world.sleep(MS).await;
        assert!(beside.get().is_some() && slow.get().is_none() && behind.get().is_none());
        world.sleep(200 * MS).await;
        assert!(behind.get().is_some());
        assert_eq!(mirror.same(0, 0), 2);
    });
}

#[test]
fn a_write_that_nobody_waits_for_still_ends() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.peers[0].delay.set(10 * MS);
        let bytes = data(&world, 1, 9).await;
        {
            let mut write = std::pin::pin!(shard.write(0, blocks(0, 1), bytes));
            std::future::poll_fn(|context| {
                assert!(std::future::Future::poll(write.as_mut(), context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        write(&world, &shard, 0, blocks(0, 1), 10).await;
        assert_eq!(mirror.same(0, 0), 10);
        assert_eq!(shard.committed().sequence, 2, "the first one has its number everywhere");
    });
}

#[test]
fn a_stumbling_member_stays() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        mirror.peers[1].become_(Mood::Stumbles(2));
        write(&world, &shard(&volume), 0, blocks(0, 1), 5).await;
        assert_eq!(mirror.members().len(), 2);
        assert_eq!(mirror.same(0, 0), 5);
    });
}

#[test]
fn writes_wait_for_the_removal_of_a_failed_member_and_do_not_fail() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.membership.delay.set(300 * MS);
        mirror.membership.outages.set(2);
        mirror.peers[1].become_(Mood::Stopped);
        let done = start(&world, &shard, blocks(0, 1), 5);
        world.sleep(600 * MS).await;
        assert_eq!(done.get(), None, "nothing counts before the removal is decided");
        world.sleep(900 * MS).await;
        assert!(done.get().is_some());
        assert_eq!(mirror.members(), [replica(0)]);
        assert_eq!(mirror.same(0, 0), 5);
    });
}

#[test]
fn a_hung_member_leaves_within_five_seconds() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.peers[0].become_(Mood::Hangs);
        write(&world, &shard, 0, blocks(0, 1), 5).await;
        assert!(world.now().as_ns() < 5_000_000_000);
        assert_eq!(mirror.members(), [replica(1)]);
        let read = shard.read(0, blocks(0, 1)).await.expect("the other one answers");
        assert_eq!(first_of(read), 5);
    });
}

#[test]
fn a_read_on_a_hung_member_is_answered_by_another() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 1), 5).await;
        mirror.peers[0].become_(Mood::Hangs);
        for _ in 0..4 {
            assert_eq!(first_of(shard.read(0, blocks(0, 1)).await.expect("it is read")), 5);
        }
        assert_eq!(mirror.members(), [replica(1)]);
    });
}

#[test]
fn the_last_member_never_leaves() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 1), 5).await;
        mirror.peers[0].become_(Mood::Stopped);
        mirror.peers[1].become_(Mood::Stopped);
        let bytes = data(&world, 1, 6).await;
        let refused = shard.write(0, blocks(0, 1), bytes).await;
        assert!(matches!(refused, Err(ShardError::Failed { .. })), "{refused:?}");
        assert_eq!(mirror.members().len(), 1);
    });
}

#[test]
fn a_full_member_refuses_the_write_and_nothing_changes() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 1), 5).await;
        mirror.peers[1].room.set(1);
        let bytes = data(&world, 1, 6).await;
        let refused = shard.write(1, blocks(0, 1), bytes).await;
        assert!(matches!(refused, Err(ShardError::NoSpace { extent: 1, .. })), "{refused:?}");
        assert_eq!(first_of(shard.read(1, blocks(0, 1)).await.expect("it is read")), 0);
        write(&world, &shard, 0, blocks(0, 1), 7).await;
        shard.quiesce().await;
        assert_eq!((mirror.same(1, 0), mirror.same(0, 0), mirror.members().len()), (0, 7, 2));
        assert_eq!(mirror.peers[0].numbers(), mirror.peers[1].numbers(), "every number is everywhere");
    });
}

#[test]
fn a_read_waits_for_the_write_that_it_overlaps() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        mirror.peers[1].delay.set(50 * MS);
        let done = start(&world, &shard, blocks(0, 1), 5);
        world.sleep(10 * MS).await;
        // The first member has it already, the second has not.
        assert_eq!(mirror.peers[0].first_byte(0, 0), 5);
        assert_eq!(first_of(shard.read(0, blocks(0, 1)).await.expect("it is read")), 5);
        assert!(done.get().is_some_and(|at| at <= world.now().as_ns()));
    });
}

#[test]
fn a_read_that_a_write_overtook_does_not_show_it_before_it_is_complete() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        let seen = Rc::new(RefCell::new(Vec::new()));
        mirror.peers[0].delay.set(5 * MS);
        mirror.peers[1].delay.set(5 * MS);
        for _ in 0..2 {
            let (world2, shard, seen) = (world.clone(), shard.clone(), Rc::clone(&seen));
            world.spawn(async move {
                let byte = first_of(shard.read(0, blocks(0, 1)).await.expect("it is read"));
                seen.borrow_mut().push((world2.now().as_ns(), byte));
            });
        }
        world.sleep(MS).await;
        mirror.peers[0].delay.set(Duration::ZERO);
        mirror.peers[1].delay.set(40 * MS);
        let done = start(&world, &shard, blocks(0, 1), 5);
        while done.get().is_none() || seen.borrow().len() < 2 {
            world.sleep(MS).await;
        }
        let complete = done.get().expect("it is");
        assert!(seen.borrow().iter().any(|(_, byte)| *byte == 5), "one of them saw the new bytes");
        assert!(seen.borrow().iter().all(|&(at, byte)| byte == 0 || at >= complete), "{seen:?}");
    });
}

#[test]
fn reads_spread_over_the_members() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 8), 5).await;
        let before: Vec<u32> = mirror.peers.iter().map(|peer| peer.reads.get()).collect();
        for block in 0..8 {
            shard.read(0, blocks(block, 1)).await.expect("it is read");
        }
        let after: Vec<u32> = mirror.peers.iter().map(|peer| peer.reads.get()).collect();
        assert_eq!((after[0] - before[0], after[1] - before[1]), (4, 4));
    });
}

#[test]
fn a_rotten_copy_is_repaired_from_the_other() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 8), 5).await;
        mirror.peers[0].rot(0, 2);
        mirror.peers[1].rot(0, 5);
        let read = shard.read(0, blocks(0, 8)).await.expect("each block is good somewhere");
        assert_eq!(first_of(read), 5);
        assert_eq!((shard.counters().corrupted.get(), shard.counters().repaired.get()), (2, 2));
        assert_eq!(shard.committed().sequence, 1, "repairs use no numbers");
        shard.verify(0).await.expect("every copy is good");
        assert_eq!(shard.counters().corrupted.get(), 2);
    });
}

#[test]
fn blocks_without_a_good_copy_are_named_and_no_others() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 8), 5).await;
        mirror.peers.iter().for_each(|peer| peer.rot(0, 2));
        mirror.peers[0].rot(0, 3);
        let lost = shard.read(0, blocks(0, 8)).await;
        let Err(ShardError::Unrecovered { extent: 0, blocks: lost, .. }) = lost else { panic!("{lost:?}") };
        assert_eq!(lost, [2]);
        assert_eq!(first_of(shard.read(0, blocks(3, 5)).await.expect("it is good")), 5);
        write(&world, &shard, 0, blocks(2, 1), 6).await;
        assert_eq!(first_of(shard.read(0, blocks(2, 1)).await.expect("it is good again")), 6);
    });
}

#[test]
fn a_suspect_block_without_a_match_takes_one_copy_everywhere() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 2), 5).await;
        mirror.peers.iter().for_each(|peer| peer.rot(0, 1));
        mirror.peers[1].suspect.set(true);
        let (chosen, _) = {
            use crate::peer::Peer;
            mirror.peers[1].read_unverified(0, blocks(1, 1)).await.expect("it is there")
        };
        let ashlar_store::lane::ReadData::Buffer(read) = shard.read(0, blocks(1, 1)).await.expect("chosen")
        else {
            panic!("it has bytes")
        };
        assert_eq!(read[..], chosen[..]);
        assert_eq!(shard.counters().chosen.get(), 1);
        shard.verify(0).await.expect("every copy is good");
    });
}

#[test]
fn parts_of_blocks_are_changed_atomically() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 2), 1).await;
        let parts = (0..16).map(|sector: usize| {
            let shard = shard.clone();
            async move {
                let first = u32::try_from(sector / 8).expect("small");
                let part = Part { blocks: blocks(first, 1), skip: sector % 8 * 512, len: 512 };
                let fill = u8::try_from(sector + 10).expect("small");
                shard.write_part(0, part, &[fill; 512]).await.expect("it is written");
            }
        });
        futures_util::future::join_all(parts).await;
        let read = shard.read(0, blocks(0, 2)).await.expect("it is read");
        let ashlar_store::lane::ReadData::Buffer(read) = read else { panic!("it has bytes") };
        let found: Vec<u8> = read.chunks(512).map(|sector| sector[511]).collect();
        assert_eq!(found, (10..26).collect::<Vec<u8>>());
    });
}

#[test]
fn compare_and_write_changes_nothing_where_bytes_differ() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 2), 1).await;
        let new = data(&world, 2, 2).await;
        let differs = shard.compare_and_write(0, blocks(0, 2), &[3; 8192], new.clone()).await;
        assert_eq!(differs, Err(ShardError::Differs { extent: 0, block: 0 }));
        assert_eq!(mirror.same(0, 0), 1);
        shard.compare_and_write(0, blocks(0, 2), &[1; 8192], new).await.expect("they are equal");
        assert_eq!(mirror.same(0, 1), 2);
    });
}

#[test]
fn clearing_a_whole_extent_frees_it_everywhere() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 1, blocks(0, 8), 1).await;
        shard.clear(1, blocks(2, 2)).await.expect("it is cleared");
        assert_eq!([mirror.same(1, 1), mirror.same(1, 2), mirror.same(1, 4)], [1, 0, 1]);
        shard.clear(1, Blocks::ALL).await.expect("it is cleared");
        assert!(mirror.peers.iter().all(|peer| !peer.has(1)));
        let used = shard.committed().sequence;
        shard.clear(1, Blocks::ALL).await.expect("nothing is there");
        assert_eq!(shard.committed().sequence, used, "what nobody has costs nothing");
    });
}

#[test]
fn with_one_member_records_go_first_and_it_is_marked() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 1), 1).await;
        assert_eq!(shard.0.order.get(), Order::Parallel);
        mirror.peers[1].become_(Mood::Stopped);
        write(&world, &shard, 0, blocks(0, 1), 2).await;
        assert_eq!(shard.0.order.get(), Order::RecordFirst);
        world.sleep(MS).await;
        assert!(mirror.peers[0].single.get());
        mirror.peers[1].become_(Mood::Works);
        mirror.bring_back(&volume, 1).await;
        world.sleep(MS).await;
        assert!(!mirror.peers[0].single.get() && !mirror.peers[1].single.get());
        assert_eq!(shard.0.order.get(), Order::Parallel);
    });
}

#[test]
fn volatile_members_commit_by_flushes() {
    let world = TestWorld::default();
    world.run(async {
        let mirror = Mirror::new(&world, 2);
        mirror.peers[1].is_volatile.set(true);
        let volume = mirror.open().await;
        let shard = shard(&volume);
        write(&world, &shard, 0, blocks(0, 1), 1).await;
        assert_eq!(shard.committed().sequence, 0);
        mirror.peers[1].flushes.set(0);
        volume.flush().await.expect("it is flushed");
        assert_eq!((shard.committed().sequence, mirror.peers[1].flushes.get()), (1, 1));
        volume.flush().await.expect("nothing to do");
        assert_eq!(mirror.peers[1].flushes.get(), 1);
        write(&world, &shard, 0, blocks(0, 1), 2).await;
        world.sleep(1100 * MS).await;
        assert_eq!(shard.committed().sequence, 2, "within a second without being asked");
    });
}
