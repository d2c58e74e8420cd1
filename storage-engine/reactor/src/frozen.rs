//! Buffers whose content is final: shared, cheap to clone, written by several disks at once, also by those of other
//! cores.
//!
//! Each buffer of the arena has a count of its holders, which lives as long as the arena: freezing, cloning and
//! slicing allocate nothing. The last holder gives the buffer back, on whichever core that is.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::buffer::IoBuf;

/// Most holders of a buffer. Far more than there can be, far fewer than the count can tell apart: leaked clones must
/// not make it wrap and free what is in use.
const HOLDERS_MAX: u32 = u32::MAX / 2;

/// What a disk can be asked to write.
///
/// # Safety
/// The bytes stay valid, at the same address and unchanged, as long as the value lives, also when it is moved.
pub(crate) unsafe trait StableBytes: 'static {
    /// Where they are and how many.
    fn stable_bytes(&self) -> (*const u8, u32);

    /// Index of the registered part that they lie in, for fixed writes on the current core.
    fn registered_part(&self) -> Option<u16>;
}

// SAFETY: a buffer's memory is its own until it is dropped, and to change it takes a mutable reference, which the
// operation that owns it does not give out.
unsafe impl StableBytes for IoBuf {
    fn stable_bytes(&self) -> (*const u8, u32) {
        (self.pointer().cast_const(), self.len() as u32)
    }

    fn registered_part(&self) -> Option<u16> {
        self.fixed_index()
    }
}

/// A part of a buffer whose content no longer changes.
pub struct FrozenBuf {
    /// Dropped by the last holder.
    buffer: ManuallyDrop<IoBuf>,
    holders: NonNull<AtomicU32>,
    /// The part, within the buffer.
    start: u32,
    len: u32,
}

// SAFETY: the bytes are only read as long as anybody holds them, the count is atomic, and the last holder has the
// buffer to itself, which may be sent.
unsafe impl Send for FrozenBuf {}
// SAFETY: as above.
unsafe impl Sync for FrozenBuf {}

// SAFETY: the buffer is alive while this holder is, and nobody gets a mutable reference to it.
unsafe impl StableBytes for FrozenBuf {
    fn stable_bytes(&self) -> (*const u8, u32) {
        (self.buffer.pointer().wrapping_add(self.start as usize).cast_const(), self.len)
    }

    fn registered_part(&self) -> Option<u16> {
        self.buffer.fixed_index()
    }
}

impl IoBuf {
    /// Makes the content final. A buffer of the arena costs no allocation, one from the heap a small one.
    pub fn freeze(self) -> FrozenBuf {
        let holders = self.holders().unwrap_or_else(|| NonNull::from(Box::leak(Box::new(AtomicU32::new(0)))));
        // SAFETY: the count lives as long as the buffer.
        unsafe { holders.as_ref() }.store(1, Ordering::Relaxed);
        let len = self.len() as u32;
        FrozenBuf { buffer: ManuallyDrop::new(self), holders, start: 0, len }
    }
}

impl FrozenBuf {
    /// A part of it.
    ///
    /// # Panics
    /// If `part` is not within its length.
    pub fn part(&self, part: Range<usize>) -> FrozenBuf {
        assert!(
            part.start <= part.end && part.end <= self.len(),
            "{part:?} of a buffer of {} bytes",
            self.len()
        );
        let mut clone = self.clone();
        clone.start += part.start as u32;
        clone.len = part.len() as u32;
        clone
    }

    fn count(&self) -> &AtomicU32 {
        // SAFETY: the count lives as long as the buffer, of which this is a holder.
        unsafe { self.holders.as_ref() }
    }
}

impl Clone for FrozenBuf {
    fn clone(&self) -> Self {
        let before = self.count().fetch_add(1, Ordering::Relaxed);
        assert!(before < HOLDERS_MAX, "a buffer has {before} holders: they are leaked somewhere");
        // SAFETY: a second value of the same buffer, but only the last holder drops it, and until then all of them
        // only read.
        let buffer = unsafe { ptr::read(&raw const self.buffer) };
        Self { buffer, holders: self.holders, start: self.start, len: self.len }
    }
}

impl Drop for FrozenBuf {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // What others read of the bytes comes before they are written again.
        fence(Ordering::Acquire);
        let in_arena = self.buffer.holders().is_some();
        if !in_arena {
            // SAFETY: made by `freeze` from a box, and this was the last holder.
            drop(unsafe { Box::from_raw(self.holders.as_ptr()) });
        }
        // SAFETY: this was the last holder, and it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.buffer) };
    }
}

impl Deref for FrozenBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let range = self.start as usize..(self.start + self.len) as usize;
        // Within the buffer since it was frozen: parts only get smaller.
        self.buffer.get(range).unwrap_or_default()
    }
}

impl fmt::Debug for FrozenBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenBuf")
            .field("start", &self.start)
            .field("len", &self.len)
            .field("buffer", &*self.buffer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_bytes_and_the_last_holder_frees_them() {
        let mut buffer = IoBuf::heap(3 * 4096);
        for (number, block) in buffer.chunks_mut(4096).enumerate() {
            block.fill(number as u8);
        }
        let whole = buffer.freeze();
        let tail = whole.part(4096..3 * 4096);
        let last = tail.part(4096..8192);
        let address = whole.as_ptr();
        drop(whole);
        assert_eq!(tail.as_ptr(), address.wrapping_add(4096));
        drop(tail);
        assert_eq!((last.len(), last[0]), (4096, 2));
        assert_eq!(last.count().load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_part_outside_is_refused() {
        let frozen = IoBuf::heap(4096).freeze();
        let outside = std::panic::catch_unwind(|| frozen.part(0..4097));
        assert!(outside.is_err());
    }

    #[test]
    fn holders_on_many_threads_read_the_same_bytes() {
        let mut buffer = IoBuf::heap(4096);
        buffer.fill(7);
        let frozen = buffer.freeze();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let mine = frozen.clone();
                std::thread::spawn(move || {
                    (0..1000).all(|_| {
                        let again = mine.clone();
                        again.iter().all(|&byte| byte == 7)
                    })
                })
            })
            .collect();
        for reader in readers {
            assert!(reader.join().expect("a reader ends"));
        }
        assert_eq!(frozen.count().load(Ordering::Relaxed), 1);
    }
}
