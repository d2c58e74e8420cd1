//! The tables of the configuration file as they are written, each value with its place in the text.

use serde::Deserialize;
use toml::Spanned;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct Document {
    #[serde(default)]
    pub(super) cores: CoresTable,
    #[serde(default)]
    pub(super) buffers: BuffersTable,
    #[serde(default)]
    pub(super) log: LogTable,
    #[serde(default)]
    pub(super) metrics: MetricsTable,
    #[serde(default)]
    pub(super) state: StateTable,
    #[serde(default)]
    pub(super) scrub: ScrubTable,
    #[serde(default)]
    pub(super) pool: Vec<Spanned<PoolTable>>,
    #[serde(default)]
    pub(super) device: Vec<Spanned<DeviceTable>>,
    #[serde(default)]
    pub(super) volume: Vec<Spanned<VolumeTable>>,
    #[serde(default)]
    pub(super) portal: Vec<Spanned<PortalTable>>,
    #[serde(default)]
    pub(super) subsystem: Vec<Spanned<SubsystemTable>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct CoresTable {
    pub(super) cpus: Option<Spanned<Vec<Spanned<i64>>>>,
    pub(super) count: Option<Spanned<i64>>,
    pub(super) pin: Option<Spanned<bool>>,
    pub(super) spin_us: Option<Spanned<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct BuffersTable {
    pub(super) blocks: Option<Spanned<i64>>,
    pub(super) capsules: Option<Spanned<i64>>,
    pub(super) slices: Option<Spanned<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LogTable {
    #[serde(default)]
    pub(super) level: LogLevel,
    #[serde(default)]
    pub(super) format: LogFormat,
}

/// What is logged: this and everything graver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What needs somebody's attention.
    Error,
    /// What may need it.
    Warn,
    /// Starts, stops, changes; hosts that come and go.
    #[default]
    Info,
    /// Why things were decided.
    Debug,
    /// Everything.
    Trace,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct MetricsTable {
    pub(super) enabled: Option<Spanned<bool>>,
    pub(super) listen: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct PortalTable {
    pub(super) listen: Spanned<String>,
    pub(super) advertise: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) discovery_only: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct SubsystemTable {
    pub(super) nqn: Spanned<String>,
    pub(super) serial: Option<Spanned<String>>,
    pub(super) model: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    pub(super) allow_any_host: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) namespace: Vec<Spanned<NamespaceTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct NamespaceTable {
    pub(super) nsid: Spanned<i64>,
    pub(super) uuid: Option<Spanned<String>>,
    pub(super) block_size: Option<Spanned<i64>>,
    pub(super) backend: Spanned<BackendTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct BackendTable {
    pub(super) kind: BackendKind,
    pub(super) size: Option<Spanned<String>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) create: Option<Spanned<bool>>,
    pub(super) page_cache: Option<Spanned<bool>>,
    pub(super) memory_max: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BackendKind {
    Null,
    Memory,
    Raw,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct StateTable {
    pub(super) directory: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ScrubTable {
    pub(super) enabled: Option<Spanned<bool>>,
    pub(super) rate: Option<Spanned<String>>,
    pub(super) interval_h: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct PoolTable {
    pub(super) name: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct DeviceTable {
    pub(super) path: Spanned<String>,
    pub(super) pool: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct VolumeTable {
    pub(super) name: Spanned<String>,
    pub(super) size: Spanned<String>,
    pub(super) replicas: Spanned<ReplicasValue>,
    pub(super) block_size: Option<Spanned<i64>>,
    pub(super) failure_domain: Option<FailureDomain>,
    pub(super) nqn: Option<Spanned<String>>,
    pub(super) uuid: Option<Spanned<String>>,
    pub(super) serial: Option<Spanned<String>>,
    pub(super) model: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    pub(super) allow_any_host: Option<Spanned<bool>>,
}

/// A number of replicas, or the pools that have one each.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of replicas or a list of pools")]
pub(super) enum ReplicasValue {
    Count(i64),
    Pools(Vec<String>),
}

/// What must not take more than one replica of a segment with it when it fails (design §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureDomain {
    /// A device: the replicas are in different pools of this node.
    #[default]
    Device,
}
