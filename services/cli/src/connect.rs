//! The way to a target that all commands share: options, data cores, errors turned into exit codes.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use ashlar_initiator::{FlowControl, HostConfig, HostError};
use ashlar_nvme::pdu::DigestUse;
use ashlar_nvme::{Nqn, Status};
use ashlar_reactor::{CoreId, Cores, CoresConfig};
use clap::{Args, ValueEnum};

use crate::exit::{Exit, Failure, Outcome};
use crate::identity::Machine;
use crate::units::parse_duration;

/// Port of NVMe/TCP if an address names none (NVMe-TCP 1.0 §3.1.1).
const PORT_DEFAULT: u16 = 4420;

/// How long the cores may take to end by themselves when a command is over.
const DRAIN: Duration = Duration::from_secs(5);

/// On or off, where a bare flag would not say which is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Which target, and who we are to it.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostArgs {
    /// Address of the target, as HOST or HOST:PORT; the port is 4420 if not given
    #[arg(short = 'a', long, env = "ASHLAR_ADDRESS", default_value = "127.0.0.1:4420")]
    pub(crate) address: String,
    /// Host NQN; else /etc/nvme/hostnqn, else made from /etc/machine-id
    #[arg(long, value_name = "NQN", env = "ASHLAR_HOST_NQN")]
    host_nqn: Option<String>,
    /// Host identifier, a UUID; else /etc/nvme/hostid, else the UUID of the host NQN
    #[arg(long, value_name = "UUID", env = "ASHLAR_HOST_ID")]
    host_id: Option<String>,
    /// Ask for header digests
    #[arg(long)]
    header_digest: bool,
    /// Ask for data digests
    #[arg(long)]
    data_digest: bool,
    /// Give up connecting and admin commands after this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

/// A namespace of a subsystem.
#[derive(Debug, Clone, Args)]
pub(crate) struct NamespaceArgs {
    /// NQN of the subsystem
    #[arg(short = 'n', long, value_name = "NQN", env = "ASHLAR_SUBSYSTEM")]
    pub(crate) subsystem: String,
    /// Namespace identifier
    #[arg(long, default_value_t = 1)]
    pub(crate) nsid: u32,
}

/// The first address that a name stands for.
pub(crate) fn resolve(text: &str) -> Outcome<SocketAddr> {
    let doing = || format!("resolving the address {text:?}");
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().ok();
    let found = match bare_v6 {
        Some(address) => return Ok(SocketAddr::from((address, PORT_DEFAULT))),
        None if has_port(text) => text.to_socket_addrs(),
        None => (text, PORT_DEFAULT).to_socket_addrs(),
    };
    let not_found = |why: &dyn fmt::Display| {
        Failure::new(Exit::NotFound, doing(), why).next("write it as HOST:PORT, like 192.0.2.7:4420")
    };
    found.map_err(|error| not_found(&error))?.next().ok_or_else(|| not_found(&"it has no address"))
}

fn has_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
            && (!host.contains(':') || host.ends_with(']'))
    })
}

/// The NQN of `--subsystem`.
pub(crate) fn subsystem(text: &str) -> Outcome<Nqn> {
    Nqn::parse(text).map_err(|error| Failure::usage("reading the NQN of --subsystem", error))
}

impl HostArgs {
    /// What the initiator is asked to do; queues are the caller's to fill in.
    pub(crate) fn config(&self) -> Outcome<HostConfig> {
        let identity = Machine::read().identity(self.host_nqn.as_deref(), self.host_id.as_deref())?;
        let digest = |on| if on { DigestUse::On } else { DigestUse::Off };
        let mut config = HostConfig::new(identity.nqn, identity.id);
        config.header_digest = digest(self.header_digest);
        config.data_digest = digest(self.data_digest);
        config.flow_control = FlowControl::Disabled;
        config.admin_timeout = self.timeout;
        Ok(config)
    }

    /// Whether header and data digests are asked for.
    pub(crate) fn digests(&self) -> (bool, bool) {
        (self.header_digest, self.data_digest)
    }
}

/// The data cores of one command.
#[derive(Debug)]
pub(crate) struct Host {
    cores: Cores,
}

impl Host {
    /// One core per entry, pinned to that CPU or floating.
    pub(crate) fn start(cpus: Vec<Option<usize>>) -> Outcome<Self> {
        let mut config = CoresConfig::floating(cpus.len());
        config.cpus = cpus;
        let cores = Cores::start(&config).map_err(|error| {
            Failure::new(Exit::Failed, "starting the data cores", error)
                .next("io_uring of Linux 6.1 or later is needed, and may be switched off in containers")
        })?;
        Ok(Self { cores })
    }

    /// The cores, for everything that the other functions do not cover.
    pub(crate) fn cores(&self) -> &Cores {
        &self.cores
    }

