//! A file or a block device through io_uring: direct I/O, registered buffers and files.
//!
//! Durability (NVME N16). A regular file, and a device with a volatile cache, is reported as having one:
//! writes are durable after a flush, which is a data sync, or at once as data-sync writes. After a sync
//! failed, nobody knows which of the writes before it are durable, and the kernel reports that only once:
//! from then on every write, clear and flush of the namespace fails on all cores, until the process is
//! started again and the host has seen that something happened. The same holds for a data-sync write that
//! fails for another reason than lack of space, as it contains such a sync. Reads go on.
//!
//! Zeroes. The kernel makes ranges of files and devices read as zeroes (fallocate). Blocks of 4 KiB that a
//! range covers in part are zeroed by plain writes, so that neighbours stay (NVME N10), and so is everything
//! where the kernel or the device cannot do better. Discard leaves partial blocks and devices that cannot do
//! it alone: it is a hint.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_reactor::file::{self, Geometry};
use ashlar_reactor::{CoreId, File, FileKind, IoBuf, OpenOptions};

use super::{PageCache, PrepareError};
use crate::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Deallocated, Durability, OpenBackend, ReadData,
    WriteData,
};
use crate::limits::SLICE_BYTES;

/// What fallocate takes in whole: a page, and the block of the usual file systems.
const BLOCK_BYTES: u64 = 4096;

/// Most that the kernel is asked to clear at once: it does so in a thread of its own, but devices can take
/// long, and other work at them waits meanwhile.
const CLEAR_BYTES: u64 = 1024 * 1024 * 1024;

/// Opens [`Raw`] on each core. Holds the file or device for this process alone.
pub struct RawOpener {
    path: PathBuf,
    page_cache: PageCache,
    info: BackendInfo,
    kind: FileKind,
    sync_failed: Arc<AtomicBool>,
    /// Locked (a file) or opened exclusively (a device) as long as it is open.
    held: fs::File,
}

impl fmt::Debug for RawOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawOpener")
            .field("path", &self.path)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl RawOpener {
    /// Looks at what is held. Runs on a data core.
    pub async fn prepare(held: HeldFile, page_cache: PageCache) -> Result<Self, PrepareError> {
        let HeldFile { path, file: held, writes_zeroes } = held;
        let failed = |what| {
            let path = path.clone();
            move |source| PrepareError::Path { what, path, source }
        };
        let file = File::open(&path, open_options(page_cache)).await.map_err(failed(match page_cache {
            PageCache::Bypassed => "open for direct I/O",
            PageCache::Used => "open",
        }))?;
        let geometry = file.geometry().map_err(failed("find out the geometry of"))?;
        let access_bytes = match page_cache {
            PageCache::Used => 512,
            PageCache::Bypassed => access_unit(&file, geometry).await.map_err(failed("read from"))?,
        };
        if u64::from(access_bytes) > BLOCK_BYTES {
            return Err(PrepareError::Sectors { path, bytes: access_bytes });
        }
        let bytes = geometry.bytes / u64::from(access_bytes) * u64::from(access_bytes);
        if bytes == 0 {
            return Err(PrepareError::Empty { what: path.display().to_string() });
        }
        let info = BackendInfo {
            bytes,
            access_bytes,
            volatile_cache: geometry.volatile_cache || page_cache == PageCache::Used,
            deallocated: deallocated(&file, geometry, writes_zeroes).await,
        };
        let sync_failed = Arc::new(AtomicBool::new(false));
        Ok(Self { path, page_cache, info, kind: geometry.kind, sync_failed, held })
    }

    /// Makes room for `bytes` bytes: a file grows; a device must have grown. Nothing shrinks.
    pub fn resize(&self, bytes: u64) -> Result<(), PrepareError> {
        let failed = |what| move |source| PrepareError::Path { what, path: self.path.clone(), source };
        let present = match self.kind {
            FileKind::Regular => {
                let present = self.held.metadata().map_err(failed("look at"))?.len();
                if present < bytes {
                    self.held.set_len(bytes).map_err(failed("set the size of"))?;
                }
                present.max(bytes)
            }
            // A device's size is where its end is.
            FileKind::BlockDevice => {
                io::Seek::seek(&mut &self.held, io::SeekFrom::End(0)).map_err(failed("find the end of"))?
            }
        };
        if present < bytes {
            return Err(PrepareError::TooSmall { path: self.path.clone(), present, wanted: bytes });
        }
        Ok(())
    }
}

