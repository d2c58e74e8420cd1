//! A queue: one connection on its core, the commands that run for it, and how it ends.
//!
//! A queue ends in three steps. It is *closed*: nothing of it starts any more, the socket is shut down,
//! commands that wait for the host's data or for room to answer stop waiting. Commands that a backend is
//! carrying out go on to their end, their answers go nowhere. When the last has ended the queue is *quiet*:
//! no started command is unaccounted for (NVME N6). Then it leaves its core and its controller is told.
//!
//! In-band authentication (DH-HMAC-CHAP) would sit between Connect and the first other command: a life of its
//! own here, and Authentication Send and Receive in `fabrics`. TLS would sit below `receive` and `outbox`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::command::FusedOperation;
use ashlar_nvme::opcode::FABRICS;
use ashlar_nvme::pdu::header::Framing;
use ashlar_nvme::pdu::{HeaderError, HeaderRules};
use ashlar_nvme::{CommandId, Cqe, Qid, Sqe, Status};
use ashlar_reactor::net::Stream;
use ashlar_reactor::{Instant, Notify};

use crate::backend::OpenBackend;
use crate::controller::connect::FlowControl;
use crate::controller::{Aborted, Controller, ControllerShared, ControllerState};
use crate::io::Pairing;
use crate::target::core_state::{CoreState, SubsystemCore};
use crate::transport::aborts::Aborts;
use crate::transport::budget::Budget;
use crate::transport::cids::LiveCids;
use crate::transport::host_data::CapsuleData;
use crate::transport::outbox::Outbox;
use crate::transport::reports::Place;
use crate::transport::transfers::Transfers;

/// What ICReq, ICResp and Connect settled for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// For what the host sends.
    pub(crate) rules: HeaderRules,
    /// For what we send.
    pub(crate) framing: Framing,
    /// R2Ts that a command may have outstanding.
    pub(crate) r2ts_max: usize,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The host closed it, or it broke.
    PeerGone,
    /// The host sent a termination request.
    HostTerminated,
    /// The host did what the protocol forbids.
    Violation(HeaderError),
    /// The host sent Disconnect.
    Disconnected,
    /// Nothing of a started PDU, or of data that was asked for, came in time.
    ReceiveStalled,
    /// The host takes nothing.
    SendStalled,
    /// The core ran too late (PROTOCOL R9).
    CoreLate,
    /// Its controller was disabled, shut down, or its association ended.
    ControllerEnded,
    /// The keep-alive timer expired.
    KeepAlive,
    /// The target stops, or no longer serves this host.
    Withdrawn,
}

/// What a queue is for.
pub(crate) enum Role {
    /// Admin commands, with the controller that executes them.
    Admin(Rc<Controller>),
    /// I/O commands.
    Io,
}

/// A command that arrived, before it starts.
pub(crate) struct Arrived<F: OpenBackend> {
    pub(crate) running: Running<F>,
    pub(crate) sqe: Sqe,
    pub(crate) capsule: CapsuleData,
}

/// See the module.
pub(crate) struct Queue<F: OpenBackend> {
    pub(crate) core: Rc<CoreState<F>>,
    pub(crate) controller: Arc<ControllerShared>,
    pub(crate) subsystem: Rc<SubsystemCore<F::Backend>>,
    pub(crate) role: Role,
    pub(crate) qid: Qid,
    pub(crate) entries: u16,
    pub(crate) flow_control: FlowControl,
    pub(crate) terms: Terms,
    pub(crate) stream: Stream,
    pub(crate) outbox: Outbox,
    pub(crate) transfers: Transfers,
    pub(crate) aborts: Aborts,
    /// Large reads under way.
    pub(crate) reads: Budget,
    /// Failed commands that are being told to the controller.
    pub(crate) reports: Cell<u32>,
    pub(crate) pairing: RefCell<Pairing<Arrived<F>>>,
    pub(crate) first_half: Cell<FirstHalf>,
    /// Since when a PDU has begun and not ended; renewed with each piece of it.
    pub(crate) partial_since: Cell<Option<Instant>>,
    cids: LiveCids,
    sqhd: Cell<u16>,
    running: Cell<u32>,
    closed: Cell<Option<Reason>>,
    sender: Cell<Sender>,
    place: Cell<Presence>,
    changed: Notify,
}

/// Whether the first half of a fused pair waits for its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstHalf {
    None,
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Running,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    OnCore,
    Left,
}

/// How a queue is made.
pub(crate) struct QueueParts<F: OpenBackend> {
    pub(crate) core: Rc<CoreState<F>>,
    pub(crate) controller: Arc<ControllerShared>,
    pub(crate) subsystem: Rc<SubsystemCore<F::Backend>>,
    pub(crate) role: Role,
    pub(crate) qid: Qid,
    pub(crate) entries: u16,
    pub(crate) flow_control: FlowControl,
    pub(crate) terms: Terms,
    pub(crate) stream: Stream,
}

