//! The engine's world as a process of a run sees it.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ashlar_io::{Bug, Instant, World};

use crate::buffer::SimBuffer;
use crate::disk::SimDisk;
use crate::executor::{Due, DueId, Simulation};
use crate::process::{Process, ProcessId};

/// The world of one process.
#[derive(Clone)]
pub struct SimWorld {
    simulation: Simulation,
    process: Rc<Process>,
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimWorld({})", self.process.name())
    }
}

impl SimWorld {
    pub(crate) fn new(simulation: Simulation, process: Rc<Process>) -> Self {
        Self { simulation, process }
    }

    /// The run.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// The process whose world it is.
    pub fn process(&self) -> ProcessId {
        self.process.id()
    }

    /// Whether the process runs still.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }
}

impl World for SimWorld {
    type Disk = SimDisk;
    type Buffer = SimBuffer;

    /// The least that the trait allows, so that nobody relies on more.
    const MAX_BUFFER_BLOCKS: usize = 32;

    fn now(&self) -> Instant {
        self.process.clock()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        let until = self.simulation.now_ns().saturating_add(self.process.true_ns(duration));
        Sleep { simulation: self.simulation.clone(), until, due: None }
    }

    #[track_caller]
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.simulation.spawn(self.process.id(), Location::caller(), task);
    }

    fn next_turn(&self) -> impl Future<Output = ()> {
        self.simulation.after_ready()
    }

    fn random(&self) -> u64 {
        self.process.bits()
    }

    async fn buffer(&self, blocks: usize) -> SimBuffer {
        assert!(blocks <= Self::MAX_BUFFER_BLOCKS, "a buffer of {blocks} blocks is larger than the largest");
        let junk = self.process.bits() as u8;
        self.process.pool().take(blocks, junk).await
    }

    fn spare_buffer(&self, blocks: usize) -> SimBuffer {
        assert!(blocks <= Self::MAX_BUFFER_BLOCKS, "a buffer of {blocks} blocks is larger than the largest");
        let junk = self.process.bits() as u8;
        self.process.pool().take_spare(blocks, junk)
    }

    fn bug(&self, bug: Bug) -> bool {
        self.simulation.bugs().contains(bug)
    }
}

struct Sleep {
    simulation: Simulation,
    until: u64,
    due: Option<DueId>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(due) = self.due.take() {
            self.simulation.cancel(due);
        }
        if self.simulation.now_ns() >= self.until {
            return Poll::Ready(());
        }
        self.due = Some(self.simulation.at(self.until, Due::Wake(context.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(due) = self.due.take() {
            self.simulation.cancel(due);
        }
    }
}
