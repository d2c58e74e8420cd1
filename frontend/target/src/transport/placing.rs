//! From Connect to a queue on its core: judged by the core that owns the controller, placed where there are
//! the fewest queues, moved with its surplus bytes (NVME N6, N14).

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::fabrics::ConnectResponse;
use ashlar_nvme::ids::Cntlid;
use ashlar_nvme::{Cqe, Qid, Status};
use ashlar_reactor::net::Stream;

use crate::backend::OpenBackend;
use crate::controller::connect::{self, AdminAdmission, ConnectRefusal, IoQueueAdmission};
use crate::controller::{Controller, ControllerSettings, ControllerShared, ControllerState};
use crate::inventory::Portal;
use crate::target::association::{Association, IoPlaces, RemoteQueues, SubsystemHealth};
use crate::target::core_state::{CoreState, Ending};
use crate::target::shared::Purpose;
use crate::transport::accept::Slot;
use crate::transport::handshake::{self, Connect, Unwelcome};
use crate::transport::queue::{Queue, QueueParts, Role, Terms};
use crate::transport::serve;

/// A connection whose Connect has come.
pub(crate) struct Moving<F: OpenBackend> {
    pub(crate) stream: Stream,
    pub(crate) terms: Terms,
    pub(crate) connect: Connect,
    pub(crate) surplus: Vec<u8>,
    pub(crate) portal: Portal,
    pub(crate) local: SocketAddr,
    pub(crate) slot: Slot<F>,
}

/// What goes to another core.
struct Parcel {
    fd: std::os::fd::OwnedFd,
    terms: Terms,
    connect: Connect,
    surplus: Vec<u8>,
    local: SocketAddr,
}

/// A connection that came back because there is no queue for it.
struct Returned {
    fd: std::os::fd::OwnedFd,
    refusal: ConnectRefusal,
}

/// Makes a queue of the connection, or refuses it.
pub(crate) async fn place<F: OpenBackend>(state: &Rc<CoreState<F>>, moving: Moving<F>) {
    let Moving { stream, terms, connect, surplus, portal, local, slot } = moving;
    let cid = connect.cid;
    let refused = |refusal: ConnectRefusal| {
        let cqe = Cqe::new(cid, 0, refusal.status).with_dw0(refusal.dw0);
        Unwelcome::Refused(terms.framing, cqe)
    };
    let fd = match stream.into_fd() {
        Ok(fd) => fd,
        // Nothing is under way on it; if something were, it could not be moved.
        Err(stream) => return handshake::part(&stream, refused(ConnectRefusal::BUSY)).await,
    };
    let admin = Qid(connect.command.qid.get()).is_admin();
    let (host, subsystem) = (connect.data.host(), connect.data.subsystem());
    let parcel = Parcel { fd, terms, connect, surplus, local };
    let outcome = if admin {
        place_admin(state, parcel, &portal).await
    } else if portal.discovery_only {
        Err((Some(parcel.fd), ConnectRefusal::UNKNOWN_CONTROLLER))
    } else {
        place_io(state, parcel).await
    };
    match outcome {
        Ok(()) => slot.keep(),
        Err((fd, refusal)) => {
            let [host, subsystem] =
                [host, subsystem].map(|name| name.map_or_else(|_| "?".to_owned(), |name| name.to_string()));
            let why = refusal.status.fabrics_name().unwrap_or("a status without a name");
            tracing::info!(host, subsystem, why, "host refused");
            if let Some(fd) = fd {
                handshake::part(&Stream::from_fd(fd), refused(refusal)).await;
            }
        }
    }
}

/// Without a descriptor the connection is lost with the core that had it.
type Placed = Result<(), (Option<std::os::fd::OwnedFd>, ConnectRefusal)>;

async fn place_admin<F: OpenBackend>(state: &Rc<CoreState<F>>, parcel: Parcel, portal: &Portal) -> Placed {
    let inventory = Arc::clone(&state.inventory.borrow());
    let checked = connect::check_admin(&parcel.connect.command, &parcel.connect.data, &inventory, portal);
    let admission = match checked {
        Ok(admission) => admission,
        Err(refusal) => return Err((Some(parcel.fd), refusal)),
    };
    let host = admission.host_nqn.clone();
    if !state.count_host(&host, state.shared.limits.controllers_per_host) {
        return Err((Some(parcel.fd), ConnectRefusal::BUSY));
    }
    let places = &state.shared.places;
    let core = places.choose(Purpose::Admin);
    let open = move |there: Rc<CoreState<F>>| async move { open_admin(&there, parcel, admission) };
    let outcome = match state.shared.on(core, open).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) | Err(_) => Err(None),
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(returned) => {
            places.give_back(Purpose::Admin, core);
            state.forget_host(&host);
            Err(returned
                .map_or((None, ConnectRefusal::BUSY), |returned| (Some(returned.fd), returned.refusal)))
        }
    }
}

