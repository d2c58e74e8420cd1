//! The scheduler of a run: one thread, virtual time, every choice from the seed.
//!
//! A ready task is chosen at random and polled; each poll takes a little virtual time. When no task is ready, time
//! jumps to the next event. Tasks belong to processes: killing one drops its tasks wherever they wait, with their
//! input still queued, and leaves to the devices what they were asked (see [`crate::disk`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::bugs::Bugs;
use crate::disk::Device;
use crate::process::{Process, ProcessId, ProcessSettings};
use crate::random::Random;
use crate::trace::{Event, Trace};
use crate::world::SimWorld;

/// Virtual time that one poll takes, at most. It lets timers come due while tasks are still ready.
const POLL_NS_MAX: u64 = 1_000;

/// Why a run ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A check did not hold.
    #[error("{0}")]
    Failed(String),
    /// Nothing will ever happen again, and the run is not finished.
    #[error("deadlock: these tasks wait for ever:\n{}", .waiting.join("\n"))]
    Deadlock {
        /// Process and place of birth of each task that waits.
        waiting: Vec<String>,
    },
    /// The run took too many steps: somebody is busy without getting on.
    #[error("no end after {steps} steps; these tasks exist:\n{}", .tasks.join("\n"))]
    TooLong {
        /// The limit.
        steps: u64,
        /// Process and place of birth of each task.
        tasks: Vec<String>,
    },
}

type TaskId = u64;
type Ready = Arc<Mutex<Vec<TaskId>>>;

/// Puts its task among the ready ones, once.
#[derive(Debug)]
struct Signal {
    task: TaskId,
    queued: AtomicBool,
    ready: Ready,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
        }
    }
}

struct Task {
    process: ProcessId,
    born: &'static Location<'static>,
    signal: Arc<Signal>,
    polls: u64,
    /// Taken out while it is polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// What is due at some moment.
pub(crate) enum Due {
    Wake(Waker),
    Call(Box<dyn FnOnce()>),
}

/// Names an event, to cancel it.
pub(crate) type DueId = (u64, u64);

/// A run. Clones are the same run.
#[derive(Clone)]
pub struct Simulation {
    inner: Rc<Inner>,
}

struct Inner {
    seed: u64,
    bugs: Bugs,
    steps_max: u64,
    now_ns: Cell<u64>,
    steps: Cell<u64>,
    next_id: Cell<u64>,
    random: RefCell<Random>,
    tasks: RefCell<BTreeMap<TaskId, Task>>,
    ready: Ready,
    events: RefCell<BTreeMap<DueId, Due>>,
    /// Tasks that wait for a number of steps.
    by_step: RefCell<BTreeMap<DueId, Waker>>,
    /// The same, but no longer than until no task is ready.
    by_turn: RefCell<BTreeMap<DueId, Waker>>,
    processes: RefCell<Vec<Rc<Process>>>,
    devices: RefCell<Vec<Device>>,
    trace: RefCell<Trace>,
    failed: RefCell<Option<String>>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulation(seed {}, {} ns)", self.inner.seed, self.now_ns())
    }
}

impl Simulation {
    /// Polls that a run may take unless it says otherwise.
    pub const STEPS_MAX: u64 = 20_000_000;

    /// A run of a seed, with deliberate bugs.
    pub fn new(seed: u64, bugs: Bugs) -> Self {
        Self::with_limit(seed, bugs, Self::STEPS_MAX)
    }

