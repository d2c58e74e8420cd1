//! Compare-and-Write against itself and against ordinary writes, from two cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_nvme::Status;
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_reactor::{CoreId, spawn_join, yield_now};
use ashlar_target::WriteCache;
use ashlar_target::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Durability, OpenBackend, ReadData, WriteData,
};
use ashlar_target::backends::memory::{Memory, MemoryOpener};
use ashlar_target::inventory::LbaSize;
use ashlar_target::io::{NamespaceCore, SharedNamespace};

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

async fn read<B: Backend>(namespace: &NamespaceCore<B>, slba: u64) -> Vec<u8> {
    let (status, bytes) =
        perform(namespace, &ranged(NvmOpcode::Read, slba, 1, BLOCK), Vec::new(), WriteCache::Enabled).await;
    assert_eq!(status, Status::SUCCESS);
    bytes
}

/// Adds one to the second number of a block by Compare-and-Write, as often as it takes.
async fn increment<B: Backend>(namespace: &NamespaceCore<B>, slba: u64) {
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
}

/// Memory that is slow to say what it has read, so that there is time between compare and write.
struct SlowOpener(MemoryOpener);
struct Slow(Memory);

impl OpenBackend for SlowOpener {
    type Backend = Slow;

    fn info(&self) -> BackendInfo {
        self.0.info()
    }

    async fn open(&self, core: CoreId) -> Result<Slow, BackendError> {
        self.0.open(core).await.map(Slow)
    }
}

impl Backend for Slow {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        let data = self.0.read(range).await;
        for _ in 0..20 {
            yield_now().await;
        }
        data
    }

    async fn write(
        &self,
        range: ByteRange,
        data: WriteData,
        durability: Durability,
    ) -> Result<(), BackendError> {
        self.0.write(range, data, durability).await
    }

    async fn flush(&self) -> Result<(), BackendError> {
        self.0.flush().await
    }

    async fn clear(&self, range: ByteRange, how: Clear, durability: Durability) -> Result<(), BackendError> {
        self.0.clear(range, how, durability).await
    }
}

/// Numbered writes on one core, pairs that keep the number on another: the number never goes back.
fn numbers_never_go_back(cores: u16, writing: u16, pairing: u16) {
    const WRITES: u64 = 100;
    // Longer than a pair with its two slow reads, so that pairs also succeed.
    const PAUSE: usize = 100;
    let world = World::start(cores, &memory(4 << 20), LbaSize::B4096);
    let slow = SlowOpener(MemoryOpener::new(4 << 20, None, usize::from(cores)));
    let shared = SharedNamespace::new(slow, usize::from(cores));
    let described = Arc::new(world.describe(1024));
    let opened = |core| {
        let (shared, described) = (Arc::clone(&shared), Arc::clone(&described));
        async move { shared.open(CoreId(core), described).await.expect("it opens") }
    };
    let written = Arc::new(AtomicU64::new(0));
    // As in a target, nobody works on a namespace before it is open on every core that uses it.
    let open = Arc::new(AtomicU64::new(0));
    let both_open = |open: Arc<AtomicU64>| async move {
        open.fetch_add(1, Ordering::SeqCst);
        while open.load(Ordering::SeqCst) < 2 {
            yield_now().await;
        }
    };
    let (opening, done, ready) = (opened(writing), Arc::clone(&written), both_open(Arc::clone(&open)));
    let writer = world.begin(writing, move |_| async move {
        let namespace = opening.await;
        ready.await;
        for stamp in 1..=WRITES {
            let write = ranged(NvmOpcode::Write, 5, 1, BLOCK);
            let (status, _) = perform(&namespace, &write, block(stamp, 0), WriteCache::Enabled).await;
            assert_eq!(status, Status::SUCCESS);
            done.store(stamp, Ordering::SeqCst);
            for _ in 0..PAUSE {
                yield_now().await;
            }
        }
    });
    let (opening, ready) = (opened(pairing), both_open(open));
    let pairs = world.begin(pairing, move |_| async move {
        let namespace = opening.await;
        ready.await;
        let mut succeeded = 0;
        loop {
            let before = written.load(Ordering::SeqCst);
            let found = number(&read(&namespace, 5).await, 0);
            assert!(found >= before, "write {before} was undone: {found} is there");
            if before == WRITES && succeeded > 0 {
                return;
            }
            let request = pair(&namespace, 5, 1).expect("one block is within the unit");
            let (old, new) = (block(found, 0), block(found, 0));
            let statuses = perform_fused(&namespace, &request, old, new).await;
            match statuses.0 {
                Status::SUCCESS => succeeded += 1,
                failure => assert_eq!(failure, Status::COMPARE_FAILURE),
            }
        }
    });
    writer.wait().expect("the core answers");
    pairs.wait().expect("the core answers");
}

#[test]
fn a_write_of_another_core_between_compare_and_write_is_never_undone() {
    numbers_never_go_back(2, 0, 1);
}

#[test]
fn a_write_of_the_same_core_between_compare_and_write_is_never_undone() {
    numbers_never_go_back(1, 0, 0);
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
