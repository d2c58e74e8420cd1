//! What one core keeps of the target: namespaces, queues, the controllers that it owns.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ashlar_nvme::Status;
use ashlar_nvme::ids::{Cntlid, Nqn, Nsid};
use ashlar_reactor::{CoreId, Instant, Notify};

use crate::backend::{Backend, BackendError, OpenBackend};
use crate::controller::{Access, ControllerShared, ControllerState};
use crate::inventory::{Inventory, Namespace};
use crate::io::{NamespaceCore, SharedNamespace};
use crate::target::association::Association;
use crate::target::metrics::{CoreCounts, NamespaceCounts, Operation};
use crate::target::shared::TargetShared;
use crate::transport::accept::Acceptors;
use crate::transport::gathers::Gathers;
use crate::transport::queue::{Queue, Reason};

thread_local! {
    /// The states of this core, one per target of the process.
    static STATES: RefCell<Vec<(u64, Rc<dyn Any>)>> = const { RefCell::new(Vec::new()) };
}

/// The state of the target `id` on the current core.
pub(crate) fn current<F: OpenBackend>(id: u64) -> Option<Rc<CoreState<F>>> {
    let state = STATES.with_borrow(|states| {
        states.iter().find(|(known, _)| *known == id).map(|(_, state)| Rc::clone(state))
    })?;
    state.downcast().ok()
}

/// A namespace as this core serves it.
pub(crate) struct Served<B: Backend> {
    pub(crate) core: NamespaceCore<B>,
    core_id: CoreId,
    counts: Arc<NamespaceCounts>,
    running: Cell<u32>,
    idle: Notify,
}

impl<B: Backend> Served<B> {
    /// Waits until no command of it runs on this core.
    pub(crate) async fn idle(&self) {
        while self.running.get() > 0 {
            self.idle.notified().await;
        }
    }

    fn with_counts(&self, note: impl FnOnce(&CoreCounts)) {
        if let Some(counts) = self.counts.core(self.core_id) {
            note(counts);
        }
    }

    /// Counts a command that was refused before it was carried out.
    pub(crate) fn note_refusal(&self, status: Status) {
        self.with_counts(|counts| counts.record_error(status));
    }

    pub(crate) fn counts(&self) -> &Arc<NamespaceCounts> {
        &self.counts
    }
}

/// A command runs on a namespace: it is not taken away meanwhile.
pub(crate) struct Use<B: Backend>(Rc<Served<B>>);

impl<B: Backend> Use<B> {
    pub(crate) fn begin(served: Rc<Served<B>>) -> Self {
        served.running.set(served.running.get() + 1);
        served.with_counts(CoreCounts::begin);
        Self(served)
    }

    pub(crate) fn core(&self) -> &NamespaceCore<B> {
        &self.0.core
    }

    /// Counts an operation.
    pub(crate) fn note(&self, operation: Operation, bytes: u32, status: Status, arrived: Instant) {
        let latency = ashlar_reactor::now().since(arrived);
        self.0.with_counts(|counts| counts.record(operation, bytes, status, latency));
    }

    /// Counts the operation, which has ended.
    pub(crate) fn end(self, operation: Operation, bytes: u32, status: Status, arrived: Instant) {
        self.note(operation, bytes, status, arrived);
    }
}

impl<B: Backend> Drop for Use<B> {
    fn drop(&mut self) {
        let served = &self.0;
        served.running.set(served.running.get() - 1);
        served.with_counts(CoreCounts::gone);
        if served.running.get() == 0 {
            served.idle.notify_all();
        }
    }
}

/// A subsystem's namespaces on this core, by id.
pub(crate) struct SubsystemCore<B: Backend> {
    namespaces: RefCell<Vec<Option<Rc<Served<B>>>>>,
}

impl<B: Backend> SubsystemCore<B> {
    pub(crate) fn empty() -> Rc<Self> {
        Rc::new(Self { namespaces: RefCell::default() })
    }

    /// The namespace with an id.
    pub(crate) fn namespace(&self, nsid: Nsid) -> Option<Rc<Served<B>>> {
        self.namespaces.borrow().get(nsid.0 as usize)?.clone()
    }

    /// All namespaces, ids ascending.
    pub(crate) fn all(&self) -> Vec<Rc<Served<B>>> {
        self.namespaces.borrow().iter().flatten().cloned().collect()
    }

    fn set(&self, nsid: Nsid, served: Option<Rc<Served<B>>>) -> Option<Rc<Served<B>>> {
        let mut namespaces = self.namespaces.borrow_mut();
        let index = nsid.0 as usize;
        if namespaces.len() <= index {
            namespaces.resize_with(index + 1, || None);
        }
        namespaces.get_mut(index).and_then(|place| std::mem::replace(place, served))
    }
}

/// A namespace that was opened and is not served yet.
type Opened<B> = BTreeMap<(Nqn, Nsid), Rc<Served<B>>>;

