//! The target as a whole: started on the data cores, changed and stopped from control threads.
//!
//! | file | what | runs on |
//! |---|---|---|
//! | `handle` | start, change, look at, stop | control threads |
//! | `change` | what a change may not do | control threads |
//! | `shared` | who the cores are, how many connections each has | everywhere |
//! | `core_state` | namespaces, queues and controllers of one core | data core |
//! | `association` | a controller with its queues, from Connect to its end | owner core |
//! | `watch` | lateness, keep-alive, peers that make no progress | data core |
//! | `metrics` | counters | written by one core each, read everywhere |

pub(crate) mod association;
mod change;
pub(crate) mod core_state;
mod handle;
pub(crate) mod metrics;
pub(crate) mod shared;
mod watch;

pub use change::{ChangeError, NewNamespace, NewSubsystem};
pub use handle::Target;
pub use metrics::{CoreQueues, Counts, LATENCY_BUCKETS, Metrics, NamespaceMetrics, Operation};
