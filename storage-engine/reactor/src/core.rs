//! A core: one thread, one ring, and the loop that turns between tasks and the kernel.
//!
//! A turn: run the tasks that are ready; hand all their submissions to the kernel in one call, which also
//! brings completions; if there are none, look for a while without sleeping, then sleep until the nearest
//! timer; read the clock; wake whose timers are due, first, so that a task which watches for lateness runs
//! before input that waited meanwhile (PROTOCOL R9); wake whose operations completed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use crate::buffer::{Arena, Pool};
use crate::clock::Instant;
use crate::limits::{COMPLETION_ENTRIES, FIXED_FILES, SUBMISSION_ENTRIES, TASKS_PER_TURN};
use crate::net::provided::Provided;
use crate::ops::{self, Completion, OpTable};
use crate::remote::Remote;
use crate::spin::Spin;
use crate::sync::Notify;
use crate::task::{CLASS_BYTES, Header, TaskMemory, TaskRef};
use crate::timer::Timers;
use crate::{CoreId, Error};

/// User data of completions that concern nobody.
pub(crate) const IGNORED: u64 = 1 << 63;
/// User data of the read on the bell.
const BELL: u64 = IGNORED | 1;
/// User data of a message from another core's ring: it only wakes.
const PEER: u64 = IGNORED | 2;

/// Task memory kept per size class.
const RECYCLED_MAX: usize = 8192;

thread_local! {
    static CURRENT: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the core that this thread is.
///
/// # Panics
/// If the thread is not a data core.
pub(crate) fn with<R>(f: impl FnOnce(&Core) -> R) -> R {
    match try_with(f) {
        Some(result) => result,
        None => panic!("called outside a data core: this belongs on a thread of ashlar_reactor::Cores"),
    }
}

pub(crate) fn try_with<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
    let core = CURRENT.get();
    // SAFETY: `CURRENT` is set for the time that `Core::run` runs on this very thread, and holds its `self`.
    unsafe { core.as_ref() }.map(f)
}

pub(crate) struct Core {
    pub(crate) id: CoreId,
    pub(crate) remote: Arc<Remote>,
    ring: RefCell<IoUring>,
    pub(crate) ops: RefCell<OpTable>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) pool: Pool,
    pub(crate) provided: Provided,
    pub(crate) fixed_files: RefCell<Vec<u32>>,
    /// Told in every turn once a stop was asked for.
    pub(crate) stop: Rc<Notify>,
    run_queue: RefCell<VecDeque<TaskRef>>,
    /// Tasks that go on behind what the next look at the ring brings.
    next_turn: RefCell<VecDeque<Waker>>,
    /// Every task that has not ended.
    tasks: RefCell<Vec<Option<TaskRef>>>,
    vacant: RefCell<Vec<u32>>,
    recycled: RefCell<[Vec<TaskMemory>; CLASS_BYTES.len()]>,
    now: Cell<Instant>,
    urgent: Cell<bool>,
    bell_value: Box<Cell<u64>>,
    bell_armed: Cell<bool>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    turns: Cell<u64>,
    enters: Cell<u64>,
    submissions: Cell<u64>,
    completions: Cell<u64>,
    polls: Cell<u64>,
    spin_ns: Cell<u64>,
    sleep_ns: Cell<u64>,
    live: Cell<usize>,
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

