//! What the node tells Prometheus: a snapshot of all counters per scrape, and the page that shows it.
//!
//! Data cores count for themselves and never wait: a scrape only reads. `docs/metrics.md` describes each
//! metric; a test keeps it complete.
//!
//! | module | metrics |
//! |---|---|
//! | `cores` | `ashlar_core_…` |
//! | `latency` | histograms |
//! | `namespaces` | `ashlar_namespace_…` |
//! | `node` | the process and its connections |
//! | `labels` | label values, escaped |
//! | `volumes` | `ashlar_volume_…`, `ashlar_device_…` |
//! | [`server`] | `/metrics`, `/healthz`, `/volumes` |

use std::fmt;
use std::sync::Arc;

use ashlar_reactor::CoreCounters;
use ashlar_target::inventory::Inventory;
use ashlar_target::target::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

mod cores;
mod labels;
mod latency;
mod namespaces;
mod node;
pub mod server;
mod volumes;

pub use node::{LastReload, NodeCounts};

use crate::volumes::{DeviceStatus, VolumeStatus};

/// Prefix of every metric.
const PREFIX: &str = "ashlar";

/// All counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Each data core's, in order.
    pub cores: Vec<CoreSnapshot>,
    /// The node's own.
    pub node: NodeCounts,
    /// The target's.
    pub target: Metrics,
    /// What is served.
    pub inventory: Arc<Inventory>,
    /// Volumes, if there are pools.
    pub volumes: Vec<VolumeStatus>,
    /// Devices, if there are pools.
    pub devices: Vec<DeviceStatus>,
}

/// Counters of one data core.
#[derive(Debug, Clone, Copy, Default)]
pub struct CoreSnapshot {
    /// What the runtime counts.
    pub counters: CoreCounters,
    /// Time in nanoseconds that it neither polled nor slept.
    pub busy_ns: u64,
}

/// The page in the OpenMetrics text format.
///
/// # Errors
/// Never in fact: a text takes everything.
pub fn page(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(snapshot));
    let mut page = String::new();
    encode(&mut page, &registry)?;
    Ok(page)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        node::encode(&mut encoder, &self.node)?;
        node::encode_connections(&mut encoder, &self.target)?;
        cores::encode(&mut encoder, &self.cores)?;
        cores::encode_target(&mut encoder, &self.target)?;
        namespaces::encode(&mut encoder, &self.target.namespaces, &self.inventory)?;
        volumes::encode(&mut encoder, &self.volumes)?;
        volumes::encode_devices(&mut encoder, &self.devices)
    }
}