fn open_admin<F: OpenBackend>(
    state: &Rc<CoreState<F>>,
    parcel: Parcel,
    admission: AdminAdmission,
) -> Result<(), Option<Returned>> {
    let Parcel { fd, terms, connect, surplus, local } = parcel;
    let busy = |fd| Err(Some(Returned { fd, refusal: ConnectRefusal::BUSY }));
    let AdminAdmission { kind, host_nqn, host_id, subsystem, kato_ms, entries, flow_control } = admission;
    if state.ending.get() == Ending::Yes {
        return busy(fd);
    }
    let Some(cntlid) = state.next_cntlid() else { return busy(fd) };
    let Some(namespaces) = state.subsystem(&subsystem) else { return busy(fd) };
    let cores = state.shared.cores.count();
    let health = SubsystemHealth { state: Rc::downgrade(state), subsystem: subsystem.clone() };
    let host = (host_nqn, host_id);
    let shared = Arc::new(ControllerShared::new(cntlid, kind, host, subsystem, state.id, cores));
    let places = Rc::new(IoPlaces::default());
    let queues = RemoteQueues::<F> {
        shared: Arc::clone(&state.shared),
        controller: Arc::clone(&shared),
        places: Rc::clone(&places),
        opener: PhantomData,
    };
    let controller = Controller::new(
        Arc::clone(&shared),
        ControllerSettings {
            inventory: Arc::clone(&state.inventory.borrow()),
            kato_ms,
            local_address: local,
            queues: Rc::new(queues),
            health: Rc::new(health),
            now: ashlar_reactor::now,
        },
    );
    let queue = Queue::new(QueueParts {
        core: Rc::clone(state),
        controller: Arc::clone(&shared),
        subsystem: namespaces,
        role: Role::Admin(Rc::clone(&controller)),
        qid: Qid::ADMIN,
        entries,
        flow_control,
        terms,
        stream: Stream::from_fd(fd),
    });
    let (host, subsystem) = (&shared.host_nqn, &shared.subsystem);
    tracing::info!(controller = %cntlid, %host, %subsystem, "host connected");
    let association = Association::new(controller, Rc::clone(&queue), places);
    state.associations.borrow_mut().insert(cntlid, Rc::clone(&association));
    start(state, &queue, &connect, surplus);
    Ok(())
}

async fn place_io<F: OpenBackend>(state: &Rc<CoreState<F>>, parcel: Parcel) -> Placed {
    let (command, data) = (parcel.connect.command, parcel.connect.data.clone());
    let (cntlid, qid) = (data.controller(), Qid(command.qid.get()));
    let owner = state.shared.owner_of(cntlid);
    let ask = move |there: Rc<CoreState<F>>| async move {
        match there.association(cntlid) {
            Some(association) => association.admit(&command, &data),
            None => Err(ConnectRefusal::UNKNOWN_CONTROLLER),
        }
    };
    let admitted = match state.shared.on(owner, ask).await {
        Ok(Some(admitted)) => admitted,
        Ok(None) | Err(_) => Err(ConnectRefusal::BUSY),
    };
    let (controller, admission) = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return Err((Some(parcel.fd), refusal)),
    };
    let places = &state.shared.places;
    let core = places.choose(Purpose::Io);
    let open = move |there: Rc<CoreState<F>>| async move { open_io(&there, parcel, controller, admission) };
    let outcome = match state.shared.on(core, open).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) | Err(_) => Err(None),
    };
    let settled = outcome.is_ok().then_some(core);
    let settle = move |there: Rc<CoreState<F>>| async move {
        if let Some(association) = there.association(cntlid) {
            association.settle(qid, settled);
        }
    };
    state.shared.surely_on(owner, settle).await;
    match outcome {
        Ok(()) => Ok(()),
        Err(returned) => {
            places.give_back(Purpose::Io, core);
            Err(returned
                .map_or((None, ConnectRefusal::BUSY), |returned| (Some(returned.fd), returned.refusal)))
        }
    }
}

fn open_io<F: OpenBackend>(
    state: &Rc<CoreState<F>>,
    parcel: Parcel,
    controller: Arc<ControllerShared>,
    admission: IoQueueAdmission,
) -> Result<(), Option<Returned>> {
    let Parcel { fd, terms, connect, surplus, .. } = parcel;
    let namespaces = state.subsystem(&controller.subsystem);
    // It may have ended on the way here: its admin queue is dying.
    let Some(namespaces) = namespaces
        .filter(|_| state.ending.get() == Ending::No && controller.state() == ControllerState::Ready)
    else {
        return Err(Some(Returned { fd, refusal: ConnectRefusal::UNKNOWN_CONTROLLER }));
    };
    let IoQueueAdmission { qid, entries, flow_control } = admission;
    let queue = Queue::new(QueueParts {
        core: Rc::clone(state),
        controller,
        subsystem: namespaces,
        role: Role::Io,
        qid,
        entries,
        flow_control,
        terms,
        stream: Stream::from_fd(fd),
    });
    start(state, &queue, &connect, surplus);
    Ok(())
}

fn start<F: OpenBackend>(
    state: &Rc<CoreState<F>>,
    queue: &Rc<Queue<F>>,
    connect: &Connect,
    surplus: Vec<u8>,
) {
    state.enter(queue);
    queue.note_traffic();
    let granted = ConnectResponse::default().with_cntlid(queue.controller.cntlid.0);
    let sqhd = queue.advance();
    // The outbox is new and has room.
    let _ = queue.outbox.response(Cqe::new(connect.cid, sqhd, Status::SUCCESS).with_dw0(granted.0));
    serve::start(queue, surplus);
}

impl<F: OpenBackend> CoreState<F> {
    fn association(&self, cntlid: Cntlid) -> Option<Rc<Association<F>>> {
        self.associations.borrow().get(&cntlid).cloned()
    }
}
