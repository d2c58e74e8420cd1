//! A queue's connection: the task that sends, the task that receives, and how both end.
//!
//! What a turn submits goes out in one gathered send; while it is under way the next gather is filled. What
//! was received is worked off in the buffer in which it came.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ashlar_nvme::pdu::{Direction, FatalErrorStatus, HeaderError, TermReq};
use ashlar_nvme::{Qid, Sqe};
use ashlar_reactor::net::{Gather, Stream};
use ashlar_reactor::{IoBuf, Notify, spawn, timeout};

use crate::command::Pending;
use crate::config::HostConfig;
use crate::data::Data;
use crate::engine::Engine;
use crate::error::{HostError, Loss, ProtocolError};
use crate::handshake::shake_hands;
use crate::incoming::Digests;
use crate::load::{Handler, Idle, Submitter};
use crate::receive::{Direct, Parser};
use crate::slot::Owner;

/// In-capsule data that every admin queue takes, and every queue before it is connected (NVME N4).
pub(crate) const ADMIN_IN_CAPSULE: u32 = 8192;

/// How long a termination request may take to be sent before the socket is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes of an I/O queue's receive buffer: 31 reads of 4 KiB. Its own, and used again and again, because it
/// stays in the cache; buffers that the core's connections share go round in megabytes.
const RECEIVE: usize = 128 * 1024;

/// Bytes of the admin queue's.
const ADMIN_RECEIVE: usize = 8 * 1024;

/// Data of which less is left than this comes through the receive buffer: one copy costs less than one
/// operation.
const DIRECT_MIN: u32 = 32 * 1024;

type SharedHandler = Rc<RefCell<dyn Handler>>;

pub(crate) struct Connection {
    stream: Stream,
    qid: Qid,
    state: RefCell<State>,
    handler: RefCell<SharedHandler>,
    /// The sending task, when it has nothing to do.
    sender: Cell<Option<Waker>>,
    /// Who waits for the handler to be done.
    runner: Cell<Option<Waker>>,
    room: Notify,
    waiting: Cell<usize>,
    lost: Notify,
    closing: Cell<bool>,
    /// The sending task has ended.
    silent: Cell<bool>,
}

struct State {
    engine: Engine,
    parser: Parser,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("qid", &self.qid).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects and agrees on digests; the queue is then ready for its Connect command.
    pub(crate) async fn open(
        address: SocketAddr,
        qid: Qid,
        entries: u16,
        config: &HostConfig,
    ) -> Result<Rc<Self>, HostError> {
        let opening = async {
            let stream = Stream::connect(&address, config.stream)
                .await
                .map_err(|error| HostError::Connect { address, kind: error.kind() })?;
            let (agreed, surplus) = shake_hands(&stream, qid, config).await?;
            let digests = Digests { header: config.header_digest.is_on(), data: config.data_digest.is_on() };
            let state = State {
                engine: Engine::new(entries, agreed, ADMIN_IN_CAPSULE),
                parser: Parser::new(digests),
            };
            let connection = Rc::new(Self {
                stream,
                qid,
                state: RefCell::new(state),
                handler: RefCell::new(Rc::new(RefCell::new(Idle))),
                sender: Cell::new(None),
                runner: Cell::new(None),
                room: Notify::new(),
                waiting: Cell::new(0),
                lost: Notify::new(),
                closing: Cell::new(false),
                silent: Cell::new(false),
            });
            spawn(Rc::clone(&connection).send_all());
            spawn(Rc::clone(&connection).receive_all(surplus));
            Ok(connection)
        };
        let limit = config.admin_timeout;
        timeout(limit, opening)
            .await
            .unwrap_or(Err(HostError::TimedOut { what: "connecting a queue", limit }))
    }

    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> R {
        f(&mut self.state.borrow_mut().engine)
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.state.borrow().engine.loss()
    }

    /// The error of commands on a lost connection.
    pub(crate) fn lost_error(&self) -> HostError {
        HostError::ConnectionLost { qid: self.qid, cause: self.loss().unwrap_or(Loss::Closed) }
    }

    /// Ends once the connection is lost.
    pub(crate) async fn until_lost(&self) -> HostError {
        while self.loss().is_none() {
            self.lost.notified().await;
        }
        self.lost_error()
    }

