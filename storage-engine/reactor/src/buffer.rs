//! I/O buffers: aligned memory from one arena per process, divided among the cores, registered with every
//! ring.
//!
//! A buffer may travel to another core, work there with that core's ring, and be dropped there: it goes home
//! over a lock-free list. Handing one out costs a pop from a vector. When a size is used up, those who wait
//! are served in the order in which they came.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::task::{Poll, Waker};

use crossbeam_queue::ArrayQueue;

use crate::remote::Remote;
use crate::{CoreId, core, sys};

/// Sizes of arena buffers, in bytes: a block, an in-capsule transfer, a slice of a large transfer.
pub const CLASS_BYTES: [usize; 3] = [4 * 1024, 16 * 1024, 128 * 1024];

/// Alignment of every buffer: that of the strictest device, and of a page.
pub const ALIGNMENT: usize = 4096;

/// Class of a buffer from the heap.
const HEAP: u8 = u8::MAX;

/// How many buffers of each class a core has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferCounts {
    /// Buffers of 4 KiB.
    pub blocks: u32,
    /// Buffers of 16 KiB.
    pub capsules: u32,
    /// Buffers of 128 KiB.
    pub slices: u32,
}

impl Default for BufferCounts {
    /// 64 MiB per core: 4096 small commands in flight and 320 slices of large ones.
    fn default() -> Self {
        Self { blocks: 4096, capsules: 512, slices: 320 }
    }
}

impl BufferCounts {
    fn of(self, class: usize) -> u32 {
        [self.blocks, self.capsules, self.slices][class]
    }

    fn buffers(self) -> usize {
        (0..CLASS_BYTES.len()).map(|class| self.of(class) as usize).sum()
    }

    fn bytes(self) -> usize {
        (0..CLASS_BYTES.len()).map(|class| self.of(class) as usize * CLASS_BYTES[class]).sum()
    }
}

/// The memory of all cores' buffers.
pub(crate) struct Arena {
    base: NonNull<u8>,
    counts: BufferCounts,
    cores: Vec<Home>,
    /// For each buffer, how many hold it frozen (see `frozen`): one count each for all of its life, so that sharing a
    /// buffer allocates nothing.
    holders: Box<[AtomicU32]>,
}

/// Where a core's buffers come back to from elsewhere.
struct Home {
    returned: [ArrayQueue<u32>; CLASS_BYTES.len()],
    /// Somebody on the owning core waits for a buffer.
    wanted: AtomicBool,
    remote: Arc<Remote>,
}

// SAFETY: `base` is only an address here; the memory is reached through buffers, each of which has its part
// alone.
unsafe impl Send for Arena {}
// SAFETY: as above; everything else in it is Sync by itself.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(counts: BufferCounts, remotes: &[Arc<Remote>]) -> std::io::Result<Self> {
        let base = sys::map_memory((counts.bytes() * remotes.len()).max(ALIGNMENT))?;
        let queue = |class| ArrayQueue::new(counts.of(class).max(1) as usize);
        let cores = remotes
            .iter()
            .map(|remote| Home {
                returned: std::array::from_fn(queue),
                wanted: AtomicBool::new(false),
                remote: Arc::clone(remote),
            })
            .collect();
        let holders = (0..counts.buffers() * remotes.len()).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { base, counts, cores, holders })
    }

    /// One part per core, to be registered with every ring; a part's index is its core's number.
    pub(crate) fn parts(&self) -> Vec<libc::iovec> {
        let bytes = self.counts.bytes();
        (0..self.cores.len())
            .map(|core| libc::iovec {
                iov_base: self.base.as_ptr().wrapping_add(core * bytes).cast(),
                iov_len: bytes,
            })
            .collect()
    }

    pub(crate) fn bytes_per_core(&self) -> usize {
        self.counts.bytes()
    }

    fn address(&self, core: CoreId, class: usize, index: u32) -> NonNull<u8> {
        let before: usize =
            (0..class).map(|smaller| self.counts.of(smaller) as usize * CLASS_BYTES[smaller]).sum();
        let offset = core.index() * self.counts.bytes() + before + index as usize * CLASS_BYTES[class];
        // SAFETY: `index` is below the class's count, so the offset is within the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Arena {
    /// Number of a buffer among all.
    fn number(&self, core: CoreId, class: usize, index: u32) -> usize {
        let before: usize = (0..class).map(|smaller| self.counts.of(smaller) as usize).sum();
        core.index() * self.counts.buffers() + before + index as usize
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: every buffer holds the arena (see `Pool` and `Cores::stop`): when it is dropped no buffer
        // is out, and the rings that had it registered are closed.
        unsafe { sys::unmap_memory(self.base, (self.counts.bytes() * self.cores.len()).max(ALIGNMENT)) };
    }
}

