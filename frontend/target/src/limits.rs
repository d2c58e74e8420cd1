//! Named limits of the target, each with its reason.

use std::time::Duration;

/// In-capsule data that an I/O queue takes, in bytes: writes up to this size need no R2T round trip.
pub const IN_CAPSULE_BYTES: u32 = 16 * 1024;

/// In-capsule data that an admin queue takes, in bytes (NVMe-TCP: at least 8 KiB whatever IOCCSZ says; NVME
/// N4).
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8 * 1024;

/// Largest transfer of one command, in bytes.
pub const MAX_TRANSFER_BYTES: u32 = 1024 * 1024;

/// MDTS for [`MAX_TRANSFER_BYTES`] in units of 4 KiB (CAP.MPSMIN), as a power of two.
pub const MDTS: u8 = 8;

/// Largest part of a transfer that moves at once: one C2HData or H2CData sequence, one buffer (NVME N5, N14).
pub const SLICE_BYTES: u32 = 128 * 1024;

/// Slices of one command that are asked for by R2T at a time, those included that have come and are not being written
/// yet, if the host takes so many: 512 KiB keep a connection of 40 Gbit/s busy for 100 µs, a round trip and a write,
/// and are an eighth of what one queue may ask for.
pub const R2TS_PER_COMMAND: usize = 4;

/// Largest Write Zeroes in bytes: Linux truncates the number of blocks to 16 bits and minds only WZSL, so this is
/// 65536 blocks of the smallest size (NVME N9).
pub const WRITE_ZEROES_BYTES_MAX: u64 = 65536 * 512;

/// WZSL for [`WRITE_ZEROES_BYTES_MAX`] in units of 4 KiB (CAP.MPSMIN), as a power of two.
pub const WZSL: u8 = 13;

/// Entries of an I/O submission queue (CAP.MQES + 1). A host uses as deep a queue as is offered.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;

/// Entries of an admin queue that are accepted at most.
pub const ADMIN_QUEUE_ENTRIES_MAX: u16 = 256;

/// I/O queues that one controller may have.
pub const IO_QUEUES_MAX: u16 = 128;

/// Largest namespace id and number of namespaces of a subsystem (NN, MNAN). Its ANA log with one group per
/// namespace takes 160 KiB and stays below MDTS, beyond which Linux turns ANA off.
pub const NAMESPACES_MAX: u32 = 4096;

/// Asynchronous Event Requests that a controller holds (AERL + 1).
pub const ASYNC_EVENTS_MAX: usize = 4;

/// Entries of the error log (ELPE + 1).
pub const ERROR_LOG_ENTRIES: usize = 64;

/// Keep-alive granularity (KAS × 100 ms): a smaller KATO is rounded up to this (NVME N7).
pub const KEEP_ALIVE_GRANULARITY: Duration = Duration::from_secs(1);

/// How long an association without keep-alive survives idle discovery use (NVME N7).
pub const DISCOVERY_IDLE: Duration = Duration::from_secs(120);

/// How long an association survives a controller that was reset or shut down (NVME N6).
pub const DISABLED_ASSOCIATION: Duration = Duration::from_secs(120);

/// Time for a new connection to finish ICReq and Connect.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Time in which a started PDU, or data that was asked for by R2T, must make progress.
pub const RECEIVE_PROGRESS: Duration = Duration::from_secs(30);

/// Time in which a peer must take in something of what is being sent to it.
pub const SEND_PROGRESS: Duration = Duration::from_secs(30);

/// Unsent bytes of a connection above which no further command of it starts (NVME N14).
pub const UNSENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A core that ran later than this against its timer closes its host connections without executing what was
/// not started (PROTOCOL R9).
pub const LATENESS_MAX: Duration = Duration::from_millis(250);

/// Connections of the whole target.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Connections that one host address may have before they have authenticated themselves by Connect.
pub const UNBOUND_CONNECTIONS_PER_PEER: usize = 256;

/// Time after which a peer counts as gone that acknowledges neither data nor, when there is none, probes.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Controllers that one host NQN may have at a time: several paths, reconnects that overlap, discovery.
pub const CONTROLLERS_PER_HOST: usize = 1024;

/// The limits that a target can be given others of: tests cannot wait for the named ones, or reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// [`CONNECT_TIME`]
    pub connect_time: Duration,
    /// [`RECEIVE_PROGRESS`]
    pub receive_progress: Duration,
    /// [`SEND_PROGRESS`]
    pub send_progress: Duration,
    /// [`PEER_TIMEOUT`]
    pub peer_timeout: Duration,
    /// [`CONNECTIONS_MAX`]
    pub connections: usize,
    /// [`UNBOUND_CONNECTIONS_PER_PEER`]
    pub unbound_connections_per_peer: usize,
    /// [`CONTROLLERS_PER_HOST`]
    pub controllers_per_host: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_time: CONNECT_TIME,
            receive_progress: RECEIVE_PROGRESS,
            send_progress: SEND_PROGRESS,
            peer_timeout: PEER_TIMEOUT,
            connections: CONNECTIONS_MAX,
            unbound_connections_per_peer: UNBOUND_CONNECTIONS_PER_PEER,
            controllers_per_host: CONTROLLERS_PER_HOST,
        }
    }
}
