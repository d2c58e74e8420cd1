//! `[[volume]]`: what is kept on the pools, and how hosts see it.

use std::collections::BTreeMap;
use std::ops::Range;

use ashlar_nvme::ids::{Nqn, Nsid};
use toml::Spanned;

use super::check::Check;
use super::document::{ReplicasValue, VolumeTable};
use super::quantity::parse_size;
use super::{
    BackendSettings, DevicePlace, Name, NamespaceSettings, Replicas, SubsystemSettings, VolumeSettings,
    identity, subsystems,
};

/// Most replicas of a segment (design §7).
const REPLICAS_MAX: usize = 3;

/// What a volume's size is a multiple of: the store's block.
const VOLUME_UNIT: u64 = 4096;

/// Largest volume, in bytes: 256 TiB. Every shard of a volume is open, and the state of every segment is written with
/// each change: more than this would be felt.
const VOLUME_BYTES_MAX: u64 = 256 << 40;

/// Namespace of a volume in its subsystem.
const NSID: Nsid = Nsid(1);

/// What a volume's NQN begins with unless the file gives one.
const NQN_PREFIX: &str = "nqn.2026-01.io.ashlar:volume:";

/// A volume as hosts see it: a subsystem with one namespace.
pub(super) struct Export {
    pub(super) nqn: Nqn,
    /// Where the file says so.
    pub(super) place: Range<usize>,
    pub(super) subsystem: SubsystemSettings,
}

pub(super) fn settings(
    check: &mut Check<'_>,
    tables: &[Spanned<VolumeTable>],
    pools: &BTreeMap<Name, Vec<DevicePlace>>,
) -> (BTreeMap<Name, VolumeSettings>, Vec<Export>) {
    let mut names: BTreeMap<Name, Range<usize>> = BTreeMap::new();
    let (mut volumes, mut exports) = (BTreeMap::new(), Vec::new());
    for table in tables {
        let table = table.get_ref();
        let Some(name) = check.accept(table.name.span(), Name::parse(table.name.get_ref())) else { continue };
        if let Some(before) = names.insert(name.clone(), table.name.span()) {
            let line = check.line(before);
            check.refuse(table.name.span(), format!("volume {name} is there already (line {line})"));
            continue;
        }
        let replicas = replicas(check, &table.replicas, pools);
        let Some(bytes) = size(check, &table.size) else { continue };
        exports.extend(export(check, &name, bytes, table));
        if let Some(replicas) = replicas {
            let failure_domain = table.failure_domain.unwrap_or_default();
            volumes.insert(name, VolumeSettings { bytes, replicas, failure_domain });
        }
    }
    (volumes, exports)
}

fn size(check: &mut Check<'_>, text: &Spanned<String>) -> Option<u64> {
    let bytes = check.accept(text.span(), parse_size(text.get_ref()))?;
    if bytes == 0 || !bytes.is_multiple_of(VOLUME_UNIT) {
        let value = text.get_ref();
        check.refuse(
            text.span(),
            format!("{value:?} is not allowed; allowed are multiples of {VOLUME_UNIT} B"),
        );
        return None;
    }
    if bytes > VOLUME_BYTES_MAX {
        check.refuse(text.span(), format!("{:?} is too large: at most 256 TiB", text.get_ref()));
        return None;
    }
    Some(bytes)
}

fn replicas(
    check: &mut Check<'_>,
    value: &Spanned<ReplicasValue>,
    pools: &BTreeMap<Name, Vec<DevicePlace>>,
) -> Option<Replicas> {
    let place = value.span();
    let before = check.problems();
    let replicas = match value.get_ref() {
        ReplicasValue::Count(number) => match usize::try_from(*number) {
            Ok(count) if (1..=REPLICAS_MAX).contains(&count) => {
                if count > pools.len() {
                    let there = pools.len();
                    check.refuse(
                        place,
                        format!("{count} replicas are in {count} different pools, and there are {there}"),
                    );
                }
                Replicas::Count(count)
            }
            _ => {
                check.refuse(place, format!("{number} is not allowed; allowed are 1 to {REPLICAS_MAX}"));
                return None;
            }
        },
        ReplicasValue::Pools(texts) => {
            if texts.is_empty() || texts.len() > REPLICAS_MAX {
                let count = texts.len();
                check.refuse(
                    place.clone(),
                    format!("{count} pools are named; allowed are 1 to {REPLICAS_MAX}, one per replica"),
                );
            }
            let mut named: Vec<Name> = Vec::new();
            for text in texts {
                let Some(name) = check.accept(place.clone(), Name::parse(text)) else { continue };
                if !pools.contains_key(&name) {
                    check.refuse(place.clone(), format!("there is no [[pool]] with name = \"{name}\""));
                }
                if named.contains(&name) {
                    check.refuse(
                        place.clone(),
                        format!("pool {name} is named twice; replicas are in different pools"),
                    );
                }
                named.push(name);
            }
            Replicas::Pools(named)
        }
    };
    (check.problems() == before).then_some(replicas)
}

fn export(check: &mut Check<'_>, name: &Name, bytes: u64, table: &VolumeTable) -> Option<Export> {
    let (place, text) = match &table.nqn {
        Some(nqn) => (nqn.span(), nqn.get_ref().clone()),
        None => (table.name.span(), format!("{NQN_PREFIX}{name}")),
    };
    let nqn = check.accept(place.clone(), Nqn::parse(&text))?;
    let uuid = match &table.uuid {
        None => identity::namespace_uuid(&nqn, NSID),
        Some(text) => subsystems::uuid(check, text)?,
    };
    let (serial, model) =
        subsystems::identification(check, Some(&nqn), table.serial.as_ref(), table.model.as_ref());
    let hosts = subsystems::hosts(check, &table.hosts, table.allow_any_host.as_ref());
    let block_size = subsystems::block_size(check, table.block_size.as_ref())?;
    let backend = BackendSettings::Volume { name: name.clone(), bytes };
    let namespaces = BTreeMap::from([(NSID, NamespaceSettings { uuid, block_size, backend })]);
    Some(Export { nqn, place, subsystem: SubsystemSettings { serial, model, hosts, namespaces } })
}