    /// Ends the connection after what was submitted has been sent.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.kick();
    }

    // ---- commands ----

    /// Submits a command as soon as `entries` entries are free.
    async fn wait_for_room(&self, entries: usize) -> Result<(), HostError> {
        loop {
            let (room, loss) = self.with_engine(|engine| (engine.room(), engine.loss()));
            if loss.is_some() || self.closing.get() {
                return Err(self.lost_error());
            }
            if room >= entries {
                return Ok(());
            }
            let _counted = Counted::new(&self.waiting);
            self.room.notified().await;
        }
    }

    pub(crate) async fn submit(self: &Rc<Self>, sqe: Sqe, data: Data) -> Result<Pending, HostError> {
        self.wait_for_room(1).await?;
        self.submit_now(sqe, data)
    }

    /// Submits two commands that are adjacent in the queue.
    pub(crate) async fn submit_pair(
        self: &Rc<Self>,
        first: (Sqe, Data),
        second: (Sqe, Data),
    ) -> Result<(Pending, Pending), HostError> {
        let depth = self.with_engine(|engine| engine.depth());
        if depth < 2 {
            let (value, most) = (2, depth as u64);
            return Err(HostError::Limit { what: "commands of a fused pair", value, most });
        }
        self.wait_for_room(2).await?;
        let first = self.submit_now(first.0, first.1)?;
        Ok((first, self.submit_now(second.0, second.1)?))
    }

    fn submit_now(self: &Rc<Self>, sqe: Sqe, data: Data) -> Result<Pending, HostError> {
        let submitted = self.with_engine(|engine| engine.submit(Owner::Future(None), sqe, data));
        // There is room, so a refusal means loss.
        let index = submitted.map_err(|_| self.lost_error())?;
        self.kick();
        Ok(Pending::new(Rc::clone(self), index, sqe.opcode))
    }

    /// A command's entry is free again.
    pub(crate) fn freed(&self) {
        if self.waiting.get() > 0 {
            self.room.notify_one();
        }
    }

    // ---- the handler ----

    pub(crate) fn submit_with<R>(&self, submit: impl FnOnce(&mut Submitter<'_>) -> R) -> R {
        let result = self.with_engine(|engine| submit(&mut Submitter { engine }));
        self.kick();
        self.wake_runner();
        result
    }

    fn handler(&self) -> SharedHandler {
        Rc::clone(&self.handler.borrow())
    }

    fn install(&self, handler: SharedHandler) {
        self.with_engine(|engine| {
            let mut handler = handler.borrow_mut();
            handler.begin(&mut Submitter { engine });
            handler.end_of_batch(&mut Submitter { engine });
        });
        *self.handler.borrow_mut() = handler;
        self.kick();
    }

    fn uninstall(&self) {
        self.with_engine(Engine::forget_handler);
        *self.handler.borrow_mut() = Rc::new(RefCell::new(Idle));
    }

    /// Whether the handler's run is over.
    pub(crate) fn is_run_over(&self) -> bool {
        let state = self.state.borrow();
        let nothing_left = state.engine.handled == 0 && self.handler().borrow().is_done();
        state.engine.loss().is_some() || nothing_left
    }

    pub(crate) fn set_runner(&self, waker: &Waker) {
        self.runner.set(Some(waker.clone()));
    }

    fn wake_runner(&self) {
        if self.state.borrow().engine.handled == 0
            && let Some(waker) = self.runner.take()
        {
            waker.wake();
        }
    }

    // ---- sending ----

    /// Has the sending task look at what there is to send.
    pub(crate) fn kick(&self) {
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }

    async fn send_all(self: Rc<Self>) {
        let mut spare: Option<Box<Gather>> = Some(Box::default());
        loop {
            let next = poll_fn(|context| {
                let mut state = self.state.borrow_mut();
                if let Some(filled) = state.engine.take_filled(&mut spare) {
                    return Poll::Ready(Some(filled));
                }
                if state.engine.loss().is_some() || self.closing.get() {
                    return Poll::Ready(None);
                }
                self.sender.set(Some(context.waker().clone()));
                Poll::Pending
            });
            let Some(mut gather) = next.await else { break };
            self.deliver_drained();
            while !gather.is_empty() {
                let (result, rest) = self.stream.send(gather).await;
                gather = rest;
                if let Err(error) = result {
                    self.lose(Loss::Io(error.kind()), None);
                    gather.clear();
                }
            }
            spare = Some(gather);
        }
        self.lose(Loss::Closed, None);
        self.stream.shut_down();
        self.silent.set(true);
        self.lost.notify_all();
    }

    /// Ends once nothing more will be sent.
    async fn until_silent(&self) {
        while !self.silent.get() {
            self.lost.notified().await;
        }
    }

    fn deliver_drained(&self) {
        if self.state.borrow().engine.has_drained() {
            let handler = self.handler();
            self.with_engine(|engine| engine.finish_drained(&mut *handler.borrow_mut()));
            self.freed();
            self.wake_runner();
        }
    }

    // ---- receiving ----

    async fn receive_all(self: Rc<Self>, surplus: Vec<u8>) {
        let mut buffer = IoBuf::heap(if self.qid.is_admin() { ADMIN_RECEIVE } else { RECEIVE });
        let mut result = self.take_in(&surplus);
        while result.is_ok() && self.loss().is_none() {
            let direct = {
                let state = self.state.borrow();
                state.parser.direct(&state.engine).filter(|direct| direct.len >= DIRECT_MIN)
            };
            result = match direct {
                Some(direct) => self.receive_directly(direct).await,
                None => {
                    let (received, whole) = self.stream.receive_into(buffer, 0).await;
                    buffer = whole;
                    match received {
                        Ok(0) => Err(Loss::ClosedByPeer),
                        Ok(received) => self.take_in(buffer.get(..received).unwrap_or_default()),
                        Err(error) => Err(Loss::Io(error.kind())),
                    }
                }
            };
        }
        if let Err(loss) = result {
            let last_words = match loss {
                Loss::Protocol(error) => self.termination_request(&error),
                _ => None,
            };
            self.lose(loss, last_words);
        }
    }

    fn take_in(&self, bytes: &[u8]) -> Result<(), Loss> {
        let handler = self.handler();
        let mut handler = handler.borrow_mut();
        let mut state = self.state.borrow_mut();
        let State { engine, parser } = &mut *state;
        let result = parser.feed(engine, &mut *handler, bytes);
        handler.end_of_batch(&mut Submitter { engine });
        drop(state);
        drop(handler);
        self.after_receiving();
        result
    }

    fn after_receiving(&self) {
        self.kick();
        self.freed();
        self.wake_runner();
    }

    async fn receive_directly(&self, direct: Direct) -> Result<(), Loss> {
        let Some(buffer) = self.with_engine(|engine| engine.take_sink(direct.index)) else { return Ok(()) };
        let from = direct.offset as usize;
        let (result, buffer) = self.stream.receive_part(buffer, from..from + direct.len as usize).await;
        let received = match result {
            // The caller's buffer is shorter than the command's data: the receive buffer takes the rest.
            Ok(0) if buffer.len() <= from => return Ok(()),
            Ok(0) => return Err(Loss::ClosedByPeer),
            Ok(received) => received as u32,
            Err(error) => return Err(Loss::Io(error.kind())),
        };
        if self.loss().is_some() {
            return Ok(());
        }
        let handler = self.handler();
        let mut handler = handler.borrow_mut();
        let mut state = self.state.borrow_mut();
        let State { engine, parser } = &mut *state;
        engine.put_sink(direct.index, buffer);
        parser.received_directly(engine, &mut *handler, received);
        drop(state);
        drop(handler);
        self.after_receiving();
        Ok(())
    }

    // ---- the end ----

    fn termination_request(&self, error: &ProtocolError) -> Option<Vec<u8>> {
        let error = header_error(error)?;
        let state = self.state.borrow();
        let mut message = vec![0; TermReq::PLEN_MAX];
        let offending = &state.parser.judged;
        let len = TermReq::put_with(Direction::HostToController, error, offending, &mut message).ok()?;
        message.truncate(len);
        Some(message)
    }

    /// The connection is lost: every command ends, nothing more is taken. `last_words` are still sent.
    pub(crate) fn lose(self: &Rc<Self>, loss: Loss, last_words: Option<Vec<u8>>) {
        if self.loss().is_some() {
            return;
        }
        {
            let handler = self.handler();
            self.with_engine(|engine| {
                engine.lose(loss, &mut *handler.borrow_mut());
                if let Some(message) = &last_words {
                    engine.put_last(message);
                }
            });
        }
        tracing::debug!(qid = %self.qid, cause = %loss, "queue ended");
        if last_words.is_some() {
            let connection = Rc::clone(self);
            spawn(async move {
                if timeout(LAST_WORDS, connection.until_silent()).await.is_err() {
                    connection.stream.shut_down();
                }
            });
        } else {
            self.stream.shut_down();
        }
        self.kick();
        self.room.notify_all();
        self.lost.notify_all();
        if let Some(waker) = self.runner.take() {
            waker.wake();
        }
    }
}

