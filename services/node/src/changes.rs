//! The difference between two configurations, as the steps that lead from one to the other.
//!
//! What goes comes before what is new, so that a UUID, a path or an nsid can move in one reload.

use std::fmt;

use ashlar_nvme::ids::{Nqn, Nsid};

use crate::config::{BackendSettings, Config, NamespaceSettings, RawExtent, SubsystemSettings};

/// One step from a configuration to the next. Names that are added stand in the new configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A namespace is no longer served.
    RemoveNamespace(Nqn, Nsid),
    /// A subsystem with all its namespaces is no longer served.
    RemoveSubsystem(Nqn),
    /// A subsystem is served, at first without namespaces.
    AddSubsystem(Nqn),
    /// Other hosts may connect to a subsystem.
    SetHosts(Nqn),
    /// A namespace may have another size.
    Resize(Nqn, Nsid),
    /// A namespace is served.
    AddNamespace(Nqn, Nsid),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::RemoveNamespace(nqn, nsid) => write!(f, "remove namespace {nsid} of {nqn}"),
            Change::RemoveSubsystem(nqn) => write!(f, "remove subsystem {nqn}"),
            Change::AddSubsystem(nqn) => write!(f, "add subsystem {nqn}"),
            Change::SetHosts(nqn) => write!(f, "change the hosts of {nqn}"),
            Change::Resize(nqn, nsid) => write!(f, "resize namespace {nsid} of {nqn}"),
            Change::AddNamespace(nqn, nsid) => write!(f, "add namespace {nsid} to {nqn}"),
        }
    }
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// Steps, in this order.
    pub changes: Vec<Change>,
    /// Keys that only a restart changes.
    pub after_restart: Vec<String>,
}

/// What leads from `old` to `new`.
pub fn difference(old: &Config, new: &Config) -> Difference {
    let mut gone = Vec::new();
    let mut kept = Vec::new();
    let mut added = Vec::new();
    let mut after_restart = settings_after_restart(old, new);
    for (nqn, before) in &old.subsystems {
        match new.subsystems.get(nqn) {
            None => gone.push(Change::RemoveSubsystem(nqn.clone())),
            Some(after) => {
                if (&before.serial, &before.model) != (&after.serial, &after.model) {
                    after_restart.push(format!("serial and model of {nqn}"));
                }
                if before.hosts != after.hosts {
                    kept.push(Change::SetHosts(nqn.clone()));
                }
                namespaces(nqn, before, after, (&mut gone, &mut kept, &mut added));
            }
        }
    }
    for (nqn, subsystem) in &new.subsystems {
        if !old.subsystems.contains_key(nqn) {
            added.push(Change::AddSubsystem(nqn.clone()));
            added.extend(subsystem.namespaces.keys().map(|nsid| Change::AddNamespace(nqn.clone(), *nsid)));
        }
    }
    let changes = gone.into_iter().chain(kept).chain(added).collect();
    Difference { changes, after_restart }
}

