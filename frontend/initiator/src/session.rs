//! A namespace that outlives its association: reconnects with growing delays, and repeats reads and writes
//! that were lost.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ashlar_nvme::fabrics::InvalidParameter;
use ashlar_nvme::{Lba, Nqn, Nsid, Status};
use ashlar_reactor::{Instant, IoBuf, Notify, now, sleep};

use crate::config::HostConfig;
use crate::controller::{Controller, Namespace};
use crate::data::Payload;
use crate::error::{HostError, ProtocolError};
use crate::queue::{Fua, IoQueue};

/// Wait before a command is repeated that the controller could not do now.
const BUSY_DELAY: Duration = Duration::from_millis(50);

/// Most bytes of one command of a session, where the controller takes more: larger ones gain nothing.
const TRANSFER_MAX: u32 = 1024 * 1024;

/// An association that is set up again when it is lost. It repeats nothing by itself: commands in flight end
/// with [`HostError::ConnectionLost`].
#[derive(Debug)]
pub struct Reconnecting {
    address: SocketAddr,
    subsystem: Nqn,
    config: HostConfig,
    current: RefCell<Option<Rc<Association>>>,
    /// Somebody is connecting; the others wait.
    connecting: Cell<bool>,
    connected: Notify,
    count: Cell<u64>,
}

/// One association: the controller and its connected queues.
#[derive(Debug)]
pub struct Association {
    /// The controller.
    pub controller: Controller,
    /// Its I/O queues, all on this core.
    pub queues: Vec<IoQueue>,
}

impl Association {
    /// Connects the controller and all its queues, once.
    ///
    /// # Errors
    /// As for [`Controller::connect`] and [`IoQueue::connect`].
    pub async fn connect(
        address: SocketAddr,
        subsystem: &Nqn,
        config: &HostConfig,
    ) -> Result<Self, HostError> {
        let controller = Controller::connect(address, subsystem, config).await?;
        let queues = controller.connect_queues().await?;
        Ok(Self { controller, queues })
    }

    /// Whether one of its connections is lost. Then the controller is, too (NVME N6).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.controller.is_lost() || self.queues.iter().any(IoQueue::is_lost)
    }
}

/// Lets the next one connect when this attempt ends, however it does.
struct Turn<'a>(&'a Reconnecting);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.connecting.set(false);
        self.0.connected.notify_all();
    }
}

impl Reconnecting {
    /// Nothing is connected before [`Reconnecting::association`].
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: Nqn, config: HostConfig) -> Self {
        Self {
            address,
            subsystem,
            config,
            current: RefCell::new(None),
            connecting: Cell::new(false),
            connected: Notify::new(),
            count: Cell::new(0),
        }
    }

    /// Associations that were set up so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The association that lives. The first is tried once; one that was lost is set up again by the policy
    /// of the host's config.
    ///
    /// # Errors
    /// The last attempt's, when the policy gives up or the controller refuses for good (Do Not Retry).
    pub async fn association(&self) -> Result<Rc<Association>, HostError> {
        loop {
            if let Some(current) = &*self.current.borrow()
                && !current.is_lost()
            {
                return Ok(Rc::clone(current));
            }
            if !self.connecting.replace(true) {
                break;
            }
            self.connected.notified().await;
        }
        let _turn = Turn(self);
        // What is left of the last one is closed before the next is tried.
        drop(self.current.borrow_mut().take());
        let association = Rc::new(self.set_up().await?);
        *self.current.borrow_mut() = Some(Rc::clone(&association));
        self.count.set(self.count.get() + 1);
        Ok(association)
    }

    async fn set_up(&self) -> Result<Association, HostError> {
        let policy = self.config.reconnect;
        let give_up = now() + policy.give_up_after;
        let mut delay = policy.first_delay;
        loop {
            let error = match Association::connect(self.address, &self.subsystem, &self.config).await {
                Ok(association) => return Ok(association),
                Err(error) => error,
            };
            let first = self.count.get() == 0;
            if first || !may_succeed_later(&error) || now() + delay > give_up {
                return Err(error);
            }
            tracing::info!(%error, ?delay, "not connected, trying again");
            sleep(delay).await;
            delay = (delay * 2).min(policy.longest_delay);
        }
    }

    /// Orderly end of the association, if one lives.
    ///
    /// # Errors
    /// As for [`Controller::shut_down`].
    pub async fn shut_down(self) -> Result<(), HostError> {
        let Some(current) = self.current.take() else { return Ok(()) };
        match Rc::try_unwrap(current) {
            Ok(Association { controller, queues }) => {
                drop(queues);
                controller.shut_down().await
            }
            // Somebody still uses it; it ends with its last user.
            Err(_) => Ok(()),
        }
    }
}

/// Whether the same thing may succeed over a new association, or at a later time.
fn may_succeed_later(error: &HostError) -> bool {
    match error {
        // A queue's Connect that names a controller which is gone by now: the next association has another.
        HostError::Command(error)
            if error.status() == Status::CONNECT_INVALID_PARAMETERS
                && error.result == u64::from(InvalidParameter::CNTLID.dw0()) =>
        {
            true
        }
        HostError::Command(error) => !error.dnr(),
        HostError::DataDigest | HostError::ControllerFatal => true,
        other => other.is_lost(),
    }
}

