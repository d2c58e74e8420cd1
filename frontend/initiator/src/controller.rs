//! A controller: how an association is set up and ended (NVMe Base 2.0 §3.5, §3.6, §6.3).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::{ConnectAttributes, ConnectCommand, ConnectData, ConnectResponse};
use ashlar_nvme::feature::{AsyncEventConfig, FeatureId, NumberOfQueues};
use ashlar_nvme::identify::controller::ControllerType;
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace};
use ashlar_nvme::registers::{CSS_IOCS, Cap, Cc, Crto, Csts, Property, Shn, Shst, Vs};
use ashlar_nvme::wire::Wire;
use ashlar_nvme::{Cntlid, CommandId, Nqn, Nsid, Qid, Sqe};
use ashlar_reactor::{now, sleep, spawn, timeout};

use crate::command::Pending;
use crate::config::{FlowControl, HostConfig, QUEUE_ENTRIES_MAX, QUEUE_ENTRIES_MIN};
use crate::connection::{ADMIN_IN_CAPSULE, Connection, Link, limited, watch};
use crate::data::{Data, Payload};
use crate::engine::HeadPointer;
use crate::error::{HostError, Loss, ProtocolError};
use crate::queue::{Completion, IoQueue};

/// Entries of the admin queue: what every controller takes (ASQSZ is at least 32).
const ADMIN_ENTRIES: u16 = 32;

/// Time between two looks at CSTS.
const READY_POLL: Duration = Duration::from_millis(5);

/// CAP.TO and CRTO count in this.
const READY_UNIT: Duration = Duration::from_millis(500);

/// How long a shutdown may take where the controller does not say (RTD3E).
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// What a controller said about itself when it was connected.
#[derive(Debug, Clone)]
pub struct ControllerInfo {
    /// Controller identifier.
    pub cntlid: Cntlid,
    /// Capabilities.
    pub cap: Cap,
    /// Version.
    pub vs: Vs,
    /// Identify Controller.
    pub identify: Box<IdentifyController>,
    /// Most data of a command in bytes (MDTS); `u32::MAX` without a limit.
    pub transfer_max: u32,
    /// Most data in an I/O capsule in bytes.
    pub in_capsule_max: u32,
    /// Entries of each I/O queue.
    pub queue_entries: u16,
    /// I/O queues granted: queues 1 to this can be connected.
    pub io_queues: u16,
}

/// A namespace as a host sees it.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: Nsid,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The whole structure.
    pub identify: Box<IdentifyNamespace>,
}

/// What it takes to connect an I/O queue of a controller, also on another core.
#[derive(Debug, Clone)]
pub struct Ticket {
    address: SocketAddr,
    subsystem: Nqn,
    config: HostConfig,
    cntlid: Cntlid,
    queue_entries: u16,
    io_queues: u16,
    in_capsule_max: u32,
    transfer_max: u32,
}

impl Ticket {
    pub(crate) fn transfer_max(&self) -> u32 {
        self.transfer_max
    }

    /// I/O queues granted.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.io_queues
    }

    pub(crate) async fn connect_queue(&self, qid: Qid) -> Result<Link, HostError> {
        if qid.is_admin() || qid.0 > self.io_queues {
            let (value, most) = (u64::from(qid.0), u64::from(self.io_queues));
            return Err(HostError::Limit { what: "I/O queue", value, most });
        }
        let link = Link(Connection::open(self.address, qid, self.queue_entries, &self.config).await?);
        connect_command(&link.0, self, qid, self.queue_entries).await?;
        link.0.with_engine(|engine| engine.in_capsule_max = self.in_capsule_max);
        if !self.config.io_timeout.is_zero() {
            spawn(watch(Rc::clone(&link.0), self.config.io_timeout));
        }
        Ok(link)
    }
}

