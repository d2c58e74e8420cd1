//! Write Zeroes and Dataset Management.

use ashlar_nvme::Status;
use ashlar_nvme::nvm::DsmRange;
use ashlar_reactor::yield_now;

use super::execute::{failed, slices};
use super::{DataPort, NamespaceCore};
use crate::backend::{Backend, ByteRange, Clear, Durability};

/// Most bytes that are cleared before a waiting fused pair gets in; backends themselves yield more often
/// (NVME N10).
const CLEAR_SLICE_BYTES: u64 = 1024 * 1024 * 1024;

/// Makes a range read as zeroes. WZSL keeps it below one slice (NVME N9).
pub(super) async fn write_zeroes<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    range: ByteRange,
    deallocate: bool,
    durability: Durability,
    port: &P,
) -> Result<(), Status> {
    let how = if deallocate { Clear::Deallocate } else { Clear::Zero };
    let _running = port.wait(namespace.gate().enter(range)).await?;
    namespace.backend().clear(range, how, durability).await.map_err(failed)
}

/// The ranges of a Dataset Management command, in bytes, empty ones left out. All are checked before any is
/// executed (NVME N10).
pub(super) async fn fetch_ranges<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    ranges: u16,
    list_bytes: u16,
    port: &P,
) -> Result<Vec<ByteRange>, Status> {
    let list = port.fetch(0, u32::from(list_bytes)).await?;
    let list =
        DsmRange::slice_from(&list).get(..usize::from(ranges)).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
    namespace.with_namespace(|namespace| {
        if !list.iter().all(|range| range.fits(namespace.blocks)) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let shift = namespace.lba.shift();
        let bytes = |range: &DsmRange| ByteRange {
            offset: range.slba.get() << shift,
            len: u64::from(range.nlb.get()) << shift,
        };
        Ok(list.iter().map(bytes).filter(|range| range.len > 0).collect())
    })
}

/// Discards ranges in bounded slices.
pub(super) async fn discard<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    ranges: &[ByteRange],
    durability: Durability,
    port: &P,
) -> Result<(), Status> {
    for &range in ranges {
        for (_, slice) in slices(range, CLEAR_SLICE_BYTES) {
            let running = port.wait(namespace.gate().enter(slice)).await?;
            let cleared = namespace.backend().clear(slice, Clear::Discard, Durability::Cached).await;
            drop(running);
            cleared.map_err(failed)?;
            yield_now().await;
        }
    }
    // Once for all of them.
    if durability == Durability::Durable && namespace.volatile_cache() {
        namespace.backend().flush().await.map_err(failed)?;
    }
    Ok(())
}
