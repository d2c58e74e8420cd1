//! Starting, reaching and stopping the data cores.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use crossbeam_queue::ArrayQueue;

use crate::buffer::{Arena, BufferCounts};
use crate::clock::Instant;
use crate::core::Core;
use crate::limits::{CANCEL_WAIT, CORE_NICE, SPIN_MAX};
use crate::remote::Remote;
use crate::spin::Spin;
use crate::{CoreId, Error, sys};

/// How the data cores are set up.
#[derive(Debug, Clone)]
pub struct CoresConfig {
    /// One entry per data core: the CPU that its thread is pinned to, or `None` to let it float.
    pub cpus: Vec<Option<usize>>,
    /// Buffers per core.
    pub buffers: BufferCounts,
    /// Longest time that a core polls before it sleeps, at most [`SPIN_MAX`]; zero to sleep at once.
    pub spin: Duration,
}

impl CoresConfig {
    /// `count` cores that are not pinned.
    pub fn floating(count: usize) -> Self {
        Self { cpus: vec![None; count], buffers: BufferCounts::default(), spin: SPIN_MAX }
    }
}

/// The running data cores. Dropping it without [`Cores::stop`] stops them without waiting for their tasks.
#[derive(Debug)]
pub struct Cores {
    handle: CoresHandle,
    threads: Vec<thread::JoinHandle<Option<Ended>>>,
    drain_until: Arc<AtomicU64>,
}

/// Reaches the cores from any thread.
#[derive(Clone)]
pub struct CoresHandle {
    remotes: Arc<[Arc<Remote>]>,
}

impl fmt::Debug for CoresHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoresHandle").field("cores", &self.remotes.len()).finish()
    }
}

/// What a core thread leaves behind.
struct Ended {
    core: Core,
    tasks: usize,
    operations: usize,
}

// SAFETY: the core comes back after its loop ended and left its thread; its tasks and operations are gone,
// and with the thread ended nothing of it is used from two threads. Only counts are read and fields dropped.
unsafe impl Send for Ended {}

/// What a core has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreCounters {
    /// Turns of the loop.
    pub turns: u64,
    /// System calls into the ring.
    pub enters: u64,
    /// Operations submitted.
    pub submissions: u64,
    /// Completions taken.
    pub completions: u64,
    /// Times that a task was polled.
    pub polls: u64,
    /// Nanoseconds spent looking for work before sleeping.
    pub spin_ns: u64,
    /// Nanoseconds asleep in the kernel. Busy time is what remains of the clock.
    pub sleep_ns: u64,
    /// Tasks alive at present.
    pub tasks: u64,
}

impl Cores {
    /// Starts one thread per configured core. Returns when all of them run, or none does.
    pub fn start(config: &CoresConfig) -> Result<Self, Error> {
        if config.cpus.is_empty() {
            return Err(Error::NoCores);
        }
        let mut remotes = Vec::with_capacity(config.cpus.len());
        for index in 0..config.cpus.len() {
            let id = CoreId(index as u16);
            let bell = sys::event_fd().map_err(|source| Error::Start {
                core: id,
                what: "make an eventfd",
                source,
            })?;
            remotes.push(Arc::new(Remote::new(id, bell)));
        }
        let arena = Arena::new(config.buffers, &remotes).map_err(|source| Error::Arena {
            bytes: remotes.len() * config.buffers.blocks as usize * 4096,
            source,
        })?;
        let arena = Arc::new(arena);
        let drain_until = Arc::new(AtomicU64::new(u64::MAX));
        let handle = CoresHandle { remotes: remotes.into() };
        let mut cores = Cores { handle, threads: Vec::new(), drain_until };
        let (started, starts) = mpsc::channel();
        for (remote, cpu) in cores.handle.remotes.iter().zip(&config.cpus) {
            let id = remote.id;
            let start = Start {
                remote: Arc::clone(remote),
                arena: Arc::clone(&arena),
                cpu: *cpu,
                spin: config.spin,
                drain_until: Arc::clone(&cores.drain_until),
                peers: cores.handle.clone(),
            };
            let started = started.clone();
            let thread = thread::Builder::new()
                .name(format!("core-{}", id.0))
                .spawn(move || start.run(&started))
                .map_err(|source| Error::Start { core: id, what: "start its thread", source })?;
            cores.threads.push(thread);
        }
        drop(started);
        for outcome in starts.iter().take(config.cpus.len()) {
            outcome?;
        }
        Ok(cores)
    }

    /// Reaches the cores from any thread.
    pub fn handle(&self) -> CoresHandle {
        self.handle.clone()
    }

