//! Our host's every command against the kernel's own target, over each framing, with its data: whether both
//! ends of Ashlar read the specification right cannot be told by connecting them to one another (NVME N15).

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use ashlar_initiator::{
    Association, Controller, Deac, FlowControl, Fua, HostConfig, HostError, IoQueue, Payload, Session,
    discover,
};
use ashlar_nvme::admin::GetLogPageCommand;
use ashlar_nvme::feature::{FeatureId, Select};
use ashlar_nvme::identify::controller::oncs;
use ashlar_nvme::log::{LogId, SmartLog};
use ashlar_nvme::nvm::DsmRange;
use ashlar_nvme::pdu::DigestUse;
use ashlar_nvme::wire::Wire;
use ashlar_nvme::{HostId, Lba, Nqn, Nsid, Status};
use ashlar_reactor::{CoreId, Cores, CoresConfig, IoBuf, spawn_join};
use ashlar_tests::guest::Kernel;
use ashlar_tests::nvmet::KernelTarget;

const NSID: Nsid = Nsid(1);
const BLOCK: usize = 4096;
/// The first namespace has 64 MiB.
const BLOCKS: u64 = 64 * 1024 * 1024 / BLOCK as u64;

/// What a host asks for, in one run. In-capsule data is always what the controller takes: nvmet never asks
/// for the data of a write that would have fitted the capsule.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    header_digest: DigestUse,
    data_digest: DigestUse,
    flow_control: FlowControl,
    io_queues: u16,
    queue_entries: u16,
}

const WISHES: [Wishes; 4] = [
    Wishes {
        header_digest: DigestUse::Off,
        data_digest: DigestUse::Off,
        flow_control: FlowControl::Enabled,
        io_queues: 1,
        queue_entries: 128,
    },
    Wishes {
        header_digest: DigestUse::On,
        data_digest: DigestUse::On,
        flow_control: FlowControl::Disabled,
        io_queues: 3,
        queue_entries: 32,
    },
    // A queue that is nearly always full.
    Wishes {
        header_digest: DigestUse::On,
        data_digest: DigestUse::Off,
        flow_control: FlowControl::Disabled,
        io_queues: 2,
        queue_entries: 4,
    },
    Wishes {
        header_digest: DigestUse::Off,
        data_digest: DigestUse::On,
        flow_control: FlowControl::Enabled,
        io_queues: 2,
        queue_entries: 1024,
    },
];

fn config(wishes: Wishes) -> Result<HostConfig, Box<dyn Error>> {
    let host_nqn = Nqn::parse("nqn.2014-08.org.nvmexpress:uuid:6a1c0c4e-5a9e-4b7e-9d1a-0f0e0d0c0b0a")?;
    Ok(HostConfig {
        header_digest: wishes.header_digest,
        data_digest: wishes.data_digest,
        flow_control: wishes.flow_control,
        io_queues: wishes.io_queues,
        queue_entries: wishes.queue_entries,
        // An emulated processor may be slow to answer; nothing here depends on a loss being noticed.
        io_timeout: Duration::from_mins(2),
        ..HostConfig::new(host_nqn, HostId([0x5a; 16]))
    })
}

/// Different in every run, block and place.
fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let word = |i: u32| (i ^ seed.rotate_left(16)).wrapping_mul(2_654_435_761).rotate_left(11);
    (0..len.div_ceil(4) as u32).flat_map(|i| word(i).to_le_bytes()).take(len).collect()
}

fn payload(bytes: &[u8]) -> Payload {
    Payload::copy_of(bytes)
}

async fn read(queue: &IoQueue, lba: u64, blocks: u32) -> Result<Vec<u8>, HostError> {
    let buffer = IoBuf::heap(blocks as usize * BLOCK);
    Ok(queue.read(NSID, Lba(lba), blocks, buffer).await?.to_vec())
}

fn status<T>(result: Result<T, HostError>) -> Option<Status> {
    result.err().as_ref().and_then(HostError::status)
}

