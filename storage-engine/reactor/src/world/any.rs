//! A disk of either kind, chosen when it is opened: each operation costs one comparison more.

use std::io;
use std::ops::Range;

use ashlar_io::{Disk, DiskError, DiskGeometry};

use super::device::FileDevice;
use super::disk::FileDisk;
use super::memory::MemoryDisk;
use crate::buffer::IoBuf;
use crate::frozen::FrozenBuf;

/// A device of either kind, which each core opens for itself.
#[derive(Debug, Clone)]
pub enum AnyDevice {
    /// A file or block device.
    File(FileDevice),
    /// Memory.
    Memory(MemoryDisk),
}

impl AnyDevice {
    /// What its disks promise.
    pub fn geometry(&self) -> DiskGeometry {
        match self {
            AnyDevice::File(device) => device.geometry(),
            AnyDevice::Memory(disk) => disk.geometry(),
        }
    }

    /// Opens it on the current data core.
    ///
    /// # Errors
    /// If there is no descriptor left.
    ///
    /// # Panics
    /// Outside a data core.
    pub fn open(&self) -> io::Result<AnyDisk> {
        match self {
            AnyDevice::File(device) => device.open().map(AnyDisk::File),
            AnyDevice::Memory(disk) => Ok(AnyDisk::Memory(disk.clone())),
        }
    }
}

/// A disk of either kind, open on one core.
#[derive(Debug, Clone)]
pub enum AnyDisk {
    /// A file or block device.
    File(FileDisk),
    /// Memory.
    Memory(MemoryDisk),
}

impl Disk for AnyDisk {
    type Buffer = IoBuf;

    fn geometry(&self) -> DiskGeometry {
        match self {
            AnyDisk::File(disk) => disk.geometry(),
            AnyDisk::Memory(disk) => disk.geometry(),
        }
    }

    async fn read(&self, block: u64, buffer: IoBuf) -> (Result<(), DiskError>, IoBuf) {
        match self {
            AnyDisk::File(disk) => disk.read(block, buffer).await,
            AnyDisk::Memory(disk) => disk.read(block, buffer).await,
        }
    }

    async fn write(&self, block: u64, data: FrozenBuf) -> Result<(), DiskError> {
        match self {
            AnyDisk::File(disk) => disk.write(block, data).await,
            AnyDisk::Memory(disk) => disk.write(block, data).await,
        }
    }

    async fn flush(&self) -> Result<(), DiskError> {
        match self {
            AnyDisk::File(disk) => disk.flush().await,
            AnyDisk::Memory(disk) => disk.flush().await,
        }
    }

    async fn discard(&self, blocks: Range<u64>) -> Result<(), DiskError> {
        match self {
            AnyDisk::File(disk) => disk.discard(blocks).await,
            AnyDisk::Memory(disk) => disk.discard(blocks).await,
        }
    }
}
