//! A device as the process sees it that has it open.

use std::fmt;
use std::ops::Range;

use ashlar_io::{BLOCK_BYTES, Disk, DiskError, DiskGeometry};

use super::contents::Content;
use super::device::Device;
use super::flight::Request;
use crate::buffer::{SimBuffer, SimData};
use crate::process::ProcessId;

/// An open disk.
#[derive(Clone)]
pub struct SimDisk {
    device: Device,
    process: ProcessId,
    geometry: DiskGeometry,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({})", self.device.name())
    }
}

impl SimDisk {
    pub(super) fn new(device: Device, process: ProcessId, geometry: DiskGeometry) -> Self {
        Self { device, process, geometry }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Disk for SimDisk {
    type Buffer = SimBuffer;

    fn geometry(&self) -> DiskGeometry {
        self.geometry
    }

    async fn read(&self, block: u64, mut buffer: SimBuffer) -> (Result<(), DiskError>, SimBuffer) {
        let count = buffer.len() / BLOCK_BYTES;
        let request = Request::Read { blocks: block..block + count as u64, early: vec![None; count] };
        match self.device.ask(self.process, request).await {
            Ok(contents) => {
                for (target, content) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(contents) {
                    content.copy_to(target);
                }
                (Ok(()), buffer)
            }
            Err(error) => {
                // What is in it now is arbitrary.
                buffer.fill(0xee);
                (Err(error), buffer)
            }
        }
    }

    async fn write(&self, block: u64, data: SimData) -> Result<(), DiskError> {
        let (bytes, start) = data.shared();
        let count = data.len() / BLOCK_BYTES;
        let piece = |index: usize| {
            let content = Content::shared(bytes.clone(), start + index * BLOCK_BYTES);
            (block + index as u64, content)
        };
        let pieces = (0..count).map(piece).collect();
        let request = Request::Write { blocks: block..block + count as u64, pieces };
        self.device.ask(self.process, request).await.map(drop)
    }

    async fn flush(&self) -> Result<(), DiskError> {
        self.device.ask(self.process, Request::Flush { through: 0 }).await.map(drop)
    }

    async fn discard(&self, blocks: Range<u64>) -> Result<(), DiskError> {
        self.device.ask(self.process, Request::Discard { blocks }).await.map(drop)
    }
}
