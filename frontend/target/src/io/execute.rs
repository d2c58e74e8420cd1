//! Carrying out a checked command.

use ashlar_nvme::Status;

use super::check::{Action, Request};
use super::{DataPort, NamespaceCore, WriteCache};
use crate::backend::{Backend, ByteRange, Durability};
use crate::limits::SLICE_BYTES;

/// Carries out `request`, which [`super::check`] made for this namespace. The future may be dropped at any await:
/// the command then has or has not been carried out.
pub async fn execute<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    request: &Request,
    port: &P,
    cache: WriteCache,
) -> Status {
    let outcome = match request.action {
        Action::Read => read(namespace, request.range, port).await,
        Action::Write => write(namespace, request, port, cache).await,
        Action::Flush => namespace.backend().flush().await.map_err(|error| error.status()),
        Action::Compare | Action::Verify | Action::WriteZeroes { .. } | Action::DatasetManagement { .. } => {
            Err(Status::INVALID_OPCODE)
        }
    };
    outcome.err().unwrap_or(Status::SUCCESS)
}

/// The parts of `range` that move at once, each with its offset in the transfer.
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
        let data = namespace.backend().read(slice).await.map_err(|error| error.status())?;
        port.deliver(at as u32, slice.len as u32, data).await?;
    }
    Ok(())
}

async fn write<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    request: &Request,
    port: &P,
    cache: WriteCache,
) -> Result<(), Status> {
    let durability = durability(request, cache);
    for (at, slice) in slices(request.range, u64::from(SLICE_BYTES)) {
        let data = port.fetch(at as u32, slice.len as u32).await?;
        namespace.backend().write(slice, data, durability).await.map_err(|error| error.status())?;
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
