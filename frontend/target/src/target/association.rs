//! A controller on its owner core, with its admin queue and the places of its I/O queues: from Connect to its
//! end.
//!
//! The end of an association (NVME N6, PROTOCOL R9): first its state says so on all cores, so that nothing
//! starts any more. Then the I/O queues that are on their way to a core arrive or fail; then every core
//! closes those it has and waits until each started command is accounted for; then the controller is
//! forgotten.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::Qid;
use ashlar_nvme::fabrics::{ConnectCommand, ConnectData};
use ashlar_nvme::ids::{CommandId, Nqn};
use ashlar_reactor::{CoreId, Notify};

use crate::backend::OpenBackend;
use crate::controller::connect::{ConnectRefusal, IoQueueAdmission};
use crate::controller::{
    AbortFuture, Aborted, Controller, ControllerShared, ControllerState, HealthCounters, HealthSource, Queues,
};
use crate::target::core_state::CoreState;
use crate::target::metrics::Operation;
use crate::target::shared::{ACCEPTING, TargetShared};
use crate::transport::queue::{Queue, Reason};

/// See the module.
pub(crate) struct Association<F: OpenBackend> {
    pub(crate) controller: Rc<Controller>,
    admin: Rc<Queue<F>>,
    places: Rc<IoPlaces>,
    /// I/O queues that are admitted and not yet on their core.
    placing: Cell<u32>,
    settled: Notify,
}

/// Which core has which I/O queue.
#[derive(Default)]
pub(crate) struct IoPlaces(RefCell<BTreeMap<Qid, CoreId>>);

impl<F: OpenBackend> Association<F> {
    pub(crate) fn new(controller: Rc<Controller>, admin: Rc<Queue<F>>, places: Rc<IoPlaces>) -> Rc<Self> {
        Rc::new(Self { controller, admin, places, placing: Cell::new(0), settled: Notify::new() })
    }

    /// Judges an I/O Connect. What it admits must be settled.
    pub(crate) fn admit(
        &self,
        command: &ConnectCommand,
        data: &ConnectData,
    ) -> Result<(Arc<ControllerShared>, IoQueueAdmission), ConnectRefusal> {
        let shared = self.controller.shared();
        if self.admin.is_closed() || shared.state() == ControllerState::Ended {
            return Err(ConnectRefusal::UNKNOWN_CONTROLLER);
        }
        let admission = self.controller.admit_io_queue(command, data)?;
        self.placing.set(self.placing.get() + 1);
        Ok((Arc::clone(shared), admission))
    }

    /// An admitted queue is on `core`, or could not be brought there.
    pub(crate) fn settle(&self, qid: Qid, core: Option<CoreId>) {
        match core {
            Some(core) => {
                self.places.0.borrow_mut().insert(qid, core);
            }
            None => self.controller.release_io_queue(qid),
        }
        self.placing.set(self.placing.get().saturating_sub(1));
        self.settled.notify_all();
    }

    /// A queue is gone, with every command of it accounted for.
    pub(crate) fn release(&self, qid: Qid) {
        self.places.0.borrow_mut().remove(&qid);
        self.controller.release_io_queue(qid);
    }

    /// Ends the association; [`Association::wind_up`] follows when the admin queue is quiet.
    pub(crate) fn end(&self, reason: Reason) {
        self.controller.end();
        self.admin.close(reason);
    }

    /// Closes the I/O queues on all cores; ends when every command of them is accounted for.
    pub(crate) async fn sweep_all(&self, state: &Rc<CoreState<F>>) {
        while self.placing.get() > 0 {
            self.settled.notified().await;
        }
        let mut sweeps = Vec::new();
        for core in state.shared.cores.ids() {
            let (shared, controller) = (Arc::clone(&state.shared), Arc::clone(self.controller.shared()));
            sweeps.push(ashlar_reactor::spawn_join(async move {
                let sweep = move |there: Rc<CoreState<F>>| there.sweep(controller);
                shared.surely_on(core, sweep).await;
            }));
        }
        for sweep in sweeps {
            // A core that stops drops its queues by itself.
            let _ = sweep.await;
        }
    }

