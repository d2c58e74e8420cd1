//! What a core does in a run: it keeps each of its queues full and notes when commands come back. One call of
//! a handler per completion; no task, no allocation and no reading of the clock per command.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashlar_initiator::{Done, Handler, HostError, IoQueue, Payload, Refused, Sink, Submitter, Token};
use ashlar_nvme::{Lba, Nsid};
use ashlar_reactor::{Instant, IoBuf, now, sleep_until, spawn_join};

use super::offsets::{Offsets, Pace};
use super::plan::QueuePlan;
use super::progress::Live;
use super::report::QueueTally;
use crate::random::Random;

/// Memory for what a queue writes. Each command in flight has its own bytes up to this; beyond it they share,
/// so that a deep queue of large writes fits into memory.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// How often an idle or paced queue looks whether the run is over.
const LOOK: Duration = Duration::from_millis(10);

/// The part of a namespace that a run works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// Namespace.
    pub(crate) nsid: Nsid,
    /// Bytes of a block.
    pub(crate) block_bytes: u32,
    /// First block.
    pub(crate) first: u64,
    /// Blocks.
    pub(crate) blocks: u64,
}

/// When a run is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// First command.
    pub(crate) start: Instant,
    /// Completions from here on count.
    pub(crate) measure: Instant,
    /// No command is sent, and no completion counts, from here on.
    pub(crate) end: Instant,
}

/// Why a queue ended early.
#[derive(Debug, Clone)]
pub(crate) enum Broken {
    /// A command was not completed with success.
    Command(String),
    /// The queue is gone.
    Queue(HostError),
}

/// Shared by all cores of a run.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    /// Ends the run of all queues.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A queue that is connected and knows what to do.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The queue.
    pub(crate) queue: IoQueue,
    /// Its place in the plan's list.
    pub(crate) index: usize,
    /// What it is to do.
    pub(crate) plan: QueuePlan,
}

/// What a queue brought home.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its place in the plan's list.
    pub(crate) index: usize,
    /// What it measured.
    pub(crate) tally: QueueTally,
    /// Why it ended early, if it did.
    pub(crate) broken: Option<Broken>,
}

/// A command in flight.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    sent_ns: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Read,
    Write,
}

/// The load of one queue.
struct Load {
    area: Area,
    size: u32,
    blocks: u32,
    offsets: Offsets,
    mix: Random,
    /// Of 2^32, how many commands are reads.
    reads: u64,
    pace: Option<Pace>,
    window: Window,
    slots: Vec<Slot>,
    /// Slots without a command: all at the start, later those that wait for their time.
    idle: Vec<u32>,
    payloads: Vec<Payload>,
    tally: QueueTally,
    live: Arc<Live>,
    stop: Arc<Stop>,
    batch_ops: u64,
    /// This batch's clock value; `None` between batches.
    clock: Option<Instant>,
    over: bool,
    broken: Option<Broken>,
}

impl Load {
    fn new(plan: &QueuePlan, area: Area, window: Window, live: Arc<Live>, stop: Arc<Stop>) -> Self {
        let load = &plan.load;
        let blocks = load.size / area.block_bytes.max(1);
        let units = area.blocks / u64::from(blocks.max(1));
        let depth = usize::from(load.depth);
        // Queues differ, runs do not.
        let seed = u64::from(plan.qid);
        let mut random = Random::new(seed ^ 0xD15C_0000);
        let mut tally = QueueTally::default();
        let mut payloads = Vec::new();
        if load.reads() > 0 {
            tally.read.prepare();
        }
        if load.reads() < 100 {
            tally.write.prepare();
            let own = (PAYLOAD_BYTES_MAX / load.size.max(1) as usize).clamp(1, depth);
            payloads.extend((0..own).map(|_| {
                let mut buffer = IoBuf::heap(load.size as usize);
                random.fill(&mut buffer);
                Payload::from(buffer)
            }));
        }
        Self {
            area,
            size: load.size,
            blocks,
            offsets: Offsets::new(load.pattern, plan.part, units, seed),
            mix: random,
            reads: (u64::from(load.reads()) << 32) / 100,
            pace: plan.rate.map(Pace::new),
            window,
            slots: vec![Slot::default(); depth],
            idle: (0..u32::from(load.depth)).rev().collect(),
            payloads,
            tally,
            live,
            stop,
            batch_ops: 0,
            clock: None,
            over: false,
            broken: None,
        }
    }

