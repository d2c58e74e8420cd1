//! A volume whose daemon is killed again and again while it is written to: nothing acknowledged is lost, and both
//! replicas are sound afterwards.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use ashlar_tests::built;
use ashlar_tests::node::{Node, free_ports};

/// Kills during one run of writes.
const KILLS: usize = 3;

/// Writes that must have been acknowledged before the next kill.
const WRITES_BETWEEN: f64 = 300.0;

/// A busy machine may need long for what takes seconds.
const LIMIT: Duration = Duration::from_secs(240);

const VOLUME: &str = "nqn.2026-01.io.ashlar:volume:db";

fn ashlar() -> Command {
    // Asking cargo takes a while each time.
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built::program("ashlar").expect("it builds"));
    Command::new(&*PROGRAM)
}

fn succeed(command: &mut Command) -> String {
    let output: Output = command.output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two formatted files in the daemon's folder, and a volume with a replica on each.
fn configuration(folder: &Path, portal: SocketAddr, metrics: SocketAddr) -> String {
    let mut text = format!(
        "[cores]\ncount = 2\npin = false\n[metrics]\nlisten = \"{metrics}\"\n[[portal]]\nlisten = \"{portal}\"\n\
         [state]\ndirectory = \"{}\"\n",
        folder.join("state").display()
    );
    for pool in ["a", "b"] {
        let path = device(folder, pool);
        succeed(ashlar().args(["device", "format", "--create", "1g"]).arg(&path));
        let path = path.display();
        text += &format!("[[pool]]\nname = \"{pool}\"\n[[device]]\npath = \"{path}\"\npool = \"{pool}\"\n");
    }
    text + "[[volume]]\nname = \"db\"\nsize = \"128 MiB\"\nreplicas = 2\nallow_any_host = true\n"
}

fn device(folder: &Path, pool: &str) -> PathBuf {
    folder.join(format!("device-{pool}"))
}

/// Writes that the running daemon has carried out.
fn writes(metrics: SocketAddr) -> f64 {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(metrics).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("the server listens");
    stream.read_to_string(&mut answer).expect("the server answers");
    let counts = answer.lines().filter(|line| {
        line.starts_with("ashlar_namespace_operations_total") && line.contains("operation=\"write\"")
    });
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn verify(portal: SocketAddr, state: &Path, phase: &[&str]) -> Command {
    let mut command = ashlar();
    command.args(["io", "verify", "--subsystem", VOLUME, "--address", &portal.to_string()]);
    command.args(["--state"]).arg(state).args(["--reconnect", "120s"]).args(phase);
    command
}

fn wait_for_writes(metrics: SocketAddr, writer: &mut Child) {
    let started = Instant::now();
    while writes(metrics) < WRITES_BETWEEN {
        assert!(writer.try_wait().expect("our child").is_none(), "the writer ended early");
        assert!(started.elapsed() < LIMIT, "nothing is written");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn acknowledged_writes_survive_kills_under_load() {
    let ports = free_ports(2).expect("ports");
    let (portal, metrics) = (ports[0], ports[1]);
    let mut node =
        Node::start(&[portal, metrics], |folder| configuration(folder, portal, metrics)).expect("it starts");
    let state = node.folder().join("verify.state");
    let writing = ["--phase", "write", "--order", "random", "--size", "8k", "--depth", "16", "--time", "20s"];
    let mut writer = verify(portal, &state, &writing).spawn().expect("runs");
    for _ in 0..KILLS {
        wait_for_writes(metrics, &mut writer);
        node.crash_and_start_again().expect("it starts again");
    }
    assert!(writer.wait().expect("our child").success(), "the writer goes on over kills");
    succeed(&mut verify(portal, &state, &["--phase", "check"]));
    // What was settled stays settled.
    node.crash_and_start_again().expect("it starts again");
    succeed(&mut verify(portal, &state, &["--phase", "check"]));
    node.stop().expect("it ends");
    for pool in ["a", "b"] {
        let checked = succeed(ashlar().args(["device", "check", "--data"]).arg(device(node.folder(), pool)));
        assert!(checked.contains(" 0 errors"), "{checked}");
    }
}