impl Core {
    pub(crate) fn new(id: CoreId, remote: Arc<Remote>, arena: Arc<Arena>) -> Result<Self, Error> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETION_ENTRIES)
            .build(SUBMISSION_ENTRIES)
            .map_err(|source| Error::Ring { core: id, source })?;
        let pool = Pool::new(Arc::clone(&arena), id);
        // Without CAP_IPC_LOCK the limit on locked memory may forbid it. Then I/O works through unregistered
        // buffers, a little slower.
        if arena.bytes_per_core() > 0 {
            // SAFETY: the parts stay mapped until the arena is dropped, which is after the ring is closed.
            match unsafe { ring.submitter().register_buffers(&arena.parts()) } {
                Ok(()) => pool.set_registered(),
                Err(error) => {
                    tracing::warn!(core = %id, %error, "I/O buffers are not registered with the ring; \
                                             raise the limit on locked memory (LimitMEMLOCK)")
                }
            }
        }
        let fixed_files = match ring.submitter().register_files_sparse(FIXED_FILES) {
            Ok(()) => (0..FIXED_FILES).rev().collect(),
            Err(_) => Vec::new(),
        };
        remote.ring_fd.store(std::os::fd::AsRawFd::as_raw_fd(&ring), Ordering::Release);
        let provided = Provided::register(&ring).map_err(|source| Error::Start {
            core: id,
            what: "register receive buffers",
            source,
        })?;
        Ok(Self {
            id,
            remote,
            ring: RefCell::new(ring),
            ops: RefCell::new(OpTable::new()),
            timers: RefCell::default(),
            pool,
            provided,
            fixed_files: RefCell::new(fixed_files),
            stop: Rc::default(),
            run_queue: RefCell::new(VecDeque::with_capacity(4096)),
            next_turn: RefCell::default(),
            tasks: RefCell::default(),
            vacant: RefCell::default(),
            recycled: RefCell::default(),
            now: Cell::new(crate::clock::read()),
            urgent: Cell::new(false),
            bell_value: Box::new(Cell::new(0)),
            bell_armed: Cell::new(false),
            counts: Counts::default(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn ring_operation<R>(&self, f: impl FnOnce(&IoUring) -> R) -> R {
        f(&self.ring.borrow())
    }

    /// Puts an entry into the submission queue; it goes to the kernel with this turn's others.
    ///
    /// # Safety
    /// What the entry names must stay valid until its completion.
    pub(crate) unsafe fn push(&self, entry: squeue::Entry) {
        let mut ring = self.ring.borrow_mut();
        add(&self.counts.submissions, 1);
        // SAFETY: by this function's contract.
        while unsafe { ring.submission().push(&entry) }.is_err() {
            add(&self.counts.enters, 1);
            // A full queue is emptied by the call; EBUSY, EAGAIN and EINTR pass.
            if let Err(error) = ring.submit() {
                assert!(passing(&error), "core {}: the kernel takes no submissions: {error}", self.id);
            }
        }
    }

    // ---- tasks ----

    fn insert(&self, task: &TaskRef) {
        let mut tasks = self.tasks.borrow_mut();
        let slot = match self.vacant.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                tasks.push(None);
                (tasks.len() - 1) as u32
            }
        };
        task.set_slot(slot);
        tasks[slot as usize] = Some(task.another());
        self.counts.live.set(self.counts.live.get() + 1);
    }

    fn remove(&self, task: &TaskRef) {
        let slot = task.slot();
        let ended = self.tasks.borrow_mut().get_mut(slot as usize).and_then(Option::take);
        if ended.is_some() {
            self.vacant.borrow_mut().push(slot);
            self.counts.live.set(self.counts.live.get() - 1);
        }
    }

    fn make(&self, future: impl Future<Output = ()> + 'static) -> TaskRef {
        TaskRef::new(future, &self.remote, |class| {
            self.recycled.borrow_mut().get_mut(class as usize).and_then(Vec::pop)
        })
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let task = self.make(future);
        self.insert(&task);
        task.mark_queued();
        self.run_queue.borrow_mut().push_back(task);
    }

    /// Polls the future at once; only if it is not done then does it become a task like others.
    pub(crate) fn spawn_now(&self, future: impl Future<Output = ()> + 'static) {
        let task = self.make(future);
        add(&self.counts.polls, 1);
        if !task.poll() {
            self.insert(&task);
        }
    }

    fn run_tasks(&self) {
        for _ in 0..TASKS_PER_TURN {
            let Some(task) = self.run_queue.borrow_mut().pop_front() else { return };
            add(&self.counts.polls, 1);
            if task.poll() {
                self.remove(&task);
            }
        }
    }

    /// Takes in what other threads left: tasks that they woke, closures to run.
    fn take_remote(&self) {
        self.remote.heed_nudge();
        let mut woken = self.remote.take_woken();
        while let Some(task) = NonNull::new(woken) {
            woken = Header::next(task);
            // SAFETY: `push_woken` was given this reference by `into_raw`, and the list is taken once.
            self.run_queue.borrow_mut().push_back(unsafe { TaskRef::from_raw(task) });
        }
        while let Some(closure) = self.remote.pop_closure() {
            closure();
        }
        self.pool.serve_waiting();
        if self.remote.stopping.load(Ordering::Acquire) {
            self.stop.notify_all();
        }
    }

    // ---- the loop ----

    /// Runs until a stop was asked for and no task is left, or `deadline` after the request has passed.
    pub(crate) fn run(&self, spin: &mut Spin, drain: impl Fn() -> Option<Instant>) {
        CURRENT.set(std::ptr::from_ref(self));
        loop {
            self.run_tasks();
            self.take_remote();
            if self.remote.stopping.load(Ordering::Acquire) {
                let none_left = self.counts.live.get() == 0;
                if none_left || drain().is_some_and(|deadline| self.now() >= deadline) {
                    break;
                }
            }
            let idle = self.run_queue.borrow().is_empty() && self.next_turn.borrow().is_empty();
            self.enter(idle, spin, drain().filter(|_| self.remote.stopping.load(Ordering::Relaxed)));
            self.read_clock();
            self.fire_timers();
            self.reap();
            self.wake_next_turn();
            self.publish();
        }
    }

    /// Drops what is left and waits for the kernel to give back all operations. Returns how many tasks were
    /// dropped, and how many operations and buffers never came back.
    pub(crate) fn wind_up(&self, wait: Duration) -> (usize, usize) {
        let dropped = self.counts.live.get();
        // Dropping a task can wake others or start new ones, so look until none is left.
        loop {
            let task = self.tasks.borrow_mut().iter_mut().find_map(Option::take);
            let Some(task) = task else { break };
            task.discard_future();
        }
        self.run_queue.borrow_mut().clear();
        self.next_turn.borrow_mut().clear();
        self.cancel_bell();
        let deadline = crate::clock::read() + wait;
        while self.ops.borrow().live() > 0 && self.now() < deadline {
            self.sleep_in_kernel(Some(deadline));
            self.read_clock();
            self.reap();
            self.run_queue.borrow_mut().clear();
        }
        self.recycled.borrow_mut().iter_mut().for_each(Vec::clear);
        self.remote.ring_fd.store(-1, Ordering::Release);
        (dropped, self.ops.borrow().live())
    }

    pub(crate) fn leave_thread(&self) {
        CURRENT.set(std::ptr::null());
    }

    /// Hands over submissions and gets completions; sleeps only when `idle` and nothing comes.
    fn enter(&self, idle: bool, spin: &mut Spin, drain_deadline: Option<Instant>) {
        self.arm_bell();
        if self.wants_enter() {
            self.kernel(0, None);
        }
        if !idle || self.has_completions() {
            return;
        }
        let timer = self.timers.borrow().next_deadline();
        let deadline = match (timer, drain_deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let before = crate::clock::read();
        let found = spin.look(before, deadline, || {
            self.wants_enter() || self.has_completions() || self.remote.has_work()
        });
        let after = crate::clock::read();
        add(&self.counts.spin_ns, (after - before).as_nanos() as u64);
        if self.wants_enter() {
            self.kernel(0, None);
        }
        if found || self.has_completions() {
            return;
        }
        if deadline.is_some_and(|deadline| deadline <= after) {
            return;
        }
        if !self.remote.prepare_sleep() {
            return;
        }
        self.sleep_in_kernel(deadline);
        self.remote.awake();
        let slept = crate::clock::read() - after;
        spin.slept(slept);
        add(&self.counts.sleep_ns, slept.as_nanos() as u64);
    }

    fn sleep_in_kernel(&self, deadline: Option<Instant>) {
        let limit =
            deadline.map(|deadline| deadline.since(crate::clock::read()).max(Duration::from_nanos(1)));
        self.kernel(1, limit);
    }

    fn wants_enter(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let queue = ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn has_completions(&self) -> bool {
        !self.ring.borrow_mut().completion().is_empty()
    }

    fn kernel(&self, want: usize, limit: Option<Duration>) {
        add(&self.counts.enters, 1);
        let mut ring = self.ring.borrow_mut();
        let result = match limit {
            Some(limit) => {
                let time = types::Timespec::from(limit);
                ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&time))
            }
            None => {
                let queued = ring.submission().len() as u32;
                const GETEVENTS: u32 = 1;
                // SAFETY: without an argument the kernel reads no memory of ours beyond the ring.
                unsafe { ring.submitter().enter::<libc::sigset_t>(queued, want as u32, GETEVENTS, None) }
            }
        };
        if let Err(error) = result {
            assert!(passing(&error), "core {}: io_uring_enter: {error}", self.id);
        }
    }

    fn read_clock(&self) {
        self.now.set(crate::clock::read());
    }

    fn fire_timers(&self) {
        let mut due = Vec::new();
        while let Some(waker) = self.timers.borrow_mut().pop_due(self.now()) {
            due.push(waker);
        }
        self.urgent.set(true);
        // Each goes to the front of the queue: the last one woken runs first.
        for waker in due.into_iter().rev() {
            waker.wake();
        }
        self.urgent.set(false);
    }

    /// Wakes a task behind those that the next look at the ring makes ready.
    pub(crate) fn on_next_turn(&self, waker: Waker) {
        self.next_turn.borrow_mut().push_back(waker);
    }

    fn wake_next_turn(&self) {
        let waiting = self.next_turn.borrow().len();
        for _ in 0..waiting {
            // Not borrowed while waking.
            let waker = self.next_turn.borrow_mut().pop_front();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn reap(&self) {
        loop {
            let entry = self.ring.borrow_mut().completion().next();
            let Some(entry) = entry else { return };
            add(&self.counts.completions, 1);
            match entry.user_data() {
                IGNORED | PEER => {}
                BELL => self.bell_armed.set(false),
                operation => {
                    let completion = Completion { result: entry.result(), flags: entry.flags() };
                    ops::deliver(self, operation, completion);
                }
            }
        }
    }

    fn arm_bell(&self) {
        if self.bell_armed.replace(true) {
            return;
        }
        let fd = types::Fd(self.remote.bell_fd());
        let entry = opcode::Read::new(fd, self.bell_value.as_ptr().cast(), 8).build().user_data(BELL);
        // SAFETY: the value lives in a box and the descriptor in the Remote, both until after the ring is
        // closed.
        unsafe { self.push(entry) };
    }

    fn cancel_bell(&self) {
        if self.bell_armed.get() {
            // SAFETY: a cancellation names no memory.
            unsafe { self.push(opcode::AsyncCancel::new(BELL).build().user_data(IGNORED)) };
        }
    }

    fn publish(&self) {
        add(&self.counts.turns, 1);
        let (counts, shared) = (&self.counts, &self.remote.counters);
        shared.turns.store(counts.turns.get(), Ordering::Relaxed);
        shared.enters.store(counts.enters.get(), Ordering::Relaxed);
        shared.submissions.store(counts.submissions.get(), Ordering::Relaxed);
        shared.completions.store(counts.completions.get(), Ordering::Relaxed);
        shared.polls.store(counts.polls.get(), Ordering::Relaxed);
        shared.spin_ns.store(counts.spin_ns.get(), Ordering::Relaxed);
        shared.sleep_ns.store(counts.sleep_ns.get(), Ordering::Relaxed);
        shared.tasks.store(counts.live.get() as u64, Ordering::Relaxed);
    }
}

fn passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME))
}