/// A core's own view of its buffers.
pub(crate) struct Pool {
    arena: Arc<Arena>,
    core: CoreId,
    free: RefCell<[Vec<u32>; CLASS_BYTES.len()]>,
    waiting: RefCell<[VecDeque<Rc<Ticket>>; CLASS_BYTES.len()]>,
    waiters: Cell<usize>,
    /// The arena's parts are registered, so fixed reads and writes work.
    registered: Cell<bool>,
}

struct Ticket {
    buffer: Cell<Option<IoBuf>>,
    waker: RefCell<Waker>,
}

impl Pool {
    pub(crate) fn new(arena: Arc<Arena>, core: CoreId) -> Self {
        // Low addresses last, so that they are handed out first and stay in the cache.
        let free = std::array::from_fn(|class| (0..arena.counts.of(class)).rev().collect());
        Self {
            arena,
            core,
            free: RefCell::new(free),
            waiting: RefCell::default(),
            waiters: Cell::new(0),
            registered: Cell::new(false),
        }
    }

    pub(crate) fn set_registered(&self) {
        self.registered.set(true);
    }

    fn take(&self, class: usize) -> Option<IoBuf> {
        let mut index = self.free.borrow_mut()[class].pop();
        if index.is_none() {
            index = self.arena.cores[self.core.index()].returned[class].pop();
        }
        Some(self.buffer(class, index?))
    }

    fn has_plenty(&self, class: usize) -> bool {
        self.free.borrow()[class].len() * 2 > self.arena.counts.of(class) as usize
    }

    fn buffer(&self, class: usize, index: u32) -> IoBuf {
        IoBuf {
            address: self.arena.address(self.core, class, index),
            len: CLASS_BYTES[class] as u32,
            index,
            class: class as u8,
            owner: self.core,
            arena: Arc::as_ptr(&self.arena),
        }
    }

    fn give_back(&self, class: usize, index: u32) {
        while self.waiters.get() > 0 {
            let Some(ticket) = self.waiting.borrow_mut()[class].pop_front() else { break };
            self.waiters.set(self.waiters.get() - 1);
            // One reference is ours; without a second the waiter has gone.
            if Rc::strong_count(&ticket) > 1 {
                ticket.buffer.set(Some(self.buffer(class, index)));
                ticket.waker.borrow().wake_by_ref();
                return;
            }
        }
        self.free.borrow_mut()[class].push(index);
    }

    /// Serves those who wait: from what other cores gave back, and from what is free because those in front of them
    /// have gone. Once per turn.
    pub(crate) fn serve_waiting(&self) {
        if self.waiters.get() == 0 {
            return;
        }
        let home = &self.arena.cores[self.core.index()];
        for class in 0..CLASS_BYTES.len() {
            while !self.waiting.borrow()[class].is_empty() {
                let index = self.free.borrow_mut()[class].pop().or_else(|| home.returned[class].pop());
                let Some(index) = index else { break };
                self.give_back(class, index);
            }
        }
        home.wanted.store(self.waiters.get() > 0, Ordering::SeqCst);
    }

    /// Buffers of this core that are still out. Called when all cores have stopped.
    pub(crate) fn outstanding(&self) -> usize {
        let home = &self.arena.cores[self.core.index()];
        let free = self.free.borrow();
        (0..CLASS_BYTES.len())
            .map(|class| {
                self.arena.counts.of(class) as usize - free[class].len() - home.returned[class].len()
            })
            .sum()
    }
}

/// An aligned buffer. Its bytes are initialised, but left over from earlier use.
pub struct IoBuf {
    address: NonNull<u8>,
    len: u32,
    index: u32,
    class: u8,
    owner: CoreId,
    /// The arena outlives its buffers: `Cores::stop` never frees one while a buffer is out.
    arena: *const Arena,
}

