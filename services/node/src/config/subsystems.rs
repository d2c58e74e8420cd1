//! `[[subsystem]]` and `[[subsystem.namespace]]`: what is served, and to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_target::inventory::{HostAccess, LbaSize};
use ashlar_target::limits::NAMESPACES_MAX;
use toml::Spanned;
use uuid::Uuid;

use super::check::Check;
use super::document::{NamespaceTable, SubsystemTable};
use super::volumes::Export;
use super::{BackendSettings, NamespaceSettings, SubsystemSettings, backend, identity};

/// Model number unless the file gives one.
const MODEL: &str = "Ashlar";

/// Bytes of the serial number field (NVMe Base 2.0 §5.17.2.1).
const SERIAL_MAX: usize = 20;

/// Bytes of the model number field (NVMe Base 2.0 §5.17.2.1).
const MODEL_MAX: usize = 40;

/// What must not be there twice in the whole file, with the place where it was first.
#[derive(Default)]
struct Seen {
    uuids: BTreeMap<Uuid, Range<usize>>,
    paths: BTreeMap<PathBuf, Range<usize>>,
}

pub(super) fn settings(
    check: &mut Check<'_>,
    tables: &[Spanned<SubsystemTable>],
    volumes: Vec<Export>,
) -> BTreeMap<Nqn, SubsystemSettings> {
    let mut seen = Seen::default();
    let mut places: BTreeMap<Nqn, Range<usize>> = BTreeMap::new();
    let mut subsystems = BTreeMap::new();
    for table in tables {
        let table = table.get_ref();
        // What is below a wrong name may be wrong, too.
        let nqn = name(check, &table.nqn, &mut places);
        let subsystem = subsystem(check, nqn.as_ref(), table, &mut seen);
        subsystems.extend(nqn.map(|nqn| (nqn, subsystem)));
    }
    for Export { nqn, place, subsystem } in volumes {
        claim(check, &nqn, place.clone(), &mut places);
        for namespace in subsystem.namespaces.values() {
            claim_uuid(check, namespace.uuid, place.clone(), &mut seen);
        }
        subsystems.insert(nqn, subsystem);
    }
    subsystems
}

/// The NQN of a subsystem.
fn name(
    check: &mut Check<'_>,
    text: &Spanned<String>,
    places: &mut BTreeMap<Nqn, Range<usize>>,
) -> Option<Nqn> {
    let nqn = check.accept(text.span(), Nqn::parse(text.get_ref()))?;
    claim(check, &nqn, text.span(), places);
    Some(nqn)
}

fn claim(check: &mut Check<'_>, nqn: &Nqn, place: Range<usize>, places: &mut BTreeMap<Nqn, Range<usize>>) {
    if nqn.is_discovery() {
        check.refuse(place.clone(), "this name belongs to discovery, which every portal serves anyway");
    }
    if let Some(before) = places.insert(nqn.clone(), place.clone()) {
        let line = check.line(before);
        check.refuse(place, format!("subsystem {nqn} is there already (line {line})"));
    }
}

fn claim_uuid(check: &mut Check<'_>, uuid: Uuid, place: Range<usize>, seen: &mut Seen) {
    if let Some(before) = seen.uuids.insert(uuid, place.clone()) {
        let line = check.line(before);
        check.refuse(place, format!("UUID {uuid} belongs to another namespace (line {line})"));
    }
}

fn subsystem(
    check: &mut Check<'_>,
    nqn: Option<&Nqn>,
    table: &SubsystemTable,
    seen: &mut Seen,
) -> SubsystemSettings {
    let (serial, model) = identification(check, nqn, table.serial.as_ref(), table.model.as_ref());
    let hosts = hosts(check, &table.hosts, table.allow_any_host.as_ref());
    let mut places: BTreeMap<Nsid, Range<usize>> = BTreeMap::new();
    let mut namespaces = BTreeMap::new();
    for table in &table.namespace {
        let table = table.get_ref();
        let nsid = check.integer_in(&table.nsid, 1..=NAMESPACES_MAX).map(Nsid);
        if let Some(nsid) = nsid
            && let Some(before) = places.insert(nsid, table.nsid.span())
        {
            let line = check.line(before);
            check.refuse(table.nsid.span(), format!("namespace {nsid} is there already (line {line})"));
        }
        let namespace = namespace(check, nqn.zip(nsid), table, seen);
        namespaces.extend(nsid.zip(namespace));
    }
    SubsystemSettings { serial, model, hosts, namespaces }
}

