//! What can stand behind a namespace, and which of it does, chosen by configuration.
//!
//! | file | what |
//! |---|---|
//! | [`null`] | nothing: writes vanish, reads are zeroes |

use std::io;
use std::path::PathBuf;

use ashlar_reactor::CoreId;

use crate::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Durability, OpenBackend, ReadData, WriteData,
};

pub mod null;

use null::{Null, NullOpener};

/// What shall stand behind a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendSource {
    /// Nothing; for measurements.
    Null {
        /// Size in bytes.
        bytes: u64,
    },
    /// Memory of this process, gone with it.
    Memory {
        /// Size in bytes. Blocks take memory when they are first written.
        bytes: u64,
        /// Most memory in bytes that it may take, if less than everything: writes beyond fail with Capacity
        /// Exceeded.
        memory_max: Option<u64>,
    },
    /// A file or a block device.
    Raw {
        /// Where it is.
        path: PathBuf,
        /// For a regular file: create it if it is missing, and give it this size if it is smaller.
        create_bytes: Option<u64>,
        /// Whether its data goes through the kernel's page cache.
        page_cache: PageCache,
    },
}

/// Whether data goes through the kernel's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageCache {
    /// Direct I/O.
    #[default]
    Bypassed,
    /// Buffered I/O, for file systems that know no direct I/O.
    Used,
}

/// Why a namespace's storage could not be made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The file or device could not be opened, locked, sized or looked at.
    #[error("could not {what} {path}: {source}")]
    Path {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// A size of zero.
    #[error("{what} has no room for a single block: give it a size")]
    Empty {
        /// What it is.
        what: String,
    },
}

/// Any of the backends, ready to be opened on each core.
#[derive(Debug)]
pub enum AnyOpener {
    /// See [`null`].
    Null(NullOpener),
}

impl AnyOpener {
    /// Makes `source` ready for `cores` cores. Runs on a data core.
    pub async fn prepare(source: &BackendSource, cores: usize) -> Result<Self, PrepareError> {
        let _ = cores;
        match source {
            BackendSource::Null { bytes } | BackendSource::Memory { bytes, .. } => {
                Ok(AnyOpener::Null(NullOpener::new(*bytes)))
            }
            BackendSource::Raw { path, .. } => Err(PrepareError::Empty { what: path.display().to_string() }),
        }
    }
}

impl OpenBackend for AnyOpener {
    type Backend = AnyBackend;

    fn info(&self) -> BackendInfo {
        match self {
            AnyOpener::Null(opener) => opener.info(),
        }
    }

    async fn open(&self, core: CoreId) -> Result<AnyBackend, BackendError> {
        match self {
            AnyOpener::Null(opener) => opener.open(core).await.map(AnyBackend::Null),
        }
    }
}

/// One core's handle on any of the backends.
#[derive(Debug)]
pub enum AnyBackend {
    /// See [`null`].
    Null(Null),
}

impl Backend for AnyBackend {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.read(range).await,
        }
    }

    async fn write(
        &self,
        range: ByteRange,
        data: WriteData,
        durability: Durability,
    ) -> Result<(), BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.write(range, data, durability).await,
        }
    }

    async fn flush(&self) -> Result<(), BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.flush().await,
        }
    }

    async fn clear(&self, range: ByteRange, how: Clear, durability: Durability) -> Result<(), BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.clear(range, how, durability).await,
        }
    }
}