    /// Runs `work` on the first core and waits for it.
    pub(crate) fn run<T, F, Fut>(&self, work: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T>> + 'static,
    {
        self.run_on(0, work)
    }

    /// Runs `work` on a core and waits for it.
    pub(crate) fn run_on<T, F, Fut>(&self, core: u16, work: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T>> + 'static,
    {
        self.cores.handle().run_on(CoreId(core), work).wait().map_err(core_gone)?
    }

    /// Stops the cores. What is left over by then is a fault of ours, not of the command's result.
    pub(crate) fn stop(self) {
        if let Err(error) = self.cores.stop(DRAIN) {
            eprintln!("ashlar: stopping the data cores: {error}");
        }
    }
}

/// A core that does not answer.
pub(crate) fn core_gone(error: ashlar_reactor::Error) -> Failure {
    Failure::new(Exit::Failed, "running on a data core", error)
}

/// What was being done to whom when an error came up.
#[derive(Debug, Clone)]
pub(crate) struct Doing(String);

impl Doing {
    /// Begins with a gerund and names the object.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As a failure with the exit code and the next step that belong to the error.
    pub(crate) fn failed(&self, error: &HostError) -> Failure {
        let (exit, next) = judge(error);
        let failure = Failure::new(exit, &*self.0, error);
        match next {
            Some(step) => failure.next(step),
            None => failure,
        }
    }
}

fn judge(error: &HostError) -> (Exit, Option<&'static str>) {
    match error {
        HostError::Connect { .. } => {
            (Exit::Unavailable, Some("check the address and that the target is running there"))
        }
        HostError::TimedOut { .. } => {
            (Exit::Unavailable, Some("check the network and the target's load, or raise --timeout"))
        }
        HostError::ConnectionLost { .. } => (Exit::Unavailable, Some("see the target's log for the reason")),
        HostError::NoNamespace(_) => (Exit::NotFound, Some("`ashlar nvme list` shows the namespaces")),
        HostError::AuthenticationRequired | HostError::Limit { .. } => (Exit::Precondition, None),
        HostError::Command(error) => judge_status(error.status()),
        _ => (Exit::Failed, None),
    }
}

fn judge_status(status: Status) -> (Exit, Option<&'static str>) {
    match status {
        Status::CONNECT_INVALID_HOST => (
            Exit::Precondition,
            Some("allow this host NQN in the target's config, or give another with --host-nqn"),
        ),
        Status::CONNECT_INVALID_PARAMETERS => {
            (Exit::NotFound, Some("`ashlar nvme discover` shows the subsystems of this host"))
        }
        Status::CONNECT_CONTROLLER_BUSY => (Exit::Unavailable, Some("try again")),
        Status::INVALID_NAMESPACE_OR_FORMAT => {
            (Exit::NotFound, Some("`ashlar nvme list` shows the namespaces"))
        }
        Status::NAMESPACE_NOT_READY | Status::TRANSIENT_TRANSPORT_ERROR | Status::COMMAND_INTERRUPTED => {
            (Exit::Unavailable, Some("try again"))
        }
        Status::NAMESPACE_WRITE_PROTECTED | Status::RESERVATION_CONFLICT => (Exit::Precondition, None),
        _ if status.is_path_related() => (Exit::Unavailable, Some("use another path to the namespace")),
        _ => (Exit::Failed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_may_be_left_out() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:4420"),
            ("127.0.0.1:8009", "127.0.0.1:8009"),
            ("::1", "[::1]:4420"),
            ("[::1]:8009", "[::1]:8009"),
        ] {
            assert_eq!(resolve(text).expect(text).to_string(), address);
        }
    }

    #[test]
    fn an_address_that_does_not_resolve_is_not_found() {
        let failure = resolve("").expect_err("no address");
        assert_eq!(failure.exit(), Exit::NotFound);
        assert!(failure.to_string().contains("HOST:PORT"));
    }

    #[test]
    fn denied_hosts_are_told_what_to_do() {
        let (exit, next) = judge_status(Status::CONNECT_INVALID_HOST);
        assert_eq!(exit, Exit::Precondition);
        assert!(next.is_some_and(|step| step.contains("--host-nqn")));
    }

    #[test]
    fn a_dead_target_is_unavailable() {
        let error = HostError::Connect {
            address: SocketAddr::from(([127, 0, 0, 1], 4420)),
            kind: std::io::ErrorKind::ConnectionRefused,
        };
        let failure = Doing::new("connecting to nqn.2024-01.example:a").failed(&error);
        assert_eq!(failure.exit(), Exit::Unavailable);
        let text = failure.to_string();
        assert!(text.contains("127.0.0.1:4420") && text.contains("running"), "{text}");
    }
}
