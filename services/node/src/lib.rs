//! The storage node: its configuration, and what turns one into running data cores.
//!
//! | module | what |
//! |---|---|
//! | [`apply`] | brings the target to what a configuration asks for |
//! | [`changes`] | the difference between two configurations, as steps |
//! | [`config`] | the configuration file: reading, checking, what it means |
//! | [`limits`] | limits of the system and of the node itself |
//! | [`log`] | text or JSON, level |
//! | [`metrics`] | what Prometheus is told |
//! | [`node`] | a running node, from start to stop |
//! | [`notify`] | the service supervisor |
//! | [`observer`] | counters and health of a running node |
//! | [`signals`] | reload, stop |
//! | [`state`] | what is remembered about volumes |
//! | [`storage`] | what stands behind the namespaces |
//! | [`volumes`] | devices, lanes, replicas: what stands behind volumes |

pub mod apply;
pub mod changes;
pub mod config;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod node;
pub mod notify;
pub mod observer;
pub mod signals;
pub mod state;
pub mod storage;
pub mod volumes;
