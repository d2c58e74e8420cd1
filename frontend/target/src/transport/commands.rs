//! Starting I/O commands: which namespace, what is wrong with it, and carrying it out.

use std::rc::Rc;

use ashlar_nvme::command::FusedOperation;
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::{Cqe, Nsid, Sqe, Status};
use ashlar_reactor::Instant;

use crate::backend::OpenBackend;
use crate::io::{self, Addressee, Arrival, DataPort, FusedRequest, Pairing, Request, Transfer};
use crate::limits::SLICE_BYTES;
use crate::target::core_state::{Served, Use};
use crate::target::metrics::Operation;
use crate::transport::host_data::{Answered, CapsuleBytes, CapsuleData, HostData, data_pointer};
use crate::transport::outbox::SMALL_BYTES;
use crate::transport::queue::{Arrived, FirstHalf, Queue, Running};
use crate::transport::reports::Place;
use crate::transport::transfers::DigestCheck;

/// A command that may be carried out.
struct Ready<F: OpenBackend> {
    namespace: Use<F::Backend>,
    request: Request,
    pointer: DataPointer,
    operation: Operation,
    place: Place,
    arrived: Instant,
}

impl<F: OpenBackend> Queue<F> {
    pub(super) fn start_alone(self: &Rc<Self>, arrived: Arrived<F>) {
        let Arrived { running, sqe, capsule } = arrived;
        match self.make_ready(&sqe, &capsule) {
            Ok(ready) => ashlar_reactor::spawn_now(carry_out(running, ready, capsule.bytes)),
            Err(Refused::Status(status)) => running.refuse(Place::of(&sqe), status),
            Err(Refused::EveryNamespace) => ashlar_reactor::spawn_now(flush_all(running, sqe)),
        }
    }

    fn make_ready(&self, sqe: &Sqe, capsule: &CapsuleData) -> Result<Ready<F>, Refused> {
        // The host may send it again (NVMe-TCP 1.0 §3.3.1.1).
        if capsule.digest == DigestCheck::Failed {
            return Err(Refused::Status(Status::TRANSIENT_TRANSPORT_ERROR));
        }
        let pointer = data_pointer(sqe, capsule.bytes.len())?;
        let nsid = match io::addressee(sqe)? {
            Addressee::One(nsid) => nsid,
            Addressee::All => return Err(Refused::EveryNamespace),
        };
        let served = self.served(nsid)?;
        let request = served.core.with_namespace(|namespace| io::check(sqe, namespace, pointer.len()))?;
        check_pointer(&request, pointer)?;
        Ok(Ready {
            namespace: Use::begin(served),
            request,
            pointer,
            operation: Operation::of(sqe.opcode),
            place: Place::of(sqe),
            arrived: ashlar_reactor::now(),
        })
    }

    fn served(&self, nsid: Nsid) -> Result<Rc<Served<F::Backend>>, Status> {
        self.subsystem.namespace(nsid).ok_or_else(|| io::absent_namespace(nsid))
    }

    pub(super) fn start_fused(self: &Rc<Self>, fused: FusedOperation, mut arrived: Arrived<F>) {
        if fused == FusedOperation::First {
            // It may be held for long, and receive buffers are few.
            arrived.capsule.bytes = arrived.capsule.bytes.into_own();
        }
        let arrival = self.pairing.borrow_mut().arrive(fused, arrived);
        let held = matches!(arrival, Arrival::Held | Arrival::Widowed { then: None, .. });
        self.first_half.set(if held { FirstHalf::Held } else { FirstHalf::None });
        match arrival {
            Arrival::Alone(alone) => self.start_alone(alone),
            Arrival::Held => {}
            Arrival::Pair(first, second) => self.start_pair(first, second),
            Arrival::Widowed { first, then } => {
                first.running.refuse(Place::of(&first.sqe), Pairing::<Arrived<F>>::MISSING);
                if let Some(then) = then {
                    self.start_alone(then);
                }
            }
            Arrival::Orphan(second) => {
                second.running.refuse(Place::of(&second.sqe), Pairing::<Arrived<F>>::MISSING);
            }
        }
    }

    fn start_pair(self: &Rc<Self>, first: Arrived<F>, second: Arrived<F>) {
        ashlar_reactor::spawn_now(carry_out_pair(Rc::clone(self), first, second));
    }
}

enum Refused {
    Status(Status),
    EveryNamespace,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused::Status(status)
    }
}

/// Data for the host cannot go into the capsule that the host sent; what comes by R2T is asked for in whole
/// dwords.
fn check_pointer(request: &Request, pointer: DataPointer) -> Result<(), Status> {
    match (request.transfer(), pointer) {
        (Transfer::ToHost(_), DataPointer::InCapsule { .. }) => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (_, DataPointer::Transport { len }) if !len.is_multiple_of(4) => Err(Status::DATA_SGL_LENGTH_INVALID),
        _ => Ok(()),
    }
}

/// A large read holds buffers from the backend's answer until it is sent, so they are counted before it starts.
async fn carry_out_large<F: OpenBackend>(
    queue: &Queue<F>,
    namespace: &Use<F::Backend>,
    request: &Request,
    port: &HostData<'_, F>,
    to_host: u32,
) -> Status {
    let _allowance = match port.wait(queue.reads.take(to_host.min(SLICE_BYTES))).await {
        Ok(Ok(allowance)) => allowance,
        Ok(Err(status)) | Err(status) => return status,
    };
    // The controller may have ended meanwhile (PROTOCOL R9).
    match queue.may_go_on() {
        Ok(()) => io::execute(namespace.core(), request, port, queue.controller.write_cache()).await,
        Err(status) => status,
    }
}

