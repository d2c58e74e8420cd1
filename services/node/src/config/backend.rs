//! `backend = { … }`: what holds a namespace's data.

use std::path::PathBuf;

use ashlar_target::inventory::LbaSize;
use toml::Spanned;

use super::check::Check;
use super::document::{BackendKind, BackendTable};
use super::quantity::parse_size;
use super::{BackendSettings, RawExtent};

pub(super) fn settings(
    check: &mut Check<'_>,
    table: &Spanned<BackendTable>,
    block_size: LbaSize,
) -> Option<BackendSettings> {
    let place = table.span();
    let table = table.get_ref();
    let bytes = match &table.size {
        None => None,
        Some(text) => Some(size(check, text, block_size)?),
    };
    if table.kind == BackendKind::Raw {
        return raw(check, table, place, bytes);
    }
    for (key, place) in [
        ("path", table.path.as_ref().map(Spanned::span)),
        ("create", table.create.as_ref().map(Spanned::span)),
    ] {
        if let Some(place) = place {
            check.refuse(place, format!("{key} is only for kind \"raw\"; allowed here are kind and size"));
        }
    }
    let Some(bytes) = bytes else {
        check.refuse(place, "missing key `size`, such as \"10 GiB\"");
        return None;
    };
    Some(match table.kind {
        BackendKind::Memory => BackendSettings::Memory { bytes },
        _ => BackendSettings::Null { bytes },
    })
}

fn raw(
    check: &mut Check<'_>,
    table: &BackendTable,
    place: std::ops::Range<usize>,
    bytes: Option<u64>,
) -> Option<BackendSettings> {
    let Some(path) = &table.path else {
        check.refuse(place, "missing key `path`: the absolute path of a file or block device");
        return None;
    };
    if !path.get_ref().starts_with('/') {
        let message = format!("{:?} is not allowed; allowed is an absolute path", path.get_ref());
        check.refuse(path.span(), message);
    }
    let create = table.create.as_ref().filter(|create| *create.get_ref());
    let extent = match (create, bytes) {
        (None, None) => RawExtent::Whole,
        (None, Some(bytes)) => RawExtent::First { bytes },
        (Some(_), Some(bytes)) => RawExtent::Create { bytes },
        (Some(create), None) => {
            check.refuse(create.span(), "a file is created with a size: give size, such as \"10 GiB\"");
            return None;
        }
    };
    Some(BackendSettings::Raw { path: PathBuf::from(path.get_ref()), extent })
}

fn size(check: &mut Check<'_>, text: &Spanned<String>, block_size: LbaSize) -> Option<u64> {
    let bytes = check.accept(text.span(), parse_size(text.get_ref()))?;
    let block = u64::from(block_size.bytes());
    if bytes == 0 || bytes % block != 0 {
        let message = format!(
            "{:?} is not allowed; allowed are multiples of the block size, {block} B",
            text.get_ref()
        );
        check.refuse(text.span(), message);
        return None;
    }
    Some(bytes)
}
