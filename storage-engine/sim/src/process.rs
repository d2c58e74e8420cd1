//! A process of a run: what dies together, and how its clock goes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::Instant;

use crate::buffer::Pool;
use crate::random::Random;

/// Names a process of a run. A restarted process is a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) usize);

impl ProcessId {
    /// The scenario's own.
    pub const SCENARIO: Self = Self(0);
}

/// How a process differs from others.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// Its name in the trace.
    pub name: String,
    /// How much faster its clock goes than true time, in parts per million. PROTOCOL R12 allows 1% between two
    /// clocks: ±5000 each.
    pub drift_ppm: i32,
    /// Blocks of buffers that it may hold at a time.
    pub buffer_blocks: usize,
}

impl ProcessSettings {
    /// With a true clock and enough memory.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), drift_ppm: 0, buffer_blocks: 4096 }
    }
}

/// Parts in a million.
const MILLION: i128 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Process {
    id: ProcessId,
    name: Rc<str>,
    drift_ppm: i32,
    alive: Cell<bool>,
    /// What its clock said when its present poll began.
    clock: Cell<Instant>,
    suspended_until: Cell<u64>,
    pool: Pool,
    random: RefCell<Random>,
}

impl Process {
    pub(crate) fn new(id: ProcessId, settings: ProcessSettings, random: Random) -> Self {
        Self {
            id,
            name: settings.name.into(),
            drift_ppm: settings.drift_ppm,
            alive: Cell::new(true),
            clock: Cell::default(),
            suspended_until: Cell::new(0),
            pool: Pool::new(settings.buffer_blocks),
            random: RefCell::new(random),
        }
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    pub(crate) fn name(&self) -> Rc<str> {
        Rc::clone(&self.name)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.get()
    }

    pub(crate) fn end(&self) {
        self.alive.set(false);
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn bits(&self) -> u64 {
        self.random.borrow_mut().bits()
    }

    /// Reads the clock for the turn that begins (once per turn, like the reactor).
    pub(crate) fn read_clock(&self, true_ns: u64) {
        let ns = i128::from(true_ns) * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        self.clock.set(Instant::from_ns(u64::try_from(ns).unwrap_or(u64::MAX)));
    }

    pub(crate) fn clock(&self) -> Instant {
        self.clock.get()
    }

    /// How long `duration` of its clock takes in true time.
    pub(crate) fn true_ns(&self, duration: Duration) -> u64 {
        let ns = duration.as_nanos().min(u128::from(u64::MAX)) as i128;
        u64::try_from(ns * MILLION / (MILLION + i128::from(self.drift_ppm)) + 1).unwrap_or(u64::MAX)
    }

    pub(crate) fn suspend_until(&self, at_ns: u64) {
        self.suspended_until.set(self.suspended_until.get().max(at_ns));
    }

    pub(crate) fn suspended(&self, now_ns: u64) -> Option<u64> {
        Some(self.suspended_until.get()).filter(|until| *until > now_ns)
    }
}
