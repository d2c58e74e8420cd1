//! Per-core executor on io_uring: tasks, timers, files, sockets, buffers, and mailboxes between cores.
//!
//! [`Cores::start`] starts one thread per data core. What runs there is `async` code of one thread: it needs
//! no locks, and what belongs to a core (tasks, files, streams, timers) cannot leave it. Other threads reach
//! a core by [`CoresHandle::run_on`] and by [`mailbox`].
//!
//! | module | what |
//! |---|---|
//! | `core` | the loop: tasks, submissions, completions, timers, sleep |
//! | `cores` | start, stop, [`CoresHandle::run_on`] |
//! | `task` | a future behind a header; wakers |
//! | `ops` | operations in flight, as futures |
//! | `remote`, [`mailbox`] | what other threads may touch |
//! | [`buffer`], `frozen` | aligned, registered buffers; shared ones |
//! | [`file`], [`net`] | files, block devices, TCP |
//! | [`world`] | disks and the rest of what the storage engine asks for |
//! | [`sync`], [`timer`], [`clock`] | waiting: for one another, for a moment |

#![allow(unsafe_code, reason = "the one crate that talks to the kernel; every use argues its safety")]

use std::cell::RefCell;
use std::fmt;
use std::future::Future;

pub mod buffer;
pub mod clock;
mod core;
mod cores;
mod error;
pub mod file;
mod frozen;
pub mod limits;
pub mod mailbox;
pub mod net;
mod ops;
mod remote;
mod spin;
pub mod sync;
mod sys;
mod task;
pub mod timer;
pub mod world;

pub use buffer::{BufferCounts, IoBuf};
pub use clock::Instant;
pub use cores::{CoreCounters, Cores, CoresConfig, CoresHandle, Reply};
pub use error::Error;
pub use file::{File, FileKind, Geometry, OpenOptions};
pub use frozen::FrozenBuf;
pub use sync::{JoinHandle, Line, Notify, first, next_turn, spawn_join, yield_now};
pub use timer::{Elapsed, sleep, sleep_until, timeout};

/// Number of a data core, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

impl CoreId {
    /// As an index into per-core tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

thread_local! {
    static PEERS: RefCell<Option<CoresHandle>> = const { RefCell::new(None) };
}

fn set_peers(handle: &CoresHandle) {
    PEERS.with_borrow_mut(|peers| *peers = Some(handle.clone()));
}

fn clear_peers() {
    PEERS.with_borrow_mut(|peers| *peers = None);
}

/// The data core that this thread is, if it is one.
pub fn current_core() -> Option<CoreId> {
    core::try_with(|core| core.id)
}

/// All cores of this process's group, seen from one of them. `None` outside a data core.
pub fn peers() -> Option<CoresHandle> {
    PEERS.with_borrow(Clone::clone)
}

/// This turn's clock value: read once per turn, after completions were taken from the kernel.
///
/// # Panics
/// Outside a data core.
pub fn now() -> Instant {
    core::with(core::Core::now)
}

/// Starts a task on the current core.
///
/// # Panics
/// Outside a data core.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    core::with(|core| core.spawn(future));
}

/// Starts a task on the current core and runs it at once until it first waits. A future that never waits
/// costs no more than the call.
///
/// # Panics
/// Outside a data core.
pub fn spawn_now(future: impl Future<Output = ()> + 'static) {
    core::with(|core| core.spawn_now(future));
}

/// Ends once the cores were asked to stop. Tasks that run for ever select on it and end.
///
/// # Panics
/// Outside a data core.
pub async fn stop_requested() {
    let stop = core::with(|core| std::rc::Rc::clone(&core.stop));
    while !is_stopping() {
        stop.notified().await;
    }
}

/// The cores were asked to stop.
///
/// # Panics
/// Outside a data core.
pub fn is_stopping() -> bool {
    core::with(|core| core.remote.stopping.load(std::sync::atomic::Ordering::Acquire))
}