/// See the module.
pub(crate) struct CoreState<F: OpenBackend> {
    pub(crate) id: CoreId,
    pub(crate) shared: Arc<TargetShared>,
    pub(crate) gathers: Gathers,
    pub(crate) inventory: RefCell<Arc<Inventory>>,
    pub(crate) queues: RefCell<Vec<Rc<Queue<F>>>>,
    pub(crate) associations: RefCell<BTreeMap<Cntlid, Rc<Association<F>>>>,
    /// Controllers per host; kept on the accepting core.
    pub(crate) hosts: RefCell<HashMap<Nqn, usize>>,
    pub(crate) acceptors: Acceptors,
    pub(crate) last_cntlid: Cell<u16>,
    pub(crate) ending: Cell<Ending>,
    /// Told when a queue or an association comes or goes.
    pub(crate) changed: Notify,
    subsystems: RefCell<BTreeMap<Nqn, Rc<SubsystemCore<F::Backend>>>>,
    opened: RefCell<Opened<F::Backend>>,
}

/// Whether the target is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    Yes,
}

impl<F: OpenBackend> CoreState<F> {
    /// Makes the state of the current core and lets it be found.
    pub(crate) fn install(id: CoreId, shared: Arc<TargetShared>) -> Rc<Self> {
        let state = Rc::new(Self {
            id,
            gathers: Gathers::default(),
            inventory: RefCell::default(),
            queues: RefCell::default(),
            associations: RefCell::default(),
            hosts: RefCell::default(),
            acceptors: Acceptors::default(),
            last_cntlid: Cell::new(0),
            ending: Cell::new(Ending::No),
            changed: Notify::new(),
            subsystems: RefCell::default(),
            opened: RefCell::default(),
            shared,
        });
        let entry: Rc<dyn Any> = Rc::clone(&state) as Rc<dyn Any>;
        STATES.with_borrow_mut(|states| states.push((state.shared.id, entry)));
        state
    }

    /// Lets it be found no more.
    pub(crate) fn remove(&self) {
        let id = self.shared.id;
        let removed = STATES.with_borrow_mut(|states| {
            let at = states.iter().position(|(known, _)| *known == id)?;
            Some(states.swap_remove(at))
        });
        drop(removed);
    }

    /// Opens a namespace; it is served once an inventory that has it is applied.
    pub(crate) async fn open(
        &self,
        subsystem: Nqn,
        namespace: Arc<Namespace>,
        storage: Arc<SharedNamespace<F>>,
        counts: Arc<NamespaceCounts>,
    ) -> Result<(), BackendError> {
        let nsid = namespace.nsid;
        let core = storage.open(self.id, namespace).await?;
        let (running, idle) = (Cell::new(0), Notify::new());
        let served = Rc::new(Served { core, core_id: self.id, counts, running, idle });
        self.opened.borrow_mut().insert((subsystem, nsid), served);
        Ok(())
    }

    /// Forgets a namespace that was opened and is not served.
    pub(crate) fn forget(&self, subsystem: &Nqn, nsid: Nsid) {
        let forgotten = self.opened.borrow_mut().remove(&(subsystem.clone(), nsid));
        drop(forgotten);
    }

    /// A subsystem's namespaces on this core. Discovery has none.
    pub(crate) fn subsystem(&self, nqn: &Nqn) -> Option<Rc<SubsystemCore<F::Backend>>> {
        if nqn.is_discovery() {
            return Some(SubsystemCore::empty());
        }
        self.subsystems.borrow().get(nqn).cloned()
    }

    /// Serves what `inventory` says from now on. Ends when nothing runs any more on what it no longer has.
    pub(crate) async fn apply(self: Rc<Self>, inventory: Arc<Inventory>) {
        let gone = self.replace_inventory(&inventory);
        let associations: Vec<_> = self.associations.borrow().values().cloned().collect();
        for association in associations {
            if association.controller.inventory_changed(&inventory) == Access::Lost {
                association.end(Reason::Withdrawn);
            }
        }
        for served in gone {
            served.idle().await;
        }
    }

    fn replace_inventory(&self, inventory: &Arc<Inventory>) -> Vec<Rc<Served<F::Backend>>> {
        self.inventory.replace(Arc::clone(inventory));
        let mut gone = Vec::new();
        let mut subsystems = self.subsystems.borrow_mut();
        subsystems.retain(|nqn, core| {
            let kept = inventory.subsystems.contains_key(nqn);
            if !kept {
                gone.extend(core.namespaces.borrow_mut().drain(..).flatten());
            }
            kept
        });
        for (nqn, subsystem) in &inventory.subsystems {
            let core = subsystems.entry(nqn.clone()).or_insert_with(SubsystemCore::empty);
            for served in core.all() {
                let nsid = served.core.with_namespace(|namespace| namespace.nsid);
                match subsystem.namespaces.get(&nsid) {
                    Some(namespace) => served.core.set_namespace(Arc::clone(namespace)),
                    None => gone.extend(core.set(nsid, None)),
                }
            }
            for (nsid, namespace) in &subsystem.namespaces {
                if let Some(served) = self.opened.borrow_mut().remove(&(nqn.clone(), *nsid)) {
                    served.core.set_namespace(Arc::clone(namespace));
                    gone.extend(core.set(*nsid, Some(served)));
                }
            }
        }
        gone
    }

