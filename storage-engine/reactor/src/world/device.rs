//! A file or block device that this process holds: nobody else uses it, and nothing that a process before this one
//! left in flight still reaches it (PROTOCOL S18).
//!
//! One open file is shared by all cores. A block device is opened exclusively, a regular file is locked; both belong
//! to the open file, and every operation in flight keeps it open. So the next process gets the device only once the
//! last operation of this one has ended, however this one ended.

use std::fs::{self, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ashlar_io::{BLOCK_BYTES, DiskGeometry};

use super::disk::FileDisk;
use super::tearing;
use crate::file::{File, FileKind, Geometry, geometry};

/// A device could not be held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The system refused something.
    #[error("could not {what} {}: {source}", path.display())]
    System {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody else has it. It may pass: a process that ended waits for its last operations (PROTOCOL S18).
    #[error("{} is in use: it is mounted, or another process has it", path.display())]
    InUse {
        /// The device.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    Kind {
        /// What was named.
        path: PathBuf,
    },
    /// Sectors that are larger than a block.
    #[error("{} has sectors of {bytes} bytes, more than the {BLOCK_BYTES} that can be used", path.display())]
    Sectors {
        /// The device.
        path: PathBuf,
        /// Size of its sectors.
        bytes: u32,
    },
}

/// A held device. Clones are the same; it is held until the last of them and of its disks is gone.
#[derive(Debug, Clone)]
pub struct FileDevice {
    pub(super) held: Arc<Held>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) path: PathBuf,
    file: fs::File,
    details: Geometry,
    pub(super) geometry: DiskGeometry,
    /// A flush failed on some core: see [`FileDisk`].
    pub(super) flush_failed: AtomicBool,
}

impl FileDevice {
    /// Opens and holds `path`, which exists. Blocks for a moment: for set-up, on any thread.
    ///
    /// # Errors
    /// If somebody else has it, or it cannot be used for direct I/O of 4 KiB.
    pub fn hold(path: &Path) -> Result<Self, HoldError> {
        let failed = |what| move |source| HoldError::System { what, path: path.to_owned(), source };
        let kind = fs::metadata(path).map_err(failed("find"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(HoldError::Kind { path: path.to_owned() });
        }
        let exclusive = if kind.is_block_device() { libc::O_EXCL } else { 0 };
        let opened =
            fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT | exclusive).open(path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(HoldError::InUse { path: path.to_owned() });
            }
            opened => opened.map_err(failed("open for direct I/O"))?,
        };
        if kind.is_file() {
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => HoldError::InUse { path: path.to_owned() },
                TryLockError::Error(source) => failed("lock")(source),
            })?;
        }
        let details = geometry(file.as_fd()).map_err(failed("find out the geometry of"))?;
        if details.logical_block_bytes as usize > BLOCK_BYTES {
            return Err(HoldError::Sectors { path: path.to_owned(), bytes: details.logical_block_bytes });
        }
        let tearing = tearing::of(file.as_fd(), details).map_err(failed("find out the atomicity of"))?;
        let geometry = DiskGeometry {
            blocks: details.bytes / BLOCK_BYTES as u64,
            volatile_cache: details.volatile_cache,
            tearing,
            discard: details.discard,
        };
        let flush_failed = AtomicBool::new(false);
        Ok(Self { held: Arc::new(Held { path: path.to_owned(), file, details, geometry, flush_failed }) })
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.held.path
    }

    /// File or block device.
    pub fn kind(&self) -> FileKind {
        self.held.details.kind
    }

    /// Smallest unit of direct I/O, in bytes.
    pub fn logical_block_bytes(&self) -> u32 {
        self.held.details.logical_block_bytes
    }

    /// What its disks promise.
    pub fn geometry(&self) -> DiskGeometry {
        self.held.geometry
    }

    /// Opens it on the current data core.
    ///
    /// # Errors
    /// If there is no descriptor left.
    ///
    /// # Panics
    /// Outside a data core.
    pub fn open(&self) -> io::Result<FileDisk> {
        let fd = OwnedFd::from(self.held.file.try_clone()?);
        Ok(FileDisk::new(File::adopt(fd), self.clone()))
    }
}