/// Writes of all sizes, read back over another queue than they were written with.
async fn sizes_survive(queues: &[IoQueue], seed: u32) -> Result<(), HostError> {
    let mut lba = 4096;
    for (i, blocks) in [1, 2, 3, 4, 5, 16, 31, 32, 33, 128, 256].into_iter().enumerate() {
        let data = pattern(seed ^ blocks, blocks as usize * BLOCK);
        let fua = if i % 2 == 0 { Fua::Yes } else { Fua::No };
        queues[i % queues.len()].write(NSID, Lba(lba), blocks, payload(&data), fua).await?;
        let back = read(&queues[(i + 1) % queues.len()], lba, blocks).await?;
        assert!(back == data, "{blocks} blocks come back");
        lba += u64::from(blocks);
    }
    queues[0].flush(NSID).await
}

/// Many commands at once on every queue, more than it has entries.
async fn crowds_survive(queues: &[IoQueue], seed: u32) -> Result<(), HostError> {
    let mut tasks = Vec::new();
    for number in 0..96_u32 {
        let queue = queues[number as usize % queues.len()].clone();
        tasks.push(spawn_join(async move {
            let blocks = 1 + number % 9;
            let lba = 8192 + u64::from(number) * 16;
            let data = pattern(seed ^ number, blocks as usize * BLOCK);
            queue.write(NSID, Lba(lba), blocks, payload(&data), Fua::No).await?;
            assert!(read(&queue, lba, blocks).await? == data, "task {number}");
            Ok::<_, HostError>(())
        }));
    }
    for task in tasks {
        task.await.expect("it runs to its end")?;
    }
    Ok(())
}

/// Write Zeroes, Dataset Management, and what is not there.
async fn others_do_what_they_say(queue: &IoQueue) -> Result<(), HostError> {
    let data = pattern(9, 8 * BLOCK);
    queue.write(NSID, Lba(64), 8, payload(&data), Fua::No).await?;
    queue.write_zeroes(NSID, Lba(66), 2, Deac::No).await?;
    let mut expected = data.clone();
    expected[2 * BLOCK..4 * BLOCK].fill(0);
    assert!(read(queue, 64, 8).await? == expected, "exactly two blocks are zero");
    queue.deallocate(NSID, &[DsmRange::new(Lba(65), 1), DsmRange::new(Lba(70), 2)]).await?;
    let back = read(queue, 64, 8).await?;
    for kept in [0, 4, 5] {
        assert!(back[kept * BLOCK..][..BLOCK] == expected[kept * BLOCK..][..BLOCK], "block {kept} is kept");
    }
    // Linux leaves the check to the block layer, whose error has one status for many reasons.
    let beyond = queue.read(NSID, Lba(BLOCKS), 1, IoBuf::heap(BLOCK)).await;
    assert!(status(beyond).is_some(), "a read beyond the end is refused");
    let nowhere = queue.read(Nsid(77), Lba(0), 1, IoBuf::heap(BLOCK)).await;
    assert!(status(nowhere).is_some(), "a namespace that is not there is refused");
    // Refusals leave the queue whole.
    assert!(read(queue, 64, 8).await? == back);
    Ok(())
}

/// Commands that nvmet does not have.
async fn refusals_leave_the_queue_whole(queue: &IoQueue, controller: &Controller) -> Result<(), HostError> {
    let back = read(queue, 64, 1).await?;
    let oncs = controller.info().identify.oncs.get();
    let compare = queue.compare(NSID, Lba(64), 1, payload(&back)).await;
    if oncs & oncs::COMPARE == 0 {
        assert_eq!(status(compare), Some(Status::INVALID_OPCODE));
    } else {
        compare?;
    }
    let verify = queue.verify(NSID, Lba(64), 1).await;
    if oncs & oncs::VERIFY == 0 {
        assert_eq!(status(verify), Some(Status::INVALID_OPCODE));
    } else {
        verify?;
    }
    if controller.info().identify.fuses.get() == 0 {
        let pair = queue.compare_and_write(NSID, Lba(64), 1, payload(&back), payload(&back));
        assert!(status(pair.await).is_some(), "fused commands are refused");
    }
    assert!(read(queue, 64, 1).await? == back);
    Ok(())
}

