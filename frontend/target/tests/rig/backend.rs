//! A disk in memory whose writes can be held or fail, so that a test can act while they are carried out.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_reactor::{CoreId, IoBuf, sleep};
use ashlar_target::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Deallocated, Durability, OpenBackend, ReadData,
    WriteData,
};

#[derive(Clone)]
pub(crate) struct Disk(Arc<Inner>);

struct Inner {
    bytes: Mutex<Vec<u8>>,
    held: AtomicBool,
    waiting: AtomicUsize,
    writes: AtomicUsize,
    /// Writes that touch this byte fail.
    bad: AtomicUsize,
    failed: AtomicUsize,
}

impl Disk {
    pub(crate) fn new(len: usize) -> Disk {
        let bytes = (0..len).map(|at| pattern(at as u64)).collect();
        Disk(Arc::new(Inner {
            bytes: Mutex::new(bytes),
            held: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            bad: AtomicUsize::new(usize::MAX),
            failed: AtomicUsize::new(0),
        }))
    }

    /// Operations wait from now on, or go on.
    pub(crate) fn hold(&self, held: bool) {
        self.0.held.store(held, Ordering::SeqCst);
    }

    /// Operations that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Writes that were carried out.
    pub(crate) fn writes(&self) -> usize {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// Writes that touch byte `at` fail from now on.
    pub(crate) fn fail_at(&self, at: usize) {
        self.0.bad.store(at, Ordering::SeqCst);
    }

    /// Writes that failed.
    pub(crate) fn failed(&self) -> usize {
        self.0.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        self.0.bytes.lock().expect("lock")[at..at + len].to_vec()
    }

    async fn gate(&self) {
        if self.0.held.load(Ordering::SeqCst) {
            self.0.waiting.fetch_add(1, Ordering::SeqCst);
            while self.0.held.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(1)).await;
            }
            self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// What an untouched byte holds.
pub(crate) fn pattern(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

#[derive(Clone)]
pub(crate) struct DiskOpener(pub(crate) Disk);

impl OpenBackend for DiskOpener {
    type Backend = Disk;

    fn info(&self) -> BackendInfo {
        let bytes = self.0.0.bytes.lock().expect("lock").len() as u64;
        BackendInfo { bytes, access_bytes: 512, volatile_cache: true, deallocated: Deallocated::Zeroes }
    }

    async fn open(&self, _: CoreId) -> Result<Disk, BackendError> {
        Ok(self.0.clone())
    }
}

impl Backend for Disk {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        self.gate().await;
        let mut buffer = IoBuf::wait(range.len as usize).await.ok_or(BackendError::NotReady)?;
        buffer.copy_from_slice(&Disk::read(self, range.offset as usize, range.len as usize));
        Ok(ReadData::Buffer(buffer))
    }

    async fn write(&self, range: ByteRange, data: WriteData, _: Durability) -> Result<(), BackendError> {
        self.gate().await;
        let at = range.offset as usize;
        if (at..at + data.len()).contains(&self.0.bad.load(Ordering::SeqCst)) {
            self.0.failed.fetch_add(1, Ordering::SeqCst);
            return Err(BackendError::WriteFault(std::io::ErrorKind::Other.into()));
        }
        self.0.bytes.lock().expect("lock")[at..at + data.len()].copy_from_slice(&data);
        self.0.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn flush(&self) -> Result<(), BackendError> {
        self.gate().await;
        Ok(())
    }

    async fn clear(&self, range: ByteRange, _: Clear, _: Durability) -> Result<(), BackendError> {
        self.gate().await;
        let (at, end) = (range.offset as usize, range.end() as usize);
        self.0.bytes.lock().expect("lock")[at..end].fill(0);
        Ok(())
    }
}
