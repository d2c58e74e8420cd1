//! Discovery: the log of a discovery controller, read until it is consistent.

use std::net::SocketAddr;

use ashlar_nvme::admin::{GetLogPageCommand, RetainEvent};
use ashlar_nvme::log::{DiscoveryEntry, DiscoveryHeader, LogId};
use ashlar_nvme::wire::Wire;
use ashlar_nvme::{Nqn, Nsid};

use crate::config::HostConfig;
use crate::controller::Controller;
use crate::error::{HostError, ProtocolError};

/// Most entries that are read: a log of 16 MiB.
const ENTRIES_MAX: u64 = 16 * 1024;

/// Times that a changing log is read again.
const ATTEMPTS: u32 = 16;

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
    let config = HostConfig { io_queues: 0, ..config.clone() };
    let controller = Controller::connect(address, &Nqn::discovery(), &config).await?;
    let log = read_log(&controller).await?;
    // The log is there; a controller that does not end in order ends with its connection.
    if let Err(error) = controller.shut_down().await {
        tracing::debug!(%error, "the discovery controller was not shut down");
    }
    Ok(log)
}

/// Reads the log of a connected discovery controller; again if its generation changes meanwhile (NVME N13).
///
/// # Errors
/// [`HostError::DiscoveryUnstable`] if it does not stop changing; as for [`Controller::admin_command`].
pub async fn read_log(controller: &Controller) -> Result<DiscoveryLog, HostError> {
    let mut before = read_header(controller, RetainEvent::Retain).await?;
    for _ in 0..ATTEMPTS {
        let (generation, count) = (before.genctr.get(), before.numrec.get());
        if count > ENTRIES_MAX {
            return Err(ProtocolError::Content { what: "NUMREC of the discovery log", value: count }.into());
        }
        let mut entries = Vec::new();
        if count > 0 {
            let len = count as u32 * DiscoveryEntry::SIZE as u32;
            let command = GetLogPageCommand {
                rae: RetainEvent::Retain,
                ..GetLogPageCommand::new(LogId::Discovery, DiscoveryHeader::SIZE as u64, len)
            };
            let bytes = controller.log_page(command, Nsid::NONE).await?;
            for chunk in bytes.chunks_exact(DiscoveryEntry::SIZE) {
                entries.extend(DiscoveryEntry::read_from(chunk).ok());
            }
        }
        let after = read_header(controller, RetainEvent::Clear).await?;
        if after.genctr.get() == generation && entries.len() as u64 == count {
            return Ok(DiscoveryLog { generation, entries });
        }
        before = after;
    }
    Err(HostError::DiscoveryUnstable(ATTEMPTS))
}

async fn read_header(controller: &Controller, rae: RetainEvent) -> Result<DiscoveryHeader, HostError> {
    let len = DiscoveryHeader::SIZE as u32;
    let command = GetLogPageCommand { rae, ..GetLogPageCommand::new(LogId::Discovery, 0, len) };
    let bytes = controller.log_page(command, Nsid::NONE).await?;
    DiscoveryHeader::read_from(&bytes).map_err(|_| {
        ProtocolError::Content { what: "length of the discovery log's header", value: bytes.len() as u64 }
            .into()
    })
}
