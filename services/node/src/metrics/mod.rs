//! What the node tells Prometheus: a snapshot of all counters per scrape, and the page that shows it.
//!
//! Data cores count for themselves and never wait: a scrape only reads. `docs/metrics.md` describes each
//! metric; a test keeps it complete.
//!
//! | module | metrics |
//! |---|---|
//! | `cores` | `ashlar_core_…` |
//! | `namespaces` | `ashlar_namespace_…` |
//! | `node` | the process and its connections |
//! | `labels` | label values, escaped |
//! | [`server`] | `/metrics`, `/healthz` |

use std::fmt;

use ashlar_reactor::CoreCounters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

mod cores;
mod labels;
mod node;
pub mod server;

pub use node::{LastReload, NodeCounts};

/// Prefix of every metric.
const PREFIX: &str = "ashlar";

/// All counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Nanoseconds since the data cores started.
    pub elapsed_ns: u64,
    /// Each data core's, in order.
    pub cores: Vec<CoreCounters>,
    /// The node's own.
    pub node: NodeCounts,
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
        cores::encode(&mut encoder, &self.cores, self.elapsed_ns)
    }
}