/// Reads and writes of one namespace that are repeated over new associations until a deadline. Only for data
/// that nobody else writes at the same time: a repeated write may follow another's.
#[derive(Debug)]
pub struct Session {
    reconnecting: Reconnecting,
    namespace: Namespace,
    transfer_max: u32,
    depth: usize,
    limit: Duration,
    next: Cell<usize>,
}

impl Session {
    /// Connects and looks at the namespace. Each read and write may take up to `limit`, repetitions included.
    ///
    /// # Errors
    /// As for [`Reconnecting::association`] and [`Controller::namespace`].
    pub async fn open(
        address: SocketAddr,
        subsystem: Nqn,
        nsid: Nsid,
        config: HostConfig,
        limit: Duration,
    ) -> Result<Self, HostError> {
        let reconnecting = Reconnecting::new(address, subsystem, config);
        let association = reconnecting.association().await?;
        let namespace = association.controller.namespace(nsid).await?;
        let most = association.controller.info().transfer_max.min(TRANSFER_MAX);
        let transfer_max = most - most % namespace.block_bytes;
        if transfer_max == 0 || association.queues.is_empty() {
            let value = u64::from(association.controller.info().transfer_max);
            return Err(ProtocolError::Content { what: "MDTS, or the number of I/O queues,", value }.into());
        }
        let depth = association.queues.iter().map(IoQueue::depth).sum();
        drop(association);
        Ok(Self { reconnecting, namespace, transfer_max, depth, limit, next: Cell::new(0) })
    }

    /// The namespace, as it was when the session was opened.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Most data of one read or write, in bytes; a multiple of the block size.
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        self.transfer_max
    }

    /// Commands that can be outstanding at the same time over all queues.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Associations set up after the first.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.reconnecting.count().saturating_sub(1)
    }

    /// The next queue in turn.
    async fn queue(&self) -> Result<IoQueue, HostError> {
        let association = self.reconnecting.association().await?;
        let turn = self.next.get();
        self.next.set(turn.wrapping_add(1));
        let queues = &association.queues;
        let queue = turn.checked_rem(queues.len()).and_then(|index| queues.get(index)).cloned();
        // The controller may grant fewer queues to the new association, but not none.
        queue.ok_or_else(|| ProtocolError::Content { what: "number of I/O queues", value: 0 }.into())
    }

    /// Whether a command that failed is to be repeated; waits before it, if there is reason to.
    async fn try_again(&self, error: &HostError, deadline: Instant) -> bool {
        if !may_succeed_later(error) || now() >= deadline {
            return false;
        }
        if !error.is_lost() {
            sleep(BUSY_DELAY).await;
        }
        true
    }

    fn blocks(&self, len: u32) -> Result<u32, HostError> {
        let block = self.namespace.block_bytes;
        if len == 0 || !len.is_multiple_of(block) || len > self.transfer_max {
            let (value, most) = (u64::from(len), u64::from(self.transfer_max));
            return Err(HostError::Limit { what: "bytes of whole blocks in one transfer", value, most });
        }
        Ok(len / block)
    }

    /// Reads `len` bytes from block `slba` on, repeated until the deadline. `len` is a multiple of the block
    /// size.
    ///
    /// # Errors
    /// What no repetition helps against, or the last loss when the deadline has passed.
    pub async fn read(&self, slba: Lba, len: u32) -> Result<IoBuf, HostError> {
        let blocks = self.blocks(len)?;
        let deadline = now() + self.limit;
        loop {
            let buffer = IoBuf::take(len as usize).unwrap_or_else(|| IoBuf::heap(len as usize));
            let queue = self.queue().await?;
            match queue.read(self.namespace.nsid, slba, blocks, buffer).await {
                Ok(buffer) => return Ok(buffer),
                Err(error) if self.try_again(&error, deadline).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes `payload` from block `slba` on, repeated until the deadline.
    ///
    /// # Errors
    /// As for [`Session::read`].
    pub async fn write(&self, slba: Lba, payload: Payload, fua: Fua) -> Result<(), HostError> {
        let blocks = self.blocks(payload.len)?;
        let deadline = now() + self.limit;
        loop {
            let queue = self.queue().await?;
            match queue.write(self.namespace.nsid, slba, blocks, payload.clone(), fua).await {
                Ok(()) => return Ok(()),
                Err(error) if self.try_again(&error, deadline).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Flushes the namespace. If the association was lost since the writes that it is for, those are not
    /// repeated: whether they are kept is the controller's promise.
    ///
    /// # Errors
    /// As for [`Session::read`].
    pub async fn flush(&self) -> Result<(), HostError> {
        let deadline = now() + self.limit;
        loop {
            let queue = self.queue().await?;
            match queue.flush(self.namespace.nsid).await {
                Ok(()) => return Ok(()),
                Err(error) if self.try_again(&error, deadline).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Orderly end.
    ///
    /// # Errors
    /// As for [`Controller::shut_down`].
    pub async fn close(self) -> Result<(), HostError> {
        self.reconnecting.shut_down().await
    }
}
