//! A controller: its state machine and every admin command. No sockets, no tasks: its owner core calls it.
//!
//! # The life of a controller
//!
//! A host connects an admin queue. [`connect::check_admin`] says whether it may, and the transport makes a
//! fresh controller with a new id of what it returns ([`Controller::new`]); nothing of an older association
//! of the same host is touched (NVME N6). The controller lives on one core, the owner of the admin queue.
//! What other cores have to know of it at each command, they read from [`ControllerShared`].
//!
//! Until the host sets CC.EN only properties can be read and set; every other command is a Command Sequence
//! Error. With CC.EN it is ready at once, and I/O queues may connect ([`Controller::admit_io_queue`]). Admin
//! commands go through [`Controller::execute`]. It answers all but two at once: an Asynchronous Event Request
//! waits for an event, and an Abort waits for the core that has the command. Both end when the controller
//! does.
//!
//! CC.EN 1→0 and CC.SHN stop it: the shared state changes first, so that no command starts on any core any
//! more, then the transport aborts and closes the I/O queues and releases each
//! ([`Controller::release_io_queue`]). Only when the last one is released do CSTS.RDY and CSTS.SHST say that
//! it is over. The admin queue stays, and the host can enable the controller again within two minutes.
//!
//! The association ends ([`Controller::end`]) when the admin queue is lost, when [`Controller::expires_at`]
//! is over, or when what is served changes so that this host may no longer see it ([`Access::Lost`]). Ended
//! is final.
//!
//! What is served changes by whole, immutable inventories. [`Controller::inventory_changed`] compares the new
//! one with what this host could see before, and raises events for the difference only (NVME N11, N13).
//!
//! | module | what |
//! |---|---|
//! | [`connect`] | who may have a queue, and every refusal |
//! | `property` | CAP, VS, CC, CSTS, CRTO |
//! | `execute` | which code answers which opcode |
//! | `identify` | Identify, by CNS |
//! | `logs` | Get Log Page, by LID |
//! | [`discovery`] | the discovery log's entries |
//! | `features` | Get and Set Features, by FID |
//! | `events` | Asynchronous Event Requests, masks |
//! | `abort` | Abort |
//! | `changes` | what a new inventory means for this host |
//! | `keep_alive` | when an association ends by itself |

mod abort;
mod changes;
pub mod connect;
pub mod discovery;
mod events;
mod execute;
mod features;
mod health;
mod identify;
mod keep_alive;
mod logs;
mod property;
mod queues;
mod shared;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::Status;
use ashlar_nvme::ids::{Nsid, Qid};
use ashlar_reactor::Instant;

use crate::WriteCache;
use crate::inventory::{Inventory, Namespace, Subsystem};
use changes::{AnaCounts, ChangedNamespaces};
use discovery::DiscoveryView;
use events::Events;
use features::Features;
use logs::errors::ErrorLog;
use property::Registers;

pub use changes::Access;
pub use execute::AdminReply;
pub use health::{HealthCounters, HealthSource};
pub use logs::errors::CommandError;
pub use property::PropertyEffect;
pub use queues::{AbortFuture, Aborted, Queues};
pub use shared::{ControllerKind, ControllerShared, ControllerState, Traffic};

/// What a new controller is given.
pub struct ControllerSettings {
    /// What is served now.
    pub inventory: Arc<Inventory>,
    /// KATO as the host asked for it at Connect, in milliseconds ([`connect::AdminAdmission::kato_ms`]).
    pub kato_ms: u32,
    /// The admin connection's own address: what discovery tells for a wildcard portal (NVME N13).
    pub local_address: SocketAddr,
    /// Reaches the I/O queues, for Abort.
    pub queues: Rc<dyn Queues>,
    /// What the SMART log counts.
    pub health: Rc<dyn HealthSource>,
    /// The clock: [`ashlar_reactor::now`].
    pub now: fn() -> Instant,
}

/// Whether the controller told its host of a volatile write cache (Identify Controller VWC). Fixed for its
/// life: a host asks once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedCache {
    Present,
    Absent,
}

