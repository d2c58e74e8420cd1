//! Carrying out a checked command: Read, Write and Flush here, the rarer ones from here.

use ashlar_nvme::Status;

use super::check::{Action, Request};
use super::{DataPort, NamespaceCore, clear, compare};
use crate::WriteCache;
use crate::backend::{Backend, BackendError, ByteRange, Durability};
use crate::limits::SLICE_BYTES;

/// Carries out `request`, which [`super::check`] made for this namespace.
///
/// The future may be dropped at any await: the command then has or has not been carried out, and nothing
/// keeps a fused pair from overlapping with what the device still does of it. Therefore started commands run
/// to their end, also when their connection is lost (NVME N6).
pub async fn execute<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    request: &Request,
    port: &P,
    cache: WriteCache,
) -> Status {
    let outcome = if request.range.end() > namespace.bytes() {
        // It shrank since the command was checked.
        Err(Status::LBA_OUT_OF_RANGE)
    } else if let (Action::Read, false) = (request.action, request.force_unit_access) {
        read(namespace, request.range, port).await
    } else if let Action::Write = request.action {
        write(namespace, request.range, port, durability(request, cache)).await
    } else {
        // Boxed, so that the common commands' future stays small.
        Box::pin(rarer(namespace, request, port, cache)).await
    };
    outcome.err().unwrap_or(Status::SUCCESS)
}

async fn rarer<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    request: &Request,
    port: &P,
    cache: WriteCache,
) -> Result<(), Status> {
    let range = request.range;
    let reads = matches!(request.action, Action::Read | Action::Compare | Action::Verify);
    if reads && request.force_unit_access && namespace.volatile_cache() {
        // What a forced read returns is durable first (NVM Command Set 1.0 §3.2.4, FUA).
        namespace.backend().flush().await.map_err(failed)?;
    }
    let durability = durability(request, cache);
    match request.action {
        Action::Read => read(namespace, range, port).await,
        Action::Write => write(namespace, range, port, durability).await,
        Action::Flush => namespace.backend().flush().await.map_err(failed),
        Action::Compare => compare::compare(namespace, range, port).await,
        Action::Verify => compare::verify(namespace, range).await,
        Action::WriteZeroes { deallocate } => {
            clear::write_zeroes(namespace, range, deallocate, durability, port).await
        }
        Action::DatasetManagement { ranges, list_bytes, deallocate } => {
            let list = clear::fetch_ranges(namespace, ranges, list_bytes, port).await?;
            // Without AD the ranges are hints for which there is no use.
            if deallocate { clear::discard(namespace, &list, durability, port).await } else { Ok(()) }
        }
    }
}

/// The status that a host gets for a backend's error.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn failed(error: BackendError) -> Status {
    error.status()
}

/// The parts of `range` that are worked on one at a time, each with its offset in the transfer.
pub(super) fn slices(range: ByteRange, most: u64) -> impl Iterator<Item = (u64, ByteRange)> {
    let parts = range.len.div_ceil(most);
    (0..parts).map(move |index| {
        let at = index * most;
        (at, ByteRange { offset: range.offset + at, len: most.min(range.len - at) })
    })
}

async fn read<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    range: ByteRange,
    port: &P,
) -> Result<(), Status> {
    for (at, slice) in slices(range, u64::from(SLICE_BYTES)) {
        let data = namespace.backend().read(slice).await.map_err(failed)?;
        port.deliver(at as u32, slice.len as u32, data).await?;
    }
    Ok(())
}

async fn write<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    range: ByteRange,
    port: &P,
    durability: Durability,
) -> Result<(), Status> {
    for (at, slice) in slices(range, u64::from(SLICE_BYTES)) {
        let data = port.fetch(at as u32, slice.len as u32).await?;
        let running = port.wait(namespace.gate().enter(slice)).await?;
        namespace.backend().write(slice, data, durability).await.map_err(failed)?;
        drop(running);
    }
    Ok(())
}

pub(super) fn durability(request: &Request, cache: WriteCache) -> Durability {
    // NVME N16
    if request.force_unit_access || cache == WriteCache::Disabled {
        Durability::Durable
    } else {
        Durability::Cached
    }
}