    /// Asks all cores to stop ([`crate::stop_requested`] ends), waits up to `drain` for their tasks to end by
    /// themselves, then drops the rest. An error says what was left over; everything has stopped all the
    /// same.
    pub fn stop(mut self, drain: Duration) -> Result<(), Error> {
        self.stop_all(drain)
    }

    fn stop_all(&mut self, drain: Duration) -> Result<(), Error> {
        self.drain_until.store((crate::clock::read() + drain).as_ns(), Ordering::Release);
        for remote in self.handle.remotes.iter() {
            remote.stopping.store(true, Ordering::Release);
            remote.nudge();
        }
        let mut ended = Vec::new();
        for thread in self.threads.drain(..) {
            // A thread that panicked has taken the process down; one that could not start has nothing to end.
            if let Ok(Some(core)) = thread.join() {
                ended.push(core);
            }
        }
        let mut result = Ok(());
        for end in ended {
            let buffers = end.core.pool.outstanding();
            if end.tasks + end.operations + buffers > 0 {
                let (core, tasks, operations) = (end.core.id, end.tasks, end.operations);
                result = Err(Error::Leaked { core, tasks, operations, buffers });
            }
            if end.operations + buffers > 0 {
                // The kernel or a buffer's holder may still write to the arena: it is never unmapped.
                std::mem::forget(end);
            }
        }
        result
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            // The reason was the caller's to look at, by calling `stop`.
            let _ = self.stop_all(Duration::ZERO);
        }
    }
}

struct Start {
    remote: Arc<Remote>,
    arena: Arc<Arena>,
    cpu: Option<usize>,
    spin: Duration,
    drain_until: Arc<AtomicU64>,
    peers: CoresHandle,
}

impl Start {
    fn run(self, started: &mpsc::Sender<Result<(), Error>>) -> Option<Ended> {
        let id = self.remote.id;
        // Half a process would go on acknowledging writes that nobody carries out.
        let guard = AbortOnPanic(id);
        let set_up = || {
            sys::prefer_this_thread(CORE_NICE);
            if let Some(cpu) = self.cpu {
                sys::pin_to_cpu(cpu).map_err(|source| Error::Start {
                    core: id,
                    what: "pin its thread to the CPU",
                    source,
                })?;
            }
            Core::new(id, Arc::clone(&self.remote), self.arena)
        };
        let core = match set_up() {
            Ok(core) => core,
            Err(error) => {
                // The starter is waiting for this, so the channel is open.
                let _ = started.send(Err(error));
                std::mem::forget(guard);
                return None;
            }
        };
        let _ = started.send(Ok(()));
        crate::set_peers(&self.peers);
        let until = || {
            let ns = self.drain_until.load(Ordering::Acquire);
            (ns != u64::MAX).then(|| Instant::from_ns(ns))
        };
        core.run(&mut Spin::new(self.spin), until);
        let (tasks, operations) = core.wind_up(CANCEL_WAIT);
        crate::clear_peers();
        core.leave_thread();
        std::mem::forget(guard);
        Some(Ended { core, tasks, operations })
    }
}

struct AbortOnPanic(CoreId);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!("data core {} panicked; the process stops so that no half of it goes on", self.0);
        std::process::abort();
    }
}

impl CoresHandle {
    /// Number of cores.
    pub fn count(&self) -> usize {
        self.remotes.len()
    }

    /// All cores.
    pub fn ids(&self) -> impl Iterator<Item = CoreId> + use<> {
        (0..self.remotes.len() as u16).map(CoreId)
    }

    /// What a core has done so far; zeroes for a core that does not exist.
    pub fn counters(&self, core: CoreId) -> CoreCounters {
        let Some(remote) = self.remotes.get(core.index()) else { return CoreCounters::default() };
        let (load, counters) = (|value: &AtomicU64| value.load(Ordering::Relaxed), &remote.counters);
        CoreCounters {
            turns: load(&counters.turns),
            enters: load(&counters.enters),
            submissions: load(&counters.submissions),
            completions: load(&counters.completions),
            polls: load(&counters.polls),
            spin_ns: load(&counters.spin_ns),
            sleep_ns: load(&counters.sleep_ns),
            tasks: load(&counters.tasks),
        }
    }

