//! What commands that fail while they are executed answer, and what they leave.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::Status;
use ashlar_nvme::nvm::{DsmAttributes, DsmCommand};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_nvme::sgl::DataPointer;
use ashlar_reactor::{spawn_join, yield_now};
use ashlar_target::WriteCache;
use ashlar_target::backends::BackendSource;
use ashlar_target::inventory::LbaSize;
use ashlar_target::io::{check, execute, execute_fused};

use crate::world::{NSID, Port, World, discard, memory, pair, perform, perform_fused, ranged};

const BLOCK: u32 = 4096;

fn filled(byte: u8, blocks: u32) -> Vec<u8> {
    vec![byte; (blocks * BLOCK) as usize]
}

#[test]
fn one_bad_range_keeps_all_ranges_from_being_discarded() {
    let world = World::start(1, &memory(1 << 20), LbaSize::B4096);
    let write = ranged(NvmOpcode::Write, 0, 4, 4 * BLOCK);
    assert_eq!(world.status(0, write, filled(9, 4)), Status::SUCCESS);
    for bad in [(256, 1), (255, 2), (u64::MAX, 1), (0, u32::MAX)] {
        let (sqe, list) = discard(&[(0, 4), bad]);
        assert_eq!(world.status(0, sqe, list), Status::LBA_OUT_OF_RANGE);
    }
    let (_, data) = world.command(0, ranged(NvmOpcode::Read, 0, 4, 4 * BLOCK), Vec::new());
    assert_eq!(data, filled(9, 4));
}

#[test]
fn attributes_other_than_deallocate_change_nothing() {
    let world = World::start(1, &memory(1 << 20), LbaSize::B4096);
    assert_eq!(world.status(0, ranged(NvmOpcode::Write, 0, 1, BLOCK), filled(9, 1)), Status::SUCCESS);
    let (mut sqe, list) = discard(&[(0, 1)]);
    let attributes = DsmAttributes(0).with_idr(true).with_idw(true);
    sqe.cdw11 = attributes.0.into();
    assert_eq!(world.status(0, sqe, list), Status::SUCCESS);
    let (_, data) = world.command(0, ranged(NvmOpcode::Read, 0, 1, BLOCK), Vec::new());
    assert_eq!(data, filled(9, 1));
}

#[test]
fn a_list_longer_than_its_ranges_is_read_as_far_as_they_go() {
    // Linux sends 4 KiB whatever NR says.
    let world = World::start(1, &memory(1 << 20), LbaSize::B4096);
    assert_eq!(world.status(0, ranged(NvmOpcode::Write, 0, 2, 2 * BLOCK), filled(9, 2)), Status::SUCCESS);
    let (_, mut list) = discard(&[(1, 1)]);
    list.resize(4096, 0xFF);
    let command = DsmCommand { nr: 1, attributes: DsmAttributes(0).with_ad(true) };
    let sqe = command.to_sqe(ashlar_nvme::CommandId(1), NSID, DataPointer::Transport { len: 4096 });
    assert_eq!(world.status(0, sqe, list), Status::SUCCESS);
    let (_, data) = world.command(0, ranged(NvmOpcode::Read, 0, 2, 2 * BLOCK), Vec::new());
    assert_eq!(data, [filled(9, 1), filled(0, 1)].concat());
}

