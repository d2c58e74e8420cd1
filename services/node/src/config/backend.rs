//! `backend = { … }`: what holds a namespace's data.

use std::ops::Range;
use std::path::PathBuf;

use ashlar_target::inventory::LbaSize;
use toml::Spanned;

use super::check::Check;
use super::document::{BackendKind, BackendTable};
use super::quantity::parse_size;
use super::{BackendSettings, PageCache, RawExtent};

pub(super) fn settings(
    check: &mut Check<'_>,
    table: &Spanned<BackendTable>,
    block_size: LbaSize,
) -> Option<BackendSettings> {
    let place = table.span();
    let table = table.get_ref();
    refuse_foreign_keys(check, table);
    let before = check.problems();
    let bytes = table.size.as_ref().and_then(|text| size(check, text, block_size));
    let memory_max = table.memory_max.as_ref().and_then(|text| size(check, text, block_size));
    let settings = match table.kind {
        BackendKind::Raw => raw(check, table, place, bytes),
        kind => {
            if table.size.is_none() {
                check.refuse(place, "missing key `size`, such as \"10 GiB\"");
            }
            bytes.map(|bytes| match kind {
                BackendKind::Memory => BackendSettings::Memory { bytes, memory_max },
                _ => BackendSettings::Null { bytes },
            })
        }
    };
    settings.filter(|_| check.problems() == before)
}

/// Keys that belong to another kind of backend.
fn refuse_foreign_keys(check: &mut Check<'_>, table: &BackendTable) {
    let (name, allowed) = match table.kind {
        BackendKind::Null => ("null", "kind and size"),
        BackendKind::Memory => ("memory", "kind, size and memory_max"),
        BackendKind::Raw => ("raw", "kind, path, size, create and page_cache"),
    };
    let raw_only = [
        table.path.as_ref().map(Spanned::span),
        table.create.as_ref().map(Spanned::span),
        table.page_cache.as_ref().map(Spanned::span),
    ];
    let memory_only = [table.memory_max.as_ref().map(Spanned::span)];
    let (is_raw, is_memory) = (table.kind == BackendKind::Raw, table.kind == BackendKind::Memory);
    let raw_only = raw_only.into_iter().filter(|_| !is_raw);
    let memory_only = memory_only.into_iter().filter(|_| !is_memory);
    for place in raw_only.chain(memory_only).flatten() {
        check.refuse(place, format!("not for kind \"{name}\"; allowed there are {allowed}"));
    }
}

fn raw(
    check: &mut Check<'_>,
    table: &BackendTable,
    place: Range<usize>,
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
    let extent = match (create, bytes, &table.size) {
        (Some(_), Some(bytes), _) => RawExtent::Create { bytes },
        // Its size is wrong, and that was said.
        (Some(_), None, Some(_)) => return None,
        (Some(create), None, None) => {
            check.refuse(create.span(), "a file is created with a size: give size, such as \"10 GiB\"");
            return None;
        }
        (None, _, None) => RawExtent::Whole,
        (None, _, Some(size)) => {
            check.refuse(
                size.span(),
                "the file or device has its own size: leave out size, or give create = true to make or \
                 grow a file",
            );
            return None;
        }
    };
    let page_cache = match &table.page_cache {
        Some(used) if *used.get_ref() => PageCache::Used,
        _ => PageCache::Bypassed,
    };
    Some(BackendSettings::Raw { path: PathBuf::from(path.get_ref()), extent, page_cache })
}

fn size(check: &mut Check<'_>, text: &Spanned<String>, block_size: LbaSize) -> Option<u64> {
    let bytes = check.accept(text.span(), parse_size(text.get_ref()))?;
    let block = u64::from(block_size.bytes());
    if bytes == 0 || bytes % block != 0 {
        let value = text.get_ref();
        check.refuse(
            text.span(),
            format!("{value:?} is not allowed; allowed are multiples of the block size, {block} B"),
        );
        return None;
    }
    Some(bytes)
}
