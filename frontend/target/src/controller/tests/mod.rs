//! A controller without a network: what its tests share.

mod any_bytes;
mod connect;
mod discovery;
mod events;
mod features;
mod identify;
mod keep_alive;
mod logs;
mod namespaces;
mod property;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ashlar_nvme::admin::{GetFeaturesCommand, GetLogPageCommand, IdentifyCommand, SetFeaturesCommand};
use ashlar_nvme::fabrics::{ConnectAttributes, ConnectCommand, ConnectData, PropertySize};
use ashlar_nvme::feature::{FeatureId, Select};
use ashlar_nvme::identify::Cns;
use ashlar_nvme::ids::{Cntlid, CommandId, HostId, Nguid, Nqn, Nsid, Qid};
use ashlar_nvme::log::LogId;
use ashlar_nvme::registers::Property;
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::{Sqe, Status};
use ashlar_reactor::{CoreId, Instant};
use uuid::Uuid;

use super::*;
use crate::backend::{BackendInfo, Deallocated};
use crate::controller::connect::{ConnectRefusal, IoQueueAdmission};
use crate::inventory::{AnaState, HostAccess, Inventory, LbaSize, Namespace, Portal, Subsystem};

pub(super) const SUBSYSTEM: &str = "nqn.2026-01.example:one";
pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub(super) const HOST_ID: HostId = HostId([7; 16]);
pub(super) const CNTLID: Cntlid = Cntlid(0x0102);

/// CC as Linux sets it: enabled, entries of 64 and 16 bytes.
pub(super) const CC_ENABLE: u64 = 0x0046_0001;

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(1_000_000_000) };
}

pub(super) fn now() -> Instant {
    Instant::from_ns(CLOCK.get())
}

pub(super) fn advance(by: Duration) {
    CLOCK.set(CLOCK.get() + by.as_nanos() as u64);
}

pub(super) fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).expect("a valid NQN")
}

/// Namespace `nsid` with 512-byte blocks if it is odd, else with 4096.
pub(super) fn namespace(nsid: u32) -> Namespace {
    Namespace {
        nsid: Nsid(nsid),
        uuid: Uuid::from_u128(0xA0A1_A2A3_A4A5_A6A7_A8A9_AAAB_ACAD_0000 | u128::from(nsid)),
        nguid: Nguid((0xB0B1_B2B3_B4B5_B6B7_B8B9_BABB_BCBD_0000 | u128::from(nsid)).to_be_bytes()),
        lba: if nsid % 2 == 1 { LbaSize::B512 } else { LbaSize::B4096 },
        blocks: 0x1_0000,
        backend: BackendInfo {
            bytes: 1 << 30,
            access_bytes: 512,
            volatile_cache: true,
            deallocated: Deallocated::Zeroes,
        },
        ana_group: nsid,
        ana_state: AnaState::Optimized,
    }
}

pub(super) fn subsystem(name: &str, namespaces: impl IntoIterator<Item = Namespace>) -> Subsystem {
    Subsystem {
        nqn: nqn(name),
        serial: "SN-1".to_owned(),
        model: "Ashlar".to_owned(),
        hosts: HostAccess::Listed([nqn(HOST)].into()),
        namespaces: namespaces.into_iter().map(|n| (n.nsid, Arc::new(n))).collect(),
    }
}

pub(super) fn portal(listen: &str) -> Portal {
    Portal { listen: listen.parse().expect("an address"), advertise: None, port_id: 1, discovery_only: false }
}

pub(super) fn inventory(subsystems: impl IntoIterator<Item = Subsystem>, revision: u64) -> Arc<Inventory> {
    let subsystems: BTreeMap<_, _> = subsystems.into_iter().map(|s| (s.nqn.clone(), Arc::new(s))).collect();
    Arc::new(Inventory { subsystems, portals: vec![portal("0.0.0.0:4420")], revision })
}

/// Queues that note what they are to abort; the I/O queues abort it.
#[derive(Default)]
pub(super) struct NotedAborts(pub(super) RefCell<Vec<(Qid, CommandId)>>);

impl Queues for NotedAborts {
    fn abort(&self, queue: Qid, command: CommandId) -> AbortFuture {
        self.0.borrow_mut().push((queue, command));
        Box::pin(std::future::ready(if queue.is_admin() { Aborted::No } else { Aborted::Yes }))
    }
}

struct FixedHealth;

impl HealthSource for FixedHealth {
    fn health(&self) -> HealthCounters {
        HealthCounters {
            bytes_read: 512_001,
            bytes_written: 512_000,
            reads: 3,
            writes: 4,
            media_errors: 5,
            busy_minutes: 6,
        }
    }
}

/// A controller and how to ask it.
pub(super) struct Fixture {
    pub(super) controller: Rc<Controller>,
    pub(super) queues: Rc<NotedAborts>,
}

