//! The few traits through which the storage engine touches the world (design §4, §10): disks, buffers, the clock,
//! randomness and tasks.
//!
//! The store and replication are generic over [`World`]. The reactor implements it with io_uring, the simulator with
//! seeded models of everything: the code between is the same. All of it runs on one core: nothing here is shared
//! between threads but [`Data`], which may be written by another core's disk.

mod buffer;
mod bug;
mod clock;
mod disk;
pub mod sync;

use std::future::Future;
use std::time::Duration;

pub use buffer::{BLOCK_BYTES, Buffer, Data};
pub use bug::{Bug, UnknownBug};
pub use clock::Instant;
pub use disk::{Disk, DiskError, DiskGeometry, DiskOperation, Tearing};

/// What surrounds the engine on one core.
pub trait World: Clone + 'static {
    /// Disks of this world.
    type Disk: Disk<Buffer = Self::Buffer>;
    /// Memory that its disks can read into.
    type Buffer: Buffer;

    /// The clock, which counts suspension (PROTOCOL R12). It is read once per turn, so asking costs nothing.
    fn now(&self) -> Instant;

    /// Ends after `duration`, or somewhat later.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;

    /// Starts a task on this core. It ends when its future does, or with the core.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Lets everything else that is due run first: what works through much calls it now and then.
    fn next_turn(&self) -> impl Future<Output = ()>;

    /// Sixty-four random bits.
    fn random(&self) -> u64;

    /// A buffer of `blocks` blocks, whose content is arbitrary. Waits until one is free. At most
    /// [`World::MAX_BUFFER_BLOCKS`].
    fn buffer(&self, blocks: usize) -> impl Future<Output = Self::Buffer>;

    /// The same without waiting, for what others' buffers wait for: journal blocks, tables, checksum pages. Whoever
    /// asks has a bound of his own.
    fn spare_buffer(&self, blocks: usize) -> Self::Buffer;

    /// Blocks of the largest buffer, at least 32.
    const MAX_BUFFER_BLOCKS: usize;

    /// The rule that `bug` breaks is left out here. The simulator's world alone can say so; in every other this is
    /// the constant false, and the code behind it is not compiled in.
    #[inline(always)]
    fn bug(&self, _bug: Bug) -> bool {
        false
    }
}
