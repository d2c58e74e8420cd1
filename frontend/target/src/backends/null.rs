//! Nothing: writes vanish, reads are zeroes. For measuring everything but storage.

use ashlar_reactor::CoreId;

use crate::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Deallocated, Durability, OpenBackend, ReadData,
    WriteData,
};

/// Opens [`Null`].
#[derive(Debug, Clone, Copy)]
pub struct NullOpener {
    bytes: u64,
}

impl NullOpener {
    /// A namespace of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes }
    }
}

impl OpenBackend for NullOpener {
    type Backend = Null;

    fn info(&self) -> BackendInfo {
        BackendInfo {
            bytes: self.bytes,
            access_bytes: 512,
            volatile_cache: false,
            deallocated: Deallocated::Zeroes,
        }
    }

    async fn open(&self, _: CoreId) -> Result<Null, BackendError> {
        Ok(Null)
    }
}

/// Takes everything, keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct Null;

impl Backend for Null {
    async fn read(&self, _: ByteRange) -> Result<ReadData, BackendError> {
        Ok(ReadData::Zeroes)
    }

    async fn write(&self, _: ByteRange, _: WriteData, _: Durability) -> Result<(), BackendError> {
        Ok(())
    }

    async fn flush(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn clear(&self, _: ByteRange, _: Clear, _: Durability) -> Result<(), BackendError> {
        Ok(())
    }
}
