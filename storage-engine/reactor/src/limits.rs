//! Named limits of the runtime, each with its reason.

use std::time::Duration;

/// Submission queue entries of a core's ring. A turn that produces more submits in between; 1024 covers
/// a turn of 32 queues that each send, receive and write several times.
pub const SUBMISSION_ENTRIES: u32 = 1024;

/// Completion queue entries: multishot operations complete without being submitted again, so there are
/// more completions than submissions. Beyond this the kernel keeps an overflow list and nothing is lost.
pub const COMPLETION_ENTRIES: u32 = 8192;

/// Tasks polled before the ring is looked at again, so that a crowd of ready tasks does not hold back
/// completions and timers.
pub const TASKS_PER_TURN: usize = 512;

/// Closures that wait to be run on a core. Only set-up and management use them.
pub const INBOX_CAPACITY: usize = 1024;

/// Niceness that a core's thread asks for. A core that is kept from running is late, and a late core closes its hosts'
/// connections (PROTOCOL R9), so it goes before a machine's other work. It sleeps when it has nothing to do.
pub const CORE_NICE: i32 = -10;

/// Longest time a core polls before it sleeps. Waking a sleeping thread costs about 16 µs in a virtual
/// machine; at depth 1 a round trip takes 10–40 µs, so 50 µs keeps such a host from ever paying it.
pub const SPIN_MAX: Duration = Duration::from_micros(50);

/// Shortest polling time: what remains after polling failed again and again.
pub const SPIN_MIN: Duration = Duration::from_micros(2);

/// Slots in the ring's fixed file table; files beyond it work through their descriptor.
pub const FIXED_FILES: u32 = 1024;

/// Buffers in the provided-buffer ring that receives on this core share (a power of two).
pub const PROVIDED_BUFFERS: u16 = 256;

/// Bytes of one provided buffer: fifteen 4 KiB in-capsule writes per receive, and still in the second-level
/// cache when they are parsed.
pub const PROVIDED_BUFFER_BYTES: usize = 64 * 1024;

/// Segments of one gathered send: the kernel's `UIO_MAXIOV`.
pub const GATHER_SEGMENTS: usize = 1024;

/// Bytes for protocol headers in one gathered send: 512 C2HData headers with their digests and responses.
pub const GATHER_HEADER_BYTES: usize = 32 * 1024;

/// How long a stopping core waits for cancelled operations to come back from the kernel before it gives
/// their memory up for lost and says so.
pub const CANCEL_WAIT: Duration = Duration::from_secs(10);