    #[inline]
    fn clock(&mut self) -> Instant {
        *self.clock.get_or_insert_with(now)
    }

    /// Sends commands while there are slots, room, and (with a rate) time for them.
    fn fill(&mut self, queue: &mut Submitter<'_>) {
        while !self.over {
            let Some(slot) = self.idle.pop() else { break };
            let clock = self.clock();
            let due = match &mut self.pace {
                Some(pace) => pace.take(clock.since(self.window.start).as_nanos() as u64),
                None => true,
            };
            if !due || !self.send(queue, slot, clock) {
                self.idle.push(slot);
                break;
            }
        }
    }

    #[inline]
    fn send(&mut self, queue: &mut Submitter<'_>, slot: u32, clock: Instant) -> bool {
        let unit = self.offsets.next();
        let slba = Lba(self.area.first + unit * u64::from(self.blocks));
        let is_read = match self.reads {
            0 => false,
            reads if reads == 1 << 32 => true,
            reads => (self.mix.next() >> 32) < reads,
        };
        let token = Token(u64::from(slot));
        let (kind, sent) = if is_read {
            (Kind::Read, queue.read(token, self.area.nsid, slba, self.blocks, self.size, Sink::Discard))
        } else {
            let at = slot as usize % self.payloads.len().max(1);
            let Some(payload) = self.payloads.get(at) else { return false };
            (Kind::Write, queue.write(token, self.area.nsid, slba, self.blocks, payload))
        };
        match sent {
            Ok(()) => {
                if let Some(slot) = self.slots.get_mut(slot as usize) {
                    *slot = Slot { sent_ns: clock.as_ns(), kind };
                }
                true
            }
            // The connection's end is told by the completions of what was in flight, and by `run`.
            Err(Refused::Full(_) | Refused::Lost) => false,
        }
    }

    #[inline]
    fn begin(&mut self, queue: &mut Submitter<'_>) {
        self.fill(queue);
    }

    #[inline]
    fn complete(&mut self, queue: &mut Submitter<'_>, done: &Done) {
        let clock = self.clock();
        let number = done.token.0 as u32;
        if !done.is_success() {
            self.fail(done);
            return;
        }
        let Some(slot) = self.slots.get(number as usize).copied() else { return };
        if clock >= self.window.measure && clock < self.window.end {
            let ns = clock.as_ns().saturating_sub(slot.sent_ns);
            match slot.kind {
                Kind::Read => self.tally.read.record(ns),
                Kind::Write => self.tally.write.record(ns),
            }
        }
        self.batch_ops += 1;
        if clock >= self.window.end || self.over {
            self.over = true;
            return;
        }
        if self.pace.is_some() {
            self.idle.push(number);
            self.fill(queue);
        } else if !self.send(queue, number, clock) {
            self.idle.push(number);
        }
    }

    #[cold]
    fn fail(&mut self, done: &Done) {
        self.over = true;
        self.stop.raise();
        if self.broken.is_none() {
            let kind = self.slots.get(done.token.0 as usize).map_or(Kind::Read, |slot| slot.kind);
            self.broken = Some(Broken::Command(match done.status() {
                Some(status) => format!("a {kind:?} ended with {status}").to_lowercase(),
                None => format!("a {kind:?} ended with {:?}", done.outcome).to_lowercase(),
            }));
        }
    }

    #[inline]
    fn end_of_batch(&mut self, queue: &mut Submitter<'_>) {
        self.live.add(self.batch_ops, self.batch_ops * u64::from(self.size));
        self.batch_ops = 0;
        if self.stop.is_raised() {
            self.over = true;
        }
        // Slots that were refused for want of room, or wait for their time.
        if !self.idle.is_empty() {
            self.fill(queue);
        }
        self.clock = None;
    }
}

