//! A held device, open on one core: reads and writes by io_uring, with direct I/O and registered buffers.
//!
//! After a flush failed nobody knows which of the writes before it are durable, and no later flush would tell. So from
//! then on every write and flush of the device fails, on all cores, until the process is started again and looks at
//! what is there. Reads go on.
//!
//! Discard asks the kernel to give back the space of a range (`fallocate`); on a block device that is Write Zeroes with
//! deallocation, and what cannot do it is left alone: it is a hint.

use std::fmt;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use ashlar_io::{BLOCK_BYTES, Disk, DiskError, DiskGeometry, DiskOperation};

use super::device::FileDevice;
use crate::buffer::IoBuf;
use crate::file::{Clear, Durability, File};
use crate::frozen::FrozenBuf;

/// Bytes of a block, as offsets are counted.
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file or block device on one core.
#[derive(Clone)]
pub struct FileDisk {
    open: Rc<Open>,
}

struct Open {
    file: File,
    device: FileDevice,
    /// Copied from the device, to be near at hand.
    geometry: DiskGeometry,
}

impl fmt::Debug for FileDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDisk").field("path", &self.open.device.path()).finish_non_exhaustive()
    }
}

fn failed(operation: DiskOperation, block: u64, cause: impl fmt::Display) -> DiskError {
    DiskError { operation, block, cause: cause.to_string() }
}

impl FileDisk {
    pub(super) fn new(file: File, device: FileDevice) -> Self {
        let geometry = device.geometry();
        Self { open: Rc::new(Open { file, device, geometry }) }
    }

    /// The offset of `block`, if `len` bytes from there on are whole blocks within the disk. A write behind its end
    /// would make a file larger.
    fn offset(&self, operation: DiskOperation, block: u64, len: usize) -> Result<u64, DiskError> {
        within(self.open.geometry.blocks, operation, block, len)?;
        Ok(block * BLOCK)
    }

    fn check_flushed(&self, operation: DiskOperation, block: u64) -> Result<(), DiskError> {
        match self.open.device.held.flush_failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(failed(operation, block, "an earlier flush failed, so earlier writes may be lost")),
        }
    }
}

/// Refuses what is not whole blocks within a disk of `blocks` blocks.
pub(super) fn within(blocks: u64, operation: DiskOperation, block: u64, len: usize) -> Result<(), DiskError> {
    if !len.is_multiple_of(BLOCK_BYTES) {
        return Err(failed(operation, block, format_args!("{len} bytes are not whole blocks")));
    }
    let count = (len / BLOCK_BYTES) as u64;
    match block.checked_add(count) {
        Some(end) if end <= blocks => Ok(()),
        _ => {
            Err(failed(operation, block, format_args!("{count} blocks there end behind the disk's {blocks}")))
        }
    }
}

/// All bytes must have been transferred.
fn whole(
    operation: DiskOperation,
    block: u64,
    len: usize,
    result: io::Result<usize>,
) -> Result<(), DiskError> {
    match result {
        Ok(done) if done == len => Ok(()),
        Ok(done) => {
            Err(failed(operation, block, format_args!("only {done} of {len} bytes were transferred")))
        }
        Err(error) => Err(failed(operation, block, error)),
    }
}

impl Disk for FileDisk {
    type Buffer = IoBuf;

    fn geometry(&self) -> DiskGeometry {
        self.open.geometry
    }

    async fn read(&self, block: u64, buffer: IoBuf) -> (Result<(), DiskError>, IoBuf) {
        let len = buffer.len();
        match self.offset(DiskOperation::Read, block, len) {
            Err(error) => (Err(error), buffer),
            Ok(offset) => {
                let (result, buffer) = self.open.file.read_at(buffer, offset).await;
                (whole(DiskOperation::Read, block, len, result), buffer)
            }
        }
    }

    async fn write(&self, block: u64, data: FrozenBuf) -> Result<(), DiskError> {
        let len = data.len();
        let offset = self.offset(DiskOperation::Write, block, len)?;
        self.check_flushed(DiskOperation::Write, block)?;
        let result = self.open.file.write_frozen_at(data, offset, Durability::Cached).await;
        whole(DiskOperation::Write, block, len, result)
    }

    async fn flush(&self) -> Result<(), DiskError> {
        if !self.open.geometry.volatile_cache {
            return Ok(());
        }
        self.check_flushed(DiskOperation::Flush, 0)?;
        if let Err(error) = self.open.file.sync_data().await {
            if !self.open.device.held.flush_failed.swap(true, Ordering::Relaxed) {
                let path = self.open.device.path().display();
                tracing::error!(%path, %error, "a flush failed: writes and flushes of this device fail from now on");
            }
            return Err(failed(DiskOperation::Flush, 0, error));
        }
        // Another core's flush may have failed and taken the kernel's report of it meanwhile.
        self.check_flushed(DiskOperation::Flush, 0)
    }

    async fn discard(&self, blocks: Range<u64>) -> Result<(), DiskError> {
        let Some(count) = blocks.end.checked_sub(blocks.start).filter(|count| *count > 0) else {
            return Ok(());
        };
        if blocks.end > self.open.geometry.blocks {
            let last = self.open.geometry.blocks;
            let cause = format_args!("{count} blocks there end behind the disk's {last}");
            return Err(failed(DiskOperation::Discard, blocks.start, cause));
        }
        if !self.open.geometry.discard {
            return Ok(());
        }
        match self.open.file.clear(blocks.start * BLOCK, count * BLOCK, Clear::Deallocate).await {
            // Devices without the operation say EOPNOTSUPP, file systems without it ENOSYS or EINVAL.
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) =>
            {
                Err(failed(DiskOperation::Discard, blocks.start, error))
            }
            _ => Ok(()),
        }
    }
}
