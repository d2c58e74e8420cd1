//! The discovery log: what one host may connect to, and where (NVMe Base 2.0 §5.16.1.23, NVME N13).

use std::net::{IpAddr, SocketAddr};

use ashlar_nvme::Wire;
use ashlar_nvme::identify::ascii_field;
use ashlar_nvme::ids::{Cntlid, Nqn};
use ashlar_nvme::log::discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, SecureChannel, SubsystemType, TREQ_DISABLE_SQ_FLOW,
    TcpSecurity, TransportType, eflags,
};
use ashlar_nvme::wire::{U16, U64};

use crate::inventory::{Inventory, Portal};
use crate::limits;

/// What a discovery controller's host sees, and how often that changed.
#[derive(Debug)]
pub(super) struct DiscoveryView {
    pub(super) entries: Vec<DiscoveryEntry>,
    /// GENCTR: the inventory's revision when the entries last changed. It rises over reconnects too.
    pub(super) generation: u64,
}

impl DiscoveryView {
    /// Takes in the entries of an inventory; whether they are others.
    pub(super) fn replace(&mut self, entries: Vec<DiscoveryEntry>, revision: u64) -> bool {
        let changed = entries != self.entries;
        if changed {
            self.generation = revision.max(self.generation.wrapping_add(1));
            self.entries = entries;
        }
        changed
    }

    /// The whole log page.
    pub(super) fn log(&self) -> Vec<u8> {
        let mut header = DiscoveryHeader::zeroed();
        header.genctr = U64::new(self.generation);
        header.numrec = U64::new(self.entries.len() as u64);
        let mut log = Vec::with_capacity(DiscoveryHeader::SIZE + self.entries.len() * DiscoveryEntry::SIZE);
        log.extend_from_slice(header.bytes());
        for entry in &self.entries {
            log.extend_from_slice(entry.bytes());
        }
        log
    }
}

/// The address that a host can reach a portal at: what is configured, else the address it listens on, else,
/// for a wildcard, the address that this host's connection has here. Never a wildcard; `None` if there is
/// none.
fn reachable(portal: &Portal, local: SocketAddr) -> Option<SocketAddr> {
    let usable = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
    portal.advertise.filter(usable).or_else(|| {
        let listens_at = portal.listen.ip();
        let ip = if listens_at.is_unspecified() { local.ip() } else { listens_at }.to_canonical();
        // A wildcard takes connections of its own address family only.
        let reaches = portal.listen.is_ipv4() == ip.is_ipv4();
        Some(SocketAddr::new(ip, portal.listen.port())).filter(usable).filter(|_| reaches)
    })
}

/// Whether a connection with this local address came in over `portal`.
fn accepts(portal: &Portal, local: SocketAddr) -> bool {
    let ip = portal.listen.ip();
    portal.listen.port() == local.port()
        && (ip.is_unspecified() || ip.to_canonical() == local.ip().to_canonical())
}

fn entry(subtype: SubsystemType, nqn: &Nqn, address: SocketAddr, port_id: u16) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::zeroed();
    entry.trtype = TransportType::Tcp.code();
    entry.adrfam = match address.ip() {
        IpAddr::V4(_) => AddressFamily::Ipv4.code(),
        IpAddr::V6(_) => AddressFamily::Ipv6.code(),
    };
    entry.subtype = subtype.code();
    // Said to be not required, nvme-cli asks its kernel for one (NVME N13).
    entry.treq = SecureChannel::NotSpecified.code() | TREQ_DISABLE_SQ_FLOW;
    entry.portid = U16::new(port_id);
    entry.cntlid = U16::new(Cntlid::DYNAMIC.0);
    entry.asqsz = U16::new(limits::ADMIN_QUEUE_ENTRIES_MAX);
    if subtype == SubsystemType::CurrentDiscovery {
        // Connections with keep-alive are welcome; every portal tells the same.
        entry.eflags = U16::new(eflags::EPCSD | eflags::DUPRETINFO);
    }
    entry.trsvcid = ascii_field(&address.port().to_string());
    entry.subnqn = nqn.to_field();
    entry.traddr = ascii_field(&address.ip().to_string());
    if let Some(sectype) = entry.tsas.first_mut() {
        *sectype = TcpSecurity::None.code();
    }
    entry
}

/// What `host` sees that is connected to `local`: each subsystem that it may use at each portal, and the
/// discovery subsystem itself at the portal that the host came in over.
pub fn entries(inventory: &Inventory, host: &Nqn, local: SocketAddr) -> Vec<DiscoveryEntry> {
    let here = inventory.portals.iter().find(|portal| accepts(portal, local));
    let itself =
        here.and_then(|portal| reachable(portal, local).map(|address| (address, portal.port_id))).map(
            |(address, port_id)| entry(SubsystemType::CurrentDiscovery, &Nqn::discovery(), address, port_id),
        );
    let portals: Vec<_> = inventory
        .portals
        .iter()
        .filter(|portal| !portal.discovery_only)
        .filter_map(|portal| reachable(portal, local).map(|address| (address, portal.port_id)))
        .collect();
    let allowed = inventory.subsystems.values().filter(|subsystem| subsystem.hosts.allows(host));
    let subsystems = allowed.flat_map(|subsystem| {
        portals.iter().map(|(address, port_id)| entry(SubsystemType::Nvm, &subsystem.nqn, *address, *port_id))
    });
    itself.into_iter().chain(subsystems).collect()
}