async fn carry_out<F: OpenBackend>(running: Running<F>, ready: Ready<F>, capsule: CapsuleBytes) {
    let Ready { namespace, request, pointer, operation, place, arrived } = ready;
    let (to_host, bytes) = match request.transfer() {
        Transfer::None => (0, 0),
        Transfer::ToHost(bytes) => (bytes, bytes),
        Transfer::FromHost(bytes) => (0, bytes),
    };
    let queue = &running.queue;
    let port = HostData::new(queue, running.cid, pointer, capsule, to_host);
    let status = if to_host as usize > SMALL_BYTES {
        carry_out_large(queue, &namespace, &request, &port, to_host).await
    } else {
        io::execute(namespace.core(), &request, &port, queue.controller.write_cache()).await
    };
    port.settle().await;
    let answered = port.answered();
    drop(port);
    running.report(place, status);
    namespace.end(operation, bytes, status, arrived);
    if answered == Answered::ByData {
        return running.answered_by_data();
    }
    running.respond(move |cid, sqhd| Cqe::new(cid, sqhd, status)).await;
}

/// A pair that may be carried out.
struct ReadyPair<F: OpenBackend> {
    namespace: Use<F::Backend>,
    request: FusedRequest,
    pointers: (DataPointer, DataPointer),
}

fn check_pair<F: OpenBackend>(
    queue: &Queue<F>,
    first: &Arrived<F>,
    second: &Arrived<F>,
) -> Result<ReadyPair<F>, (Status, Status)> {
    let one = |status| (status, Status::ABORTED_FAILED_FUSED);
    let two = |status| (Status::ABORTED_FAILED_FUSED, status);
    for (half, name) in [(first, true), (second, false)] {
        if half.capsule.digest == DigestCheck::Failed {
            let status = Status::TRANSIENT_TRANSPORT_ERROR;
            return Err(if name { one(status) } else { two(status) });
        }
    }
    let pointers = (
        data_pointer(&first.sqe, first.capsule.bytes.len()).map_err(one)?,
        data_pointer(&second.sqe, second.capsule.bytes.len()).map_err(two)?,
    );
    let served = queue.served(first.sqe.namespace()).map_err(one)?;
    let halves = ((&first.sqe, pointers.0.len()), (&second.sqe, pointers.1.len()));
    let request = served.core.with_namespace(|namespace| io::check_fused(halves.0, halves.1, namespace))?;
    check_pointer(request.compare(), pointers.0).map_err(one)?;
    check_pointer(request.write(), pointers.1).map_err(two)?;
    Ok(ReadyPair { namespace: Use::begin(served), request, pointers })
}

async fn carry_out_pair<F: OpenBackend>(queue: Rc<Queue<F>>, first: Arrived<F>, second: Arrived<F>) {
    let arrived = ashlar_reactor::now();
    let checked = check_pair(&queue, &first, &second);
    let places = (Place::of(&first.sqe), Place::of(&second.sqe));
    let (first, second) = ((first.running, first.capsule.bytes), (second.running, second.capsule.bytes));
    let statuses = match checked {
        Err(statuses) => {
            queue.count_refusal(places.0, statuses.0);
            queue.count_refusal(places.1, statuses.1);
            statuses
        }
        Ok(ReadyPair { namespace, request, pointers }) => {
            let compare = HostData::new(&queue, first.0.cid, pointers.0, first.1, 0);
            let write = HostData::new(&queue, second.0.cid, pointers.1, second.1, 0);
            let statuses = io::execute_fused(
                namespace.core(),
                &request,
                &compare,
                &write,
                queue.controller.write_cache(),
            )
            .await;
            compare.settle().await;
            write.settle().await;
            namespace.note(Operation::Compare, pointers.0.len(), statuses.0, arrived);
            namespace.end(Operation::Write, pointers.1.len(), statuses.1, arrived);
            statuses
        }
    };
    first.0.report(places.0, statuses.0);
    second.0.report(places.1, statuses.1);
    // Answered in order (NVME N11).
    first.0.respond(move |cid, sqhd| Cqe::new(cid, sqhd, statuses.0)).await;
    second.0.respond(move |cid, sqhd| Cqe::new(cid, sqhd, statuses.1)).await;
}

/// Flush with NSID FFFFFFFFh: all namespaces of the subsystem, the first failure answers (NVME N2).
async fn flush_all<F: OpenBackend>(running: Running<F>, mut sqe: Sqe) {
    let mut status = Status::SUCCESS;
    let queue = Rc::clone(&running.queue);
    for served in queue.subsystem.all() {
        let arrived = ashlar_reactor::now();
        let namespace = Use::begin(served);
        let nsid = namespace.core().with_namespace(|namespace| namespace.nsid);
        sqe.nsid.set(nsid.0);
        let checked =
            namespace.core().with_namespace(|namespace| io::check(&sqe, namespace, sqe.dptr.length.get()));
        let outcome = match checked {
            Ok(request) => {
                let port = HostData::new(&queue, running.cid, DataPointer::None, CapsuleBytes::None, 0);
                io::execute(namespace.core(), &request, &port, queue.controller.write_cache()).await
            }
            Err(status) => status,
        };
        namespace.end(Operation::Flush, 0, outcome, arrived);
        if !outcome.is_success() {
            status = outcome;
            break;
        }
    }
    running.respond(move |cid, sqhd| Cqe::new(cid, sqhd, status)).await;
}
