//! Metrics of the node as a whole: what runs, since when, what its configuration did.

use std::fmt;

use ashlar_target::target::Metrics;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::labels::{Labels, Name, counter, counters, gauge};

const START: Name = Name::seconds("start_time", "When the node started, since 1970-01-01 UTC.");
const RELOADS: Name =
    Name::count("config_reloads", "Times that the configuration was read again, by what came of it.");
const VALID: Name =
    Name::count("config_applied", "1 if the last configuration read is the one in force, 0 if not.");

const CONNECTIONS: Name =
    Name::count("connections", "TCP connections of hosts, those included that have not finished Connect.");
const REFUSED: Name =
    Name::count("connections_refused", "Connections that were refused because a limit was reached.");
const CONTROLLERS: Name = Name::count("controllers", "Controllers, one per host and path.");

/// What the node counts about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// When it started, in seconds since 1970.
    pub start_s: u64,
    /// Reloads whose changes were all applied.
    pub reloads_applied: u64,
    /// Reloads that were refused, or of which something failed.
    pub reloads_failed: u64,
    /// Whether the last one failed.
    pub last_reload: LastReload,
}

/// What came of the last configuration that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastReload {
    /// It is in force.
    #[default]
    Applied,
    /// It was refused, or something of it failed.
    Failed,
}

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, node: &NodeCounts) -> Result<(), fmt::Error> {
    encoder
        .encode_descriptor("build", "The version that runs.", None, MetricType::Info)?
        .encode_info(&Labels([("version", env!("CARGO_PKG_VERSION"))]))?;
    gauge(encoder, &START, node.start_s)?;
    let reloads = [("applied", node.reloads_applied), ("failed", node.reloads_failed)];
    counters(encoder, &RELOADS, reloads.map(|(result, count)| (Labels([("result", result)]), count)))?;
    let applied = u64::from(node.last_reload == LastReload::Applied);
    gauge(encoder, &VALID, applied)
}

pub(super) fn encode_connections(
    encoder: &mut DescriptorEncoder<'_>,
    target: &Metrics,
) -> Result<(), fmt::Error> {
    gauge(encoder, &CONNECTIONS, target.connections as u64)?;
    counter(encoder, &REFUSED, target.refused)?;
    let controllers: usize = target.cores.iter().map(|queues| queues.admin).sum();
    gauge(encoder, &CONTROLLERS, controllers as u64)
}