const fn open_options(page_cache: PageCache) -> OpenOptions {
    let direct = matches!(page_cache, PageCache::Bypassed);
    OpenOptions { write: true, create: false, direct, exclusive: false }
}

/// A file or device that this process holds for itself alone, and that is as large as it shall be.
#[derive(Debug)]
pub struct HeldFile {
    path: PathBuf,
    file: fs::File,
    /// For a device: Write Zeroes works.
    writes_zeroes: bool,
}

impl HeldFile {
    /// Takes hold of the file or device, and makes it if asked to. Blocks, for as long as the device likes: not for
    /// data cores.
    pub fn hold(path: &Path, create_bytes: Option<u64>) -> Result<Self, PrepareError> {
        let failed = |what| move |source| PrepareError::Path { what, path: path.to_owned(), source };
        let file = open_alone(path, create_bytes)?;
        let metadata = file.metadata().map_err(failed("look at"))?;
        if let Some(bytes) = create_bytes
            && metadata.is_file()
            && metadata.len() < bytes
        {
            file.set_len(bytes).map_err(failed("set the size of"))?;
        }
        let writes_zeroes = metadata.file_type().is_block_device() && device_writes_zeroes(metadata.rdev());
        Ok(Self { path: path.to_owned(), file, writes_zeroes })
    }
}

/// Opens the path once for the whole process, so that nobody else uses it at the same time.
fn open_alone(path: &Path, create_bytes: Option<u64>) -> Result<fs::File, PrepareError> {
    let failed = |what| move |source| PrepareError::Path { what, path: path.to_owned(), source };
    let present = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && create_bytes.is_some() => None,
        Err(error) => return Err(failed("find")(error)),
    };
    let device = present.is_some_and(|kind| kind.is_block_device());
    if !device && present.is_some_and(|kind| !kind.is_file()) {
        return Err(PrepareError::Kind { path: path.to_owned() });
    }
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    if device {
        // Refused if it is mounted, or somebody else has it exclusively.
        options.custom_flags(libc::O_EXCL);
    } else if present.is_none() {
        options.create(true).truncate(false).mode(0o600);
    }
    let held = options.open(path).map_err(failed("open"))?;
    if !device {
        held.try_lock().map_err(|error| match error {
            fs::TryLockError::Error(source) => failed("lock")(source),
            fs::TryLockError::WouldBlock => PrepareError::InUse { path: path.to_owned() },
        })?;
    }
    Ok(held)
}

/// Smallest unit of direct I/O. A device says it; with a file it depends on what is below its file system:
/// tried out.
async fn access_unit(file: &File, geometry: Geometry) -> io::Result<u32> {
    if geometry.kind == FileKind::BlockDevice {
        return Ok(geometry.logical_block_bytes.max(512));
    }
    if geometry.bytes < BLOCK_BYTES {
        return Ok(512);
    }
    match file.read_at(IoBuf::heap(512), 512).await.0 {
        Ok(_) => Ok(512),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(geometry.logical_block_bytes),
        Err(error) => Err(error),
    }
}

/// Whether cleared blocks certainly read as zeroes and discarding clears (NVME N9).
async fn deallocated(file: &File, geometry: Geometry, writes_zeroes: bool) -> Deallocated {
    let certain = match geometry.kind {
        // A hole behind the end changes nothing, and tells whether the file system makes holes.
        FileKind::Regular => {
            let behind = geometry.bytes.next_multiple_of(BLOCK_BYTES);
            file.clear(behind, BLOCK_BYTES, file::Clear::Deallocate).await.is_ok()
        }
        // The kernel punches holes into devices by Write Zeroes with deallocation only.
        FileKind::BlockDevice => geometry.discard && writes_zeroes,
    };
    if certain { Deallocated::Zeroes } else { Deallocated::Unspecified }
}