    /// Everything that is left to be done once the admin queue is closed and quiet.
    pub(crate) async fn wind_up(&self, state: &Rc<CoreState<F>>) {
        self.controller.end();
        self.sweep_all(state).await;
        let shared = self.controller.shared();
        let removed = state.associations.borrow_mut().remove(&shared.cntlid);
        drop(removed);
        let host = shared.host_nqn.clone();
        let forget = move |there: Rc<CoreState<F>>| async move { there.forget_host(&host) };
        state.shared.surely_on(ACCEPTING, forget).await;
    }
}

impl<F: OpenBackend> CoreState<F> {
    /// One more controller of a host; false if it has too many. On the accepting core.
    pub(crate) fn count_host(&self, host: &Nqn, most: usize) -> bool {
        let mut hosts = self.hosts.borrow_mut();
        let count = hosts.entry(host.clone()).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        true
    }

    /// One controller of a host less. On the accepting core.
    pub(crate) fn forget_host(&self, host: &Nqn) {
        let mut hosts = self.hosts.borrow_mut();
        if let Some(count) = hosts.get_mut(host) {
            *count -= 1;
            if *count == 0 {
                hosts.remove(host);
            }
        }
    }
}

/// Reaches a controller's queues on all cores, for Abort.
pub(crate) struct RemoteQueues<F: OpenBackend> {
    pub(crate) shared: Arc<TargetShared>,
    pub(crate) controller: Arc<ControllerShared>,
    pub(crate) places: Rc<IoPlaces>,
    pub(crate) opener: std::marker::PhantomData<fn() -> F>,
}

impl<F: OpenBackend> Queues for RemoteQueues<F> {
    fn abort(&self, queue: Qid, command: CommandId) -> AbortFuture {
        let place = match queue.is_admin() {
            true => Some(self.controller.owner),
            false => self.places.0.borrow().get(&queue).copied(),
        };
        let (shared, controller) = (Arc::clone(&self.shared), Arc::clone(&self.controller));
        Box::pin(async move {
            let Some(core) = place else { return Aborted::No };
            let abort = move |there: Rc<CoreState<F>>| async move {
                let queue = match queue.is_admin() {
                    true => {
                        there.association_of(&controller).map(|association| Rc::clone(&association.admin))
                    }
                    false => there.io_queue(&controller, queue),
                };
                match queue {
                    Some(queue) => queue.abort(command).await,
                    None => Aborted::No,
                }
            };
            shared.surely_on(core, abort).await.unwrap_or(Aborted::No)
        })
    }
}

/// Sums up a subsystem's counters for its SMART log.
pub(crate) struct SubsystemHealth<F: OpenBackend> {
    pub(crate) state: std::rc::Weak<CoreState<F>>,
    pub(crate) subsystem: Nqn,
}

/// A device's life in minutes is counted from here.
fn minutes_since(start: ashlar_reactor::Instant) -> u64 {
    ashlar_reactor::now().since(start).as_secs() / 60
}

impl<F: OpenBackend> HealthSource for SubsystemHealth<F> {
    fn health(&self) -> HealthCounters {
        let mut health = HealthCounters::default();
        let Some(state) = self.state.upgrade() else { return health };
        health.busy_minutes = minutes_since(state.shared.started);
        let Some(subsystem) = state.subsystem(&self.subsystem) else { return health };
        for counts in subsystem.all().iter().flat_map(|served| served.counts().snapshot()) {
            let of = |operation: Operation| {
                let kind = operation as usize;
                (counts.operations[kind], counts.bytes[kind])
            };
            let (reads, writes, compares) =
                (of(Operation::Read), of(Operation::Write), of(Operation::Compare));
            health.reads += reads.0 + compares.0;
            health.bytes_read += reads.1;
            health.writes += writes.0;
            health.bytes_written += writes.1;
            let media = counts.errors.iter().filter(|(status, _)| status.sct() == 2);
            health.media_errors += media.map(|(_, count)| count).sum::<u64>();
        }
        health
    }
}
