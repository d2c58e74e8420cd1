//! The handle on a running target: start, change what is served, look at it, stop.
//!
//! A change makes a new inventory and brings it to every core by message; it is done when all cores have it,
//! and when nothing runs any more on what it took away. Messages of changes leave in one order, kept by a
//! lock that only control threads take.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_reactor::{CoresHandle, Reply};

use crate::backend::OpenBackend;
use crate::inventory::{AnaState, HostAccess, Inventory, Namespace, Portal};
use crate::io::SharedNamespace;
use crate::limits::Limits;
use crate::target::change::{ChangeError, NewNamespace, NewSubsystem, check_size};
use crate::target::core_state::CoreState;
use crate::target::metrics::{Metrics, NamespaceCounts, NamespaceMetrics};
use crate::target::shared::{ACCEPTING, TargetShared};
use crate::target::watch::watch;
use crate::transport::accept;

/// A target on the data cores. Clones are the same target; it runs until [`Target::stop`].
pub struct Target<F: OpenBackend> {
    shared: Arc<TargetShared>,
    control: Arc<Mutex<Control<F>>>,
}

impl<F: OpenBackend> Clone for Target<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), control: Arc::clone(&self.control) }
    }
}

impl<F: OpenBackend> std::fmt::Debug for Target<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("cores", &self.shared.cores.count()).finish_non_exhaustive()
    }
}

/// What only control threads know.
struct Control<F: OpenBackend> {
    inventory: Arc<Inventory>,
    /// Namespaces that are being opened: their ids and identities are taken.
    opening: Vec<(Nqn, Arc<Namespace>)>,
    storage: BTreeMap<(Nqn, Nsid), Storage<F>>,
    stopped: bool,
}

struct Storage<F: OpenBackend> {
    storage: Arc<SharedNamespace<F>>,
    counts: Arc<NamespaceCounts>,
}

/// Answers of all cores to one message.
type Replies = Vec<Reply<Option<()>>>;

async fn all(replies: Replies) -> Result<(), ChangeError> {
    for reply in replies {
        reply.await?.ok_or(ChangeError::Stopped)?;
    }
    Ok(())
}

impl<F: OpenBackend> Target<F> {
    /// Starts a target that serves nothing yet.
    pub async fn start(cores: CoresHandle) -> Result<Self, ChangeError> {
        Self::start_with(cores, Limits::default()).await
    }

    /// As [`Target::start`], with limits of its own.
    pub async fn start_with(cores: CoresHandle, limits: Limits) -> Result<Self, ChangeError> {
        let shared = TargetShared::new(cores, limits);
        let control = Control {
            inventory: Arc::default(),
            opening: Vec::new(),
            storage: BTreeMap::new(),
            stopped: false,
        };
        let mut replies = Vec::new();
        for core in shared.cores.ids() {
            let shared_there = Arc::clone(&shared);
            replies.push(shared.cores.run_on(core, move || async move {
                let state = CoreState::<F>::install(core, shared_there);
                ashlar_reactor::spawn(watch(state));
            }));
        }
        for reply in replies {
            reply.await?;
        }
        Ok(Self { shared, control: Arc::new(Mutex::new(control)) })
    }

    fn control(&self) -> MutexGuard<'_, Control<F>> {
        // What is behind the lock is replaced as a whole, so a panic of another thread leaves it whole.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the inventory and sends it to every core, in the order of changes.
    fn publish(
        &self,
        change: impl FnOnce(&mut Inventory, &mut Control<F>) -> Result<(), ChangeError>,
    ) -> Result<Replies, ChangeError> {
        let mut control = self.control();
        if control.stopped {
            return Err(ChangeError::Stopped);
        }
        let mut inventory = Inventory::clone(&control.inventory);
        change(&mut inventory, &mut control)?;
        inventory.revision += 1;
        control.inventory = Arc::new(inventory);
        let inventory = &control.inventory;
        let apply = |core| {
            let inventory = Arc::clone(inventory);
            self.shared.on(core, move |state: Rc<CoreState<F>>| state.apply(inventory))
        };
        Ok(self.shared.cores.ids().map(apply).collect())
    }

    /// What is served now.
    pub fn inventory(&self) -> Arc<Inventory> {
        Arc::clone(&self.control().inventory)
    }

