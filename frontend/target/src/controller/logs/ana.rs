//! The ANA log: one group per namespace (NVMe Base 2.0 §5.16.1.13, NVME N11).

use std::collections::BTreeMap;

use ashlar_nvme::Wire;
use ashlar_nvme::ids::Nsid;
use ashlar_nvme::log::ana::{LSP_GROUPS_ONLY, ana_log_bytes};
use ashlar_nvme::log::{AnaGroupDescriptor, AnaLogHeader, AnaState};

use super::super::Controller;
use crate::{inventory, limits};

/// The largest log. Hosts read that much, in one piece (Linux) or in many (nvme-cli), whatever there is to say.
pub(super) const LOG_BYTES: u64 = ana_log_bytes(limits::NAMESPACES_MAX as u64, limits::NAMESPACES_MAX as u64);

// Linux turns ANA off without a word if the largest log exceeds MDTS.
const _: () = assert!(LOG_BYTES <= limits::MAX_TRANSFER_BYTES as u64);

fn state(state: inventory::AnaState) -> AnaState {
    match state {
        inventory::AnaState::Optimized => AnaState::Optimized,
        inventory::AnaState::Inaccessible => AnaState::Inaccessible,
        inventory::AnaState::Transition => AnaState::Change,
    }
}

impl Controller {
    pub(super) fn ana_log(&self, lsp: u8) -> Vec<u8> {
        let subsystem = self.subsystem();
        let mut groups: BTreeMap<u32, (inventory::AnaState, Vec<Nsid>)> = BTreeMap::new();
        for namespace in subsystem.iter().flat_map(|subsystem| subsystem.namespaces.values()) {
            let group = groups.entry(namespace.ana_group).or_insert((namespace.ana_state, Vec::new()));
            group.1.push(namespace.nsid);
        }
        let counts = self.ana.borrow();
        // At most as many groups as namespaces, 4096.
        let mut log = AnaLogHeader::new(counts.log(), groups.len() as u16).bytes().to_vec();
        for (id, (ana_state, nsids)) in groups {
            let listed = if lsp & LSP_GROUPS_ONLY == 0 { nsids } else { Vec::new() };
            let group = AnaGroupDescriptor::new(id, listed.len() as u32, counts.group(id), state(ana_state));
            log.extend_from_slice(group.bytes());
            for nsid in listed {
                log.extend_from_slice(&nsid.0.to_le_bytes());
            }
        }
        log
    }
}