/// What a termination request says about an error; nothing for those that are none of the transport's.
fn header_error(error: &ProtocolError) -> Option<HeaderError> {
    let invalid = |fei| HeaderError { fes: FatalErrorStatus::InvalidHeaderField, fei };
    Some(match *error {
        ProtocolError::UnexpectedPdu { .. } | ProtocolError::IcResp { .. } => HeaderError::sequence(),
        ProtocolError::Field { offset, .. } => invalid(u32::from(offset)),
        ProtocolError::HeaderDigest { received, .. } => HeaderError::header_digest(received),
        // CCCID, or CID within the completion.
        ProtocolError::UnknownCommand { kind: crate::incoming::CAPSULE_RESP, .. } => invalid(20),
        ProtocolError::UnknownCommand { .. } | ProtocolError::WrongDirection { .. } => invalid(8),
        ProtocolError::OutOfRange { .. } => HeaderError::out_of_range(),
        ProtocolError::Last { .. } | ProtocolError::SuccessFlag { .. } => invalid(1),
        ProtocolError::TooManyR2ts { .. } => HeaderError::limit_exceeded(),
        ProtocolError::Sqhd { .. } => invalid(16),
        ProtocolError::Short { .. } => HeaderError::sequence(),
        ProtocolError::Content { .. } => return None,
    })
}

