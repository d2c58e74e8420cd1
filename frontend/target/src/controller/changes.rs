//! What a new inventory means for one host: which namespaces changed, which ANA groups, the discovery log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::identify::NamespaceList;
use ashlar_nvme::ids::Nsid;

use super::{Controller, ControllerKind, discovery};
use crate::inventory::{Inventory, Namespace, Subsystem};

/// Whether this host may still use what it is connected to.
#[must_use = "a controller whose host lost access has to be ended"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may.
    Kept,
    /// The subsystem is gone, or the host is no longer allowed: end the association.
    Lost,
}

/// Namespaces that changed since the host read the list (log 04h).
#[derive(Debug, Default)]
pub(super) struct ChangedNamespaces(BTreeSet<Nsid>);

impl ChangedNamespaces {
    fn add(&mut self, nsids: impl IntoIterator<Item = Nsid>) {
        self.0.extend(nsids);
    }

    pub(super) fn list(&self) -> NamespaceList {
        if self.0.len() > NamespaceList::MAX {
            return NamespaceList::overflow();
        }
        NamespaceList::from_ids(self.0.iter().copied())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Change counts of the ANA log and of its groups.
#[derive(Debug, Default)]
pub(super) struct AnaCounts {
    log: u64,
    groups: BTreeMap<u32, u64>,
}

impl AnaCounts {
    fn changed(&mut self, groups: &BTreeSet<u32>) {
        if groups.is_empty() {
            return;
        }
        self.log += 1;
        for group in groups {
            *self.groups.entry(*group).or_default() += 1;
        }
    }

    pub(super) fn log(&self) -> u64 {
        self.log
    }

    pub(super) fn group(&self, group: u32) -> u64 {
        self.groups.get(&group).copied().unwrap_or_default()
    }
}

/// How two states of a subsystem differ.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Added, removed, or with other attributes.
    namespaces: BTreeSet<Nsid>,
    /// Groups whose state differs; only of namespaces that were there and are.
    states: BTreeSet<u32>,
    /// Groups whose description in the log differs in any way.
    groups: BTreeSet<u32>,
}

impl Difference {
    fn between(old: Option<&Subsystem>, new: Option<&Subsystem>) -> Self {
        let empty = BTreeMap::new();
        let old = old.map_or(&empty, |subsystem| &subsystem.namespaces);
        let new = new.map_or(&empty, |subsystem| &subsystem.namespaces);
        let mut difference = Self::default();
        for (nsid, before) in old {
            match new.get(nsid) {
                Some(after) => difference.compare(before, after),
                None => difference.differs(before),
            }
        }
        for added in new.iter().filter(|(nsid, _)| !old.contains_key(nsid)).map(|(_, added)| added) {
            difference.differs(added);
        }
        difference
    }

    fn differs(&mut self, namespace: &Namespace) {
        self.namespaces.insert(namespace.nsid);
        self.groups.insert(namespace.ana_group);
    }

    fn compare(&mut self, before: &Arc<Namespace>, after: &Arc<Namespace>) {
        if Arc::ptr_eq(before, after) {
            return;
        }
        // An ANA change alone is no change of the namespace's attributes (NVMe Base 2.0 §5.16.1.5).
        let same_but_state = Namespace { ana_state: after.ana_state, ..Namespace::clone(before) };
        if same_but_state != **after {
            self.namespaces.insert(after.nsid);
        }
        if before.ana_group != after.ana_group {
            self.groups.extend([before.ana_group, after.ana_group]);
        }
        if before.ana_state != after.ana_state {
            self.states.insert(after.ana_group);
            self.groups.insert(after.ana_group);
        }
    }
}

impl Controller {
    /// Takes in that something else is served now, and raises the events that this host is to see.
    pub fn inventory_changed(&self, inventory: &Arc<Inventory>) -> Access {
        let old = self.inventory.replace(Arc::clone(inventory));
        match self.shared.kind {
            ControllerKind::Discovery => self.discovery_changed(inventory),
            ControllerKind::Io => self.subsystem_changed(&old, inventory),
        }
        self.access()
    }

    fn subsystem_changed(&self, old: &Inventory, new: &Inventory) {
        let name = &self.shared.subsystem;
        let (old, new) = (old.subsystems.get(name), new.subsystems.get(name));
        let difference = Difference::between(old.map(AsRef::as_ref), new.map(AsRef::as_ref));
        let configuration = self.features.borrow().async_events();
        self.ana.borrow_mut().changed(&difference.groups);
        if !difference.namespaces.is_empty() {
            self.changed.borrow_mut().add(difference.namespaces);
            if configuration.namespace_attribute() {
                self.events.raise(AsyncEvent::NamespaceAttributeChanged);
            }
        }
        if !difference.states.is_empty() && configuration.ana_change() {
            self.events.raise(AsyncEvent::AnaChange);
        }
    }

    fn discovery_changed(&self, new: &Inventory) {
        let entries = discovery::entries(new, &self.shared.host_nqn, self.local_address);
        if self.discovery.borrow_mut().replace(entries, new.revision)
            && self.features.borrow().async_events().discovery_change()
        {
            self.events.raise(AsyncEvent::DiscoveryLogChange);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_more_than_1024_changes_says_only_that() {
        let mut changed = ChangedNamespaces::default();
        changed.add((1..=1024).map(Nsid));
        assert_eq!(changed.list().iter().count(), 1024);
        changed.add([Nsid(1025)]);
        assert!(changed.list().is_overflow());
        assert_eq!(changed.list().iter().count(), 1);
        changed.clear();
        assert_eq!(changed.list().iter().count(), 0);
    }
}
