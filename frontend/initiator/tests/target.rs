//! The host and the target together: every command with its data, over each framing, and through cut
//! connections.

mod cut;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ashlar_initiator::{
    Aborted, Association, Controller, Data, Deac, Done, FlowControl, Fua, Handler, HostConfig, HostError,
    IoQueue, Loss, Payload, ReconnectPolicy, Refused, Session, Sink, Submitter, Token, discover,
};
use ashlar_nvme::admin::GetLogPageCommand;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::ids::Nguid;
use ashlar_nvme::log::LogId;
use ashlar_nvme::nvm::DsmRange;
use ashlar_nvme::pdu::DigestUse;
use ashlar_nvme::{CommandId, HostId, Lba, Nqn, Nsid, Qid, Status};
use ashlar_reactor::{CoreId, Cores, CoresConfig, IoBuf, spawn_join, timeout};
use ashlar_target::Target;
use ashlar_target::backends::{AnyOpener, BackendSource};
use ashlar_target::inventory::{AnaState, HostAccess, LbaSize, Portal};
use ashlar_target::target::{NewNamespace, NewSubsystem};
use uuid::Uuid;

const NSID: Nsid = Nsid(1);
const BLOCK: usize = 4096;
const BLOCKS: u64 = 16 * 1024;
/// Nothing here takes longer unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn subsystem() -> Nqn {
    Nqn::parse("nqn.2014-08.org.example:both").expect("an NQN")
}

fn config() -> HostConfig {
    let host_nqn = Nqn::parse("nqn.2014-08.org.example:host").expect("an NQN");
    HostConfig::new(host_nqn, HostId([7; 16]))
}

fn namespace(nsid: u32) -> NewNamespace {
    NewNamespace {
        nsid: Nsid(nsid),
        uuid: Uuid::from_u128(u128::from(nsid)),
        nguid: Nguid([nsid as u8; 16]),
        lba: LbaSize::B4096,
        blocks: None,
        ana_state: AnaState::Optimized,
    }
}

async fn memory(bytes: u64) -> AnyOpener {
    let source = BackendSource::Memory { bytes, memory_max: None };
    AnyOpener::prepare(source.hold().expect("it has a size"), 1).await.expect("memory is there")
}

/// A running target with one namespace of 64 MiB of memory.
struct Served {
    cores: Cores,
    target: Arc<Target<AnyOpener>>,
    address: SocketAddr,
}

impl Served {
    fn start() -> Self {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
        let handle = cores.handle();
        let serve = move || async move {
            let target = Target::start(handle).await.expect("it starts");
            let (serial, model, hosts) = ("1".to_owned(), "Ashlar".to_owned(), HostAccess::Any);
            target
                .add_subsystem(NewSubsystem { nqn: subsystem(), serial, model, hosts })
                .await
                .expect("a subsystem");
            let opener = memory(BLOCKS * BLOCK as u64).await;
            target.add_namespace(&subsystem(), namespace(1), opener).await.expect("a namespace");
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let portal = Portal { listen, advertise: None, port_id: 1, discovery_only: false };
            let address = target.add_portal(portal).await.expect("a portal");
            (Arc::new(target), address)
        };
        let (target, address) = cores.handle().run_on(CoreId(0), serve).wait().expect("it runs");
        Self { cores, target, address }
    }

    /// Runs `host` on a core of its own, then stops both ends clean.
    fn with_host<F, Fut>(self, host: F)
    where
        F: FnOnce(SocketAddr, Arc<Target<AnyOpener>>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
        let (address, target) = (self.address, Arc::clone(&self.target));
        let limited = move || async move { timeout(LIMIT, host(address, target)).await };
        let ended = cores.handle().run_on(CoreId(0), limited).wait().expect("it runs");
        ended.expect("the host ends in time");
        cores.stop(LIMIT).expect("nothing of the host is left over");
        let target = self.target;
        let stop = move || async move { target.stop().await.expect("it stops") };
        self.cores.handle().run_on(CoreId(0), stop).wait().expect("it runs");
        self.cores.stop(LIMIT).expect("nothing of the target is left over");
    }
}

