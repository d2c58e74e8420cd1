//! The real world of the storage engine: io_uring behind the traits of `ashlar_io`.
//!
//! | module | what |
//! |---|---|
//! | `device` | a file or block device, held by this process alone |
//! | `tearing` | what a power loss does to a 4 KiB write (PROTOCOL S9) |
//! | `nvme` | what an NVMe device says about that |
//! | `disk` | a held device, open on one core |
//! | `memory` | a disk in memory |
//! | `any` | either |

mod any;
mod device;
mod disk;
mod memory;
mod nvme;
mod tearing;

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, Data, Instant, World};

pub use any::{AnyDevice, AnyDisk};
pub use device::{FileDevice, HoldError};
pub use disk::FileDisk;
pub use memory::MemoryDisk;

use crate::buffer::{CLASS_BYTES, IoBuf};
use crate::frozen::FrozenBuf;

impl Buffer for IoBuf {
    type Data = FrozenBuf;

    fn freeze(self) -> FrozenBuf {
        IoBuf::freeze(self)
    }
}

impl Data for FrozenBuf {
    fn slice(&self, part: Range<usize>) -> Self {
        let whole_blocks = part.start.is_multiple_of(BLOCK_BYTES) && part.end.is_multiple_of(BLOCK_BYTES);
        assert!(whole_blocks, "{part:?} is not made of whole blocks");
        self.part(part)
    }
}

/// The world of the data core that it is used on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReactorWorld;

impl World for ReactorWorld {
    type Disk = AnyDisk;
    type Buffer = IoBuf;

    fn now(&self) -> Instant {
        crate::now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        crate::sleep(duration)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        crate::spawn(task);
    }

    fn next_turn(&self) -> impl Future<Output = ()> {
        crate::next_turn()
    }

    fn random(&self) -> u64 {
        crate::sys::random()
    }

    async fn buffer(&self, blocks: usize) -> IoBuf {
        let len = blocks * BLOCK_BYTES;
        // Only a buffer above the largest class is not in the arena.
        IoBuf::wait(len).await.unwrap_or_else(|| IoBuf::heap(len))
    }

    fn spare_buffer(&self, blocks: usize) -> IoBuf {
        let len = blocks * BLOCK_BYTES;
        IoBuf::take(len).unwrap_or_else(|| IoBuf::heap(len))
    }

    const MAX_BUFFER_BLOCKS: usize = CLASS_BYTES[CLASS_BYTES.len() - 1] / BLOCK_BYTES;
}