    /// A fresh controller id of this core: cyclic, not soon used again, `id mod cores` is the owner (NVME
    /// N6).
    pub(crate) fn next_cntlid(&self) -> Option<Cntlid> {
        let cores = u32::try_from(self.shared.cores.count()).ok()?;
        let first = if self.id.0 == 0 { cores } else { u32::from(self.id.0) };
        let per_core = u32::from(Cntlid::RESERVED_FROM) / cores;
        let associations = self.associations.borrow();
        let mut id = u32::from(self.last_cntlid.get());
        for _ in 0..per_core {
            id = if id == 0 { first } else { id + cores };
            if id >= u32::from(Cntlid::RESERVED_FROM) {
                id = first;
            }
            let cntlid = Cntlid(u16::try_from(id).ok()?);
            if !associations.contains_key(&cntlid) {
                self.last_cntlid.set(cntlid.0);
                return Some(cntlid);
            }
        }
        None
    }

    pub(crate) fn enter(&self, queue: &Rc<Queue<F>>) {
        self.queues.borrow_mut().push(Rc::clone(queue));
        self.changed.notify_all();
    }

    /// A quiet queue leaves.
    pub(crate) fn leave(&self, queue: &Rc<Queue<F>>) {
        self.queues.borrow_mut().retain(|known| !Rc::ptr_eq(known, queue));
        let places = &self.shared.places;
        let place = if queue.qid.is_admin() { places.admin(self.id) } else { places.io(self.id) };
        if let Some(place) = place {
            place.fetch_sub(1, Ordering::AcqRel);
        }
        places.connections.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_all();
    }

    fn queues_of(&self, controller: &ControllerShared) -> Vec<Rc<Queue<F>>> {
        let queues = self.queues.borrow();
        let of_it = queues.iter().filter(|queue| {
            !queue.qid.is_admin() && std::ptr::eq(Arc::as_ptr(&queue.controller), controller)
        });
        of_it.cloned().collect()
    }

    /// The association of a controller that this core owns, if it is still there.
    pub(crate) fn association_of(&self, controller: &Arc<ControllerShared>) -> Option<Rc<Association<F>>> {
        let association = self.associations.borrow().get(&controller.cntlid).cloned()?;
        // A later controller with the same number is another one.
        Arc::ptr_eq(association.controller.shared(), controller).then_some(association)
    }

    /// Closes a controller's I/O queues on this core; ends when every command of them is accounted for.
    pub(crate) async fn sweep(self: Rc<Self>, controller: Arc<ControllerShared>) {
        let queues = self.queues_of(&controller);
        for queue in &queues {
            queue.close(Reason::ControllerEnded);
        }
        drop(queues);
        while !self.queues_of(&controller).is_empty() {
            self.changed.notified().await;
        }
    }

    /// An I/O queue of a controller on this core.
    pub(crate) fn io_queue(
        &self,
        controller: &ControllerShared,
        qid: ashlar_nvme::Qid,
    ) -> Option<Rc<Queue<F>>> {
        self.queues_of(controller).into_iter().find(|queue| queue.qid == qid)
    }

    /// Closes the I/O queues of a controller that was disabled, on all cores, behind this call.
    pub(crate) fn close_io_queues(self: &Rc<Self>, controller: &Arc<ControllerShared>) {
        let association = self.associations.borrow().get(&controller.cntlid).cloned();
        if let Some(association) = association {
            let state = Rc::clone(self);
            ashlar_reactor::spawn(async move { association.sweep_all(&state).await });
        }
    }

    /// The target has ended on this core.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.get() == Ending::Yes && self.is_empty()
    }

    /// No host is connected here.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.borrow().is_empty() && self.associations.borrow().is_empty()
    }

    /// Lets no host in any more and closes what is there; ends when nothing is left.
    pub(crate) async fn end(self: Rc<Self>) {
        self.ending.set(Ending::Yes);
        self.acceptors.remove_all();
        while !self.is_empty() {
            self.close_all(Reason::Withdrawn);
            self.changed.notified().await;
        }
        self.changed.notify_all();
        let subsystems = std::mem::take(&mut *self.subsystems.borrow_mut());
        let served: Vec<_> = subsystems.values().flat_map(|subsystem| subsystem.all()).collect();
        for served in served {
            served.idle().await;
        }
        self.opened.borrow_mut().clear();
        self.remove();
    }

    /// Closes every queue of this core without executing what was not started.
    pub(crate) fn close_all(&self, reason: Reason) {
        let queues: Vec<_> = self.queues.borrow().clone();
        for queue in queues {
            if queue.qid.is_admin() {
                queue.controller.set_state(ControllerState::Ended);
            }
            queue.close(reason);
        }
    }
}