    /// A run that ends after `steps_max` polls.
    pub fn with_limit(seed: u64, bugs: Bugs, steps_max: u64) -> Self {
        let inner = Inner {
            seed,
            bugs,
            steps_max,
            // Not zero: the machine has been running for a while when anything of ours starts.
            now_ns: Cell::new(1_000_000_000),
            steps: Cell::new(0),
            next_id: Cell::new(0),
            random: RefCell::new(Random::new(seed)),
            tasks: RefCell::default(),
            ready: Ready::default(),
            events: RefCell::default(),
            by_step: RefCell::default(),
            by_turn: RefCell::default(),
            processes: RefCell::default(),
            devices: RefCell::default(),
            trace: RefCell::default(),
            failed: RefCell::default(),
        };
        let this = Self { inner: Rc::new(inner) };
        // The scenario itself is a process that nobody kills.
        let _ = this.start(ProcessSettings::named("scenario"));
        this
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// The rules that are left out.
    pub fn bugs(&self) -> Bugs {
        self.inner.bugs
    }

    /// Nanoseconds of true virtual time.
    pub fn now_ns(&self) -> u64 {
        self.inner.now_ns.get()
    }

    /// Polls so far.
    pub fn steps(&self) -> u64 {
        self.inner.steps.get()
    }

    /// A stream of random numbers of its own.
    pub fn random(&self) -> Random {
        self.inner.random.borrow_mut().fork()
    }

    /// Takes an event into the trace.
    pub fn trace(&self, event: Event) {
        self.inner.trace.borrow_mut().push(self.now_ns(), event);
    }

    /// Takes a note into the trace.
    pub fn note(&self, note: impl Into<String>) {
        self.trace(Event::Note(note.into()));
    }

    /// The hash of everything that happened so far.
    pub fn trace_hash(&self) -> u64 {
        self.inner.trace.borrow().hash()
    }

    /// The last `count` events in words.
    pub fn trace_tail(&self, count: usize) -> String {
        self.inner.trace.borrow().tail(count)
    }

    /// Says that a check did not hold: the run ends before the next poll. The first failure counts.
    pub fn fail(&self, what: impl Into<String>) {
        self.inner.failed.borrow_mut().get_or_insert(what.into());
    }

    /// The world of the scenario itself.
    pub fn world(&self) -> SimWorld {
        SimWorld::new(self.clone(), self.process(ProcessId::SCENARIO))
    }

    /// Starts a process: its world, in which tasks can be spawned.
    pub fn start(&self, settings: ProcessSettings) -> SimWorld {
        let process = {
            let mut processes = self.inner.processes.borrow_mut();
            let id = ProcessId(processes.len());
            processes.push(Rc::new(Process::new(id, settings, self.random())));
            Rc::clone(&processes[id.0])
        };
        self.trace(Event::Started { process: process.name() });
        SimWorld::new(self.clone(), process)
    }

    pub(crate) fn process(&self, id: ProcessId) -> Rc<Process> {
        Rc::clone(&self.inner.processes.borrow()[id.0])
    }

    pub(crate) fn add_device(&self, device: Device) {
        self.inner.devices.borrow_mut().push(device);
    }

    /// Kills a process: drops its tasks wherever they wait. What it had asked of devices is theirs: each operation
    /// lands now, in part, later, or never (PROTOCOL S18). What they completed stays.
    pub fn kill(&self, process: ProcessId) {
        let dropped = self.end_process(process);
        self.trace(Event::Killed { process: self.process(process).name(), tasks: dropped });
        for device in self.inner.devices.borrow().iter() {
            device.process_ended(process);
        }
    }

    /// Takes the power from some processes and devices at the same moment.
    pub fn power_loss(&self, processes: &[ProcessId], devices: &[Device]) {
        for &process in processes {
            let dropped = self.end_process(process);
            self.trace(Event::Killed { process: self.process(process).name(), tasks: dropped });
        }
        for device in devices {
            device.lose_power();
        }
        // Devices that kept their power.
        for &process in processes {
            for device in self.inner.devices.borrow().iter() {
                device.process_ended(process);
            }
        }
    }

    fn end_process(&self, process: ProcessId) -> usize {
        self.process(process).end();
        let gone: Vec<Task> = {
            let mut tasks = self.inner.tasks.borrow_mut();
            let ids: Vec<_> =
                tasks.iter().filter(|(_, task)| task.process == process).map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        gone.len()
    }

    /// Lets none of a process's tasks run for `duration`; its clock goes on.
    pub fn suspend(&self, process: ProcessId, duration: Duration) {
        let until = self.now_ns() + nanos(duration);
        self.note(format!("{} is suspended for {duration:?}", self.process(process).name()));
        self.process(process).suspend_until(until);
    }

    pub(crate) fn spawn(
        &self,
        process: ProcessId,
        born: &'static Location<'static>,
        future: impl Future<Output = ()> + 'static,
    ) {
        if !self.process(process).is_alive() {
            return;
        }
        let task = self.fresh_id();
        let signal =
            Arc::new(Signal { task, queued: AtomicBool::new(false), ready: Arc::clone(&self.inner.ready) });
        let entry =
            Task { process, born, signal: Arc::clone(&signal), polls: 0, future: Some(Box::pin(future)) };
        self.inner.tasks.borrow_mut().insert(task, entry);
        signal.wake();
    }

    fn fresh_id(&self) -> u64 {
        let id = self.inner.next_id.get();
        self.inner.next_id.set(id + 1);
        id
    }

    /// Has something happen at a moment of true time.
    pub(crate) fn at(&self, at_ns: u64, due: Due) -> DueId {
        let id = (at_ns, self.fresh_id());
        self.inner.events.borrow_mut().insert(id, due);
        id
    }

    pub(crate) fn cancel(&self, id: DueId) {
        let cancelled = self.inner.events.borrow_mut().remove(&id);
        drop(cancelled);
    }

    /// Ends `count` polls from now, so that a kill can hit between any two of them.
    pub async fn after_steps(&self, count: u64) {
        self.wait_in(&self.inner.by_step, count).await;
    }

    /// Ends after as many polls as tasks are ready now, or when none is.
    pub(crate) async fn after_ready(&self) {
        let ready = self.inner.ready.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.wait_in(&self.inner.by_turn, ready as u64 + 1).await;
    }

    async fn wait_in(&self, queue: &RefCell<BTreeMap<DueId, Waker>>, count: u64) {
        let mut waiting = None;
        poll_fn(|context| {
            let Some(id) = waiting else {
                let id = (self.steps() + count, self.fresh_id());
                waiting = Some(id);
                queue.borrow_mut().insert(id, context.waker().clone());
                return Poll::Pending;
            };
            match queue.borrow_mut().get_mut(&id) {
                Some(waker) => {
                    waker.clone_from(context.waker());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Runs everything until `main` ends. The scenario's own tasks belong to a process that nobody kills.
    #[track_caller]
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Result<T, Stop> {
        let result = Rc::new(RefCell::new(None));
        let store = Rc::clone(&result);
        self.spawn(ProcessId::SCENARIO, Location::caller(), async move {
            let value = main.await;
            *store.borrow_mut() = Some(value);
        });
        loop {
            if let Some(what) = self.inner.failed.borrow_mut().take() {
                return Err(Stop::Failed(what));
            }
            if let Some(value) = result.borrow_mut().take() {
                return Ok(value);
            }
            if self.steps() >= self.inner.steps_max {
                return Err(Stop::TooLong { steps: self.steps(), tasks: self.task_names() });
            }
            if !self.turn() {
                return Err(Stop::Deadlock { waiting: self.task_names() });
            }
        }
    }

    fn task_names(&self) -> Vec<String> {
        let name = |task: &Task| {
            let name = self.process(task.process).name();
            format!("  {name}: {}, polled {} times", task.born, task.polls)
        };
        self.inner.tasks.borrow().values().map(name).collect()
    }

    /// Lets one thing happen; false if there is none.
    fn turn(&self) -> bool {
        self.fire_due();
        let steps = self.steps();
        for queue in [&self.inner.by_step, &self.inner.by_turn] {
            while let Some(waker) = pop_until(queue, steps) {
                waker.wake();
            }
        }
        if let Some(task) = self.choose() {
            self.poll(task);
            return true;
        }
        if let Some(waker) = pop_until(&self.inner.by_turn, u64::MAX) {
            waker.wake();
            return true;
        }
        let next = self.inner.events.borrow().first_key_value().map(|(id, _)| id.0);
        next.inspect(|at| self.inner.now_ns.set(self.now_ns().max(*at))).is_some()
    }

    fn fire_due(&self) {
        while let Some(due) = pop_until(&self.inner.events, self.now_ns()) {
            match due {
                Due::Wake(waker) => waker.wake(),
                Due::Call(call) => call(),
            }
        }
    }

    fn choose(&self) -> Option<TaskId> {
        let mut ready = self.inner.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.is_empty() {
            return None;
        }
        let index = self.inner.random.borrow_mut().index(ready.len());
        Some(ready.swap_remove(index))
    }

    fn poll(&self, id: TaskId) {
        let taken = self.inner.tasks.borrow_mut().get_mut(&id).and_then(|task| {
            task.signal.queued.store(false, Ordering::Relaxed);
            let future = task.future.take()?;
            task.polls += 1;
            Some((task.process, Arc::clone(&task.signal), future))
        });
        // Woken, then gone: nothing to do.
        let Some((process, signal, mut future)) = taken else { return };
        let process = self.process(process);
        let waker = Waker::from(signal);
        if let Some(until) = process.suspended(self.now_ns()) {
            self.at(until, Due::Wake(waker));
            self.put_back(id, future);
            return;
        }
        self.inner.steps.set(self.steps() + 1);
        self.inner.trace.borrow_mut().count(id);
        process.read_clock(self.now_ns());
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let took = self.inner.random.borrow_mut().below(POLL_NS_MAX);
        self.inner.now_ns.set(self.now_ns() + took);
        if ended {
            let task = self.inner.tasks.borrow_mut().remove(&id);
            drop(task);
        } else {
            self.put_back(id, future);
        }
    }

    fn put_back(&self, id: TaskId, future: Pin<Box<dyn Future<Output = ()>>>) {
        // A task that killed its own process is gone; its future is dropped here.
        let mut left_over = Some(future);
        if let Some(task) = self.inner.tasks.borrow_mut().get_mut(&id) {
            task.future = left_over.take();
        }
        drop(left_over);
    }

    /// Drops every task, so that nothing keeps the run alive.
    pub fn finish(&self) {
        let processes = self.inner.processes.borrow().clone();
        processes.iter().for_each(|process| process.end());
        let tasks = self.inner.tasks.take();
        drop(tasks);
        let devices = self.inner.devices.take();
        devices.iter().for_each(Device::forget_operations);
        let events = self.inner.events.take();
        drop(events);
        self.inner.by_step.take();
        self.inner.by_turn.take();
    }
}

/// Takes out the first entry if it is due at `now`.
fn pop_until<T>(queue: &RefCell<BTreeMap<DueId, T>>, now: u64) -> Option<T> {
    let mut queue = queue.borrow_mut();
    let first = queue.first_entry()?;
    (first.key().0 <= now).then(|| first.remove())
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
