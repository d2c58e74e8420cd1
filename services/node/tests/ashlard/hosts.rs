//! Changes and counters as a connected host sees them.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use ashlar_initiator::{Controller, Fua, HostConfig, IoQueue, Payload};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::ids::{HostId, Lba, Nqn, Nsid, Qid};
use ashlar_reactor::{CoreId, Cores, CoresConfig, IoBuf, Reply};

use crate::running::{Daemon, SETTINGS, subsystem, text};

const HOST: &str = "nqn.2026-01.io.x:host";
const SUBSYSTEM: &str = "nqn.2026-01.io.x:a";
const NSID: Nsid = Nsid(1);

fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).expect("an NQN")
}

/// Connects as the host, with one I/O queue.
async fn connect(portal: SocketAddr) -> (Controller, IoQueue) {
    let config = HostConfig::new(nqn(HOST), HostId([7; 16]));
    let controller = Controller::connect(portal, &nqn(SUBSYSTEM), &config).await.expect("it may connect");
    let queue = IoQueue::connect(&controller.ticket(), Qid(1)).await.expect("a queue");
    (controller, queue)
}

async fn leave(controller: Controller, queue: IoQueue) {
    queue.close();
    drop(queue);
    controller.shut_down().await.expect("an orderly end");
}

/// The host's own data core.
struct HostCore(Cores);

impl HostCore {
    fn start() -> Self {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
        HostCore(cores)
    }

    fn run<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        host: impl FnOnce() -> F + Send + 'static,
    ) -> Reply<T> {
        self.0.handle().run_on(CoreId(0), host)
    }

    fn stop(self) {
        self.0.stop(Duration::from_secs(60)).expect("nothing is left over");
    }
}

fn memory(size: &str) -> String {
    let backend = format!("{{ kind = \"memory\", size = \"{size}\" }}");
    format!("{SETTINGS}{}", subsystem("a", &[(1, &backend)]))
}

#[test]
fn connected_host_sees_the_new_size_and_its_data() {
    let mut daemon = Daemon::start(&memory("1 MiB"));
    let portal = daemon.portals()[0];
    let core = HostCore::start();
    let (connected, is_connected) = mpsc::channel();
    let host = core.run(move || async move {
        let (controller, queue) = connect(portal).await;
        let block = [0x5A; 4096];
        queue.write(NSID, Lba(9), 1, Payload::copy_of(&block), Fua::No).await.expect("a write");
        let before = controller.namespace(NSID).await.expect("a namespace").blocks;
        connected.send(()).expect("the test waits");
        let event = controller.next_event().await.expect("an event").known;
        let after = controller.namespace(NSID).await.expect("a namespace").blocks;
        let kept = queue.read(NSID, Lba(9), 1, IoBuf::heap(4096)).await.expect("a read");
        let new =
            queue.read(NSID, Lba(after - 1), 1, IoBuf::heap(4096)).await.expect("a read of the new end");
        let read_right = kept[..] == block && new.iter().all(|byte| *byte == 0);
        leave(controller, queue).await;
        (before, event, after, read_right)
    });
    is_connected.recv().expect("the host connects");
    assert_eq!(daemon.reload(&memory("2 MiB")), (1, 0));
    let seen = host.wait().expect("the host's core runs");
    assert_eq!(seen, (256, Some(AsyncEvent::NamespaceAttributeChanged), 512, true));
    core.stop();
    assert!(daemon.stop().success());
}

#[test]
fn host_that_may_no_longer_connect_is_let_go() {
    let only =
        |host: &str| memory("1 MiB").replace("allow_any_host = true", &format!("hosts = [\"{host}\"]"));
    let mut daemon = Daemon::start(&only(HOST));
    let portal = daemon.portals()[0];
    let core = HostCore::start();
    let (connected, is_connected) = mpsc::channel();
    let host = core.run(move || async move {
        let (controller, queue) = connect(portal).await;
        connected.send(()).expect("the test waits");
        controller.lost().await;
        queue.lost().await;
        let config = HostConfig::new(nqn(HOST), HostId([7; 16]));
        Controller::connect(portal, &nqn(SUBSYSTEM), &config).await.is_err()
    });
    is_connected.recv().expect("the host connects");
    assert_eq!(daemon.reload(&only("nqn.2026-01.io.x:other")), (1, 0));
    assert!(host.wait().expect("the host's core runs"), "it may not connect again");
    let line = daemon.log_line_ever("host refused");
    let told = ["host", "subsystem", "why"].map(|field| text(&line, field));
    assert_eq!(told, [HOST, SUBSYSTEM, "Connect Invalid Host"]);
    core.stop();
}