/// A [`Load`] that its pacemaker reaches, too.
struct Shared(Rc<RefCell<Load>>);

impl Handler for Load {
    fn begin(&mut self, queue: &mut Submitter<'_>) {
        Load::begin(self, queue);
    }

    #[inline]
    fn complete(&mut self, queue: &mut Submitter<'_>, done: Done) {
        Load::complete(self, queue, &done);
    }

    #[inline]
    fn end_of_batch(&mut self, queue: &mut Submitter<'_>) {
        Load::end_of_batch(self, queue);
    }
}

impl Handler for Shared {
    fn begin(&mut self, queue: &mut Submitter<'_>) {
        self.0.borrow_mut().begin(queue);
    }

    fn complete(&mut self, queue: &mut Submitter<'_>, done: Done) {
        self.0.borrow_mut().complete(queue, &done);
    }

    fn end_of_batch(&mut self, queue: &mut Submitter<'_>) {
        self.0.borrow_mut().end_of_batch(queue);
    }

    fn is_done(&self) -> bool {
        self.0.borrow().over
    }
}

/// Sends what has become due while no completion came, and ends the run in time.
async fn pacemaker(queue: IoQueue, load: Rc<RefCell<Load>>, ended: Rc<Cell<bool>>) {
    while !ended.get() {
        let wake = {
            let load = load.borrow();
            let due = load.pace.map_or(0, |pace| pace.due_ns());
            (load.window.start + Duration::from_nanos(due)).min(now() + LOOK).min(load.window.end)
        };
        // Later than now, so that other tasks have their turn.
        sleep_until(wake.max(now() + Duration::from_nanos(1))).await;
        if ended.get() {
            return;
        }
        queue.submit_with(|submitter| {
            let mut load = load.borrow_mut();
            load.clock = None;
            if load.clock() >= load.window.end || load.stop.is_raised() {
                load.over = true;
            }
            load.fill(submitter);
            load.clock = None;
        });
    }
}

/// Drives one queue through the run.
async fn drive(ready: Ready, area: Area, window: Window, live: Arc<Live>, stop: Arc<Stop>) -> Ran {
    let Ready { queue, index, plan } = ready;
    let load = Load::new(&plan, area, window, live, Arc::clone(&stop));
    sleep_until(window.start).await;
    let (result, load) = if load.pace.is_some() {
        let shared = Rc::new(RefCell::new(load));
        let ended = Rc::new(Cell::new(false));
        let pacer = spawn_join(pacemaker(queue.clone(), Rc::clone(&shared), Rc::clone(&ended)));
        let (result, handler) = queue.run(Shared(Rc::clone(&shared))).await;
        ended.set(true);
        drop(handler);
        // It ends by itself, and only a stopping core drops it.
        let _ = pacer.await;
        let load = Rc::try_unwrap(shared).ok().map(RefCell::into_inner);
        (result, load)
    } else {
        let (result, load) = queue.run(load).await;
        (result, Some(load))
    };
    let (tally, mut broken) = load.map(|load| (load.tally, load.broken)).unwrap_or_default();
    if let Err(error) = result {
        stop.raise();
        // The connection's reason says more than "a command was lost".
        broken = Some(Broken::Queue(error));
    }
    Ran { index, tally, broken }
}

/// Drives all queues of this core.
pub(crate) async fn drive_all(
    queues: Vec<Ready>,
    area: Area,
    window: Window,
    live: Arc<Live>,
    stop: Arc<Stop>,
) -> Vec<Ran> {
    let tasks: Vec<_> = queues
        .into_iter()
        .map(|ready| spawn_join(drive(ready, area, window, Arc::clone(&live), Arc::clone(&stop))))
        .collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        if let Ok(ran) = task.await {
            results.push(ran);
        }
    }
    results
}