#[test]
fn a_write_beyond_the_memory_limit_is_capacity_exceeded() {
    let source = BackendSource::Memory { bytes: 1 << 40, memory_max: Some(256 * 1024) };
    let world = World::start(2, &source, LbaSize::B4096);
    let mut refused = 0;
    for stripe in 0..8u64 {
        let sqe = ranged(NvmOpcode::Write, stripe * 256, 1, BLOCK);
        match world.status(stripe as u16 % 2, sqe, filled(1, 1)) {
            Status::SUCCESS => {}
            Status::CAPACITY_EXCEEDED => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(refused, 4, "four chunks of 64 KiB fit");
    let (sqe, list) = discard(&[(0, u32::MAX >> 8)]);
    assert_eq!(world.status(1, sqe, list), Status::SUCCESS);
    assert_eq!(world.status(0, ranged(NvmOpcode::Write, 7 * 256, 1, BLOCK), filled(1, 1)), Status::SUCCESS);
}

#[test]
fn a_command_that_was_checked_before_its_namespace_shrank_is_out_of_range() {
    let world = World::start(1, &memory(1 << 20), LbaSize::B4096);
    let smaller = Arc::new(world.describe(8));
    let (single, fused) = world.run(0, move |namespace| async move {
        let sqe = ranged(NvmOpcode::Write, 8, 1, BLOCK);
        let request = namespace.with_namespace(|described| check(&sqe, described, BLOCK)).expect("it fits");
        let both = pair(&namespace, 8, 1).expect("it fits");
        namespace.set_namespace(smaller);
        let port = Port::new(filled(1, 1));
        (
            execute(&namespace, &request, &port, WriteCache::Enabled).await,
            perform_fused(&namespace, &both, filled(0, 1), filled(1, 1)).await,
        )
    });
    assert_eq!(single, Status::LBA_OUT_OF_RANGE);
    assert_eq!(fused, (Status::LBA_OUT_OF_RANGE, Status::ABORTED_FAILED_FUSED));
}

#[test]
fn what_the_transport_could_not_move_is_not_executed() {
    let world = World::start(1, &memory(1 << 20), LbaSize::B4096);
    let (write, fused) = world.run(0, |namespace| async move {
        // 64 blocks are two slices: the second does not come.
        let sqe = ranged(NvmOpcode::Write, 0, 64, 64 * BLOCK);
        let request =
            namespace.with_namespace(|described| check(&sqe, described, 64 * BLOCK)).expect("it fits");
        let port = Port::failing_at(filled(1, 64), 128 * 1024);
        let write = execute(&namespace, &request, &port, WriteCache::Enabled).await;
        let both = pair(&namespace, 100, 1).expect("it fits");
        let (compare, new) = (Port::new(filled(0, 1)), Port::failing_at(filled(1, 1), 0));
        (write, execute_fused(&namespace, &both, &compare, &new, WriteCache::Enabled).await)
    });
    assert_eq!(write, Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(fused, (Status::ABORTED_FAILED_FUSED, Status::TRANSIENT_TRANSPORT_ERROR));
    let (_, data) = world.command(0, ranged(NvmOpcode::Read, 32, 32, 32 * BLOCK), Vec::new());
    assert_eq!(data, filled(0, 32));
    let (_, data) = world.command(0, ranged(NvmOpcode::Read, 100, 1, BLOCK), Vec::new());
    assert_eq!(data, filled(0, 1));
}

#[test]
fn reads_go_on_beside_the_largest_discards() {
    let world = World::start(1, &memory(1 << 40), LbaSize::B4096);
    assert_eq!(world.status(0, ranged(NvmOpcode::Write, 7, 1, BLOCK), filled(5, 1)), Status::SUCCESS);
    let reads = world.run(0, |namespace| async move {
        let ended = Rc::new(Cell::new(false));
        let (flag, held) = (Rc::clone(&ended), namespace.clone());
        let discards = spawn_join(async move {
            let ranges = vec![(8, (1 << 28) - 8); 8];
            let (sqe, list) = discard(&ranges);
            let outcome = perform(&held, &sqe, list, WriteCache::Enabled).await;
            flag.set(true);
            outcome.0
        });
        let mut reads = 0;
        while !ended.get() {
            let sqe = ranged(NvmOpcode::Read, 7, 1, BLOCK);
            let (status, data) = perform(&namespace, &sqe, Vec::new(), WriteCache::Enabled).await;
            assert_eq!((status, data[0]), (Status::SUCCESS, 5));
            reads += 1;
            yield_now().await;
        }
        assert_eq!(discards.await, Ok(Status::SUCCESS));
        reads
    });
    assert!(reads > 1000, "only {reads} reads ended meanwhile");
}

#[test]
fn data_in_memory_outlives_the_closing_of_its_handles() {
    let world = World::start(2, &memory(4 << 20), LbaSize::B4096);
    assert_eq!(world.status(0, ranged(NvmOpcode::Write, 300, 1, BLOCK), filled(5, 1)), Status::SUCCESS);
    let described = Arc::new(world.describe(1024));
    world.reopen(&described);
    let (status, data) = world.command(0, ranged(NvmOpcode::Read, 300, 1, BLOCK), Vec::new());
    assert_eq!((status, data), (Status::SUCCESS, filled(5, 1)));
}

#[test]
fn the_future_of_a_command_stays_small() {
    let world = World::start(1, &memory(1 << 20), LbaSize::B4096);
    let bytes = world.run(0, |namespace| async move {
        let sqe = ranged(NvmOpcode::Read, 0, 1, BLOCK);
        let request = namespace.with_namespace(|described| check(&sqe, described, BLOCK)).expect("it fits");
        let port = Port::new(Vec::new());
        let future = execute(&namespace, &request, &port, WriteCache::Enabled);
        let bytes = size_of_val(&future);
        future.await;
        bytes
    });
    assert!(bytes <= 640, "{bytes} bytes");
}
