//! Compare-and-Write against itself and against ordinary writes, from two cores.

use ashlar_nvme::Status;
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_reactor::spawn_join;
use ashlar_target::backends::AnyBackend;
use ashlar_target::inventory::LbaSize;
use ashlar_target::io::{CommandKind, NamespaceCore, WriteCache};

use crate::world::{World, memory, pair, perform, perform_fused, ranged};

const BLOCK: u32 = 4096;

fn block(first: u64, second: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..16].copy_from_slice(&second.to_le_bytes());
    bytes
}

fn number(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"))
}

async fn read(namespace: &NamespaceCore<AnyBackend>, slba: u64) -> Vec<u8> {
    let (status, bytes) =
        perform(namespace, &ranged(NvmOpcode::Read, slba, 1, BLOCK), Vec::new(), WriteCache::Enabled).await;
    assert_eq!(status, Status::SUCCESS);
    bytes
}

/// Adds one to the second number of a block by Compare-and-Write, as often as it takes.
async fn increment(namespace: &NamespaceCore<AnyBackend>, slba: u64) {
    loop {
        let present = read(namespace, slba).await;
        let new = block(number(&present, 0), number(&present, 1) + 1);
        let request = pair(namespace, slba, 1).expect("one block is within the unit");
        match perform_fused(namespace, &request, present, new).await {
            (Status::SUCCESS, Status::SUCCESS) => return,
            (Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn increments_by_compare_and_write_from_two_cores_are_all_kept() {
    const TASKS: u64 = 4;
    const EACH: u64 = 25;
    let world = World::start(2, &memory(4 << 20), LbaSize::B4096);
    // Block 300 is in the second stripe: the other core's for the first core.
    let workers: Vec<_> = [0u16, 1]
        .map(|core| {
            world.begin(core, |namespace| async move {
                let tasks: Vec<_> = (0..TASKS)
                    .map(|_| {
                        let namespace = namespace.clone();
                        spawn_join(async move {
                            for _ in 0..EACH {
                                increment(&namespace, 300).await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("it ends");
                }
            })
        })
        .into_iter()
        .collect();
    for worker in workers {
        worker.wait().expect("the core answers");
    }
    let last = world.run(0, |namespace| async move { read(&namespace, 300).await });
    assert_eq!(number(&last, 1), 2 * TASKS * EACH);
    let mut counts = world.shared().counts(ashlar_reactor::CoreId(0));
    counts.add(&world.shared().counts(ashlar_reactor::CoreId(1)));
    assert!(counts.operations[CommandKind::CompareAndWrite as usize] >= 2 * TASKS * EACH);
    assert_eq!(counts.in_flight, 0);
}

#[test]
fn a_write_between_compare_and_write_is_never_undone() {
    const WRITES: u64 = 400;
    let world = World::start(2, &memory(4 << 20), LbaSize::B4096);
    // The block belongs to the writing core, so its writes fall between the other core's messages.
    let writer = world.begin(0, |namespace| async move {
        for stamp in 1..=WRITES {
            let write = ranged(NvmOpcode::Write, 5, 1, BLOCK);
            let (status, _) = perform(&namespace, &write, block(stamp, 0), WriteCache::Enabled).await;
            assert_eq!(status, Status::SUCCESS);
            assert_eq!(
                number(&read(&namespace, 5).await, 0),
                stamp,
                "a pair put back what was written before"
            );
            ashlar_reactor::yield_now().await;
        }
    });
    let incrementer = world.begin(1, |namespace| async move {
        while number(&read(&namespace, 5).await, 0) < WRITES {
            increment(&namespace, 5).await;
        }
    });
    writer.wait().expect("the core answers");
    incrementer.wait().expect("the core answers");
}

#[test]
fn a_pair_beside_writes_to_other_blocks_ends() {
    let world = World::start(2, &memory(4 << 20), LbaSize::B4096);
    let writers: Vec<_> = [0u16, 1]
        .into_iter()
        .map(|core| {
            world.begin(core, move |namespace| async move {
                for round in 0..200u64 {
                    let write = ranged(NvmOpcode::Write, 10 + u64::from(core) * 300, 1, BLOCK);
                    let (status, _) = perform(&namespace, &write, block(round, 0), WriteCache::Enabled).await;
                    assert_eq!(status, Status::SUCCESS);
                }
            })
        })
        .collect();
    world.run(1, |namespace| async move {
        for _ in 0..50 {
            increment(&namespace, 5).await;
        }
    });
    for writer in writers {
        writer.wait().expect("the core answers");
    }
    let last = world.run(0, |namespace| async move { read(&namespace, 5).await });
    assert_eq!(number(&last, 1), 50);
}
