//! The kernel's own target judges our host: what it misunderstands there is wrong here (NVME N15).

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

use ashlar_tests::built;
use ashlar_tests::guest::Kernel;
use ashlar_tests::nvmet::KernelTarget;

const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:a5b1a1d0-0000-4000-8000-000000000002";
const HOST_ID: &str = "a5b1a1d0-0000-4000-8000-000000000002";

/// `ashlar`, pointed at a target.
struct Ashlar {
    program: PathBuf,
    address: String,
}

impl Ashlar {
    /// Runs a command that must succeed; its output comes back.
    fn run(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("ASHLAR_ADDRESS", &self.address)
            .env("ASHLAR_SUBSYSTEM", KernelTarget::NQN)
            .env("ASHLAR_HOST_NQN", HOST_NQN)
            .env("ASHLAR_HOST_ID", HOST_ID)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let problem = String::from_utf8_lossy(&output.stderr);
        Err(format!("ashlar {arguments:?} ended with {}:\n{text}{problem}", output.status).into())
    }
}

fn kernel_understands_our_host(kernel: Kernel) -> Result<(), Box<dyn Error>> {
    let target = KernelTarget::start(kernel, "nvmet")?;
    let ashlar = Ashlar { program: built::program("ashlar")?, address: target.address().to_string() };

    let discovered = ashlar.run(&["nvme", "discover", "-o", "json"])?;
    assert!(discovered.contains(KernelTarget::NQN), "{discovered}");
    ashlar.run(&["nvme", "list"])?;
    ashlar.run(&["nvme", "identify", "controller"])?;
    for nsid in ["1", "2"] {
        ashlar.run(&["nvme", "identify", "namespace", "--nsid", nsid])?;
    }
    for page in ["error", "smart", "firmware", "changed-ns", "effects", "ana"] {
        ashlar.run(&["nvme", "log", page])?;
    }

    let digests: [&[&str]; 4] =
        [&[], &["--header-digest"], &["--data-digest"], &["--header-digest", "--data-digest"]];
    for digests in digests {
        // Sizes on both sides of the in-capsule limit, and one that needs several PDUs each way.
        for (size, queues) in [("4k", "2"), ("64k", "1"), ("1M", "2")] {
            let mut arguments =
                vec!["perf", "--rw", "mixed", "--warmup", "0s", "--time", "1s", "--depth", "8"];
            arguments.extend(["--size", size, "--queues", queues]);
            arguments.extend(digests);
            ashlar.run(&arguments)?;
        }
    }
    // Both block sizes, written in one order and checked in another command.
    for nsid in ["1", "2"] {
        let verify = ["io", "verify", "--nsid", nsid, "--length", "8M", "--tag", "judge"];
        ashlar.run(&[&verify[..], &["--phase", "write", "--order", "random", "--size", "64k"]].concat())?;
        ashlar.run(&[&verify[..], &["--phase", "check", "--data-digest"]].concat())?;
    }

    let report = target.finish()?;
    assert!(report.held("nothing went wrong in the kernel"), "{report:?}");
    Ok(())
}

#[test]
fn target_of_linux_6_1_understands_our_host() -> Result<(), Box<dyn Error>> {
    kernel_understands_our_host(Kernel::V6_1)
}

#[test]
fn target_of_linux_6_12_understands_our_host() -> Result<(), Box<dyn Error>> {
    kernel_understands_our_host(Kernel::V6_12)
}
