//! The product with real Linux kernels as its hosts: everything that an administrator does with a disk.

use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ashlar_tests::dissect::dissect;
use ashlar_tests::guest::{Guest, HOST_ADDRESS, Kernel, Report};
use ashlar_tests::node::{Node, free_ports};
use ashlar_tests::relay::Relay;

/// A run takes one to two minutes; emulation on a busy machine makes several times that of it.
const LIMIT: Duration = Duration::from_mins(15);

const NQN: &str = "nqn.2014-08.io.ashlar:main";
const HIDDEN_NQN: &str = "nqn.2014-08.io.ashlar:hidden";
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:a5b1a1d0-0000-4000-8000-000000000001";
/// The smallest that mkfs.xfs accepts is 300 MiB.
const LARGE_BYTES: u64 = 320 << 20;

const WORDS: &str = include_str!("linux_host/words.sh");

/// What is served; changed while a host is connected.
struct Served {
    portals: Vec<SocketAddr>,
    /// Where hosts are told to find each portal.
    advertised: Vec<SocketAddr>,
    large_bytes: u64,
    third_namespace: bool,
}

impl Served {
    fn configuration(&self, folder: &Path) -> String {
        let mut text = String::from("[metrics]\nenabled = false\n[cores]\ncount = 2\npin = false\n");
        for (number, (listen, advertise)) in self.portals.iter().zip(&self.advertised).enumerate() {
            let port = advertise.port();
            let discovery_only = number == 2;
            let _ = writeln!(
                text,
                "[[portal]]\nlisten = \"{listen}\"\nadvertise = \"{HOST_ADDRESS}:{port}\"\n\
                 discovery_only = {discovery_only}"
            );
        }
        let _ = writeln!(text, "[[subsystem]]\nnqn = \"{NQN}\"\nhosts = [\"{HOST_NQN}\"]");
        let raw = folder.join("namespace-4");
        let mut namespaces = vec![
            (1, 4096, format!("kind = \"memory\", size = \"{} B\"", self.large_bytes)),
            (2, 512, "kind = \"memory\", size = \"128 MiB\"".to_owned()),
            (
                4,
                4096,
                format!("kind = \"raw\", path = \"{}\", size = \"64 MiB\", create = true", raw.display()),
            ),
        ];
        if self.third_namespace {
            namespaces.push((3, 4096, "kind = \"memory\", size = \"16 MiB\"".to_owned()));
        }
        for (nsid, block_size, backend) in namespaces {
            let _ = writeln!(
                text,
                "[[subsystem.namespace]]\nnsid = {nsid}\nblock_size = {block_size}\nbackend = {{ {backend} }}"
            );
        }
        let _ = writeln!(
            text,
            "[[subsystem]]\nnqn = \"{HIDDEN_NQN}\"\nhosts = [\"nqn.2014-08.io.ashlar:someone-else\"]\n\
             [[subsystem.namespace]]\nnsid = 1\nbackend = {{ kind = \"null\", size = \"16 MiB\" }}"
        );
        text
    }
}

/// A node, the path to its second portal, and what the guest may ask for.
struct Stage {
    served: Served,
    node: Node,
    second_path: Relay,
}

impl Stage {
    fn set() -> Result<Self, Box<dyn Error>> {
        let portals = free_ports(3)?;
        let second_path = Relay::to(portals[1])?;
        let advertised = vec![portals[0], second_path.address(), portals[2]];
        let served =
            Served { portals: portals.clone(), advertised, large_bytes: LARGE_BYTES, third_namespace: false };
        let node = Node::start(&portals, |folder| served.configuration(folder))?;
        Ok(Self { served, node, second_path })
    }

    fn play(&mut self, kernel: Kernel, name: &str, scripts: &[&str]) -> Result<Report, Box<dyn Error>> {
        let mut guest = Guest::builder(kernel, name)
            .variable("PORT_A", self.served.advertised[0].port())
            .variable("PORT_B", self.served.advertised[1].port())
            .variable("DISCOVERY_PORT", self.served.advertised[2].port())
            .variable("NQN", NQN)
            .variable("HIDDEN_NQN", HIDDEN_NQN)
            .script(WORDS);
        for script in scripts {
            guest = guest.script(script);
        }
        Ok(guest.start()?.finish(LIMIT, |words| self.answer(words))?)
    }