/// A controller, on its owner core.
pub struct Controller {
    shared: Arc<ControllerShared>,
    inventory: RefCell<Arc<Inventory>>,
    local_address: SocketAddr,
    queues: Rc<dyn Queues>,
    health: Rc<dyn HealthSource>,
    now: fn() -> Instant,
    created: Instant,
    registers: Cell<Registers>,
    reported_cache: ReportedCache,
    kato_ms: Cell<u32>,
    features: RefCell<Features>,
    io_queues: RefCell<BTreeSet<Qid>>,
    aborts: Cell<usize>,
    events: Events,
    errors: RefCell<ErrorLog>,
    changed: RefCell<ChangedNamespaces>,
    ana: RefCell<AnaCounts>,
    discovery: RefCell<DiscoveryView>,
}

impl Controller {
    /// A controller that its host has just connected to; not enabled yet.
    pub fn new(shared: Arc<ControllerShared>, settings: ControllerSettings) -> Rc<Controller> {
        let now = (settings.now)();
        let namespaces = settings.inventory.subsystems.get(&shared.subsystem).map(|s| &s.namespaces);
        let cached = namespaces.is_some_and(|all| all.values().any(|n| n.backend.volatile_cache));
        let reported_cache = if cached { ReportedCache::Present } else { ReportedCache::Absent };
        let entries = match shared.kind {
            ControllerKind::Discovery => {
                discovery::entries(&settings.inventory, &shared.host_nqn, settings.local_address)
            }
            ControllerKind::Io => Vec::new(),
        };
        let discovery = DiscoveryView { entries, generation: settings.inventory.revision };
        let controller = Controller {
            inventory: RefCell::new(settings.inventory),
            local_address: settings.local_address,
            queues: settings.queues,
            health: settings.health,
            now: settings.now,
            created: now,
            registers: Cell::new(Registers::new(now)),
            reported_cache,
            kato_ms: Cell::new(keep_alive::granted_ms(settings.kato_ms)),
            features: RefCell::default(),
            io_queues: RefCell::default(),
            aborts: Cell::new(0),
            events: Events::default(),
            errors: RefCell::default(),
            changed: RefCell::default(),
            ana: RefCell::default(),
            discovery: RefCell::new(discovery),
            shared,
        };
        controller.reset_write_cache();
        Rc::new(controller)
    }

    /// What every core knows of it.
    pub fn shared(&self) -> &Arc<ControllerShared> {
        &self.shared
    }

    /// Ends the association: nothing starts any more, and commands that wait (Asynchronous Event Requests)
    /// end. Idempotent.
    pub fn end(&self) {
        self.shared.set_state(ControllerState::Ended);
        self.events.end_requests();
    }

    /// Notes a command of any queue that failed, for the error log.
    pub fn record_error(&self, error: CommandError) {
        self.errors.borrow_mut().record(error);
    }

    /// What a controller level reset sets back (NVMe Base 2.0 §3.7.2). The keep-alive timeout belongs to the
    /// association and stays.
    fn reset(&self) {
        self.features.replace(Features::default());
        self.events.reset();
        self.changed.replace(ChangedNamespaces::default());
        self.reset_write_cache();
    }

    /// A host that was told of no cache never flushes. Should a namespace with a cache appear later, its
    /// writes must be durable at once.
    fn reset_write_cache(&self) {
        self.shared.set_write_cache(match self.reported_cache {
            ReportedCache::Present => WriteCache::Enabled,
            ReportedCache::Absent => WriteCache::Disabled,
        });
    }

    /// The subsystem as it is now.
    fn subsystem(&self) -> Option<Arc<Subsystem>> {
        self.inventory.borrow().subsystems.get(&self.shared.subsystem).cloned()
    }

    /// Whether its host may use what it is connected to, as things are now.
    pub fn access(&self) -> Access {
        let allowed = |subsystem: Arc<Subsystem>| subsystem.hosts.allows(&self.shared.host_nqn);
        if self.is_discovery() || self.subsystem().is_some_and(allowed) { Access::Kept } else { Access::Lost }
    }

    fn namespace(&self, nsid: Nsid) -> Option<Arc<Namespace>> {
        self.inventory.borrow().subsystems.get(&self.shared.subsystem)?.namespaces.get(&nsid).cloned()
    }

    /// An active namespace, or the status for an NSID that is none.
    fn active_namespace(&self, nsid: Nsid) -> Result<Arc<Namespace>, Status> {
        self.namespace(nsid).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)
    }

    fn is_discovery(&self) -> bool {
        self.shared.kind == ControllerKind::Discovery
    }
}
