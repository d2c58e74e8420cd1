//! What can stand behind a namespace, and which of it does, chosen by configuration.
//!
//! | file | what |
//! |---|---|
//! | [`null`] | nothing: writes vanish, reads are zeroes |
//! | [`memory`] | memory of this process, divided among the cores |
//! | [`raw`] | a file or block device through io_uring |

use std::io;
use std::path::PathBuf;

use ashlar_reactor::CoreId;

use crate::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Durability, OpenBackend, ReadData, WriteData,
};
use crate::inventory::LbaSize;

pub mod memory;
pub mod null;
pub mod raw;

use memory::{Memory, MemoryOpener};
use null::{Null, NullOpener};
use raw::{HeldFile, Raw, RawOpener};

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

/// Storage that nobody else uses, before a data core has looked at it.
#[derive(Debug)]
pub enum Held {
    /// See [`BackendSource::Null`].
    Null {
        /// Size in bytes.
        bytes: u64,
    },
    /// See [`BackendSource::Memory`].
    Memory {
        /// Size in bytes.
        bytes: u64,
        /// Most memory in bytes that it may take.
        memory_max: Option<u64>,
    },
    /// See [`BackendSource::Raw`].
    Raw {
        /// The file or device.
        file: HeldFile,
        /// Whether its data goes through the kernel's page cache.
        page_cache: PageCache,
    },
}

impl BackendSource {
    /// Takes hold of it: opens, locks and grows what has a path. Blocks, for as long as a device likes: for control
    /// threads (PROTOCOL R9: a core that is late closes its hosts' connections).
    pub fn hold(&self) -> Result<Held, PrepareError> {
        let sized = |what: &str, bytes: u64| {
            let room = bytes >= u64::from(LbaSize::B4096.bytes());
            if room { Ok(bytes) } else { Err(PrepareError::Empty { what: what.to_owned() }) }
        };
        match self {
            BackendSource::Null { bytes } => Ok(Held::Null { bytes: sized("a null namespace", *bytes)? }),
            BackendSource::Memory { bytes, memory_max } => {
                let bytes = sized("a memory namespace", *bytes)?;
                Ok(Held::Memory { bytes, memory_max: *memory_max })
            }
            BackendSource::Raw { path, create_bytes, page_cache } => {
                let file = HeldFile::hold(path, *create_bytes)?;
                Ok(Held::Raw { file, page_cache: *page_cache })
            }
        }
    }
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
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    Kind {
        /// What was named.
        path: PathBuf,
    },
    /// Somebody has it locked.
    #[error("{path} is in use: another process, or another namespace, has it locked")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Sectors that are larger than a store block.
    #[error("{path} has sectors of {bytes} bytes, more than the 4096 that can be used")]
    Sectors {
        /// The device.
        path: PathBuf,
        /// Size of its sectors.
        bytes: u32,
    },
    /// A device that is smaller than the namespace shall be.
    #[error("{path} has {present} bytes, {wanted} are wanted")]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Its size.
        present: u64,
        /// The size that was asked for.
        wanted: u64,
    },
}

/// Any of the backends, ready to be opened on each core.
#[derive(Debug)]
pub enum AnyOpener {
    /// See [`null`].
    Null(NullOpener),
    /// See [`memory`].
    Memory(MemoryOpener),
    /// See [`raw`].
    Raw(RawOpener),
}

impl AnyOpener {
    /// Makes what is held ready for `cores` cores. Runs on a data core.
    pub async fn prepare(held: Held, cores: usize) -> Result<Self, PrepareError> {
        match held {
            Held::Null { bytes } => Ok(AnyOpener::Null(NullOpener::new(bytes))),
            Held::Memory { bytes, memory_max } => {
                Ok(AnyOpener::Memory(MemoryOpener::new(bytes, memory_max, cores)))
            }
            Held::Raw { file, page_cache } => RawOpener::prepare(file, page_cache).await.map(AnyOpener::Raw),
        }
    }

    /// Makes room for a namespace that grows to `bytes` bytes. Handles that are open see it at once.
    pub fn resize(&self, bytes: u64) -> Result<(), PrepareError> {
        match self {
            // Neither keeps anything that depends on its size.
            AnyOpener::Null(_) | AnyOpener::Memory(_) => Ok(()),
            AnyOpener::Raw(opener) => opener.resize(bytes),
        }
    }
}

impl OpenBackend for AnyOpener {
    type Backend = AnyBackend;

    fn info(&self) -> BackendInfo {
        match self {
            AnyOpener::Null(opener) => opener.info(),
            AnyOpener::Memory(opener) => opener.info(),
            AnyOpener::Raw(opener) => opener.info(),
        }
    }

    async fn open(&self, core: CoreId) -> Result<AnyBackend, BackendError> {
        match self {
            AnyOpener::Null(opener) => opener.open(core).await.map(AnyBackend::Null),
            AnyOpener::Memory(opener) => opener.open(core).await.map(AnyBackend::Memory),
            AnyOpener::Raw(opener) => opener.open(core).await.map(AnyBackend::Raw),
        }
    }
}

/// One core's handle on any of the backends.
#[derive(Debug)]
pub enum AnyBackend {
    /// See [`null`].
    Null(Null),
    /// See [`memory`].
    Memory(Memory),
    /// See [`raw`].
    Raw(Raw),
}

impl Backend for AnyBackend {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.read(range).await,
            AnyBackend::Memory(backend) => backend.read(range).await,
            AnyBackend::Raw(backend) => backend.read(range).await,
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
            AnyBackend::Memory(backend) => backend.write(range, data, durability).await,
            AnyBackend::Raw(backend) => backend.write(range, data, durability).await,
        }
    }

    async fn flush(&self) -> Result<(), BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.flush().await,
            AnyBackend::Memory(backend) => backend.flush().await,
            AnyBackend::Raw(backend) => backend.flush().await,
        }
    }

    async fn clear(&self, range: ByteRange, how: Clear, durability: Durability) -> Result<(), BackendError> {
        match self {
            AnyBackend::Null(backend) => backend.clear(range, how, durability).await,
            AnyBackend::Memory(backend) => backend.clear(range, how, durability).await,
            AnyBackend::Raw(backend) => backend.clear(range, how, durability).await,
        }
    }
}
