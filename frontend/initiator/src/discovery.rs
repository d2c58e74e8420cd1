//! Discovery: the log of a discovery controller, read until it is consistent.

use std::net::SocketAddr;

use ashlar_nvme::log::DiscoveryEntry;

use crate::config::HostConfig;
use crate::controller::Controller;
use crate::error::HostError;

/// A discovery log as it was at one moment.
#[derive(Debug, Clone)]
pub struct DiscoveryLog {
    /// Generation counter.
    pub generation: u64,
    /// Entries.
    pub entries: Vec<DiscoveryEntry>,
}

/// Connects to the discovery subsystem at `address`, reads its log, and disconnects.
///
/// # Errors
/// As for [`Controller::connect`] and [`read_log`].
pub async fn discover(address: SocketAddr, config: &HostConfig) -> Result<DiscoveryLog, HostError> {
    unimplemented!()
}

/// Reads the log of a connected discovery controller; again if its generation changes meanwhile.
///
/// # Errors
/// [`HostError::DiscoveryUnstable`] if it does not stop changing; as for [`Controller::admin_command`].
pub async fn read_log(controller: &Controller) -> Result<DiscoveryLog, HostError> {
    unimplemented!()
}