fn device_writes_zeroes(device: u64) -> bool {
    let base = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let read = |path: String| fs::read_to_string(path).ok();
    read(format!("{base}/queue/write_zeroes_max_bytes"))
        // A partition's queue is its disk's.
        .or_else(|| read(format!("{base}/../queue/write_zeroes_max_bytes")))
        .is_some_and(|most| most.trim() != "0")
}

impl OpenBackend for RawOpener {
    type Backend = Raw;

    fn info(&self) -> BackendInfo {
        self.info
    }

    async fn open(&self, _: CoreId) -> Result<Raw, BackendError> {
        let file = File::open(&self.path, open_options(self.page_cache)).await;
        Ok(Raw {
            file: file.map_err(BackendError::ReadFault)?,
            volatile_cache: self.info.volatile_cache,
            sync_failed: Arc::clone(&self.sync_failed),
        })
    }
}

/// One core's handle.
#[derive(Debug)]
pub struct Raw {
    file: File,
    volatile_cache: bool,
    /// Written once at most, so reading it costs no more than any other constant.
    sync_failed: Arc<AtomicBool>,
}

fn write_failed(error: io::Error) -> BackendError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BackendError::CapacityExceeded,
        _ => BackendError::WriteFault(error),
    }
}

fn unsupported(error: &io::Error) -> bool {
    // A device without the operation says EOPNOTSUPP, a file system without it ENOSYS or EINVAL.
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL))
}

impl Raw {
    fn check_synced(&self) -> Result<(), BackendError> {
        if self.sync_failed.load(Ordering::Relaxed) {
            let lost = io::Error::other("an earlier sync failed, so that earlier writes may be lost");
            return Err(BackendError::WriteFault(lost));
        }
        Ok(())
    }

    fn sync_has_failed(&self, error: &io::Error) {
        if !self.sync_failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "a sync failed: writes and flushes of this namespace fail from now on");
        }
    }

    async fn sync(&self) -> Result<(), BackendError> {
        self.check_synced()?;
        if !self.volatile_cache {
            return Ok(());
        }
        if let Err(error) = self.file.sync_data().await {
            self.sync_has_failed(&error);
            return Err(BackendError::WriteFault(error));
        }
        // Another core's sync may have failed and taken the kernel's report of it meanwhile.
        self.check_synced()
    }

    async fn write_buffer(
        &self,
        buffer: IoBuf,
        offset: u64,
        durability: Durability,
    ) -> (Result<(), BackendError>, IoBuf) {
        let through = durability == Durability::Durable && self.volatile_cache;
        let how = if through { file::Durability::Through } else { file::Durability::Cached };
        let len = buffer.len();
        let (result, buffer) = self.file.write_at(buffer, offset, how).await;
        let outcome = match result {
            Ok(written) if written == len => Ok(()),
            Ok(_) => Err(BackendError::WriteFault(io::ErrorKind::WriteZero.into())),
            Err(error) => {
                let failure = write_failed(error);
                if let (BackendError::WriteFault(error), true) = (&failure, through) {
                    self.sync_has_failed(error);
                }
                Err(failure)
            }
        };
        (outcome, buffer)
    }

    /// Zeroes a range by writing zeroes.
    async fn write_zeroes(&self, from: u64, to: u64) -> Result<(), BackendError> {
        if from >= to {
            return Ok(());
        }
        let part = (to - from).min(u64::from(SLICE_BYTES));
        // A slice fits the largest buffer.
        let buffer = IoBuf::wait(part as usize).await;
        let mut buffer = buffer.ok_or(BackendError::NotReady)?;
        buffer.fill(0);
        let mut position = from;
        while position < to {
            buffer.truncate((to - position).min(part) as usize);
            let len = buffer.len() as u64;
            let (result, back) = self.write_buffer(buffer, position, Durability::Cached).await;
            result?;
            buffer = back;
            position += len;
        }
        Ok(())
    }

    /// Zeroes whole blocks in the best way that works.
    async fn zero_blocks(&self, from: u64, to: u64, how: Clear) -> Result<(), BackendError> {
        let ways: &[file::Clear] = match how {
            Clear::Deallocate | Clear::Discard => &[file::Clear::Deallocate, file::Clear::Zero],
            Clear::Zero => &[file::Clear::Zero],
        };
        for way in ways {
            match self.file.clear(from, to - from, *way).await {
                Ok(()) => return Ok(()),
                Err(error) if unsupported(&error) => {}
                Err(error) => return Err(write_failed(error)),
            }
        }
        self.write_zeroes(from, to).await
    }

    async fn discard_blocks(&self, from: u64, to: u64) -> Result<(), BackendError> {
        match self.file.clear(from, to - from, file::Clear::Deallocate).await {
            Ok(()) => Ok(()),
            Err(error) if unsupported(&error) => Ok(()),
            Err(error) => Err(write_failed(error)),
        }
    }
}

