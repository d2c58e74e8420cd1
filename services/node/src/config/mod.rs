//! The configuration file, read and checked: what `ashlard` shall serve, how and to whom.
//!
//! | module | what |
//! |---|---|
//! | `document` | the file's tables as they are written |
//! | `source` | from a place in the text to its line and key |
//! | `error` | what is wrong with a file |
//! | `check` | the rules; `cores`, `portals`, `subsystems`, `backend`, `pools`, `volumes`, `scrub`: of one table each |
//! | [`quantity`] | sizes with units |
//! | [`identity`] | what follows from an NQN when the file does not say it |
//!
//! `docs/configuration.md` describes every key.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_reactor::BufferCounts;
use ashlar_target::inventory::{HostAccess, LbaSize};
use uuid::Uuid;

mod backend;
mod check;
mod cores;
mod document;
mod error;
pub mod identity;
pub mod machine;
mod name;
mod pools;
mod portals;
pub mod quantity;
mod scrub;
mod source;
mod subsystems;
#[cfg(test)]
mod tests;
mod volumes;
#[cfg(test)]
mod volumes_tests;

pub use document::{FailureDomain, LogFormat, LogLevel};
pub use error::{ConfigError, Problem};
pub use machine::Machine;
pub use name::Name;

/// The example that `--print-example-config` prints; it is a valid configuration.
pub const EXAMPLE: &str = include_str!("../../../../ops/ashlard.example.toml");

/// Where metrics are served unless the file says otherwise: on this machine only.
pub const METRICS_LISTEN: &str = "127.0.0.1:9420";

/// Where the node keeps its state unless the file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/ashlar";

/// Port of a portal (IANA: nvme).
pub const PORT: u16 = 4420;

/// Port of a portal for discovery only (IANA: nvme-disc).
pub const DISCOVERY_PORT: u16 = 8009;

/// Everything that a configuration file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Data cores.
    pub cores: CoreSettings,
    /// Logs.
    pub log: LogSettings,
    /// Where metrics are served, if at all.
    pub metrics: Option<SocketAddr>,
    /// Where hosts connect. At least one.
    pub portals: Vec<PortalSettings>,
    /// Subsystems by name, those of the volumes among them.
    pub subsystems: BTreeMap<Nqn, SubsystemSettings>,
    /// Where the node keeps what it must remember about its volumes.
    pub state_directory: PathBuf,
    /// Pools with their devices. None is empty.
    pub pools: BTreeMap<Name, Vec<DevicePlace>>,
    /// Volumes by name.
    pub volumes: BTreeMap<Name, VolumeSettings>,
    /// How volumes are scrubbed, if at all.
    pub scrub: Option<ScrubSettings>,
}

/// `[scrub]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Bytes of copies that the node reads per second at most, for all its volumes together.
    pub bytes_per_s: u64,
    /// From the begin of a volume's pass to that of its next. Zero: the next begins when one ends.
    pub interval: Duration,
}

/// Where a `[[device]]` is looked for. What it is stands on the device itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DevicePlace {
    /// A file or block device; absolute.
    Path(PathBuf),
    /// Memory of this process, gone when it ends.
    Memory {
        /// Size in bytes.
        bytes: u64,
    },
}

/// One `[[volume]]`; its name is the key in [`Config::volumes`]. It is served as namespace 1 of a subsystem of its
/// own in [`Config::subsystems`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Size in bytes: whole blocks of 4 KiB, not zero.
    pub bytes: u64,
    /// Where its replicas are.
    pub replicas: Replicas,
    /// What may take only one replica with it.
    pub failure_domain: FailureDomain,
}

/// Where the replicas of a volume are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replicas {
    /// In these pools, one each. One to three.
    Pools(Vec<Name>),
    /// So many, in pools that are chosen when the volume is made. One to three.
    Count(usize),
}

/// `[cores]` and `[buffers]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreSettings {
    /// One entry per data core: the CPU to which it is pinned, or `None` to let it float.
    pub cpus: Vec<Option<usize>>,
    /// Longest time to poll before sleeping.
    pub spin: Duration,
    /// I/O buffers of each core.
    pub buffers: BufferCounts,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// What is logged.
    pub level: LogLevel,
    /// How.
    pub format: LogFormat,
}

/// One `[[portal]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortalSettings {
    /// Where it listens; port 0 lets the kernel choose one.
    pub listen: SocketAddr,
    /// What discovery tells hosts.
    pub advertise: Option<SocketAddr>,
    /// Whether it serves discovery only.
    pub discovery_only: bool,
}

/// One `[[subsystem]]`; its NQN is the key in [`Config::subsystems`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubsystemSettings {
    /// Serial number, 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number, 1 to 40 printable ASCII characters.
    pub model: String,
    /// Who may connect.
    pub hosts: HostAccess,
    /// Namespaces.
    pub namespaces: BTreeMap<Nsid, NamespaceSettings>,
}

/// One `[[subsystem.namespace]]`; its nsid is the key in [`SubsystemSettings::namespaces`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// Given, or derived from NQN and nsid ([`identity::namespace_uuid`]).
    pub uuid: Uuid,
    /// Logical block size.
    pub block_size: LbaSize,
    /// What holds its data.
    pub backend: BackendSettings,
}

/// What holds a namespace's data. Sizes are in bytes, multiples of the namespace's block size, not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendSettings {
    /// Nothing: reads bring zeroes, writes vanish.
    Null {
        /// Size.
        bytes: u64,
    },
    /// Memory of this process, gone when it ends.
    Memory {
        /// Size.
        bytes: u64,
        /// Most memory that its blocks may take, if less than all.
        memory_max: Option<u64>,
    },
    /// A file or block device.
    Raw {
        /// Where it is; absolute.
        path: PathBuf,
        /// How large the namespace is.
        extent: RawExtent,
        /// Whether its data goes through the kernel's page cache.
        page_cache: PageCache,
    },
    /// A volume on this node's pools.
    Volume {
        /// Its name in [`Config::volumes`].
        name: Name,
        /// Size.
        bytes: u64,
    },
}

/// Whether data goes through the kernel's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// Direct I/O.
    Bypassed,
    /// Buffered I/O, for file systems that know no direct I/O.
    Used,
}

/// How large a namespace on a file or block device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawExtent {
    /// As large as the file or device is.
    Whole,
    /// A file of this many bytes: made if it is missing, grown if it is smaller.
    Create {
        /// Size of the namespace.
        bytes: u64,
    },
}

impl Config {
    /// Reads and checks a file, for the machine that this is.
    ///
    /// # Errors
    /// If it cannot be read, or breaks a rule: then every broken rule is named with its line.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let read_error = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(read_error)?;
        Config::parse(path, &text, &Machine::this())
    }

    /// Checks a file's text. `path` is only named in errors.
    ///
    /// # Errors
    /// If it breaks a rule.
    pub fn parse(path: &Path, text: &str, machine: &Machine) -> Result<Config, ConfigError> {
        check::config(text, machine)
            .map_err(|problems| ConfigError::Invalid { path: path.to_owned(), problems })
    }
}