#[test]
fn operations_bytes_and_errors_are_counted() {
    let daemon = Daemon::start(&memory("1 MiB"));
    let portal = daemon.portals()[0];
    let core = HostCore::start();
    let (done, is_done) = mpsc::channel();
    let (looked, has_looked) = async_flag();
    let host = core.run(move || async move {
        let (controller, queue) = connect(portal).await;
        for lba in 0..3 {
            queue.write(NSID, Lba(lba), 1, Payload::copy_of(&[1; 4096]), Fua::No).await.expect("a write");
        }
        queue.read(NSID, Lba(0), 2, IoBuf::heap(8192)).await.expect("a read");
        queue.flush(NSID).await.expect("a flush");
        let other = Payload::copy_of(&[2; 4096]);
        queue.compare(NSID, Lba(0), 1, other).await.expect_err("other data");
        done.send(()).expect("the test waits");
        has_looked.await;
        leave(controller, queue).await;
    });
    is_done.recv().expect("the host does it");
    let sum = |name: &str, labels: &[(&str, &str)]| {
        let of_core = |core| daemon.metric(name, &[&[("core", core)], labels].concat()).unwrap_or_default();
        of_core("0") + of_core("1")
    };
    assert_eq!(sum("ashlar_namespace_operations_total", &[("operation", "write")]), 3.0);
    assert_eq!(sum("ashlar_namespace_operations_total", &[("operation", "flush")]), 1.0);
    assert_eq!(sum("ashlar_namespace_data_bytes_total", &[("operation", "write")]), 12288.0);
    assert_eq!(sum("ashlar_namespace_data_bytes_total", &[("operation", "read")]), 8192.0);
    assert_eq!(sum("ashlar_namespace_errors_total", &[("status", "Compare Failure")]), 1.0);
    assert_eq!(sum("ashlar_namespace_commands", &[]), 0.0);
    assert_eq!(sum("ashlar_core_queues", &[("kind", "io")]), 1.0);
    assert_eq!(daemon.metric("ashlar_controllers", &[]), Some(1.0));
    assert_eq!(daemon.metric("ashlar_connections", &[]), Some(2.0));
    let read = [("operation", "read")];
    assert!(daemon.metric("ashlar_namespace_latency_seconds_count", &read) >= Some(1.0));
    looked.set();
    host.wait().expect("the host's core runs");
    core.stop();
}

#[test]
fn daemon_with_a_connected_host_ends_well() {
    let mut daemon = Daemon::start(&memory("1 MiB"));
    let portal = daemon.portals()[0];
    let core = HostCore::start();
    let (connected, is_connected) = mpsc::channel();
    let host = core.run(move || async move {
        let (controller, queue) = connect(portal).await;
        connected.send(()).expect("the test waits");
        controller.lost().await;
        queue.lost().await;
    });
    is_connected.recv().expect("the host connects");
    assert_eq!(daemon.stop().code(), Some(0));
    host.wait().expect("the host's core runs");
    core.stop();
}

/// Set on one thread, awaited on a core.
fn async_flag() -> (Flag, impl Future<Output = ()> + Send) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    (Flag(sender), async move {
        // A test that failed sets nothing; the host leaves all the same.
        let _ = receiver.await;
    })
}

struct Flag(tokio::sync::oneshot::Sender<()>);

impl Flag {
    fn set(self) {
        // A host that failed waits for nothing; its result tells.
        let _ = self.0.send(());
    }
}
