//! Memory for disk I/O: a buffer is filled by its one owner, then frozen and shared.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut, Range};

/// Bytes of a block: the unit of everything in the engine (design §2).
pub const BLOCK_BYTES: usize = 4096;

/// Aligned memory with one owner: a disk reads into it, or it is filled to be written. A whole number of blocks.
pub trait Buffer: DerefMut<Target = [u8]> + Debug + 'static {
    /// What it becomes once its content is final.
    type Data: Data;

    /// Makes the content final, to be written to several disks at once.
    fn freeze(self) -> Self::Data;
}

/// Final content that can be written by several disks at once, also by those of other cores. Cloning is cheap and
/// shares the bytes.
pub trait Data: Deref<Target = [u8]> + Clone + Debug + Send + 'static {
    /// A part of it, in bytes, at block boundaries and within its length.
    ///
    /// # Panics
    /// If `part` is not within the length or not at block boundaries: callers compute it from the length.
    fn slice(&self, part: Range<usize>) -> Self;
}
