//! What stands behind the namespaces of this node: made ready, given to the target, grown while it is served.

use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_reactor::{CoreId, CoresHandle, Error as ReactorError};
use ashlar_target::backend::{BackendError, BackendInfo, OpenBackend};
use ashlar_target::backends::{AnyBackend, AnyOpener, BackendSource, PageCache, PrepareError};

use crate::config::{self, BackendSettings, NamespaceSettings, RawExtent};

/// Why a namespace's storage could not be made ready or grown.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// It cannot be used.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// Its size could not be found out.
    #[error("could not find the end of {}: {source}", path.display())]
    End {
        /// The file or device.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A volume is not open.
    #[error("volume {0} is not open: there is no engine for it")]
    NotOpen(config::Name),
    /// A data core could not be reached.
    #[error("a data core could not be reached: {0}")]
    Core(#[from] ReactorError),
}

/// The storage of one namespace. Clones are the same storage.
#[derive(Debug, Clone)]
pub struct Storage {
    opener: Arc<AnyOpener>,
    /// What it has; follows what the namespace was given room for.
    bytes: Arc<AtomicU64>,
}

impl Storage {
    /// Makes it ready.
    ///
    /// # Errors
    /// If a file or device cannot be used.
    pub async fn prepare(cores: &CoresHandle, settings: &BackendSettings) -> Result<Self, StorageError> {
        let (source, count) = (source(settings)?, cores.count());
        // Any core will do.
        let prepared =
            cores.run_on(CoreId(0), move || async move { AnyOpener::prepare(&source, count).await });
        let opener = Arc::new(prepared.await??);
        let bytes = Arc::new(AtomicU64::new(opener.info().bytes));
        Ok(Self { opener, bytes })
    }

    /// Makes room for what the settings ask for; returns the namespace's size in bytes.
    ///
    /// # Errors
    /// If a file cannot grow, or a device has not grown.
    pub fn resize(&self, settings: &BackendSettings) -> Result<u64, StorageError> {
        let bytes = match settings {
            BackendSettings::Null { bytes }
            | BackendSettings::Memory { bytes, .. }
            | BackendSettings::Volume { bytes, .. }
            | BackendSettings::Raw { extent: RawExtent::Create { bytes }, .. } => *bytes,
            BackendSettings::Raw { path, extent: RawExtent::Whole, .. } => {
                end_of(path).map_err(|source| StorageError::End { path: path.clone(), source })?
            }
        };
        self.opener.resize(bytes)?;
        self.bytes.store(bytes, Ordering::Release);
        Ok(bytes)
    }
}

impl OpenBackend for Storage {
    type Backend = AnyBackend;

    fn info(&self) -> BackendInfo {
        BackendInfo { bytes: self.bytes.load(Ordering::Acquire), ..self.opener.info() }
    }

    async fn open(&self, core: CoreId) -> Result<AnyBackend, BackendError> {
        self.opener.open(core).await
    }
}

/// Size of a file or block device.
fn end_of(path: &Path) -> io::Result<u64> {
    fs::File::open(path)?.seek(SeekFrom::End(0))
}

fn source(settings: &BackendSettings) -> Result<BackendSource, StorageError> {
    Ok(match settings {
        BackendSettings::Volume { name, .. } => return Err(StorageError::NotOpen(name.clone())),
        BackendSettings::Null { bytes } => BackendSource::Null { bytes: *bytes },
        BackendSettings::Memory { bytes, memory_max } => {
            BackendSource::Memory { bytes: *bytes, memory_max: *memory_max }
        }
        BackendSettings::Raw { path, extent, page_cache } => BackendSource::Raw {
            path: path.clone(),
            create_bytes: match extent {
                RawExtent::Whole => None,
                RawExtent::Create { bytes } => Some(*bytes),
            },
            page_cache: match page_cache {
                config::PageCache::Bypassed => PageCache::Bypassed,
                config::PageCache::Used => PageCache::Used,
            },
        },
    })
}

/// Size in logical blocks that the settings give a namespace; `None`: all that its storage has.
pub fn blocks(settings: &NamespaceSettings) -> Option<u64> {
    let bytes = match &settings.backend {
        BackendSettings::Null { bytes }
        | BackendSettings::Memory { bytes, .. }
        | BackendSettings::Volume { bytes, .. }
        | BackendSettings::Raw { extent: RawExtent::Create { bytes }, .. } => *bytes,
        BackendSettings::Raw { extent: RawExtent::Whole, .. } => return None,
    };
    Some(bytes >> settings.block_size.shift())
}