// SAFETY: a buffer has its memory to itself, and going home from another thread uses atomic lists only.
unsafe impl Send for IoBuf {}
// SAFETY: a shared reference only reads the bytes.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// A buffer of at least `len` bytes from the current core's pool, its length set to `len`. `None` if the
    /// pool has none left, or `len` is above the largest class (128 KiB).
    pub fn take(len: usize) -> Option<IoBuf> {
        let class = class_for(len)?;
        core::with(|core| {
            let mut buffer =
                core.pool.take(class).or_else(|| if class == 0 { core.pool.take(1) } else { None })?;
            buffer.len = len as u32;
            Some(buffer)
        })
    }

    /// As [`IoBuf::take`], but only while more than half of the core's buffers of that size are free: for what can as
    /// well be done later.
    pub fn take_spare(len: usize) -> Option<IoBuf> {
        let class = class_for(len)?;
        let plenty = core::with(|core| core.pool.has_plenty(class));
        if plenty { IoBuf::take(len) } else { None }
    }

    /// As [`IoBuf::take`], but waits for its turn while there is none. `None` only if `len` is too large.
    pub async fn wait(len: usize) -> Option<IoBuf> {
        let class = class_for(len)?;
        let nobody_waits = core::with(|core| core.pool.waiting.borrow()[class].is_empty());
        if nobody_waits && let Some(buffer) = IoBuf::take(len) {
            return Some(buffer);
        }
        let mut ticket: Option<Rc<Ticket>> = None;
        let mut buffer = std::future::poll_fn(|context| match &ticket {
            None => {
                let new =
                    Rc::new(Ticket { buffer: Cell::new(None), waker: RefCell::new(context.waker().clone()) });
                core::with(|core| {
                    let pool = &core.pool;
                    pool.waiting.borrow_mut()[class].push_back(Rc::clone(&new));
                    pool.waiters.set(pool.waiters.get() + 1);
                    // Whoever gives a buffer back from elsewhere looks at this after having done so.
                    pool.arena.cores[pool.core.index()].wanted.store(true, Ordering::SeqCst);
                    fence(Ordering::SeqCst);
                    pool.serve_waiting();
                });
                let ready = new.buffer.take();
                ticket = Some(new);
                ready.map_or(Poll::Pending, Poll::Ready)
            }
            Some(ticket) => match ticket.buffer.take() {
                Some(buffer) => Poll::Ready(buffer),
                None => {
                    *ticket.waker.borrow_mut() = context.waker().clone();
                    Poll::Pending
                }
            },
        })
        .await;
        buffer.len = len as u32;
        Some(buffer)
    }

    /// A zeroed buffer from the heap, aligned like the others: for any size, on any thread, without
    /// registration. At most 4 GiB − 4 KiB; the length is rounded up in memory only.
    pub fn heap(len: usize) -> IoBuf {
        let len = len.min(u32::MAX as usize - ALIGNMENT);
        let layout = heap_layout(len);
        // SAFETY: the layout is never empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(address) = NonNull::new(memory) else { handle_alloc_error(layout) };
        IoBuf { address, len: len as u32, index: 0, class: HEAP, owner: CoreId(0), arena: std::ptr::null() }
    }

    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        match CLASS_BYTES.get(self.class as usize) {
            Some(&bytes) => bytes,
            None => heap_layout(self.len as usize).size(),
        }
    }

    /// Sets the length, at most to the capacity of an arena buffer or the present length of a heap buffer.
    pub fn truncate(&mut self, len: usize) {
        let most = if self.class == HEAP { self.len as usize } else { self.capacity() };
        // A heap buffer's layout follows from its length, so it keeps at least its last page.
        if self.class != HEAP || heap_layout(len) == heap_layout(self.len as usize) {
            self.len = len.min(most) as u32;
        }
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// The arena's count of those who hold this buffer frozen; `None` for a buffer from the heap. It lives as long as
    /// the buffer.
    pub(crate) fn holders(&self) -> Option<NonNull<AtomicU32>> {
        if self.class == HEAP {
            return None;
        }
        // SAFETY: the arena outlives its buffers.
        let arena = unsafe { &*self.arena };
        let number = arena.number(self.owner, self.class as usize, self.index);
        arena.holders.get(number).map(NonNull::from)
    }

    /// Index of the registered part that the buffer lies in, for fixed reads and writes on the current core.
    pub(crate) fn fixed_index(&self) -> Option<u16> {
        if self.class == HEAP {
            return None;
        }
        core::with(|core| {
            let same = std::ptr::eq(self.arena, Arc::as_ptr(&core.pool.arena));
            (same && core.pool.registered.get()).then_some(self.owner.0)
        })
    }
}

fn heap_layout(len: usize) -> Layout {
    let bytes = len.max(1).next_multiple_of(ALIGNMENT);
    // The alignment is a power of two and `len` is below 4 GiB, so a layout always exists.
    Layout::from_size_align(bytes, ALIGNMENT).unwrap_or(Layout::new::<[u8; ALIGNMENT]>())
}

fn class_for(len: usize) -> Option<usize> {
    CLASS_BYTES.iter().position(|&bytes| len <= bytes)
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer has these initialised bytes to itself.
        unsafe { slice::from_raw_parts(self.address.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and we are borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoBuf").field("len", &self.len).field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        if self.class == HEAP {
            // SAFETY: allocated in `heap` with this layout; `truncate` keeps the layout.
            unsafe { dealloc(self.address.as_ptr(), heap_layout(self.len as usize)) };
            return;
        }
        let class = self.class as usize;
        let home_is_here = core::try_with(|core| {
            let here = core.id == self.owner && std::ptr::eq(self.arena, Arc::as_ptr(&core.pool.arena));
            if here {
                core.pool.give_back(class, self.index);
            }
            here
        });
        if home_is_here == Some(true) {
            return;
        }
        // SAFETY: the arena outlives its buffers.
        let arena = unsafe { &*self.arena };
        let home = &arena.cores[self.owner.index()];
        // The queue has room for every buffer of its class.
        let _ = home.returned[class].push(self.index);
        fence(Ordering::SeqCst);
        if home.wanted.load(Ordering::Relaxed) {
            home.remote.nudge();
        }
    }
}