/// Serial and model number of a subsystem.
pub(super) fn identification(
    check: &mut Check<'_>,
    nqn: Option<&Nqn>,
    serial: Option<&Spanned<String>>,
    model: Option<&Spanned<String>>,
) -> (String, String) {
    let serial = match serial {
        Some(serial) => printable(check, serial, SERIAL_MAX),
        None => nqn.map(identity::serial).unwrap_or_default(),
    };
    let model = match model {
        Some(model) => printable(check, model, MODEL_MAX),
        None => MODEL.to_owned(),
    };
    (serial, model)
}

/// A serial or model number.
fn printable(check: &mut Check<'_>, text: &Spanned<String>, bytes_max: usize) -> String {
    let value = text.get_ref();
    let printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if value.trim().is_empty() || value.len() > bytes_max || !printable || value.trim() != value {
        check.refuse(
            text.span(),
            format!(
                "{value:?} is not allowed; allowed are 1 to {bytes_max} printable ASCII characters \
                 without spaces at either end"
            ),
        );
    }
    value.clone()
}

/// Who may connect.
pub(super) fn hosts(
    check: &mut Check<'_>,
    listed: &[Spanned<String>],
    any: Option<&Spanned<bool>>,
) -> HostAccess {
    let mut hosts = BTreeSet::new();
    for host in listed {
        let Some(nqn) = check.accept(host.span(), Nqn::parse(host.get_ref())) else { continue };
        if hosts.contains(&nqn) {
            check.refuse(host.span(), format!("host {nqn} is named twice"));
        }
        hosts.insert(nqn);
    }
    match any {
        Some(any) if *any.get_ref() => {
            if !listed.is_empty() {
                check
                    .refuse(any.span(), "every host would be allowed, named or not: leave out this or hosts");
            }
            HostAccess::Any
        }
        _ => HostAccess::Listed(hosts),
    }
}

fn namespace(
    check: &mut Check<'_>,
    number: Option<(&Nqn, Nsid)>,
    table: &NamespaceTable,
    seen: &mut Seen,
) -> Option<NamespaceSettings> {
    let (uuid, uuid_place) = match &table.uuid {
        None => (number.map(|(nqn, nsid)| identity::namespace_uuid(nqn, nsid)), table.nsid.span()),
        Some(text) => (uuid(check, text), text.span()),
    };
    if let Some(uuid) = uuid {
        claim_uuid(check, uuid, uuid_place, seen);
    }
    let block_size = block_size(check, table.block_size.as_ref());
    // A size that no block size takes is wrong in any case.
    let backend = backend::settings(check, &table.backend, block_size.unwrap_or(LbaSize::B512))?;
    if let (BackendSettings::Raw { path, .. }, Some(place)) =
        (&backend, table.backend.get_ref().path.as_ref().map(Spanned::span))
        && let Some(before) = seen.paths.insert(path.clone(), place.clone())
    {
        let line = check.line(before);
        check.refuse(place, format!("{} belongs to another namespace (line {line})", path.display()));
    }
    Some(NamespaceSettings { uuid: uuid?, block_size: block_size?, backend })
}

/// Logical block size of a namespace.
pub(super) fn block_size(check: &mut Check<'_>, size: Option<&Spanned<i64>>) -> Option<LbaSize> {
    let Some(size) = size else { return Some(LbaSize::B4096) };
    match size.get_ref() {
        4096 => Some(LbaSize::B4096),
        512 => Some(LbaSize::B512),
        other => {
            check.refuse(size.span(), format!("{other} is not allowed; allowed are 4096 and 512"));
            None
        }
    }
}

pub(super) fn uuid(check: &mut Check<'_>, text: &Spanned<String>) -> Option<Uuid> {
    let parsed = Uuid::parse_str(text.get_ref()).ok().filter(|uuid| !uuid.is_nil());
    if parsed.is_none() {
        let message = format!(
            "{:?} is not a UUID; allowed is a UUID other than zero, such as \
             \"2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4\"",
            text.get_ref()
        );
        check.refuse(text.span(), message);
    }
    parsed
}