/// Connect, on a queue's fresh connection; learns whether flow control is disabled. Returns the controller.
async fn connect_command(
    connection: &Rc<Connection>,
    ticket: &Ticket,
    qid: Qid,
    entries: u16,
) -> Result<Cntlid, HostError> {
    let config = &ticket.config;
    let asked = config.flow_control == FlowControl::Disabled;
    let attributes = ConnectAttributes(0).with_disable_flow_control(asked);
    let kato_ms = if qid.is_admin() { keep_alive_ms(config) } else { 0 };
    let command = ConnectCommand::new(CommandId(0), qid, entries - 1, attributes, kato_ms);
    let data = ConnectData::new(config.host_id, ticket.cntlid, &ticket.subsystem, &config.host_nqn);
    let pending = connection.submit(*command.as_sqe(), Data::Out(Payload::copy_of(data.bytes()))).await?;
    let done = limited(connection, config.admin_timeout, "Connect", pending).await?;
    let response = ConnectResponse(done.result as u32);
    if response.atr() || response.ascr() {
        return Err(HostError::AuthenticationRequired);
    }
    let cntlid = Cntlid(response.cntlid());
    if (!qid.is_admin() && cntlid != ticket.cntlid) || cntlid.0 >= Cntlid::RESERVED_FROM {
        let value = u64::from(cntlid.0);
        return Err(ProtocolError::Content { what: "CNTLID in the answer to Connect", value }.into());
    }
    connection.with_engine(|engine| {
        // FFFFh in the answer is how a controller grants it (NVMe Base 2.0 §6.3).
        engine.heads = if asked && engine.last_sqhd == u16::MAX {
            HeadPointer::Disabled
        } else {
            HeadPointer::Within(entries)
        };
    });
    Ok(cntlid)
}

fn keep_alive_ms(config: &HostConfig) -> u32 {
    u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX)
}

/// An association with a controller, on one core. Dropping it closes the admin queue, and with it the
/// controller.
#[derive(Debug)]
pub struct Controller {
    link: Link,
    ticket: Ticket,
    info: ControllerInfo,
    /// The Asynchronous Event Request that is outstanding.
    event: RefCell<Option<Pending>>,
}

impl Controller {
    /// Connects to `subsystem` at `address`: admin queue, enable, identify, number of queues. Keep Alive runs
    /// from then on. I/O queues are connected by [`IoQueue::connect`].
    ///
    /// # Errors
    /// If there is no connection, the controller refuses, or does not become ready in the time that it names.
    pub async fn connect(
        address: SocketAddr,
        subsystem: &Nqn,
        config: &HostConfig,
    ) -> Result<Self, HostError> {
        let link = Link(Connection::open(address, Qid::ADMIN, ADMIN_ENTRIES, config).await?);
        let mut ticket = Ticket {
            address,
            subsystem: subsystem.clone(),
            config: config.clone(),
            cntlid: Cntlid::DYNAMIC,
            queue_entries: 0,
            io_queues: 0,
            in_capsule_max: 0,
            transfer_max: u32::MAX,
        };
        ticket.cntlid = connect_command(&link.0, &ticket, Qid::ADMIN, ADMIN_ENTRIES).await?;
        let info = ControllerInfo {
            cntlid: ticket.cntlid,
            cap: Cap(0),
            vs: Vs(0),
            identify: Box::new(IdentifyController::zeroed()),
            transfer_max: u32::MAX,
            in_capsule_max: ADMIN_IN_CAPSULE,
            queue_entries: 0,
            io_queues: 0,
        };
        let mut controller = Self { link, ticket, info, event: RefCell::new(None) };
        controller.enable().await?;
        controller.learn().await?;
        controller.start_keep_alive();
        Ok(controller)
    }