/// Repeats what a lost connection interrupted: a target whose core ran late closes its connections (PROTOCOL
/// R9), and on a busy machine that happens. No other loss is put up with.
async fn persist<T>(mut attempt: impl AsyncFnMut() -> Result<T, HostError>) -> T {
    loop {
        match attempt().await {
            Ok(result) => return result,
            Err(HostError::ConnectionLost { cause: Loss::ClosedByPeer | Loss::Io(_), .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

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

async fn all_commands(queue: &IoQueue) -> Result<(), HostError> {
    let mut lba = 0;
    for blocks in [1, 2, 4, 5, 8, 31, 32, 33, 255, 256] {
        let data = pattern(blocks, blocks as usize * BLOCK);
        queue.write(NSID, Lba(lba), blocks, payload(&data), Fua::No).await?;
        assert!(read(queue, lba, blocks).await? == data, "{blocks} blocks come back");
        queue.compare(NSID, Lba(lba), blocks, payload(&data)).await?;
        lba += u64::from(blocks);
    }
    queue.flush(NSID).await?;
    queue.verify(NSID, Lba(0), 256).await?;
    let (old, new) = (pattern(1, BLOCK), pattern(1000, BLOCK));
    queue.compare_and_write(NSID, Lba(0), 1, payload(&old), payload(&new)).await?;
    assert!(read(queue, 0, 1).await? == new);
    let lost = queue.compare_and_write(NSID, Lba(0), 1, payload(&old), payload(&old)).await;
    assert_eq!(status(lost), Some(Status::COMPARE_FAILURE));
    assert!(read(queue, 0, 1).await? == new, "a failed comparison writes nothing");
    let other = queue.compare(NSID, Lba(0), 1, payload(&old)).await;
    assert_eq!(status(other), Some(Status::COMPARE_FAILURE));
    queue.write_zeroes(NSID, Lba(1), 2, Deac::Yes).await?;
    assert!(read(queue, 1, 2).await?.iter().all(|byte| *byte == 0));
    queue.deallocate(NSID, &[DsmRange::new(Lba(0), 1), DsmRange::new(Lba(9), 3)]).await?;
    assert!(read(queue, 0, 1).await?.iter().all(|byte| *byte == 0), "memory forgets what is discarded");
    let beyond = read(queue, BLOCKS - 1, 2).await;
    assert_eq!(status(beyond), Some(Status::LBA_OUT_OF_RANGE));
    Ok(())
}

fn all_commands_work(config: HostConfig) {
    Served::start().with_host(|address, _| async move {
        persist(async || {
            let host = Association::connect(address, &subsystem(), &config).await?;
            let Association { controller, queues } = host;
            assert_eq!(queues.len(), usize::from(config.io_queues));
            for queue in &queues {
                let disabled = config.flow_control == FlowControl::Disabled;
                assert_eq!(queue.flow_control_is_disabled(), disabled);
                all_commands(queue).await?;
            }
            drop(queues);
            controller.shut_down().await
        })
        .await;
    });
}

#[test]
fn all_commands_work_plain() {
    all_commands_work(config());
}

#[test]
fn all_commands_work_with_digests_and_without_flow_control() {
    all_commands_work(HostConfig {
        header_digest: DigestUse::On,
        data_digest: DigestUse::On,
        flow_control: FlowControl::Disabled,
        io_queues: 2,
        ..config()
    });
}

#[test]
fn all_commands_work_without_in_capsule_data_on_a_tiny_queue() {
    all_commands_work(HostConfig {
        header_digest: DigestUse::On,
        flow_control: FlowControl::Disabled,
        queue_entries: 3,
        in_capsule_max: 0,
        r2t_max: 1,
        ..config()
    });
}

#[test]
fn admin_commands_and_discovery_answer() {
    Served::start().with_host(|address, _| async move {
        let log = persist(async || discover(address, &config()).await).await;
        assert!(log.entries.iter().any(|entry| entry.subsystem() == Ok(subsystem())), "{log:?}");
        persist(async || {
            let controller = Controller::connect(address, &subsystem(), &config()).await?;
            assert_eq!(controller.active_namespaces().await?, [NSID]);
            let namespace = controller.namespace(NSID).await?;
            assert_eq!((namespace.blocks, namespace.block_bytes), (BLOCKS, BLOCK as u32));
            match controller.namespace(Nsid(9)).await {
                Err(HostError::NoNamespace(Nsid(9))) => {}
                Err(error) => return Err(error),
                Ok(namespace) => panic!("{namespace:?}"),
            }
            let log = GetLogPageCommand::new(LogId::ErrorInformation, 0, 64 * 64);
            assert_eq!(controller.log_page(log, Nsid::BROADCAST).await?.len(), 64 * 64);
            controller.keep_alive().await?;
            assert_eq!(controller.abort(Qid(1), CommandId(5)).await?, Aborted::No, "there is none");
            controller.shut_down().await
        })
        .await;
    });
}

#[test]
fn added_namespace_is_announced_by_an_event() {
    Served::start().with_host(|address, target| async move {
        persist(async || {
            let controller = Controller::connect(address, &subsystem(), &config()).await?;
            // The request is outstanding before anything changes, and is kept when its future is dropped.
            let early = timeout(Duration::from_millis(20), controller.next_event()).await;
            assert!(!matches!(early, Ok(Ok(_))), "nothing has happened yet");
            let opener = memory(1 << 20).await;
            target.add_namespace(&subsystem(), namespace(2), opener).await.expect("it is added");
            let event = controller.next_event().await;
            let list = controller.active_namespaces().await;
            target.remove_namespace(&subsystem(), Nsid(2)).await.expect("it is removed");
            assert_eq!(event?.known, Some(AsyncEvent::NamespaceAttributeChanged));
            assert_eq!(list?, [NSID, Nsid(2)]);
            Ok(())
        })
        .await;
    });
}

/// Reads everything once, `depth` at a time, and writes nothing.
struct Sweep {
    next: u64,
    right: u64,
    payload: Option<Payload>,
}

impl Sweep {
    fn submit(&mut self, queue: &mut Submitter<'_>) {
        while queue.room() > 0 && self.next < 4096 {
            let (token, lba) = (Token(self.next), Lba(self.next));
            let taken = match &self.payload {
                Some(payload) => queue.write(token, NSID, lba, 1, payload),
                None => queue.read(token, NSID, lba, 1, BLOCK as u32, Sink::Handler),
            };
            match taken {
                Ok(()) => self.next += 1,
                Err(Refused::Lost) => return,
                Err(full) => panic!("{full}"),
            }
        }
    }
}

impl Handler for Sweep {
    fn begin(&mut self, queue: &mut Submitter<'_>) {
        self.submit(queue);
    }

    fn data(&mut self, _: Token, offset: u32, bytes: &[u8]) {
        let expected = pattern(77, BLOCK);
        assert!(expected[offset as usize..offset as usize + bytes.len()] == *bytes);
    }

    fn complete(&mut self, queue: &mut Submitter<'_>, done: Done) {
        self.right += u64::from(done.is_success());
        self.submit(queue);
    }
}

#[test]
fn handler_keeps_a_full_queue_busy_until_everything_is_done() {
    let config = HostConfig { flow_control: FlowControl::Disabled, ..config() };
    Served::start().with_host(|address, _| async move {
        persist(async || {
            let host = Association::connect(address, &subsystem(), &config).await?;
            for payload in [Some(payload(&pattern(77, BLOCK))), None] {
                let (result, sweep) = host.queues[0].run(Sweep { next: 0, right: 0, payload }).await;
                result?;
                assert_eq!(sweep.right, 4096);
            }
            Ok(())
        })
        .await;
    });
}

#[test]
fn queues_of_one_controller_work_on_several_cores() {
    let served = Served::start();
    let address = served.address;
    let cores = Cores::start(&CoresConfig::floating(2)).expect("cores");
    let handle = cores.handle();
    let host = move || async move {
        persist(async || {
            let config = HostConfig { io_queues: 2, ..config() };
            let controller = Controller::connect(address, &subsystem(), &config).await?;
            let mut others = Vec::new();
            for core in handle.ids() {
                let (ticket, qid) = (controller.ticket(), Qid(core.0 + 1));
                others.push(handle.run_on(core, move || async move {
                    let queue = IoQueue::connect(&ticket, qid).await?;
                    let (lba, data) = (u64::from(qid.0) * 100, pattern(u32::from(qid.0), BLOCK));
                    queue.write(NSID, Lba(lba), 1, payload(&data), Fua::No).await?;
                    assert!(read(&queue, lba, 1).await? == data);
                    Ok::<_, HostError>(())
                }));
            }
            for other in others {
                other.await.expect("it runs to its end")?;
            }
            Ok(())
        })
        .await;
    };
    cores.handle().run_on(CoreId(0), host).wait().expect("it runs");
    cores.stop(LIMIT).expect("nothing is left over");
    served.with_host(|_, _| async {});
}

#[test]
fn session_survives_cuts_and_finds_every_byte_again() {
    let served = Served::start();
    let proxy = cut::Proxy::start(served.address);
    let (address, cutter) = (proxy.address(), proxy.cutter());
    served.with_host(move |_, _| async move {
        let reconnect = ReconnectPolicy { first_delay: Duration::from_millis(5), ..Default::default() };
        let config = HostConfig { io_queues: 2, reconnect, ..config() };
        let open = async || Session::open(address, subsystem(), NSID, config.clone(), LIMIT).await;
        let session = persist(open).await;
        let session = std::rc::Rc::new(session);
        let mut tasks = Vec::new();
        for task in 0..4_u32 {
            let session = std::rc::Rc::clone(&session);
            tasks.push(spawn_join(async move {
                for round in 0..50_u32 {
                    let lba = Lba(u64::from(task * 1000 + round * 8));
                    let data = pattern(task << 16 | round, 8 * BLOCK);
                    session.write(lba, payload(&data), Fua::No).await.expect("it succeeds in the end");
                    let back = session.read(lba, 8 * BLOCK as u32).await.expect("it succeeds in the end");
                    assert!(back[..] == data[..], "task {task}, round {round}");
                }
            }));
        }
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        let cutting = spawn_join({
            let done = std::rc::Rc::clone(&done);
            async move {
                // Cut first, so that at least one cut happens.
                while !done.get() {
                    cutter.cut();
                    ashlar_reactor::sleep(Duration::from_millis(40)).await;
                }
            }
        });
        for task in tasks {
            task.await.expect("it runs to its end");
        }
        done.set(true);
        cutting.await.expect("it ends");
        for task in 0..4_u32 {
            for round in 0..50_u32 {
                let lba = Lba(u64::from(task * 1000 + round * 8));
                let back = session.read(lba, 8 * BLOCK as u32).await.expect("it is read");
                assert!(back[..] == pattern(task << 16 | round, 8 * BLOCK)[..]);
            }
        }
        assert!(session.reconnects() > 0, "connections were cut");
        let session = std::rc::Rc::into_inner(session).expect("nobody else uses it");
        session.flush().await.expect("it succeeds");
        drop(session.close().await);
    });
    drop(proxy);
}

#[test]
fn abort_finds_a_command_by_its_identifier() {
    Served::start().with_host(|address, _| async move {
        persist(async || {
            let host = Association::connect(address, &subsystem(), &config()).await?;
            let flush = ashlar_nvme::nvm::flush(CommandId(0), NSID);
            let pending = host.queues[0].submit(flush, Data::None).await?;
            let aborted = host.controller.abort(Qid(1), pending.command_id()).await?;
            // It may have ended before; either answer is one, and the command's own outcome agrees with it.
            match (aborted, pending.await) {
                (Aborted::Yes, Err(error)) if error.status() == Some(Status::ABORT_REQUESTED) => Ok(()),
                (Aborted::No, Ok(_)) => Ok(()),
                (_, Err(error)) => Err(error),
                (Aborted::Yes, Ok(_)) => panic!("an aborted command succeeded"),
            }
        })
        .await;
    });
}
