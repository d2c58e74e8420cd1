//! Errors of starting and stopping the runtime. Operations return `std::io::Error`, the kernel's own.

use std::io;

use crate::CoreId;

/// Why the runtime could not start, run something, or stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No core was configured.
    #[error("no data core is configured: give at least one")]
    NoCores,
    /// The buffer arena could not be mapped.
    #[error("could not map {bytes} bytes for I/O buffers: {source}")]
    Arena {
        /// Bytes asked for, all cores together.
        bytes: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel refused the ring.
    #[error(
        "core {core}: the kernel refused an io_uring ({source}); Linux 6.1 or newer is needed, and \
             /proc/sys/kernel/io_uring_disabled must be 0"
    )]
    Ring {
        /// The core that was starting.
        core: CoreId,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Something beside the ring failed at start.
    #[error("core {core}: could not {what}: {source}")]
    Start {
        /// The core that was starting.
        core: CoreId,
        /// What it was doing.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The core's inbox is full, see [`crate::limits::INBOX_CAPACITY`].
    #[error("core {core} has {capacity} requests waiting and takes no more now", capacity = crate::limits::INBOX_CAPACITY)]
    InboxFull {
        /// The core asked.
        core: CoreId,
    },
    /// The core stopped before it answered.
    #[error("core {core} stopped before it answered")]
    Stopped {
        /// The core asked.
        core: CoreId,
    },
    /// A core stopped with something left over.
    #[error(
        "core {core} stopped with {tasks} tasks cancelled, {operations} operations and {buffers} buffers lost"
    )]
    Leaked {
        /// The core that stopped.
        core: CoreId,
        /// Tasks that had not ended by the deadline and were dropped.
        tasks: usize,
        /// Operations that never came back from the kernel.
        operations: usize,
        /// Buffers that were not given back.
        buffers: usize,
    },
}
