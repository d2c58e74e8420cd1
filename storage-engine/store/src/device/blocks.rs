//! Reads and writes of any length, off the hot path.

use ashlar_io::{BLOCK_BYTES, Buffer, Disk, DiskError, World};

/// A disk, and the world that has buffers for it.
#[derive(Debug)]
pub(super) struct Blocks<'a, W: World> {
    pub(super) world: &'a W,
    pub(super) disk: &'a W::Disk,
}

impl<W: World> Clone for Blocks<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: World> Copy for Blocks<'_, W> {}

impl<'a, W: World> Blocks<'a, W> {
    pub(super) fn new(world: &'a W, disk: &'a W::Disk) -> Self {
        Self { world, disk }
    }

    /// Blocks of the disk.
    pub(super) fn count(&self) -> u64 {
        self.disk.geometry().blocks
    }

    /// Reads one block.
    pub(super) async fn read_one(&self, block: u64) -> Result<W::Buffer, DiskError> {
        self.read_part(block, 1).await
    }

    /// Reads no more blocks than a buffer has.
    pub(super) async fn read_part(&self, first: u64, blocks: usize) -> Result<W::Buffer, DiskError> {
        let buffer = self.world.spare_buffer(blocks);
        let (result, buffer) = self.disk.read(first, buffer).await;
        result.map(|()| buffer)
    }

    /// Reads any number of blocks.
    pub(super) async fn read(&self, first: u64, blocks: u64) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::new();
        for (first, blocks) in parts::<W>(first, blocks) {
            let buffer = self.read_part(first, blocks).await?;
            bytes.extend_from_slice(&buffer[..blocks * BLOCK_BYTES]);
        }
        Ok(bytes)
    }

    /// Writes whole blocks.
    pub(super) async fn write(&self, first: u64, bytes: &[u8]) -> Result<(), DiskError> {
        debug_assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "whole blocks are written");
        let all = parts::<W>(first, (bytes.len() / BLOCK_BYTES) as u64);
        for ((first, blocks), bytes) in all.zip(bytes.chunks(W::MAX_BUFFER_BLOCKS * BLOCK_BYTES)) {
            let mut buffer = self.world.spare_buffer(blocks);
            buffer[..bytes.len()].copy_from_slice(bytes);
            self.disk.write(first, buffer.freeze()).await?;
        }
        Ok(())
    }

    /// Makes what was written durable.
    pub(super) async fn flush(&self) -> Result<(), DiskError> {
        self.disk.flush().await
    }
}

/// Cuts a range of blocks into parts that fit a buffer.
pub(super) fn parts<W: World>(first: u64, blocks: u64) -> impl Iterator<Item = (u64, usize)> {
    let most = W::MAX_BUFFER_BLOCKS as u64;
    (0..blocks.div_ceil(most)).map(move |part| {
        let at = part * most;
        (first + at, (blocks - at).min(most) as usize)
    })
}
