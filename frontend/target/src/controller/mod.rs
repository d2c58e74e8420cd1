//! A controller: its state machine and every admin command. No sockets, no tasks: its owner core calls it.

pub mod connect;
mod execute;
mod health;
mod keep_alive;
mod property;
mod queues;
mod shared;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::ids::Qid;
use ashlar_reactor::{Instant, Notify};

use crate::inventory::Inventory;

pub use execute::AdminReply;
pub use health::{HealthCounters, HealthSource};
pub use property::PropertyEffect;
pub use queues::{AbortFuture, Aborted, Queues};
pub use shared::{ControllerKind, ControllerShared, ControllerState, Traffic, WriteCache};

/// What a new controller is given.
pub struct ControllerSettings {
    /// What is served now.
    pub inventory: Arc<Inventory>,
    /// KATO as the host asked for it at Connect, in milliseconds ([`connect::AdminAdmission::kato_ms`]).
    pub kato_ms: u32,
    /// Entries of the admin queue ([`connect::AdminAdmission::entries`]).
    pub admin_entries: u16,
    /// The admin connection's own address: what discovery tells for a wildcard portal (NVME N13).
    pub local_address: SocketAddr,
    /// Reaches the I/O queues, for Abort.
    pub queues: Rc<dyn Queues>,
    /// What the SMART log counts.
    pub health: Rc<dyn HealthSource>,
    /// The clock: [`ashlar_reactor::now`].
    pub now: fn() -> Instant,
}

/// A controller, on its owner core.
pub struct Controller {
    shared: Arc<ControllerShared>,
    inventory: RefCell<Arc<Inventory>>,
    io_queues: RefCell<BTreeSet<Qid>>,
    kato_ms: Cell<u32>,
    wake: Notify,
    now: fn() -> Instant,
}

impl Controller {
    /// A controller that its host has just connected to; not enabled yet.
    pub fn new(shared: Arc<ControllerShared>, settings: ControllerSettings) -> Rc<Controller> {
        Rc::new(Controller {
            shared,
            inventory: RefCell::new(settings.inventory),
            io_queues: RefCell::default(),
            kato_ms: Cell::new(settings.kato_ms),
            wake: Notify::new(),
            now: settings.now,
        })
    }

    /// What every core knows of it.
    pub fn shared(&self) -> &Arc<ControllerShared> {
        &self.shared
    }

    /// Ends the association: nothing starts any more, and commands that wait (Asynchronous Event Requests) end.
    /// Idempotent.
    pub fn end(&self) {
        self.shared.set_state(ControllerState::Ended);
        self.wake.notify_all();
    }

    /// Takes in that something else is served now, and raises the events that this host is to see.
    pub fn inventory_changed(&self, inventory: &Arc<Inventory>) {
        self.inventory.replace(Arc::clone(inventory));
        self.wake.notify_all();
    }
}
