//! The storage node: its configuration, and what turns one into running data cores.
//!
//! | module | what |
//! |---|---|
//! | [`changes`] | the difference between two configurations, as steps |
//! | [`config`] | the configuration file: reading, checking, what it means |
//! | [`limits`] | limits of the system and of the node itself |
//! | [`log`] | text or JSON, level |
//! | [`metrics`] | what Prometheus is told |
//! | [`notify`] | the service supervisor |
//! | [`signals`] | reload, stop |

pub mod changes;
pub mod config;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod signals;