    /// Serves one more subsystem, without namespaces at first.
    pub async fn add_subsystem(&self, new: NewSubsystem) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, _| {
            let subsystem = new.check(inventory)?;
            inventory.subsystems.insert(subsystem.nqn.clone(), Arc::new(subsystem));
            Ok(())
        })?;
        all(replies).await
    }

    /// Serves a subsystem no more, nor its namespaces. Hosts that are connected to it are let go.
    pub async fn remove_subsystem(&self, nqn: &Nqn) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, control| {
            inventory.subsystems.remove(nqn).ok_or_else(|| ChangeError::NoSubsystem(nqn.clone()))?;
            control.storage.retain(|(subsystem, _), _| subsystem != nqn);
            Ok(())
        })?;
        all(replies).await
    }

    /// Says who may connect to a subsystem. Hosts that may not any more are let go.
    pub async fn set_hosts(&self, nqn: &Nqn, hosts: HostAccess) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, _| {
            let subsystem = subsystem_mut(inventory, nqn)?;
            subsystem.hosts = hosts;
            Ok(())
        })?;
        all(replies).await
    }

    /// Serves one more namespace, behind `opener`. Hosts are told by an event.
    pub async fn add_namespace(&self, nqn: &Nqn, new: NewNamespace, opener: F) -> Result<(), ChangeError> {
        let cores = self.shared.cores.count();
        let namespace = self.reserve(nqn, new, &opener)?;
        let opened =
            Storage { storage: SharedNamespace::new(opener, cores), counts: NamespaceCounts::new(cores) };
        let result = match self.open_everywhere(nqn, &namespace, &opened).await {
            Ok(()) => self.publish(|inventory, control| {
                let subsystem = subsystem_mut(inventory, nqn)?;
                subsystem.namespaces.insert(namespace.nsid, Arc::clone(&namespace));
                control.storage.insert((nqn.clone(), namespace.nsid), opened);
                Ok(())
            }),
            Err(error) => Err(error),
        };
        self.control().opening.retain(|(_, opening)| !Arc::ptr_eq(opening, &namespace));
        match result {
            Ok(replies) => all(replies).await,
            Err(error) => {
                let forget = |core| {
                    let (nqn, nsid) = (nqn.clone(), namespace.nsid);
                    self.shared
                        .on(core, move |state: Rc<CoreState<F>>| async move { state.forget(&nqn, nsid) })
                };
                let forgotten: Replies = self.shared.cores.ids().map(forget).collect();
                // The first error is the one to tell.
                let _ = all(forgotten).await;
                Err(error)
            }
        }
    }

    fn reserve(&self, nqn: &Nqn, new: NewNamespace, opener: &F) -> Result<Arc<Namespace>, ChangeError> {
        let mut control = self.control();
        if control.stopped {
            return Err(ChangeError::Stopped);
        }
        if !control.inventory.subsystems.contains_key(nqn) {
            return Err(ChangeError::NoSubsystem(nqn.clone()));
        }
        let served = control.inventory.subsystems.iter();
        let served =
            served.flat_map(|(nqn, subsystem)| subsystem.namespaces.values().map(move |other| (nqn, other)));
        let opening = control.opening.iter().map(|(nqn, other)| (nqn, other));
        let namespace = Arc::new(new.check(nqn, opener.info(), served.chain(opening))?);
        control.opening.push((nqn.clone(), Arc::clone(&namespace)));
        Ok(namespace)
    }

    async fn open_everywhere(
        &self,
        nqn: &Nqn,
        namespace: &Arc<Namespace>,
        opened: &Storage<F>,
    ) -> Result<(), ChangeError> {
        let nsid = namespace.nsid;
        let open = |core| {
            let (nqn, namespace) = (nqn.clone(), Arc::clone(namespace));
            let (storage, counts) = (Arc::clone(&opened.storage), Arc::clone(&opened.counts));
            self.shared.on(core, move |state: Rc<CoreState<F>>| async move {
                state.open(nqn, namespace, storage, counts).await
            })
        };
        let replies: Vec<_> = self.shared.cores.ids().map(open).collect();
        let mut result = Ok(());
        for reply in replies {
            let outcome = reply.await?.ok_or(ChangeError::Stopped)?;
            if let Err(source) = outcome {
                result = Err(ChangeError::Open { nsid, source });
            }
        }
        result
    }

    /// Serves a namespace no more. Hosts are told by an event; done when no command of it runs on any core.
    pub async fn remove_namespace(&self, nqn: &Nqn, nsid: Nsid) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, control| {
            let subsystem = subsystem_mut(inventory, nqn)?;
            let removed = subsystem.namespaces.remove(&nsid);
            removed.ok_or_else(|| ChangeError::NoNamespace { subsystem: nqn.clone(), nsid })?;
            control.storage.remove(&(nqn.clone(), nsid));
            Ok(())
        })?;
        all(replies).await
    }

    /// Gives a namespace another size, within what its backend has. Hosts are told by an event.
    pub async fn resize_namespace(&self, nqn: &Nqn, nsid: Nsid, blocks: u64) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, control| {
            let info =
                control.storage.get(&(nqn.clone(), nsid)).map(|storage| storage.storage.opener().info());
            change_namespace(inventory, nqn, nsid, |namespace| {
                let backend = info.unwrap_or(namespace.backend);
                namespace.blocks = check_size(nsid, namespace.lba, Some(blocks), &backend)?;
                namespace.backend = backend;
                Ok(())
            })
        })?;
        all(replies).await
    }

    /// Says how a namespace can be reached here. Hosts are told by an event.
    pub async fn set_ana_state(&self, nqn: &Nqn, nsid: Nsid, state: AnaState) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, _| {
            change_namespace(inventory, nqn, nsid, |namespace| {
                namespace.ana_state = state;
                Ok(())
            })
        })?;
        all(replies).await
    }

    /// Listens on one more address. Returns where: port 0 takes a free one.
    pub async fn add_portal(&self, portal: Portal) -> Result<SocketAddr, ChangeError> {
        let taken = |inventory: &Inventory, address: &SocketAddr| {
            inventory.portals.iter().any(|known| known.listen == *address)
        };
        if taken(&self.inventory(), &portal.listen) {
            return Err(ChangeError::PortalExists(portal.listen));
        }
        let listen = move |state: Rc<CoreState<F>>| async move { accept::listen(&state, portal) };
        let bound = self.shared.on(ACCEPTING, listen).await?.ok_or(ChangeError::Stopped)?;
        let listen = bound.map_err(|source| ChangeError::Listen { address: portal.listen, source })?;
        let replies = self.publish(|inventory, _| {
            inventory.portals.push(Portal { listen, ..portal });
            Ok(())
        })?;
        all(replies).await?;
        Ok(listen)
    }

    /// Stops listening on an address. Hosts that came in there stay.
    pub async fn remove_portal(&self, listen: SocketAddr) -> Result<(), ChangeError> {
        let replies = self.publish(|inventory, _| {
            let before = inventory.portals.len();
            inventory.portals.retain(|portal| portal.listen != listen);
            if inventory.portals.len() == before { Err(ChangeError::NoPortal(listen)) } else { Ok(()) }
        })?;
        all(replies).await?;
        let close = move |state: Rc<CoreState<F>>| async move { state.acceptors.remove(&listen) };
        self.shared.on(ACCEPTING, close).await?.ok_or(ChangeError::Stopped)
    }

    /// Everything that was counted up to now.
    pub fn metrics(&self) -> Metrics {
        let counts: Vec<_> = {
            let control = self.control();
            let of = |((subsystem, nsid), storage): (&(Nqn, Nsid), &Storage<F>)| {
                (subsystem.clone(), *nsid, Arc::clone(&storage.counts))
            };
            control.storage.iter().map(of).collect()
        };
        let namespaces = counts.into_iter().map(|(subsystem, nsid, counts)| NamespaceMetrics {
            subsystem,
            nsid,
            cores: counts.snapshot(),
        });
        let places = &self.shared.places;
        Metrics {
            namespaces: namespaces.collect(),
            cores: places.per_core(),
            connections: places.connections.load(std::sync::atomic::Ordering::Acquire),
            refused: places.refused.load(std::sync::atomic::Ordering::Relaxed),
        }
    }

    /// Lets all hosts go and ends. Done when every started command is accounted for.
    pub async fn stop(&self) -> Result<(), ChangeError> {
        let replies: Replies = {
            let mut control = self.control();
            if control.stopped {
                return Ok(());
            }
            control.stopped = true;
            let end = |core| self.shared.on(core, move |state: Rc<CoreState<F>>| state.end());
            self.shared.cores.ids().map(end).collect()
        };
        all(replies).await
    }
}

fn subsystem_mut<'a>(
    inventory: &'a mut Inventory,
    nqn: &Nqn,
) -> Result<&'a mut crate::inventory::Subsystem, ChangeError> {
    let subsystem = inventory.subsystems.get_mut(nqn);
    subsystem.map(Arc::make_mut).ok_or_else(|| ChangeError::NoSubsystem(nqn.clone()))
}

fn change_namespace(
    inventory: &mut Inventory,
    nqn: &Nqn,
    nsid: Nsid,
    change: impl FnOnce(&mut Namespace) -> Result<(), ChangeError>,
) -> Result<(), ChangeError> {
    let subsystem = subsystem_mut(inventory, nqn)?;
    match subsystem.namespaces.get_mut(&nsid) {
        Some(namespace) => change(Arc::make_mut(namespace)),
        None => Err(ChangeError::NoNamespace { subsystem: nqn.clone(), nsid }),
    }
}