    /// Sets CC.EN and waits for CSTS.RDY (NVMe Base 2.0 §3.5.1).
    async fn enable(&mut self) -> Result<(), HostError> {
        let cap = Cap(self.property(Property::Cap).await?);
        self.info.cap = cap;
        self.info.vs = Vs(self.property(Property::Vs).await? as u32);
        if cap.mpsmin() > 0 {
            let value = u64::from(cap.mpsmin());
            return Err(ProtocolError::Content { what: "CAP.MPSMIN (4 KiB pages are needed)", value }.into());
        }
        let mut units = u32::from(cap.to());
        if cap.crwms() {
            let crto = Crto(self.property(Property::Crto).await? as u32);
            units = units.max(u32::from(crto.crwmt()));
        }
        let limit = READY_UNIT * units.max(1);
        // 110b: all command sets that Identify names.
        let css = if cap.css() & CSS_IOCS != 0 { 0b110 } else { 0 };
        let cc = Cc(0).with_en(true).with_css(css).with_iosqes(6).with_iocqes(4);
        self.set_property(Property::Cc, u64::from(cc.0)).await?;
        let deadline = now() + limit;
        loop {
            let csts = Csts(self.property(Property::Csts).await? as u32);
            if csts.cfs() {
                return Err(HostError::ControllerFatal);
            }
            if csts.rdy() {
                return Ok(());
            }
            if now() >= deadline {
                return Err(HostError::TimedOut { what: "becoming ready", limit });
            }
            sleep(READY_POLL).await;
        }
    }

    /// Identifies the controller, agrees on the number of queues, and asks for its events.
    async fn learn(&mut self) -> Result<(), HostError> {
        let identify = self.identify_controller().await?;
        if identify.controller() != self.ticket.cntlid {
            let value = u64::from(identify.cntlid.get());
            return Err(ProtocolError::Content { what: "CNTLID in Identify Controller", value }.into());
        }
        let config = &self.ticket.config;
        // MDTS counts in the smallest page, which is 4 KiB: `enable` saw to that.
        self.info.transfer_max = match identify.mdts {
            0 => u32::MAX,
            mdts => 4096_u32.checked_shl(u32::from(mdts)).filter(|max| *max > 0).unwrap_or(u32::MAX),
        };
        let in_capsule = u32::try_from(identify.in_capsule_bytes()).unwrap_or(u32::MAX);
        self.info.in_capsule_max = in_capsule.min(config.in_capsule_max);
        self.info.queue_entries = config
            .queue_entries
            .min(self.info.cap.mqes().saturating_add(1))
            .clamp(QUEUE_ENTRIES_MIN, QUEUE_ENTRIES_MAX);
        let asked = config.io_queues;
        let discovery = identify.cntrltype == ControllerType::Discovery.code();
        if asked > 0 && !discovery && !self.ticket.subsystem.is_discovery() {
            let want = NumberOfQueues(0).with_nsq(asked - 1).with_ncq(asked - 1);
            let dw0 = self.set_feature(FeatureId::NumberOfQueues, Nsid::NONE, want.0, None).await?;
            let granted = NumberOfQueues(dw0);
            let granted = granted.nsq().min(granted.ncq()).saturating_add(1);
            self.info.io_queues = granted.min(asked);
        }
        let wanted = AsyncEventConfig(0)
            .with_namespace_attribute(true)
            .with_ana_change(true)
            .with_discovery_change(true);
        let events = identify.oaes.get() & wanted.0;
        if events != 0 {
            self.set_feature(FeatureId::AsyncEventConfiguration, Nsid::NONE, events, None).await?;
        }
        self.info.identify = identify;
        self.ticket.queue_entries = self.info.queue_entries;
        self.ticket.io_queues = self.info.io_queues;
        self.ticket.in_capsule_max = self.info.in_capsule_max;
        self.ticket.transfer_max = self.info.transfer_max;
        Ok(())
    }

