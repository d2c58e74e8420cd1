//! What is served and to whom: immutable descriptions that cores share and replace as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use uuid::Uuid;

use crate::backend::BackendInfo;

/// Size of a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LbaSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl LbaSize {
    /// In bytes, as a power of two.
    pub const fn shift(self) -> u32 {
        match self {
            LbaSize::B512 => 9,
            LbaSize::B4096 => 12,
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }
}

/// How a namespace can be reached through this target (ANA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AnaState {
    /// Served here.
    #[default]
    Optimized,
    /// Served elsewhere.
    Inaccessible,
    /// Changing.
    Transition,
}

/// A namespace as hosts see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its id in its subsystem.
    pub nsid: Nsid,
    /// Stable wherever it is served, unique in the target.
    pub uuid: Uuid,
    /// Stable wherever it is served.
    pub nguid: Nguid,
    /// Logical block size.
    pub lba: LbaSize,
    /// Size in logical blocks.
    pub blocks: u64,
    /// What its backend is like.
    pub backend: BackendInfo,
    /// ANA group: one per namespace, from 1.
    pub ana_group: u32,
    /// ANA state of that group here.
    pub ana_state: AnaState,
}

/// Who may connect to a subsystem. Nobody unless it is said (denied by default).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostAccess {
    /// These host NQNs.
    Listed(BTreeSet<Nqn>),
    /// Any host: only by explicit configuration (`allow_any_host`).
    Any,
}

impl HostAccess {
    /// This host may connect.
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            HostAccess::Listed(hosts) => hosts.contains(host),
            HostAccess::Any => true,
        }
    }
}

impl Default for HostAccess {
    fn default() -> Self {
        HostAccess::Listed(BTreeSet::new())
    }
}

/// An NVM subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    /// Who may connect.
    pub hosts: HostAccess,
    /// Its namespaces.
    pub namespaces: BTreeMap<Nsid, Arc<Namespace>>,
}

/// An address that the target listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Portal {
    /// Where it listens; the address may be a wildcard.
    pub listen: SocketAddr,
    /// What discovery tells hosts, if not the address that they connected to (NVME N13).
    pub advertise: Option<SocketAddr>,
    /// PORTID of its discovery entries.
    pub port_id: u16,
    /// Only discovery is served here (the well-known port 8009).
    pub discovery_only: bool,
}

/// Everything that is served at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// Subsystems by name.
    pub subsystems: BTreeMap<Nqn, Arc<Subsystem>>,
    /// Portals.
    pub portals: Vec<Portal>,
    /// Rises with every change.
    pub revision: u64,
}