impl<F: OpenBackend> Queue<F> {
    pub(crate) fn new(parts: QueueParts<F>) -> Rc<Self> {
        let QueueParts { core, controller, subsystem, role, qid, entries, flow_control, terms, stream } =
            parts;
        let outbox = Outbox::new(terms.framing, core.gathers.clone());
        Rc::new(Self {
            core,
            controller,
            subsystem,
            role,
            qid,
            entries,
            flow_control,
            terms,
            stream,
            outbox,
            transfers: Transfers::new(),
            aborts: Aborts::default(),
            reads: Budget::new(),
            reports: Cell::new(0),
            pairing: RefCell::default(),
            first_half: Cell::new(FirstHalf::None),
            partial_since: Cell::new(None),
            cids: LiveCids::new(),
            sqhd: Cell::new(0),
            running: Cell::new(0),
            closed: Cell::new(None),
            sender: Cell::new(Sender::Running),
            place: Cell::new(Presence::OnCore),
            changed: Notify::new(),
        })
    }

    /// Nothing of it may start any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Why it was closed.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.closed.get()
    }

    /// Whether a started command that waited may go on to its next part (PROTOCOL R9).
    pub(crate) fn may_go_on(&self) -> Result<(), Status> {
        if self.is_closed() || self.controller.state() == ControllerState::Ended {
            return Err(Status::ABORTED_SQ_DELETION);
        }
        Ok(())
    }

    /// Something was heard of the host (NVME N7).
    pub(crate) fn note_traffic(&self) {
        if let Some(traffic) = self.controller.traffic(self.core.id) {
            traffic.heard(ashlar_reactor::now());
        }
    }

    /// Takes a command in. An error ends the connection.
    pub(crate) fn arrive(self: &Rc<Self>, sqe: Sqe, capsule: CapsuleData) -> Result<(), HeaderError> {
        // More commands than the queue has entries: the host does not follow its own Connect.
        if self.running.get() >= u32::from(self.entries) {
            return Err(HeaderError::sequence());
        }
        let cid = sqe.command_id();
        if self.cids.begin(cid).is_err() {
            if let Role::Io = self.role {
                self.count_refusal(Place::of(&sqe), Status::COMMAND_ID_CONFLICT);
            }
            self.answer_conflict(cid);
            return Ok(());
        }
        self.running.set(self.running.get() + 1);
        let arrived = Arrived { running: Running { queue: Rc::clone(self), cid }, sqe, capsule };
        match &self.role {
            Role::Io => self.start_io(arrived),
            Role::Admin(controller) => self.start_admin(Rc::clone(controller), arrived),
        }
        Ok(())
    }

    /// The command with the identifier that lives goes on; this one is refused (NVME N15).
    fn answer_conflict(self: &Rc<Self>, cid: CommandId) {
        let queue = Rc::clone(self);
        ashlar_reactor::spawn_now(async move {
            if queue.outbox.room_for_header().await.is_ok() {
                let sqhd = queue.advance();
                // A closed outbox needs no answer.
                let _ = queue.outbox.response(Cqe::new(cid, sqhd, Status::COMMAND_ID_CONFLICT));
            }
        });
    }

    fn start_io(self: &Rc<Self>, arrived: Arrived<F>) {
        // A command is bound to its controller and never starts after that has ended (PROTOCOL R9).
        if self.controller.state() != ControllerState::Ready {
            return self.close(Reason::ControllerEnded);
        }
        if arrived.sqe.opcode == FABRICS {
            return self.start_fabrics_io(arrived);
        }
        let fused = match arrived.sqe.fused() {
            Ok(FusedOperation::Normal) if self.first_half.get() == FirstHalf::None => {
                return self.start_alone(arrived);
            }
            Ok(fused) => fused,
            Err(status) => return arrived.running.refuse(Place::of(&arrived.sqe), status),
        };
        self.start_fused(fused, arrived);
    }

    /// One more entry of the submission queue was consumed: the value for SQHD (NVME N1).
    pub(crate) fn advance(&self) -> u16 {
        match self.flow_control {
            FlowControl::Disabled => Cqe::SQHD_DISABLED,
            FlowControl::Enabled => {
                let next = self.sqhd.get() + 1;
                self.sqhd.set(if next >= self.entries { 0 } else { next });
                self.sqhd.get()
            }
        }
    }

    fn account(&self, cid: CommandId) {
        self.cids.end(cid);
        self.aborts.note_end(cid);
        self.running.set(self.running.get().saturating_sub(1));
        if self.running.get() == 0 && self.is_closed() {
            self.changed.notify_all();
        }
    }

    /// Closes it: nothing starts any more and nothing is sent any more.
    pub(crate) fn close(&self, reason: Reason) {
        if self.closed.get().is_none() {
            tracing::debug!(controller = %self.controller.cntlid, queue = %self.qid, ?reason, "queue closed");
            self.closed.set(Some(reason));
        }
        self.stop_waiting();
        self.outbox.close();
        self.stream.shut_down();
    }

    /// Nothing starts any more; the peer is told why and then let go.
    pub(crate) fn terminate(&self, error: HeaderError, offending: &[u8]) {
        if self.is_closed() {
            return;
        }
        let (controller, queue) = (self.controller.cntlid, self.qid);
        tracing::debug!(%controller, %queue, %error, "host violates the protocol");
        self.closed.set(Some(Reason::Violation(error)));
        self.outbox.terminate(error, offending);
        self.stop_waiting();
    }

    /// Nothing starts any more; what is to be sent is sent, then the connection ends.
    pub(crate) fn finish_sending(&self, reason: Reason) {
        if self.is_closed() {
            return;
        }
        self.closed.set(Some(reason));
        self.outbox.finish();
        self.stop_waiting();
    }

    fn stop_waiting(&self) {
        self.transfers.end();
        self.reads.end();
        // A first half that was held has not started.
        let held = self.pairing.borrow_mut().take_held();
        drop(held);
        if let Role::Admin(controller) = &self.role {
            controller.end();
        }
        self.changed.notify_all();
    }

    /// Waits until nothing of it may start any more.
    pub(crate) async fn closing(&self) {
        while !self.is_closed() {
            self.changed.notified().await;
        }
    }

    /// The sender has sent its last.
    pub(crate) fn sender_ended(&self) {
        self.sender.set(Sender::Ended);
        self.changed.notify_all();
    }

    /// Waits until everything that shall be sent is sent, or cannot be.
    pub(crate) async fn sent(&self) {
        while self.sender.get() == Sender::Running {
            self.changed.notified().await;
        }
    }

    /// Waits until no command runs and nothing is being sent.
    pub(crate) async fn quiet(&self) {
        while self.running.get() > 0 || self.sender.get() == Sender::Running {
            self.changed.notified().await;
        }
    }

    /// It has left its core.
    pub(crate) fn set_left(&self) {
        self.place.set(Presence::Left);
        self.changed.notify_all();
    }

    /// Waits until it has left its core.
    pub(crate) async fn left(&self) {
        while self.place.get() == Presence::OnCore {
            self.changed.notified().await;
        }
    }

    /// A command that waits, for its data, its other half or a place, is not carried out any further. Ends when it is
    /// answered, which it is when the host owes no data for it.
    pub(crate) async fn abort(&self, cid: CommandId) -> Aborted {
        let watch = self.aborts.watch(cid);
        // Both, as a command can wait in one place and have data outstanding in the other.
        let (owed, waits) = (self.transfers.abort(cid), self.aborts.abort(cid));
        if !(owed || waits || self.abort_held(cid)) {
            return Aborted::No;
        }
        watch.ended().await;
        Aborted::Yes
    }

    /// A first half that waits for its second has not started.
    fn abort_held(&self, cid: CommandId) -> bool {
        let mut pairing = self.pairing.borrow_mut();
        if pairing.held().is_none_or(|held| held.running.cid != cid) {
            return false;
        }
        let held = pairing.take_held();
        drop(pairing);
        self.first_half.set(FirstHalf::None);
        if let Some(held) = held {
            self.count_refusal(Place::of(&held.sqe), Status::ABORT_REQUESTED);
            held.running.answer(Status::ABORT_REQUESTED);
        }
        true
    }
}

/// A command that counts as started until it is answered or dropped.
pub(crate) struct Running<F: OpenBackend> {
    pub(crate) queue: Rc<Queue<F>>,
    pub(crate) cid: CommandId,
}

impl<F: OpenBackend> Running<F> {
    /// Answers with a completion built from this command's identifier and SQHD.
    pub(crate) async fn respond(self, complete: impl FnOnce(CommandId, u16) -> Cqe) {
        if self.queue.outbox.room_for_header().await.is_ok() {
            let sqhd = self.queue.advance();
            // A closed outbox needs no answer.
            let _ = self.queue.outbox.response(complete(self.cid, sqhd));
        }
    }

    /// Answers with a status, at once if there is room.
    pub(crate) fn answer(self, status: Status) {
        ashlar_reactor::spawn_now(self.respond(move |cid, sqhd| Cqe::new(cid, sqhd, status)));
    }

    /// It was answered by its data.
    pub(crate) fn answered_by_data(self) {
        self.queue.advance();
    }
}

impl<F: OpenBackend> Drop for Running<F> {
    fn drop(&mut self) {
        self.queue.account(self.cid);
    }
}