async fn admin_answers(controller: &Controller) -> Result<(), HostError> {
    let info = controller.info();
    assert_eq!(
        info.identify.subsystem().map(|nqn| nqn.as_str().to_owned()),
        Ok(KernelTarget::NQN.to_owned())
    );
    assert_eq!(controller.active_namespaces().await?, [NSID, Nsid(2)]);
    let namespace = controller.namespace(NSID).await?;
    assert_eq!((namespace.blocks, namespace.block_bytes), (BLOCKS, BLOCK as u32));
    let missing = controller.namespace(Nsid(3)).await;
    assert!(matches!(missing, Err(HostError::NoNamespace(_)) | Err(HostError::Command(_))));
    let smart = GetLogPageCommand::new(LogId::Smart, 0, SmartLog::SIZE as u32);
    assert_eq!(controller.log_page(smart, Nsid::BROADCAST).await?.len(), SmartLog::SIZE);
    let (kato_ms, _) =
        controller.get_feature(FeatureId::KeepAliveTimer, Select::Current, Nsid::NONE, 0).await?;
    assert!(kato_ms >= 5000, "KATO is what was asked for or rounded up: {kato_ms}");
    controller.keep_alive().await?;
    let unknown =
        controller.get_feature(FeatureId::HostBehaviorSupport, Select::Current, Nsid::NONE, 512).await;
    // Either answer is one; what matters is that the queue goes on.
    drop(unknown);
    controller.keep_alive().await
}

async fn run(address: SocketAddr, wishes: Wishes, seed: u32) -> Result<(), HostError> {
    let config = config(wishes).expect("the host's name is right");
    let subsystem = Nqn::parse(KernelTarget::NQN).expect("the subsystem's name is right");
    let Association { controller, queues } = Association::connect(address, &subsystem, &config).await?;
    // The guest has two processors, and nvmet grants what is asked up to its own limit.
    assert_eq!(queues.len(), usize::from(wishes.io_queues));
    for queue in &queues {
        let disabled = wishes.flow_control == FlowControl::Disabled;
        assert_eq!(queue.flow_control_is_disabled(), disabled, "nvmet grants it");
    }
    admin_answers(&controller).await?;
    sizes_survive(&queues, seed).await?;
    crowds_survive(&queues, seed).await?;
    others_do_what_they_say(&queues[0]).await?;
    refusals_leave_the_queue_whole(&queues[0], &controller).await?;
    drop(queues);
    controller.shut_down().await
}

/// Several reads and writes at once through a session, whose association is one as Linux would have it.
async fn session(address: SocketAddr) -> Result<(), HostError> {
    let config = config(WISHES[1]).expect("the host's name is right");
    let subsystem = Nqn::parse(KernelTarget::NQN).expect("the subsystem's name is right");
    let session = Session::open(address, subsystem, NSID, config, Duration::from_mins(1)).await?;
    for number in 0..8_u32 {
        let data = pattern(number, 64 * 1024);
        let lba = Lba(12_000 + u64::from(number) * 16);
        session.write(lba, payload(&data), Fua::No).await?;
        assert!(session.read(lba, 64 * 1024).await?[..] == data[..]);
    }
    session.flush().await?;
    session.close().await
}

async fn discovered(address: SocketAddr) -> Result<(), HostError> {
    let config = config(WISHES[0]).expect("the host's name is right");
    let log = discover(address, &config).await?;
    let names: Vec<_> = log.entries.iter().filter_map(|entry| entry.subsystem().ok()).collect();
    assert!(names.iter().any(|name| name.as_str() == KernelTarget::NQN), "{names:?}");
    Ok(())
}

fn every_command_works_against(kernel: Kernel) -> Result<(), Box<dyn Error>> {
    let target = KernelTarget::start(kernel, "commands")?;
    let address = target.address();
    let cores = Cores::start(&CoresConfig::floating(1))?;
    let core = CoreId(0);
    cores.handle().run_on(core, move || discovered(address)).wait()??;
    for (number, wishes) in WISHES.into_iter().enumerate() {
        let seed = 0x5eed_0000 + ((number as u32) << 8);
        let outcome = cores.handle().run_on(core, move || run(address, wishes, seed)).wait()?;
        outcome.map_err(|error| format!("{wishes:?}: {error}"))?;
    }
    cores.handle().run_on(core, move || session(address)).wait()??;
    cores.stop(Duration::from_secs(30))?;
    let report = target.finish()?;
    assert!(report.held("nothing went wrong in the kernel"), "{report:?}");
    Ok(())
}

#[test]
fn every_command_works_against_the_target_of_linux_6_1() -> Result<(), Box<dyn Error>> {
    every_command_works_against(Kernel::V6_1)
}

#[test]
fn every_command_works_against_the_target_of_linux_6_12() -> Result<(), Box<dyn Error>> {
    every_command_works_against(Kernel::V6_12)
}
