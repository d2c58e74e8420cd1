//! Receive buffers that all connections of a core share: the kernel takes one when data has arrived, so a
//! connection that waits holds no memory.
//!
//! The kernel takes buffers in the order in which they are offered. If all were offered it would go round
//! through all of that memory, and every receive would land outside the cache. So only a few are offered at a
//! time, the ones that were used last; when that turns out to be too few for the receives of one turn, more
//! are.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, cqueue, types::BufRingEntry};

use crate::core::{self, Core};
use crate::limits::{PROVIDED_BUFFER_BYTES, PROVIDED_BUFFERS};
use crate::ops::Completion;
use crate::sync::Notify;
use crate::sys;

/// Buffers that are offered at first: enough for a few connections, and 256 KiB, which stay in the cache.
const OFFERED_MIN: u16 = 4;

/// The one buffer group of a core's ring.
pub(crate) const GROUP: u16 = 0;

/// The core's provided buffers.
#[derive(Clone)]
pub(crate) struct Provided(Rc<Shared>);

struct Shared {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    tail: Cell<u16>,
    /// Not offered, not in use; the one used last on top.
    spare: RefCell<Vec<u16>>,
    /// Offered to the kernel and not seen in a completion yet.
    offered: Cell<u16>,
    /// How many to offer.
    wanted: Cell<u16>,
    returns: Cell<u64>,
    returned: Notify,
}

fn entries_bytes() -> usize {
    PROVIDED_BUFFERS as usize * size_of::<BufRingEntry>()
}

impl Provided {
    pub(crate) fn register(ring: &IoUring) -> io::Result<Self> {
        let entries = sys::map_memory(entries_bytes())?.cast::<BufRingEntry>();
        let memory = sys::map_memory(PROVIDED_BUFFERS as usize * PROVIDED_BUFFER_BYTES)?;
        let shared = Shared {
            entries,
            memory,
            tail: Cell::new(0),
            spare: RefCell::new((0..PROVIDED_BUFFERS).rev().collect()),
            offered: Cell::new(0),
            wanted: Cell::new(OFFERED_MIN),
            returns: Cell::new(0),
            returned: Notify::new(),
        };
        let provided = Provided(Rc::new(shared));
        let address = entries.as_ptr() as u64;
        // SAFETY: the entries are page-aligned, zeroed, and stay mapped until after the ring is closed
        // (`Core` drops its ring first, and a `Received` cannot outlive the core's tasks).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, PROVIDED_BUFFERS, GROUP, 0)?;
        }
        provided.0.offer_wanted();
        Ok(provided)
    }

    /// Takes over the buffer that a completion names.
    pub(crate) fn received(&self, completion: Completion) -> Option<Received> {
        let index = cqueue::buffer_select(completion.flags)?;
        self.0.offered.set(self.0.offered.get().saturating_sub(1));
        self.0.offer_wanted();
        let len = usize::try_from(completion.result).unwrap_or(0).min(PROVIDED_BUFFER_BYTES);
        (index < PROVIDED_BUFFERS).then(|| Received { shared: Rc::clone(&self.0), index, start: 0, len })
    }

    /// How often a buffer was given back so far.
    pub(crate) fn returns(&self) -> u64 {
        self.0.returns.get()
    }

    /// After the kernel found no buffer: ends when one was given back since `returns` was read, before the
    /// receive was submitted. If none was, all are held by somebody who will give them back.
    pub(crate) async fn wait(&self, returns: u64) {
        let shared = &self.0;
        if !shared.spare.borrow().is_empty() {
            shared.wanted.set(shared.wanted.get().saturating_mul(2).min(PROVIDED_BUFFERS));
            shared.offer_wanted();
        } else if self.returns() == returns {
            shared.returned.notified().await;
        }
    }
}

impl Shared {
    fn address(&self, index: u16) -> NonNull<u8> {
        // SAFETY: `index` is below the number of buffers, so this is within the mapping.
        unsafe { self.memory.add(index as usize * PROVIDED_BUFFER_BYTES) }
    }

    fn give_back(&self, index: u16) {
        self.spare.borrow_mut().push(index);
        self.offer_wanted();
        self.returns.set(self.returns.get() + 1);
        self.returned.notify_all();
    }

    fn offer_wanted(&self) {
        while self.offered.get() < self.wanted.get() {
            let Some(index) = self.spare.borrow_mut().pop() else { return };
            self.offer(index);
        }
    }

    fn offer(&self, index: u16) {
        let tail = self.tail.get();
        let at = (tail % PROVIDED_BUFFERS) as usize;
        // SAFETY: `at` is within the ring; entries behind the tail belong to us. The tail shares memory with
        // an unused field of the first entry, is aligned, and is read by the kernel only, with acquire.
        unsafe {
            let entry = self.entries.add(at).as_mut();
            entry.set_addr(self.address(index).as_ptr() as u64);
            entry.set_len(PROVIDED_BUFFER_BYTES as u32);
            entry.set_bid(index);
            let shared_tail = BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            (*shared_tail).store(tail.wrapping_add(1), Ordering::Release);
        }
        self.tail.set(tail.wrapping_add(1));
        self.offered.set(self.offered.get() + 1);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: these are the two mappings made in `register`; the ring that knew them is closed.
        unsafe {
            sys::unmap_memory(self.entries.cast(), entries_bytes());
            sys::unmap_memory(self.memory, PROVIDED_BUFFERS as usize * PROVIDED_BUFFER_BYTES);
        }
    }
}

/// Gives the buffer of a receive that nobody waits for any more back.
pub(crate) fn clean_up(core: &Core, completion: Completion) {
    drop(core.provided.received(completion));
}

pub(crate) fn current() -> Provided {
    core::with(|core| core.provided.clone())
}

/// Bytes that arrived, in a shared receive buffer. Give it back soon: there are [`PROVIDED_BUFFERS`].
pub struct Received {
    shared: Rc<Shared>,
    index: u16,
    start: usize,
    len: usize,
}

impl Received {
    /// Forgets the first `bytes` bytes.
    pub fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len);
        self.start += bytes;
        self.len -= bytes;
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: until it is given back the buffer is ours, and `start + len` lies within it.
        unsafe { slice::from_raw_parts(self.shared.address(self.index).as_ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.shared.give_back(self.index);
    }
}
