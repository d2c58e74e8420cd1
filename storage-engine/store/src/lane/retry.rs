//! Disk operations with another try: a transient error ends nothing, a lasting one ends the lane.

use std::time::Duration;

use ashlar_io::{Buffer, Disk, DiskError, World};

/// Waits before the second and later tries. Together far below the 5 s in which a dead device is noticed.
const WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_millis(500)];

/// Writes, several times if need be.
pub(super) async fn write<W: World>(
    world: &W,
    disk: &W::Disk,
    block: u64,
    data: <W::Buffer as Buffer>::Data,
) -> Result<(), DiskError> {
    for wait in WAITS {
        match disk.write(block, data.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::debug!(%error, "a write will be tried again"),
        }
        world.sleep(wait).await;
    }
    disk.write(block, data).await
}

/// Reads, several times if need be.
pub(super) async fn read<W: World>(
    world: &W,
    disk: &W::Disk,
    block: u64,
    mut buffer: W::Buffer,
) -> (Result<(), DiskError>, W::Buffer) {
    for wait in WAITS {
        let (result, back) = disk.read(block, buffer).await;
        match result {
            Ok(()) => return (Ok(()), back),
            Err(error) => tracing::debug!(%error, "a read will be tried again"),
        }
        buffer = back;
        world.sleep(wait).await;
    }
    disk.read(block, buffer).await
}