fn settings_after_restart(old: &Config, new: &Config) -> Vec<String> {
    let keys = [
        ("cores and buffers", old.cores != new.cores),
        ("log.format", old.log.format != new.log.format),
        ("metrics", old.metrics != new.metrics),
        ("portals", old.portals != new.portals),
        ("state", old.state_directory != new.state_directory),
        ("pools and devices", old.pools != new.pools),
        ("scrub", old.scrub != new.scrub),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect()
}

fn namespaces(
    nqn: &Nqn,
    before: &SubsystemSettings,
    after: &SubsystemSettings,
    (gone, kept, added): (&mut Vec<Change>, &mut Vec<Change>, &mut Vec<Change>),
) {
    for (nsid, old) in &before.namespaces {
        match after.namespaces.get(nsid) {
            Some(new) if is_same_disk(old, new) => {
                if may_differ_in_size(&old.backend, &new.backend) {
                    kept.push(Change::Resize(nqn.clone(), *nsid));
                }
            }
            // Another disk under the same nsid: hosts see the old one go and the new one come.
            _ => gone.push(Change::RemoveNamespace(nqn.clone(), *nsid)),
        }
    }
    for (nsid, new) in &after.namespaces {
        if !before.namespaces.get(nsid).is_some_and(|old| is_same_disk(old, new)) {
            added.push(Change::AddNamespace(nqn.clone(), *nsid));
        }
    }
}

/// A host would find its data: only the size may differ.
fn is_same_disk(old: &NamespaceSettings, new: &NamespaceSettings) -> bool {
    let same_backend = match (&old.backend, &new.backend) {
        (BackendSettings::Null { .. }, BackendSettings::Null { .. }) => true,
        (BackendSettings::Memory { memory_max: a, .. }, BackendSettings::Memory { memory_max: b, .. }) => {
            a == b
        }
        (
            BackendSettings::Raw { path: old_path, page_cache: old_cache, .. },
            BackendSettings::Raw { path: new_path, page_cache: new_cache, .. },
        ) => old_path == new_path && old_cache == new_cache,
        (BackendSettings::Volume { name: old, .. }, BackendSettings::Volume { name: new, .. }) => old == new,
        _ => false,
    };
    same_backend && old.uuid == new.uuid && old.block_size == new.block_size
}

fn may_differ_in_size(old: &BackendSettings, new: &BackendSettings) -> bool {
    match (old, new) {
        // The file or device may have grown meanwhile; only looking at it tells.
        (_, BackendSettings::Raw { extent: RawExtent::Whole, .. }) => true,
        _ => old != new,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Machine;

    const PORTAL: &str = "[[portal]]\nlisten = \"127.0.0.1:0\"\n";

    fn config(text: &str) -> Config {
        let machine = Machine { cpus: vec![0, 1] };
        Config::parse(Path::new("a"), &format!("{PORTAL}{text}"), &machine).expect("a valid configuration")
    }

    /// A subsystem named by a letter, with namespaces of these keys.
    fn subsystem(name: &str, keys: &str, namespaces: &[(u32, &str)]) -> String {
        let mut text = format!("[[subsystem]]\nnqn = \"nqn.2026-01.io.x:{name}\"\n{keys}\n");
        for (nsid, keys) in namespaces {
            text += &format!("[[subsystem.namespace]]\nnsid = {nsid}\n{keys}\n");
        }
        text
    }

    fn steps(old: &str, new: &str) -> Vec<String> {
        difference(&config(old), &config(new)).changes.iter().map(ToString::to_string).collect()
    }

    const MEMORY_1: &str = "backend = { kind = \"memory\", size = \"1 GiB\" }";
    const MEMORY_2: &str = "backend = { kind = \"memory\", size = \"2 GiB\" }";
    const RAW: &str = "backend = { kind = \"raw\", path = \"/x\" }";

    #[test]
    fn equal_configurations_do_not_differ() {
        let text = subsystem("a", "", &[(1, MEMORY_1)]);
        assert_eq!(difference(&config(&text), &config(&text)), Difference::default());
    }

    #[test]
    fn subsystems_and_namespaces_come_and_go() {
        let old = subsystem("a", "", &[(1, MEMORY_1), (2, MEMORY_1)]) + &subsystem("b", "", &[]);
        let new = subsystem("a", "", &[(1, MEMORY_1), (3, MEMORY_1)]) + &subsystem("c", "", &[(1, MEMORY_1)]);
        assert_eq!(
            steps(&old, &new),
            [
                "remove namespace 2 of nqn.2026-01.io.x:a",
                "remove subsystem nqn.2026-01.io.x:b",
                "add namespace 3 to nqn.2026-01.io.x:a",
                "add subsystem nqn.2026-01.io.x:c",
                "add namespace 1 to nqn.2026-01.io.x:c",
            ]
        );
    }

    #[test]
    fn another_size_is_a_resize() {
        let (old, new) = (subsystem("a", "", &[(1, MEMORY_1)]), subsystem("a", "", &[(1, MEMORY_2)]));
        assert_eq!(steps(&old, &new), ["resize namespace 1 of nqn.2026-01.io.x:a"]);
    }

    #[test]
    fn a_device_that_may_have_grown_is_looked_at() {
        let text = subsystem("a", "", &[(1, RAW)]);
        assert_eq!(steps(&text, &text), ["resize namespace 1 of nqn.2026-01.io.x:a"]);
    }

    #[test]
    fn another_disk_replaces_the_one_before() {
        for keys in [
            format!("block_size = 512\n{MEMORY_1}"),
            format!("uuid = \"2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4\"\n{MEMORY_1}"),
            RAW.to_owned(),
        ] {
            let (old, new) = (subsystem("a", "", &[(1, MEMORY_1)]), subsystem("a", "", &[(1, &keys)]));
            assert_eq!(
                steps(&old, &new),
                ["remove namespace 1 of nqn.2026-01.io.x:a", "add namespace 1 to nqn.2026-01.io.x:a"]
            );
        }
    }

    #[test]
    fn hosts_change_in_place() {
        let (old, new) = (subsystem("a", "", &[]), subsystem("a", "allow_any_host = true", &[]));
        assert_eq!(steps(&old, &new), ["change the hosts of nqn.2026-01.io.x:a"]);
    }

    #[test]
    fn what_only_a_restart_changes_is_told() {
        let old = config(&subsystem("a", "", &[]));
        let new = config(
            &("[cores]\ncount = 1\n[metrics]\nenabled = false\n[log]\nformat = \"json\"\n".to_owned()
                + &subsystem("a", "serial = \"x\"", &[])),
        );
        let difference = difference(&old, &new);
        assert!(difference.changes.is_empty());
        assert_eq!(
            difference.after_restart,
            ["cores and buffers", "log.format", "metrics", "serial and model of nqn.2026-01.io.x:a"]
        );
    }
}