/// Queues a woken task if this thread is its core; gives it back otherwise.
pub(crate) fn enqueue_local(remote: *const Remote, task: TaskRef) -> Result<(), TaskRef> {
    let mut task = Some(task);
    try_with(|core| {
        if std::ptr::eq(Arc::as_ptr(&core.remote), remote)
            && let Some(task) = task.take()
        {
            let mut queue = core.run_queue.borrow_mut();
            if core.urgent.get() { queue.push_front(task) } else { queue.push_back(task) }
        }
    });
    task.map_or(Ok(()), Err)
}

/// Keeps an ended task's memory if this thread is its core and has room; frees it otherwise.
pub(crate) fn recycle(remote: *const Remote, memory: TaskMemory) {
    let mut memory = Some(memory);
    try_with(|core| {
        if std::ptr::eq(Arc::as_ptr(&core.remote), remote) {
            // Borrowed already only while the kept memory itself is being dropped, when nothing is to be
            // kept.
            if let (Ok(mut recycled), Some(memory)) = (core.recycled.try_borrow_mut(), memory.take())
                && let Some(kept) = recycled.get_mut(memory.class() as usize)
                && kept.len() < RECYCLED_MAX
            {
                kept.push(memory);
            }
        }
    });
}

/// Wakes another core through the current core's ring. False if this thread is no core.
pub(crate) fn ring_peer(fd: i32) -> bool {
    let entry = opcode::MsgRingData::new(types::Fd(fd), 0, PEER, None).build().user_data(IGNORED);
    // SAFETY: a message names no memory; if the peer has gone the kernel says so and nobody needs it.
    try_with(|core| unsafe { core.push(entry) }).is_some()
}
