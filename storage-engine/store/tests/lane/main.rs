//! A lane on a simulated disk: what is promised of it without any fault, and after a crash.

mod rig;

use ashlar_io::BLOCK_BYTES;
use ashlar_store::lane::{LaneError, ReadData, TailKind, Verdict};
use ashlar_store::{Blocks, Stored, Summer, Version};

use rig::{Rig, extent, filled, run};

fn blocks(first: u32, count: u32) -> Blocks {
    Blocks::new(first, count).expect("they are in the extent")
}

#[test]
fn what_was_written_is_read_and_the_rest_is_zero() {
    run(async |rig: Rig| {
        let lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        rig.write(&lane, shard, extent(0), blocks(3, 2), 7).await.expect("it is written");
        let ReadData::Buffer(buffer) = lane.read(extent(0), blocks(2, 4)).await.expect("it reads") else {
            panic!("there is data");
        };
        assert!(buffer[..BLOCK_BYTES].iter().all(|byte| *byte == 0));
        assert_eq!(&buffer[BLOCK_BYTES..3 * BLOCK_BYTES], &filled(2, 7)[..]);
        assert!(buffer[3 * BLOCK_BYTES..].iter().all(|byte| *byte == 0));
        assert!(matches!(lane.read(extent(1), blocks(0, 8)).await, Ok(ReadData::Zeroes)));
    });
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    run(async |rig: Rig| {
        let lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        for round in 0..200u32 {
            let at = blocks(round * 5 % 1000, 1 + round % 3);
            rig.write(&lane, shard, extent(round % 3), at, round as u8).await.expect("it is written");
        }
        rig.kill(lane).await;
        let lane = rig.open().await;
        for round in 190..200u32 {
            let at = blocks(round * 5 % 1000, 1 + round % 3);
            let read = lane.read(extent(round % 3), at).await.expect("it reads");
            let ReadData::Buffer(buffer) = read else { panic!("there is data") };
            assert_eq!(&buffer[..], &filled(at.count(), round as u8)[..]);
        }
        let report = &lane.reports()[0];
        assert_eq!(report.committed, Version::ZERO);
        assert_eq!(report.tail.len(), 200, "nothing was committed: everything is reported");
        assert!(matches!(
            &report.tail[199].kind,
            TailKind::Write { sums, .. } if sums.iter().all(|(_, verdict)| *verdict == Verdict::Valid)
        ));
    });
}

#[test]
fn the_journal_goes_round_many_times() {
    run(async |rig: Rig| {
        let lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        for round in 0..3000u32 {
            let at = blocks(round % 1024, 1);
            let version = rig.write(&lane, shard, extent(round % 5), at, (round % 251) as u8).await;
            lane.committed(shard, version.expect("it is written"));
        }
        assert!(lane.counters().checkpoints > 5, "{:?}", lane.counters());
        rig.kill(lane).await;
        let lane = rig.open().await;
        for round in 2000..3000u32 {
            let read = lane.read(extent(round % 5), blocks(round % 1024, 1)).await.expect("it reads");
            let ReadData::Buffer(buffer) = read else { panic!("there is data") };
            assert_eq!(buffer[8], (round % 251) as u8, "round {round}");
        }
        lane.close().await.expect("it closes");
        rig.kill(lane).await;
        let lane = rig.open().await;
        assert!(lane.suspects().is_empty(), "a lane that was closed has nothing open");
    });
}

#[test]
fn freed_space_is_taken_again() {
    run(async |rig: Rig| {
        let lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        let all = lane.space().free;
        for round in 0..all as u32 * 2 {
            rig.write(&lane, shard, extent(round), blocks(0, 1), 1).await.expect("there is space");
            rig.free(&lane, shard, extent(round)).await.expect("it is freed");
        }
        for index in 0..all as u32 {
            rig.write(&lane, shard, extent(index), blocks(0, 1), 2).await.expect("there is space");
        }
        let full = rig.write(&lane, shard, extent(all as u32), blocks(0, 1), 2).await;
        assert_eq!(full.err(), Some(LaneError::NoSpace { extent: extent(all as u32) }));
        rig.write(&lane, shard, extent(0), blocks(0, 1), 3).await.expect("overwriting goes on");
        rig.free(&lane, shard, extent(0)).await.expect("it is freed");
        rig.write(&lane, shard, extent(all as u32), blocks(0, 1), 2)
            .await
            .expect("freed space is usable at once");
    });
}

#[test]
fn rot_is_noticed_and_named() {
    run(async |rig: Rig| {
        let lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        rig.write(&lane, shard, extent(0), blocks(0, 8), 7).await.expect("it is written");
        let before = rig.find(&filled(1, 7)[..]);
        assert_eq!(before.len(), 8, "all blocks have the same bytes, at eight places");
        rig.device.rot(before[5]);
        let error = lane.read(extent(0), blocks(0, 8)).await.expect_err("a block is bad");
        assert_eq!(error, LaneError::Mismatch { extent: extent(0), blocks: vec![5], suspect: false });
    });
}

#[test]
fn zeroed_blocks_and_freed_extents_stay_so_over_a_kill() {
    run(async |rig: Rig| {
        let lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        rig.write(&lane, shard, extent(0), blocks(0, 8), 7).await.expect("it is written");
        rig.write(&lane, shard, extent(1), blocks(0, 8), 7).await.expect("it is written");
        rig.zero(&lane, shard, extent(0), blocks(2, 2)).await.expect("it is zeroed");
        rig.free(&lane, shard, extent(1)).await.expect("it is freed");
        rig.kill(lane).await;
        let lane = rig.open().await;
        let sums = lane.checksums(extent(0)).await.expect("they are known");
        assert_eq!(sums[2..4], [Stored::ZERO; 2]);
        assert_eq!(sums[1], Summer::new(extent(0)).sum(1, &filled(1, 7)));
        assert!(!lane.has(extent(1)));
        assert!(matches!(lane.read(extent(1), blocks(0, 8)).await, Ok(ReadData::Zeroes)));
    });
}

#[test]
fn slab_whose_header_rotted_keeps_what_it_holds() {
    run(async |rig: Rig| {
        let mut lane = rig.open().await;
        let shard = rig.shard(&lane).await;
        rig.write(&lane, shard, extent(0), blocks(0, 8), 7).await.expect("it is written");
        // Only the journal names the slab; after the kill, the root does.
        for _ in 0..2 {
            rig.kill(lane).await;
            rig.rot_slab_header();
            lane = rig.open().await;
            let read = lane.read(extent(0), blocks(0, 8)).await.expect("it reads");
            let ReadData::Buffer(buffer) = read else { panic!("there is data") };
            assert_eq!(&buffer[..], &filled(8, 7)[..]);
        }
        // The header was written again: nobody takes the slab for free.
        rig.kill(lane).await;
        let lane = rig.open().await;
        for index in 1..u32::try_from(lane.space().free).expect("the device is small") {
            rig.write(&lane, shard, extent(index), blocks(0, 1), 1).await.expect("there is space");
        }
        let read = lane.read(extent(0), blocks(0, 8)).await.expect("it reads");
        let ReadData::Buffer(buffer) = read else { panic!("there is data") };
        assert_eq!(&buffer[..], &filled(8, 7)[..]);
    });
}