impl Backend for Raw {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        // A slice fits the largest buffer.
        let buffer = IoBuf::wait(range.len as usize).await.ok_or(BackendError::NotReady)?;
        let len = buffer.len();
        match self.file.read_at(buffer, range.offset).await {
            (Ok(read), buffer) if read == len => Ok(ReadData::Buffer(buffer)),
            (Ok(_), _) => Err(BackendError::ReadFault(io::ErrorKind::UnexpectedEof.into())),
            (Err(error), _) => Err(BackendError::ReadFault(error)),
        }
    }

    async fn write(
        &self,
        range: ByteRange,
        data: WriteData,
        durability: Durability,
    ) -> Result<(), BackendError> {
        self.check_synced()?;
        let buffer = data.into_buffer().await.ok_or(BackendError::NotReady)?;
        self.write_buffer(buffer, range.offset, durability).await.0
    }

    async fn flush(&self) -> Result<(), BackendError> {
        self.sync().await
    }

    async fn clear(&self, range: ByteRange, how: Clear, durability: Durability) -> Result<(), BackendError> {
        self.check_synced()?;
        let (from, to) =
            (range.offset.next_multiple_of(BLOCK_BYTES), range.end() / BLOCK_BYTES * BLOCK_BYTES);
        if how != Clear::Discard {
            // Within one block there is no whole one, and the first write covers everything.
            self.write_zeroes(range.offset, from.min(range.end())).await?;
            self.write_zeroes(to.max(from).min(range.end()), range.end()).await?;
        }
        let mut position = from;
        while position < to {
            let next = to.min(position + CLEAR_BYTES);
            match how {
                Clear::Discard => self.discard_blocks(position, next).await?,
                Clear::Deallocate | Clear::Zero => self.zero_blocks(position, next, how).await?,
            }
            position = next;
        }
        match durability {
            Durability::Cached => Ok(()),
            Durability::Durable => self.sync().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use ashlar_reactor::{Cores, CoresConfig};

    use super::*;

    #[test]
    fn after_a_failed_sync_nothing_is_called_durable_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let cores = Cores::start(&CoresConfig::floating(1)).expect("start cores");
        let answer = cores.handle().run_on(CoreId(0), move || async move {
            let held = HeldFile::hold(&path, Some(1 << 20)).expect("it is there");
            let opener = RawOpener::prepare(held, PageCache::Used).await.expect("it is there");
            let (raw, other) = (
                opener.open(CoreId(0)).await.expect("it opens"),
                opener.open(CoreId(0)).await.expect("it opens again"),
            );
            let block = ByteRange { offset: 0, len: 4096 };
            let data = || WriteData::Buffer(IoBuf::heap(4096));
            raw.write(block, data(), Durability::Cached).await.expect("it is well so far");
            raw.flush().await.expect("it is well so far");
            raw.sync_has_failed(&io::ErrorKind::Other.into());
            // Also on handles of other cores.
            for handle in [&raw, &other] {
                for _ in 0..2 {
                    let flushed = handle.flush().await;
                    assert!(matches!(flushed, Err(BackendError::WriteFault(_))));
                }
                for durability in [Durability::Cached, Durability::Durable] {
                    let written = handle.write(block, data(), durability).await;
                    assert!(matches!(written, Err(BackendError::WriteFault(_))));
                    let cleared = handle.clear(block, Clear::Zero, durability).await;
                    assert!(matches!(cleared, Err(BackendError::WriteFault(_))));
                }
                assert!(matches!(handle.read(block).await, Ok(ReadData::Buffer(_))));
            }
        });
        answer.wait().expect("the core answers");
        cores.stop(std::time::Duration::from_secs(20)).expect("nothing is left over");
    }
}
