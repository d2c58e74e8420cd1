//! `[[pool]]`, `[[device]]` and `[state]`: what volumes are kept on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::check::Check;
use super::document::{DeviceTable, PoolTable, StateTable};
use super::quantity::parse_size;
use super::{DevicePlace, Name, STATE_DIRECTORY};

/// What stands before the size of a device in memory.
const MEMORY: &str = "memory:";

/// Smallest device in memory, in bytes: less cannot be formatted.
const MEMORY_BYTES_MIN: u64 = 1 << 30;

/// Largest device in memory, in bytes: more than machines have, far less than makes the daemon's own tables large.
const MEMORY_BYTES_MAX: u64 = 1 << 40;

pub(super) fn settings(
    check: &mut Check<'_>,
    pools: &[Spanned<PoolTable>],
    devices: &[Spanned<DeviceTable>],
) -> BTreeMap<Name, Vec<DevicePlace>> {
    let mut settings: BTreeMap<Name, Vec<DevicePlace>> = BTreeMap::new();
    let mut names: BTreeMap<Name, Range<usize>> = BTreeMap::new();
    for pool in pools {
        let name = &pool.get_ref().name;
        let Some(parsed) = check.accept(name.span(), Name::parse(name.get_ref())) else { continue };
        if let Some(before) = names.insert(parsed.clone(), name.span()) {
            let line = check.line(before);
            check.refuse(name.span(), format!("pool {parsed} is there already (line {line})"));
        }
        settings.insert(parsed, Vec::new());
    }
    let mut paths: BTreeMap<PathBuf, Range<usize>> = BTreeMap::new();
    for device in devices {
        let DeviceTable { path, pool } = device.get_ref();
        let place = place(check, path);
        if let Some(DevicePlace::Path(there)) = &place
            && let Some(before) = paths.insert(there.clone(), path.span())
        {
            let line = check.line(before);
            check.refuse(path.span(), format!("device {} is there already (line {line})", there.display()));
        }
        let Some(name) = check.accept(pool.span(), Name::parse(pool.get_ref())) else { continue };
        match settings.get_mut(&name) {
            Some(places) => places.extend(place),
            None => check.refuse(pool.span(), format!("there is no [[pool]] with name = \"{name}\"")),
        }
    }
    for (name, place) in names {
        let named = |device: &Spanned<DeviceTable>| device.get_ref().pool.get_ref() == name.as_str();
        if !devices.iter().any(named) {
            check.refuse(
                place,
                format!("pool {name} has no device: give at least one [[device]] with pool = \"{name}\""),
            );
        }
    }
    settings
}

fn place(check: &mut Check<'_>, path: &Spanned<String>) -> Option<DevicePlace> {
    let text = path.get_ref();
    if let Some(size) = text.strip_prefix(MEMORY) {
        let bytes = check.accept(path.span(), parse_size(size))?;
        if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&bytes) {
            check.refuse(
                path.span(),
                format!("{text:?} is not allowed; allowed are 1 GiB to 1 TiB of memory"),
            );
            return None;
        }
        return Some(DevicePlace::Memory { bytes });
    }
    if !text.starts_with('/') {
        let message = format!("{text:?} is not allowed; allowed is an absolute path, or \"memory:10 GiB\"");
        check.refuse(path.span(), message);
        return None;
    }
    Some(DevicePlace::Path(PathBuf::from(text)))
}

pub(super) fn state_directory(check: &mut Check<'_>, table: &StateTable) -> PathBuf {
    let Some(directory) = &table.directory else { return PathBuf::from(STATE_DIRECTORY) };
    if !directory.get_ref().starts_with('/') {
        let message = format!("{:?} is not allowed; allowed is an absolute path", directory.get_ref());
        check.refuse(directory.span(), message);
    }
    PathBuf::from(directory.get_ref())
}
