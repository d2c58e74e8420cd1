//! A target in this process, and the real `ashlar` program run against it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use ashlar_reactor::{CoreId, Cores, CoresConfig};
use ashlar_target::Target;
use ashlar_target::backends::{AnyOpener, BackendSource, PageCache};
use ashlar_target::inventory::{AnaState, HostAccess, LbaSize, Portal};
use ashlar_target::target::{NewNamespace, NewSubsystem};
use uuid::Uuid;

/// The subsystem that every host may use.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.io.ashlar:cli-test";

/// A subsystem that only [`FRIEND`] may use.
pub(crate) const PRIVATE: &str = "nqn.2026-01.io.ashlar:cli-private";

/// The host of the tests.
pub(crate) const HOST: &str = "nqn.2026-01.io.ashlar:cli-host";

/// Another host.
pub(crate) const FRIEND: &str = "nqn.2026-01.io.ashlar:cli-friend";

/// Size of each namespace.
pub(crate) const BYTES: u64 = 16 << 20;

/// Longest that the target may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running target.
pub(crate) struct Rig {
    cores: Cores,
    target: Target<AnyOpener>,
    pub(crate) address: SocketAddr,
}

/// A namespace of [`BYTES`] in memory.
pub(crate) fn memory() -> BackendSource {
    BackendSource::Memory { bytes: BYTES, memory_max: None }
}

/// A namespace of [`BYTES`] in a file.
pub(crate) fn file(path: &Path) -> BackendSource {
    // Where the build folder lies decides whether direct I/O would work.
    BackendSource::Raw { path: path.to_owned(), create_bytes: Some(BYTES), page_cache: PageCache::Used }
}

impl Rig {
    /// Serves `source` as namespace 1 of [`SUBSYSTEM`], on a free port.
    pub(crate) fn start(source: BackendSource, lba: LbaSize) -> Rig {
        Rig::start_at(source, lba, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// The same at an address, to come back where an earlier target was.
    pub(crate) fn start_at(source: BackendSource, lba: LbaSize, listen: SocketAddr) -> Rig {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("cores start");
        let handle = cores.handle();
        let held = source.hold().expect("nobody else has it");
        let started = handle.clone().run_on(CoreId(0), move || async move {
            let target = Target::start(handle).await.expect("target starts");
            let friend = Nqn::parse(FRIEND).expect("a name");
            for (name, hosts) in
                [(SUBSYSTEM, HostAccess::Any), (PRIVATE, HostAccess::Listed([friend].into()))]
            {
                let nqn = Nqn::parse(name).expect("a name");
                let new = NewSubsystem { nqn, serial: "1".into(), model: "Ashlar".into(), hosts };
                target.add_subsystem(new).await.expect("subsystem");
            }
            let opener = AnyOpener::prepare(held, 1).await.expect("backend");
            let new = NewNamespace {
                nsid: Nsid(1),
                uuid: Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888),
                nguid: Nguid([0x42; 16]),
                lba,
                blocks: None,
                ana_state: AnaState::Optimized,
            };
            let nqn = Nqn::parse(SUBSYSTEM).expect("a name");
            target.add_namespace(&nqn, new, opener).await.expect("namespace");
            let portal = Portal { listen, advertise: None, port_id: 1, discovery_only: false };
            let address = target.add_portal(portal).await.expect("portal");
            (target, address)
        });
        let (target, address) = started.wait().expect("set up");
        Rig { cores, target, address }
    }

    /// Stops the target; hosts lose their connections.
    pub(crate) fn stop(self) {
        let target = self.target.clone();
        let stopping =
            self.cores.handle().run_on(CoreId(0), move || async move { target.stop().await.expect("stops") });
        stopping.wait().expect("stops");
        drop(self.target);
        self.cores.stop(PATIENCE).expect("nothing is left over");
    }

    /// `ashlar` with these words, and with the address, the host and, for what needs one, the subsystem.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = ashlar();
        command.args(words.split_whitespace());
        command.args(["--address", &self.address.to_string(), "--host-nqn", HOST]);
        if !words.contains("discover") && !words.contains("--subsystem") {
            command.args(["--subsystem", SUBSYSTEM]);
        }
        command
    }

    /// Runs it; it must end with success. Gives its standard output.
    pub(crate) fn ok(&self, words: &str) -> String {
        succeed(&mut self.command(words))
    }

    /// Runs it with `-o json`; it must end with success.
    pub(crate) fn json(&self, words: &str) -> serde_json::Value {
        let text = self.ok(&format!("{words} -o json"));
        serde_json::from_str(&text).expect("one JSON document")
    }

    /// Runs it; it must end with this exit code. Gives the line on standard error.
    pub(crate) fn fails(&self, words: &str, code: i32) -> String {
        fail(&mut self.command(words), code)
    }
}

/// The program under test, with nothing of this machine's settings.
pub(crate) fn ashlar() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    for name in ["ASHLAR_ADDRESS", "ASHLAR_HOST_NQN", "ASHLAR_HOST_ID", "ASHLAR_SUBSYSTEM"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that must fail with this exit code and one line that says why.
pub(crate) fn fail(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", told(&output));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.starts_with("ashlar: ") && error.lines().count() == 1, "{error}");
    error
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
