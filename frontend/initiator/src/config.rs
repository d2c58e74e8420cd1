//! How a host presents itself and what it asks for.

use std::time::Duration;

use ashlar_nvme::pdu::DigestUse;
use ashlar_nvme::{HostId, Nqn};
use ashlar_reactor::net::StreamOptions;

/// Entries of an I/O queue that a host asks for by itself: what Linux asks for.
pub const QUEUE_ENTRIES_DEFAULT: u16 = 128;

/// Most entries of a queue: a command identifier holds the slot's number in its low 12 bits and counts the
/// uses of the slot in the others.
pub const QUEUE_ENTRIES_MAX: u16 = 4096;

/// Fewest entries of a queue: with flow control one entry always stays empty.
pub const QUEUE_ENTRIES_MIN: u16 = 2;

/// Whether the host asks to disable submission queue flow control (NVMe Base 2.0 §6.3, NVME N1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowControl {
    /// Every completion carries SQHD, and reads end with a response.
    #[default]
    Enabled,
    /// Asked to be disabled: if granted, reads may end with the success flag alone.
    Disabled,
}

/// How long and how often a lost association is set up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconnectPolicy {
    /// Wait before the second attempt; each further one doubles it.
    pub first_delay: Duration,
    /// The doubling ends here.
    pub longest_delay: Duration,
    /// Time after the loss at which no further attempt is made.
    pub give_up_after: Duration,
}

impl Default for ReconnectPolicy {
    /// 100 ms, doubled up to 5 s, for ten minutes: Linux gives a controller up after that time.
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(100),
            longest_delay: Duration::from_secs(5),
            give_up_after: Duration::from_mins(10),
        }
    }
}

/// Everything that a host decides before it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// Host NQN, by which targets allow or deny.
    pub host_nqn: Nqn,
    /// Host identifier; never zero over Fabrics.
    pub host_id: HostId,
    /// Header digest to be asked for. It must be granted exactly.
    pub header_digest: DigestUse,
    /// Data digest to be asked for. It must be granted exactly.
    pub data_digest: DigestUse,
    /// Entries of each I/O queue, [`QUEUE_ENTRIES_MIN`]–[`QUEUE_ENTRIES_MAX`]; cut to what the controller
    /// takes. One command fewer can be outstanding.
    pub queue_entries: u16,
    /// I/O queues to be asked for. 0 for a discovery controller.
    pub io_queues: u16,
    /// Keep alive timeout; zero turns it off. A Keep Alive is sent every half of it.
    pub keep_alive: Duration,
    /// Submission queue flow control.
    pub flow_control: FlowControl,
    /// Most data that a write sends in its capsule, in bytes; cut to what the controller takes. Leave it at
    /// that: Linux's target never asks for the data of a write that would have fitted the capsule.
    pub in_capsule_max: u32,
    /// R2Ts that a controller may have outstanding for one command, 1 or more.
    pub r2t_max: u32,
    /// Options of each TCP connection.
    pub stream: StreamOptions,
    /// Limit of connecting a queue, and of each admin command.
    pub admin_timeout: Duration,
    /// An I/O command older than this ends its queue. Checked every quarter of it; zero turns it off.
    pub io_timeout: Duration,
    /// What [`crate::Session`] does when the association is lost.
    pub reconnect: ReconnectPolicy,
}

impl HostConfig {
    /// A host with the usual settings: one I/O queue of 128 entries, no digests, 5 s keep alive.
    #[must_use]
    pub fn new(host_nqn: Nqn, host_id: HostId) -> Self {
        Self {
            host_nqn,
            host_id,
            header_digest: DigestUse::Off,
            data_digest: DigestUse::Off,
            queue_entries: QUEUE_ENTRIES_DEFAULT,
            io_queues: 1,
            keep_alive: Duration::from_secs(5),
            flow_control: FlowControl::Enabled,
            in_capsule_max: u32::MAX,
            r2t_max: 16,
            stream: StreamOptions::default(),
            admin_timeout: Duration::from_secs(60),
            io_timeout: Duration::from_secs(30),
            reconnect: ReconnectPolicy::default(),
        }
    }
}
