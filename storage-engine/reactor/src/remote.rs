//! What other threads may touch of a core: its inbox, the list of tasks they woke, and the bell that wakes
//! it from its sleep.
//!
//! The sleep protocol: a core sets `sleeping`, then looks at both lists and for a nudge once more, then waits
//! in the kernel. Whoever adds to a list, or nudges, looks at `sleeping` afterwards. Both sides fence in
//! between, so at least one of them sees the other: either the core does not sleep, or it is rung.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering, fence};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;

use crate::CoreId;
use crate::limits::INBOX_CAPACITY;
use crate::task::Header;

/// Runs on the core and may start tasks there.
pub(crate) type Closure = Box<dyn FnOnce() + Send>;

pub(crate) struct Remote {
    pub(crate) id: CoreId,
    /// Descriptor of the core's ring, −1 before it exists and after it stopped.
    pub(crate) ring_fd: AtomicI32,
    bell: OwnedFd,
    sleeping: CachePadded<AtomicBool>,
    /// Tasks woken by other threads, newest first, linked through their headers.
    woken: CachePadded<AtomicPtr<Header>>,
    inbox: ArrayQueue<Closure>,
    pub(crate) stopping: AtomicBool,
    /// Something outside the two lists wants the core's attention: a buffer came back, a stop was asked for.
    nudged: AtomicBool,
    pub(crate) counters: CachePadded<Counters>,
}

/// Written by the core alone, read by anybody.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) turns: AtomicU64,
    pub(crate) enters: AtomicU64,
    pub(crate) submissions: AtomicU64,
    pub(crate) completions: AtomicU64,
    pub(crate) polls: AtomicU64,
    pub(crate) spin_ns: AtomicU64,
    pub(crate) sleep_ns: AtomicU64,
    pub(crate) tasks: AtomicU64,
}

impl Remote {
    pub(crate) fn new(id: CoreId, bell: OwnedFd) -> Self {
        Self {
            id,
            ring_fd: AtomicI32::new(-1),
            bell,
            sleeping: CachePadded::new(AtomicBool::new(false)),
            woken: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            inbox: ArrayQueue::new(INBOX_CAPACITY),
            stopping: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            counters: CachePadded::default(),
        }
    }

    pub(crate) fn bell_fd(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Puts a task, whose reference the caller hands over, on the list and rings.
    pub(crate) fn push_woken(&self, task: NonNull<Header>) {
        let mut head = self.woken.load(Ordering::Relaxed);
        loop {
            Header::set_next(task, head);
            match self.woken.compare_exchange_weak(head, task.as_ptr(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(actual) => head = actual,
            }
        }
        self.ring();
    }

    /// Takes the whole list, newest first.
    pub(crate) fn take_woken(&self) -> *mut Header {
        if self.woken.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.woken.swap(ptr::null_mut(), Ordering::AcqRel)
    }

    pub(crate) fn push_closure(&self, closure: Closure) -> Result<(), Closure> {
        self.inbox.push(closure)?;
        self.ring();
        Ok(())
    }

    pub(crate) fn pop_closure(&self) -> Option<Closure> {
        self.inbox.pop()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.woken.load(Ordering::Acquire).is_null()
            || !self.inbox.is_empty()
            || self.nudged.load(Ordering::Relaxed)
    }

    /// Makes the core turn once more, whatever it is about to do.
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Called by the core before it looks at what a nudge may be about.
    pub(crate) fn heed_nudge(&self) {
        if self.nudged.load(Ordering::Relaxed) {
            self.nudged.swap(false, Ordering::SeqCst);
        }
    }

    /// Announces sleep; false if there is work after all.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.has_work() {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Wakes the core if it sleeps: through the ring when the caller is a core, else through an eventfd.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if !self.sleeping.load(Ordering::Relaxed) || !self.sleeping.swap(false, Ordering::AcqRel) {
            return;
        }
        let fd = self.ring_fd.load(Ordering::Acquire);
        if fd < 0 || !crate::core::ring_peer(fd) {
            crate::sys::ring_bell(&self.bell);
        }
    }
}
