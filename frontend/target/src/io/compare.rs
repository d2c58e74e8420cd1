//! Compare and Verify: reads whose data goes nowhere.

use ashlar_nvme::Status;
use ashlar_reactor::yield_now;

use super::execute::{failed, slices};
use super::{DataPort, NamespaceCore};
use crate::backend::{Backend, ByteRange, ReadData};
use crate::limits::SLICE_BYTES;

/// Compares the range with the host's data.
pub(super) async fn compare<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    range: ByteRange,
    port: &P,
) -> Result<(), Status> {
    for (at, slice) in slices(range, u64::from(SLICE_BYTES)) {
        let expected = port.fetch(at as u32, slice.len as u32).await?;
        let stored = namespace.backend().read(slice).await.map_err(failed)?;
        if !equal(&stored, &expected) {
            return Err(Status::COMPARE_FAILURE);
        }
    }
    Ok(())
}

/// What is stored is what is expected.
pub(super) fn equal(stored: &ReadData, expected: &[u8]) -> bool {
    match stored {
        ReadData::Buffer(bytes) => **bytes == *expected,
        ReadData::Zeroes => expected.iter().all(|&byte| byte == 0),
    }
}

/// Reads the range, so that its checksums are checked where there are any.
pub(super) async fn verify<B: Backend>(namespace: &NamespaceCore<B>, range: ByteRange) -> Result<(), Status> {
    for (_, slice) in slices(range, u64::from(SLICE_BYTES)) {
        drop(namespace.backend().read(slice).await.map_err(failed)?);
        // A Verify can cover 256 MiB, and a backend in memory never waits.
        yield_now().await;
    }
    Ok(())
}
