//! A volume whose daemon is killed again and again while it is written to: nothing acknowledged is lost, and after
//! each round both replicas are sound and hold the same bytes. `ops/kill-loop` runs many rounds.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use ashlar_tests::built;
use ashlar_tests::node::{Node, free_ports};

/// Rounds where [`ROUNDS_VARIABLE`] does not say how many: few, for they take half a minute each.
const ROUNDS: usize = 2;

/// Environment variable with the number of rounds.
const ROUNDS_VARIABLE: &str = "ASHLAR_KILL_ROUNDS";

/// Kills during one run of writes: the second one often comes while the first is still being recovered from.
const KILLS: usize = 2;

/// Writes that must have been carried out before the next kill.
const WRITES_BETWEEN: f64 = 200.0;

/// Two extents for each of the four lanes of a device.
const EXTENTS: u64 = 8;

/// An extent is contiguous in its volume and on its device.
const EXTENT_BLOCKS: u64 = ashlar_store::EXTENT_BLOCKS as u64;

const BLOCK_BYTES: u64 = ashlar_io::BLOCK_BYTES as u64;

/// One pool, and so one replica, for each.
const POOLS: [&str; 2] = ["a", "b"];

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
    for pool in POOLS {
        let path = device(folder, pool);
        succeed(ashlar().args(["device", "format", "--create", "1g"]).arg(&path));
        let path = path.display();
        text += &format!("[[pool]]\nname = \"{pool}\"\n[[device]]\npath = \"{path}\"\npool = \"{pool}\"\n");
    }
    let bytes = EXTENTS * EXTENT_BLOCKS * BLOCK_BYTES;
    text + &format!("[[volume]]\nname = \"db\"\nsize = \"{bytes} B\"\nreplicas = 2\nallow_any_host = true\n")
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

fn rounds() -> usize {
    std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"))
}

/// The volume's id, as the running daemon tells it.
fn volume_id(metrics: SocketAddr) -> String {
    let told =
        succeed(ashlar().args(["volume", "show", "db", "-o", "json", "--admin", &metrics.to_string()]));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    told["volumes"][0]["id"].as_str().expect("an id").to_owned()
}

/// What a device that nobody serves holds of one of the volume's extents.
fn extent(device: &Path, volume: &str, extent: u64) -> Vec<u8> {
    let block = (extent * EXTENT_BLOCKS).to_string();
    let asked = ["device", "inspect", "-o", "json", "--volume", volume, "--block", &block];
    let told = succeed(ashlar().args(asked).arg(device));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let first = told[0]["device_block"].as_u64().expect("the extent is on the device");
    let mut bytes = vec![0; usize::try_from(EXTENT_BLOCKS * BLOCK_BYTES).expect("a few MiB")];
    let file = File::open(device).expect("it is there");
    file.read_exact_at(&mut bytes, first * BLOCK_BYTES).expect("the device goes on behind it");
    bytes
}

/// Every structure of both devices verifies, every block matches its checksum, and both hold the same.
fn replicas_are_sound_and_the_same(folder: &Path, volume: &str) {
    for pool in POOLS {
        let checked = succeed(ashlar().args(["device", "check", "--data"]).arg(device(folder, pool)));
        assert!(checked.contains(" 0 errors"), "{checked}");
    }
    for index in 0..EXTENTS {
        let [one, other] = POOLS.map(|pool| extent(&device(folder, pool), volume, index));
        let size = usize::try_from(BLOCK_BYTES).expect("4096");
        let differs = one.chunks(size).zip(other.chunks(size)).position(|(one, other)| one != other);
        assert_eq!(differs, None, "block of extent {index} that the replicas do not agree on");
    }
}

#[test]
fn acknowledged_writes_survive_kills_under_load() {
    let ports = free_ports(2).expect("ports");
    let (portal, metrics) = (ports[0], ports[1]);
    let mut node =
        Node::start(&[portal, metrics], |folder| configuration(folder, portal, metrics)).expect("it starts");
    let volume = volume_id(metrics);
    let state = node.folder().join("verify.state");
    // Every block has content from the first round on.
    succeed(&mut verify(portal, &state, &["--phase", "write"]));
    node.stop().expect("it ends");
    let rounds = rounds();
    for round in 1..=rounds {
        let writing =
            ["--phase", "write", "--order", "random", "--size", "8k", "--depth", "16", "--time", "12s"];
        node.start_again().expect("it starts again");
        let mut writer = verify(portal, &state, &writing).spawn().expect("runs");
        for _ in 0..KILLS {
            wait_for_writes(metrics, &mut writer);
            node.crash_and_start_again().expect("it starts again");
        }
        assert!(writer.wait().expect("our child").success(), "the writer goes on over kills");
        // Reads settle what the kills left suspect (PROTOCOL S2); what was settled stays settled.
        succeed(&mut verify(portal, &state, &["--phase", "check"]));
        node.crash_and_start_again().expect("it starts again");
        succeed(&mut verify(portal, &state, &["--phase", "check"]));
        node.stop().expect("it ends");
        replicas_are_sound_and_the_same(node.folder(), &volume);
        println!("round {round} of {rounds}: nothing lost, both replicas the same");
    }
}
