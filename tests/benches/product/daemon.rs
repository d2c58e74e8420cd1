//! The daemon under measurement, and what its data core did meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ashlar_tests::built;
use ashlar_tests::node::{Node, free_ports};

use crate::Settings;
use crate::error::{BenchError, io};
use crate::load::{self, words};

/// Name of the one subsystem.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.io.ashlar:bench";

/// NQN of the one volume.
pub(crate) const VOLUME: &str = "nqn.2026-01.io.ashlar:volume:bench";

/// A daemon with one data core.
pub(crate) struct Daemon {
    node: Node,
    address: SocketAddr,
    metrics: SocketAddr,
    ashlar: PathBuf,
}

/// Counters of the data core at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoreTime {
    /// Seconds in which it worked: neither asleep nor looking for work.
    pub(crate) busy_s: f64,
    /// System calls into the ring.
    pub(crate) system_calls: f64,
}

/// A load that keeps connections open until it is dropped.
pub(crate) struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        // It may have ended by itself; either way it must be waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// Starts one that serves `namespaces`: lines of TOML, one `[[subsystem.namespace]]` each.
    pub(crate) fn start(settings: &Settings, namespaces: &str) -> Result<Self, BenchError> {
        let subsystem = format!("[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\nallow_any_host = true\n{namespaces}");
        Self::start_serving(settings, &subsystem)
    }

    /// Starts one that serves a volume: lines of TOML for pools, devices and the volume itself.
    pub(crate) fn start_with_volume(settings: &Settings, volume: &str) -> Result<Self, BenchError> {
        Self::start_serving(settings, volume)
    }

    fn start_serving(settings: &Settings, what: &str) -> Result<Self, BenchError> {
        let ports = free_ports(2).map_err(io("looking for free ports"))?;
        let (address, metrics) = (ports[0], ports[1]);
        let node = Node::start(&[address, metrics], |folder| {
            format!(
                "[cores]\ncpus = [{}]\n[log]\nlevel = \"warn\"\n[metrics]\nlisten = \"{metrics}\"\n\
                 [[portal]]\nlisten = \"{address}\"\n[state]\ndirectory = \"{}\"\n{what}",
                settings.target_cpu,
                folder.display()
            )
        })?;
        Ok(Self { node, address, metrics, ashlar: built::program("ashlar")? })
    }

    /// The daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.node.pid()
    }

    /// Loads it with `ashlar perf`.
    pub(crate) fn perf(&self, settings: &Settings, arguments: &str) -> Result<serde_json::Value, BenchError> {
        self.perf_on(SUBSYSTEM, settings, &format!("--time {}s {arguments}", settings.seconds))
    }

    /// The same on a subsystem of one's choice, for the time that `arguments` say.
    pub(crate) fn perf_on(
        &self,
        subsystem: &str,
        settings: &Settings,
        arguments: &str,
    ) -> Result<serde_json::Value, BenchError> {
        let mut all = words("perf -o json --warmup 500ms");
        all.extend(words(&format!(
            "--address {} --subsystem {subsystem} --cpus {}",
            self.address, settings.load_cpu
        )));
        all.extend(words(arguments));
        load::json("ashlar perf", &self.ashlar, &all)
    }

    /// Starts a load that only keeps `queues` I/O queues connected, one read per second over all of them.
    pub(crate) fn hold_connections(&self, settings: &Settings, queues: usize) -> Result<Held, BenchError> {
        let arguments = format!(
            "perf --address {} --subsystem {SUBSYSTEM} --nsid 1 --rw read --depth 1 --rate 1 --time 300s \
             --queues {queues} --cpus {}",
            self.address, settings.load_cpu
        );
        let child = Command::new(&self.ashlar)
            .args(words(&arguments))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(io("starting ashlar perf"))?;
        Ok(Held(child))
    }

    /// Reads the core's counters from the metrics.
    pub(crate) fn core_time(&self) -> Result<CoreTime, BenchError> {
        Ok(CoreTime {
            busy_s: self.metric("ashlar_core_time_seconds_total", "state=\"busy\"")?,
            system_calls: self.metric("ashlar_core_syscalls_total", "")?,
        })
    }

    /// A metric, summed over all series whose labels contain `label`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> Result<f64, BenchError> {
        let text = self.scrape().map_err(io("reading the daemon's metrics"))?;
        let values: Vec<f64> = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter(|line| line.contains(label))
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        if values.is_empty() {
            return Err(BenchError::Output { program: "ashlard's /metrics", what: name.to_owned() });
        }
        Ok(values.iter().sum())
    }

    fn scrape(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.metrics)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}