/// One who waits, counted.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Closes the connection when the last who uses it is gone.
#[derive(Debug)]
pub(crate) struct Link(pub(crate) Rc<Connection>);

impl Drop for Link {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Ends a queue whose oldest command is older than `limit`.
pub(crate) async fn watch(connection: Rc<Connection>, limit: Duration) {
    /// Rounds within the limit, and one because a command is submitted in mid-round.
    const ROUNDS: u32 = 4 + 1;
    while timeout(limit / 4, connection.until_lost()).await.is_err() {
        let late = connection.with_engine(|engine| {
            engine.epoch = engine.epoch.wrapping_add(1);
            engine.has_older_than(ROUNDS)
        });
        if late {
            connection.lose(Loss::CommandTimeout(limit), None);
        }
    }
}

/// Awaits `future`, at most `limit`; the queue is lost if it takes longer.
pub(crate) async fn limited<T>(
    connection: &Rc<Connection>,
    limit: Duration,
    what: &'static str,
    future: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    match timeout(limit, future).await {
        Ok(result) => result,
        Err(_) => {
            connection.lose(Loss::CommandTimeout(limit), None);
            Err(HostError::TimedOut { what, limit })
        }
    }
}

/// Runs a handler to its end; see [`crate::IoQueue::run`].
pub(crate) async fn run<H: Handler + 'static>(
    connection: &Connection,
    handler: H,
) -> (Result<(), HostError>, H) {
    struct Guard<'a>(&'a Connection);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.uninstall();
        }
    }
    let handler = Rc::new(RefCell::new(handler));
    connection.install(Rc::clone(&handler) as SharedHandler);
    let guard = Guard(connection);
    poll_fn(|context| {
        if connection.is_run_over() {
            return Poll::Ready(());
        }
        connection.set_runner(context.waker());
        Poll::Pending
    })
    .await;
    drop(guard);
    let result = if connection.loss().is_some() { Err(connection.lost_error()) } else { Ok(()) };
    match Rc::try_unwrap(handler) {
        Ok(handler) => (result, handler.into_inner()),
        Err(_) => unreachable!("the connection gave its reference up, and nobody else is given one"),
    }
}
