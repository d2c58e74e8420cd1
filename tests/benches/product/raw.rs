//! The raw backend next to fio on the same device: a loop device over memory, 4 KiB, random.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Settings;
use crate::daemon::Daemon;
use crate::error::{BenchError, io};
use crate::load::{self, median, number, thousands, words};

/// Size of the device.
const BYTES: u64 = 1 << 30;

/// A loop device over a file in memory. Dropping it takes both away.
struct LoopDevice {
    device: PathBuf,
    file: PathBuf,
}

fn command(program: &'static str, arguments: &[&str]) -> Result<String, BenchError> {
    let output = Command::new(program).args(arguments).output().map_err(io("setting a loop device up"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BenchError::Failed { program, said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl LoopDevice {
    fn new() -> Result<Self, BenchError> {
        let file = PathBuf::from(format!("/dev/shm/ashlar-bench-{}", std::process::id()));
        // Written once, so that no page is missing while it is measured.
        std::fs::write(&file, vec![1u8; BYTES as usize]).map_err(io("filling the device"))?;
        let path = file.to_string_lossy().into_owned();
        match command("losetup", &["--find", "--show", "--direct-io=on", &path])
            .or_else(|_| command("losetup", &["--find", "--show", &path]))
        {
            Ok(device) => Ok(Self { device: device.into(), file }),
            Err(error) => {
                // Nothing refers to it yet; that it cannot be removed changes nothing about the error.
                let _ = std::fs::remove_file(&file);
                Err(error)
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        let _ = std::fs::remove_file(&self.file);
    }
}

fn fio(settings: &Settings, device: &Path, rw: &str, depth: u32) -> Result<f64, BenchError> {
    let arguments = words(&format!(
        "--name=raw --filename={} --direct=1 --ioengine=io_uring --bs=4k --rw={rw} --iodepth={depth} --time_based \
         --runtime={} --ramp_time=1 --cpus_allowed={} --output-format=json",
        device.display(),
        settings.seconds,
        settings.target_cpu
    ));
    let report = load::json("fio", Path::new("fio"), &arguments)?;
    let side = if rw == "randread" { "read" } else { "write" };
    number("fio", &report, &format!("/jobs/0/{side}/iops"))
}

/// Measures and prints fio beside the target.
pub(crate) fn run(settings: &Settings) -> Result<(), BenchError> {
    let device = LoopDevice::new()?;
    println!(
        "fio on a loop device over memory, and the `raw` backend on the same device through NVMe/TCP:\n"
    );
    println!("| load | depth | fio | raw backend | ratio | target core busy |");
    println!("|---|---|---|---|---|---|");
    for (rw, ours) in [("randread", "read"), ("randwrite", "write")] {
        for depth in [1, 32, 128] {
            let (mut theirs, mut mine, mut busy) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..settings.rounds {
                theirs.push(fio(settings, &device.device, rw, depth)?);
                let namespace = format!(
                    "[[subsystem.namespace]]\nnsid = 1\nbackend = {{ kind = \"raw\", path = \"{}\" }}\n",
                    device.device.display()
                );
                let daemon = Daemon::start(settings, &namespace)?;
                let before = daemon.core_time()?;
                let load = format!("--nsid 1 --rw {ours} --depth {depth} --sq-flow-control off");
                let report = daemon.perf(settings, &load)?;
                let get = |pointer: &str| number("ashlar perf", &report, pointer);
                mine.push(get("/total/all/iops")?);
                let time = get("/seconds")? + get("/warmup_seconds")?;
                busy.push((daemon.core_time()?.busy_s - before.busy_s) / time);
            }
            let (theirs, mine) = (median(theirs), median(mine));
            println!(
                "| {rw} | {depth} | {} | {} | {:.2} | {:.0}% |",
                thousands(theirs),
                thousands(mine),
                mine / theirs,
                median(busy) * 100.0
            );
        }
    }
    println!();
    Ok(())
}