    /// Runs an async function on a core; what it returns can be awaited anywhere, or waited for with
    /// [`Reply::wait`] on a thread that is no core.
    pub fn run_on<T, F, Fut>(&self, core: CoreId, function: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let shared = Arc::new(Answer::new());
        let giver = Giver(Arc::clone(&shared));
        let mut reply = Reply { core, shared, refused: false };
        let Some(remote) = self.remotes.get(core.index()) else {
            // Nobody answers for a core that does not exist.
            drop(giver);
            return reply;
        };
        let closure = Box::new(move || {
            crate::spawn_now(async move {
                let value = function().await;
                giver.give(value);
            });
        });
        reply.refused = remote.push_closure(closure).is_err();
        reply
    }
}

struct Answer<T> {
    value: ArrayQueue<T>,
    /// No value comes any more, beside one that is there. Set before the waker is taken.
    closed: AtomicBool,
    waker: AtomicWaker,
}

impl<T> Answer<T> {
    fn new() -> Self {
        Self { value: ArrayQueue::new(1), closed: AtomicBool::new(false), waker: AtomicWaker::new() }
    }

    /// Nobody is left to give a value. Returns who waits: whoever registers from now on sees that it is closed.
    fn close(&self) -> Option<Waker> {
        self.closed.store(true, Ordering::Release);
        self.waker.take()
    }

    /// The value; `None` if there will be none.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.waker.register(context.waker());
        // Looked at before the value, which is given before it is closed.
        let closed = self.closed.load(Ordering::Acquire);
        match self.value.pop() {
            Some(value) => Poll::Ready(Some(value)),
            None if closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

struct Giver<T>(Arc<Answer<T>>);

impl<T> Giver<T> {
    fn give(&self, value: T) {
        // The queue is empty: an answer is given once.
        let _ = self.0.value.push(value);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        if let Some(waker) = self.0.close() {
            waker.wake();
        }
    }
}

/// The answer of a core to [`CoresHandle::run_on`]. Dropping it does not stop the function.
pub struct Reply<T> {
    core: CoreId,
    shared: Arc<Answer<T>>,
    refused: bool,
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("core", &self.core).finish_non_exhaustive()
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.refused {
            return Poll::Ready(Err(Error::InboxFull { core: self.core }));
        }
        let core = self.core;
        self.shared.poll(context).map(|value| value.ok_or(Error::Stopped { core }))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T> Reply<T> {
    /// Blocks this thread until the answer is there. Not for data cores.
    pub fn wait(mut self) -> Result<T, Error> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut context) {
                return result;
            }
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn reply<T>() -> (Giver<T>, Reply<T>) {
        let shared = Arc::new(Answer::new());
        (Giver(Arc::clone(&shared)), Reply { core: CoreId(3), shared, refused: false })
    }

    fn poll<T>(reply: &mut Reply<T>, waker: &Waker) -> Poll<Result<T, Error>> {
        Pin::new(reply).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn whoever_asks_while_the_giver_gives_up_is_told_so() {
        let (giver, mut reply) = reply::<u8>();
        // The giver is half-way through its drop: it has taken the waker, of which there was none.
        assert!(giver.0.close().is_none());
        let told = poll(&mut reply, Waker::noop());
        assert!(matches!(told, Poll::Ready(Err(Error::Stopped { core: CoreId(3) }))), "nobody would wake it");
    }

    #[test]
    fn whoever_waits_is_woken_when_the_giver_goes_with_and_without_a_value() {
        for value in [None, Some(7)] {
            let (giver, mut reply) = reply::<u8>();
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            assert!(poll(&mut reply, &waker).is_pending());
            if let Some(value) = value {
                giver.give(value);
            }
            drop(giver);
            assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
            match (poll(&mut reply, &waker), value) {
                (Poll::Ready(Ok(got)), Some(given)) => assert_eq!(got, given),
                (Poll::Ready(Err(Error::Stopped { .. })), None) => {}
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_answer_to_a_core_that_does_not_exist_ends_at_once() {
        let handle = CoresHandle { remotes: Arc::new([]) };
        let answer = handle.run_on(CoreId(0), || async {}).wait();
        assert!(matches!(answer, Err(Error::Stopped { core: CoreId(0) })));
    }

    #[test]
    fn no_wake_is_missed_between_two_threads() {
        for round in 0..2000 {
            let (giver, reply) = reply::<u32>();
            let start = Arc::new(Barrier::new(2));
            let there = Arc::clone(&start);
            let other = thread::spawn(move || {
                there.wait();
                if round % 2 == 0 {
                    giver.give(round);
                }
            });
            start.wait();
            // Without a wake this hangs.
            let answer = reply.wait();
            assert_eq!(answer.ok(), (round % 2 == 0).then_some(round));
            other.join().expect("joins");
        }
    }
}