    /// Sends a Keep Alive every half of the timeout. Traffic alone is not relied on: a controller need not
    /// count it (NVME N7).
    fn start_keep_alive(&self) {
        let limit = self.ticket.config.keep_alive;
        if limit.is_zero() || self.info.identify.kas.get() == 0 {
            return;
        }
        let connection = Rc::clone(&self.link.0);
        spawn(async move {
            while timeout(limit / 2, connection.until_lost()).await.is_err() {
                let answer = async {
                    let sqe = ashlar_nvme::admin::keep_alive(CommandId(0));
                    connection.submit(sqe, Data::None).await?.await
                };
                match timeout(limit, answer).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "Keep Alive failed"),
                    Err(_) => connection.lose(Loss::KeepAlive(limit), None),
                }
            }
        });
    }

    /// What it said about itself.
    #[must_use]
    pub fn info(&self) -> &ControllerInfo {
        &self.info
    }

    /// For [`IoQueue::connect`].
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    /// Connects all granted I/O queues on this core.
    ///
    /// # Errors
    /// As for [`IoQueue::connect`].
    pub async fn connect_queues(&self) -> Result<Vec<IoQueue>, HostError> {
        let mut queues = Vec::new();
        for qid in 1..=self.info.io_queues {
            queues.push(IoQueue::connect(&self.ticket, Qid(qid)).await?);
        }
        Ok(queues)
    }

    /// Any admin command; its command identifier and data pointer are filled in.
    ///
    /// # Errors
    /// If the controller completed it with an error, did not answer in time, or the connection is lost.
    pub async fn admin_command(&self, sqe: Sqe, data: Data) -> Result<Completion, HostError> {
        let connection = &self.link.0;
        let answer = async { connection.submit(sqe, data).await?.await };
        limited(connection, self.ticket.config.admin_timeout, "an admin command", answer).await
    }

    /// The next asynchronous event. It stays masked until its log is read.
    ///
    /// # Errors
    /// If the connection is lost, or the controller takes no Asynchronous Event Requests.
    pub async fn next_event(&self) -> Result<Event, HostError> {
        if self.event.borrow().is_none() {
            let request = ashlar_nvme::admin::async_event_request(CommandId(0));
            let pending = self.link.0.submit(request, Data::None).await?;
            *self.event.borrow_mut() = Some(pending);
        }
        // The request stays here when this future is dropped, so that no event is missed.
        let done = std::future::poll_fn(|context| match self.event.borrow_mut().as_mut() {
            Some(pending) => std::pin::Pin::new(pending).poll(context),
            None => std::task::Poll::Pending,
        })
        .await;
        *self.event.borrow_mut() = None;
        let dw0 = done?.result as u32;
        Ok(Event { dw0, known: AsyncEvent::from_dw0(dw0).ok() })
    }

    /// Whether the admin connection is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.0.loss().is_some()
    }

    /// Ends when the admin connection is lost, with the reason.
    pub async fn lost(&self) -> HostError {
        self.link.0.until_lost().await
    }

    /// Orderly end: shutdown notification, wait for the controller to be done, close. Close the I/O queues
    /// first.
    ///
    /// # Errors
    /// If the controller does not report the shutdown as complete; it is closed all the same.
    pub async fn shut_down(self) -> Result<(), HostError> {
        // RTD3E is the time that it needs at most, in µs.
        let says = Duration::from_micros(u64::from(self.info.identify.rtd3e.get()));
        let limit = says.max(SHUTDOWN_LIMIT);
        let cc = Cc(self.property(Property::Cc).await? as u32).with_shn(Shn::Normal.code());
        self.set_property(Property::Cc, u64::from(cc.0)).await?;
        let deadline = now() + limit;
        loop {
            let csts = Csts(self.property(Property::Csts).await? as u32);
            if csts.shst() == Shst::Complete.code() {
                return Ok(());
            }
            if now() >= deadline {
                return Err(HostError::TimedOut { what: "shutting the controller down", limit });
            }
            sleep(READY_POLL).await;
        }
    }
}

/// What Abort says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aborted {
    /// The command was aborted.
    Yes,
    /// It was not found, or was too far.
    No,
}

/// An asynchronous event as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// DW0 of the completion.
    pub dw0: u32,
    /// What it means, if it is one of those that are known.
    pub known: Option<AsyncEvent>,
}
