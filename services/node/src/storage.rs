//! What stands behind the namespaces of this node: made ready, given to the target, grown while it is served.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_reactor::{CoreId, CoresHandle, Error as ReactorError};
use ashlar_target::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Durability, OpenBackend, ReadData, WriteData,
};
use ashlar_target::backends::{AnyBackend, AnyOpener, BackendSource, PageCache, PrepareError};

use crate::config::{self, BackendSettings, NamespaceSettings, RawExtent, VolumeSettings};
use crate::volumes::{Engine, EngineError, OpenVolume, VolumeBackend};

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
    /// A volume could not be opened.
    #[error(transparent)]
    Volume(#[from] EngineError),
    /// There were no pools when the node started.
    #[error("volume {0} needs pools, and there were none when the node started")]
    NoPools(config::Name),
    /// The thread that was to open it has gone.
    #[error("could not wait for storage to be opened: {0}")]
    Opening(#[from] tokio::task::JoinError),
    /// A data core could not be reached.
    #[error("a data core could not be reached: {0}")]
    Core(#[from] ReactorError),
}

/// What can stand behind a namespace.
#[derive(Debug, Clone)]
enum Kind {
    /// One thing, read and written as it is.
    Plain(Arc<AnyOpener>),
    /// A volume on this node's pools.
    Volume(OpenVolume),
}

/// The storage of one namespace. Clones are the same storage.
#[derive(Debug, Clone)]
pub struct Storage {
    kind: Kind,
    /// What it has; follows what the namespace was given room for.
    bytes: Arc<AtomicU64>,
}

/// What storage is made of.
#[derive(Debug, Clone)]
pub struct Means {
    /// The data cores.
    pub cores: CoresHandle,
    /// What opens volumes, if there are pools.
    pub engine: Option<Arc<Engine>>,
}

impl Storage {
    /// Makes it ready. `volumes` says what volumes shall be like.
    ///
    /// # Errors
    /// If a file or device cannot be used, or a volume cannot be opened.
    pub async fn prepare(
        means: &Means,
        settings: &BackendSettings,
        volumes: &BTreeMap<config::Name, VolumeSettings>,
    ) -> Result<Self, StorageError> {
        let kind = match plain(settings) {
            Ok(source) => {
                let count = means.cores.count();
                // A device may take its time to be opened.
                let held = tokio::task::spawn_blocking(move || source.hold()).await??;
                // Any core will do.
                let prepared = means
                    .cores
                    .run_on(CoreId(0), move || async move { AnyOpener::prepare(held, count).await });
                Kind::Plain(Arc::new(prepared.await??))
            }
            Err(name) => match (&means.engine, volumes.get(name)) {
                (Some(engine), Some(settings)) => Kind::Volume(engine.open(name, settings).await?),
                _ => return Err(StorageError::NoPools(name.clone())),
            },
        };
        let bytes = match &kind {
            Kind::Plain(opener) => opener.info().bytes,
            Kind::Volume(volume) => volume.bytes(),
        };
        Ok(Self { kind, bytes: Arc::new(AtomicU64::new(bytes)) })
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
        match &self.kind {
            Kind::Plain(opener) => opener.resize(bytes)?,
            Kind::Volume(volume) if volume.bytes() == bytes => {}
            Kind::Volume(volume) if volume.bytes() > bytes => {
                let (name, present) = (volume.name().clone(), volume.bytes());
                return Err(EngineError::Shrink { name, present, wanted: bytes }.into());
            }
            Kind::Volume(volume) => return Err(EngineError::Grow(volume.name().clone()).into()),
        }
        self.bytes.store(bytes, Ordering::Release);
        Ok(bytes)
    }

    /// Gives up what nothing uses any more.
    pub async fn close(&self, means: &Means) {
        if let (Kind::Volume(volume), Some(engine)) = (&self.kind, &means.engine) {
            engine.close(volume.id()).await;
        }
    }
}

impl OpenBackend for Storage {
    type Backend = NodeBackend;

    fn info(&self) -> BackendInfo {
        let info = match &self.kind {
            Kind::Plain(opener) => opener.info(),
            Kind::Volume(volume) => volume.info(),
        };
        BackendInfo { bytes: self.bytes.load(Ordering::Acquire), ..info }
    }

    async fn open(&self, core: CoreId) -> Result<NodeBackend, BackendError> {
        match &self.kind {
            Kind::Plain(opener) => opener.open(core).await.map(NodeBackend::Plain),
            Kind::Volume(volume) => volume.open(core).await.map(NodeBackend::Volume),
        }
    }
}

/// One core's handle on the storage of a namespace.
#[derive(Debug)]
pub enum NodeBackend {
    /// One thing, read and written as it is.
    Plain(AnyBackend),
    /// A volume.
    Volume(VolumeBackend),
}

impl Backend for NodeBackend {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        match self {
            NodeBackend::Plain(backend) => backend.read(range).await,
            NodeBackend::Volume(backend) => backend.read(range).await,
        }
    }

    async fn write(
        &self,
        range: ByteRange,
        data: WriteData,
        durability: Durability,
    ) -> Result<(), BackendError> {
        match self {
            NodeBackend::Plain(backend) => backend.write(range, data, durability).await,
            NodeBackend::Volume(backend) => backend.write(range, data, durability).await,
        }
    }

    async fn flush(&self) -> Result<(), BackendError> {
        match self {
            NodeBackend::Plain(backend) => backend.flush().await,
            NodeBackend::Volume(backend) => backend.flush().await,
        }
    }

    async fn clear(&self, range: ByteRange, how: Clear, durability: Durability) -> Result<(), BackendError> {
        match self {
            NodeBackend::Plain(backend) => backend.clear(range, how, durability).await,
            NodeBackend::Volume(backend) => backend.clear(range, how, durability).await,
        }
    }
}

/// Size of a file or block device.
fn end_of(path: &Path) -> io::Result<u64> {
    fs::File::open(path)?.seek(SeekFrom::End(0))
}

/// What the settings name, or else the volume.
fn plain(settings: &BackendSettings) -> Result<BackendSource, &config::Name> {
    Ok(match settings {
        BackendSettings::Volume { name, .. } => return Err(name),
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use ashlar_reactor::{Cores, CoresConfig};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(flavor = "multi_thread")]
    async fn storage_is_opened_and_sized_without_a_data_core() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
        let handle = cores.handle();
        // The only core is busy until it is told.
        let (release, released) = mpsc::channel::<()>();
        let busy = handle.run_on(CoreId(0), move || async move { released.recv().is_ok() });
        let settings = BackendSettings::Raw {
            path: path.clone(),
            extent: RawExtent::Create { bytes: 1 << 20 },
            page_cache: config::PageCache::Used,
        };
        let means = Means { cores: handle, engine: None };
        let prepared =
            tokio::spawn(async move { Storage::prepare(&means, &settings, &BTreeMap::new()).await });
        let deadline = Instant::now() + PATIENCE;
        while !fs::metadata(&path).is_ok_and(|file| file.len() == 1 << 20) {
            assert!(Instant::now() < deadline, "the file waits for the core");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        release.send(()).expect("it waits for this");
        assert!(busy.await.expect("it goes on"));
        let storage = prepared.await.expect("it ends").expect("it is ready");
        assert_eq!(storage.info().bytes, 1 << 20);
        drop(storage);
        cores.stop(PATIENCE).expect("nothing is left over");
    }
}