    /// Does what the guest asks for. A failure here goes back to the guest, whose check shows it.
    fn answer(&mut self, words: &[&str]) -> String {
        let done = match words {
            ["resize", "1", bytes] => match bytes.parse() {
                Ok(bytes) => {
                    self.served.large_bytes = bytes;
                    self.reload()
                }
                Err(error) => Err(format!("{bytes} is no size: {error}")),
            },
            ["add", "3"] => {
                self.served.third_namespace = true;
                self.reload()
            }
            ["remove", "3"] => {
                self.served.third_namespace = false;
                self.reload()
            }
            ["cut"] => {
                self.second_path.cut();
                Ok(())
            }
            ["mend"] => {
                self.second_path.mend();
                Ok(())
            }
            ["restart"] => self.node.crash_and_start_again().map_err(|error| error.to_string()),
            other => Err(format!("nobody here knows {other:?}")),
        };
        match done {
            Ok(()) => "done".to_owned(),
            Err(problem) => problem.replace('\n', " | "),
        }
    }

    fn reload(&mut self) -> Result<(), String> {
        let text = self.served.configuration(self.node.folder());
        self.node.reload(&text).map_err(|error| error.to_string())
    }
}

fn everything(kernel: Kernel) -> Result<(), Box<dyn Error>> {
    let scripts = [
        include_str!("linux_host/discover.sh"),
        include_str!("linux_host/connect.sh"),
        include_str!("linux_host/identify.sh"),
        include_str!("linux_host/device.sh"),
        include_str!("linux_host/files.sh"),
        include_str!("linux_host/changes.sh"),
        include_str!("linux_host/paths.sh"),
        include_str!("linux_host/compare.sh"),
    ];
    let mut stage = Stage::set()?;
    let report = stage.play(kernel, "host", &scripts)?;
    for last in [
        "discovery answers a stranger",
        "disconnects with a deeper queue than Linux offers by itself",
        "disconnects after identify",
        "disconnects after the device",
        "disconnects at last",
        "disconnects after changes",
        "disconnects both paths",
        "disconnects what discovery named",
        "disconnects from the kernel",
    ] {
        assert!(report.held(last), "'{last}' did not run: {:?}", report.checks);
    }
    stage.node.stop()?;
    Ok(())
}

/// PDU types (NVMe-TCP 1.0 §3.6.2.1): everything but terminations.
const PDU_TYPES: [u8; 7] = [0, 1, 4, 5, 6, 7, 9];

#[test]
fn wireshark_understands_all_that_linux_and_the_target_say() -> Result<(), Box<dyn Error>> {
    let stage = Stage::set()?;
    let port = stage.served.portals[0].port();
    let guest = Guest::builder(Kernel::V6_12, "capture")
        .variable("PORT_A", port)
        .variable("NQN", NQN)
        .script(WORDS)
        .script(include_str!("linux_host/capture.sh"))
        .capture()
        .start()?;
    let capture = guest.capture_path();
    let report = guest.finish(LIMIT, |_| String::new())?;
    assert!(report.held("disconnects after the capture"), "{:?}", report.checks);
    let dissection = dissect(&capture, port)?;
    assert!(dissection.complaints.is_empty(), "{}", dissection.complaints.join("\n"));
    assert_eq!(dissection.pdu_types.iter().copied().collect::<Vec<_>>(), PDU_TYPES);
    assert!(dissection.good_header_digests > 50 && dissection.good_data_digests > 10, "{dissection:?}");
    Ok(())
}

#[test]
fn linux_6_1_uses_everything_that_is_served() -> Result<(), Box<dyn Error>> {
    everything(Kernel::V6_1)
}

#[test]
fn linux_6_12_uses_everything_that_is_served() -> Result<(), Box<dyn Error>> {
    everything(Kernel::V6_12)
}