impl Fixture {
    pub(super) fn new(kind: ControllerKind, inventory: Arc<Inventory>, kato_ms: u32) -> Fixture {
        let queues = Rc::new(NotedAborts::default());
        let subsystem = match kind {
            ControllerKind::Io => nqn(SUBSYSTEM),
            ControllerKind::Discovery => Nqn::discovery(),
        };
        let shared = ControllerShared::new(CNTLID, kind, (nqn(HOST), HOST_ID), subsystem, CoreId(0), 2);
        let local: SocketAddr = "192.0.2.7:4420".parse().expect("an address");
        let controller = Controller::new(
            Arc::new(shared),
            ControllerSettings {
                inventory,
                kato_ms,
                local_address: local,
                queues: Rc::clone(&queues) as Rc<dyn Queues>,
                health: Rc::new(FixedHealth),
                now,
            },
        );
        Fixture { controller, queues }
    }

    /// An enabled I/O controller of a subsystem with namespaces 1 and 2.
    pub(super) fn io() -> Fixture {
        Fixture::of_namespaces([namespace(1), namespace(2)])
    }

    /// An enabled I/O controller of a subsystem with these namespaces.
    pub(super) fn of_namespaces(namespaces: impl IntoIterator<Item = Namespace>) -> Fixture {
        let fixture =
            Fixture::new(ControllerKind::Io, inventory([subsystem(SUBSYSTEM, namespaces)], 1), 5000);
        fixture.enable();
        fixture
    }

    /// An enabled discovery controller.
    pub(super) fn discovery(inventory: Arc<Inventory>) -> Fixture {
        let fixture = Fixture::new(ControllerKind::Discovery, inventory, 5000);
        fixture.enable();
        fixture
    }

    pub(super) fn set_cc(&self, value: u64) -> Result<PropertyEffect, Status> {
        self.controller.property_set(Property::Cc as u32, PropertySize::Four, value)
    }

    pub(super) fn csts(&self) -> u64 {
        self.controller.property_get(Property::Csts as u32, PropertySize::Four).expect("CSTS is readable")
    }

    pub(super) fn enable(&self) {
        assert_eq!(self.set_cc(CC_ENABLE), Ok(PropertyEffect::Enabled));
    }

    /// The answer to a command that does not wait.
    pub(super) fn ask_with(&self, sqe: &Sqe, data: &[u8]) -> AdminReply {
        match poll_once(pin!(self.controller.execute(sqe, data))) {
            Poll::Ready(reply) => reply,
            Poll::Pending => panic!("opcode {:#04x} waits", sqe.opcode),
        }
    }

    pub(super) fn ask(&self, sqe: &Sqe) -> AdminReply {
        self.ask_with(sqe, &[])
    }

    pub(super) fn data(&self, sqe: &Sqe) -> Vec<u8> {
        let reply = self.ask(sqe);
        assert_eq!(reply.status, Status::SUCCESS);
        reply.data.expect("data")
    }

    pub(super) fn identify(&self, cns: Cns, nsid: u32) -> AdminReply {
        self.ask(&IdentifyCommand::new(cns).to_sqe(CommandId(1), Nsid(nsid)))
    }

    pub(super) fn log(&self, lid: LogId, offset: u64, len: u32) -> AdminReply {
        self.ask(&GetLogPageCommand::new(lid, offset, len).to_sqe(CommandId(2), Nsid::BROADCAST))
    }

    pub(super) fn get(&self, fid: FeatureId, select: Select) -> AdminReply {
        self.ask(&GetFeaturesCommand::build(CommandId(3), Nsid::NONE, fid, select, DataPointer::None))
    }

    pub(super) fn set(&self, fid: FeatureId, cdw11: u32) -> AdminReply {
        self.ask(&SetFeaturesCommand::build(CommandId(4), Nsid::NONE, fid, cdw11, DataPointer::None))
    }

    /// Connects an I/O queue as this controller's host would.
    pub(super) fn connect_queue(&self, qid: u16) -> Result<IoQueueAdmission, ConnectRefusal> {
        let (command, data) = io_connect(qid);
        self.controller.admit_io_queue(&command, &data)
    }

    pub(super) fn change(&self, inventory: &Arc<Inventory>) {
        assert_eq!(self.controller.inventory_changed(inventory), Access::Kept);
    }
}

/// An I/O Connect that is in order.
pub(super) fn io_connect(qid: u16) -> (ConnectCommand, ConnectData) {
    (
        ConnectCommand::new(CommandId(0), Qid(qid), 127, ConnectAttributes(0), 0),
        ConnectData::new(HOST_ID, CNTLID, &nqn(SUBSYSTEM), &nqn(HOST)),
    )
}

pub(super) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
