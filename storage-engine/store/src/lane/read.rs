//! Reads: every block is verified before anyone sees it (design D4).

use ashlar_io::{BLOCK_BYTES, Disk, World};
use futures_util::future::join;

use super::cache::Sums;
use super::types::{LaneError, Memory, ReadData};
use super::{Inner, Lane};
use crate::checksum::{Stored, Summer};
use crate::format::Extent;
use crate::format::checksum_page::SUMS;
use crate::ids::{Blocks, ExtentId};

/// What the device holds, whatever it is: bytes, and the checksums that they should have.
#[derive(Debug)]
pub struct Unverified<B> {
    /// The bytes, zeroes for blocks that have none.
    pub buffer: B,
    /// Their stored checksums, one per block.
    pub sums: Vec<Stored>,
}

impl<W: World> Lane<W> {
    /// Reads blocks and verifies them.
    ///
    /// # Errors
    /// Which blocks do not have their checksums; or the device failed.
    pub async fn read(&self, id: ExtentId, blocks: Blocks) -> Result<ReadData<W::Buffer>, LaneError> {
        self.read_into(id, blocks, Memory::Shared).await
    }

    /// The same, with a say in where the memory comes from.
    ///
    /// # Errors
    /// Which blocks do not have their checksums; or the device failed.
    pub async fn read_into(
        &self,
        id: ExtentId,
        blocks: Blocks,
        memory: Memory,
    ) -> Result<ReadData<W::Buffer>, LaneError> {
        let Some(Unverified { buffer, sums }) = self.0.read_raw(id, blocks, memory).await? else {
            return Ok(ReadData::Zeroes);
        };
        let Some(extent) = self.0.tables.borrow().find(id) else { return Ok(ReadData::Zeroes) };
        let summer = Summer::new(id);
        let bad: Vec<u32> = (blocks.first()..)
            .zip(buffer.chunks_exact(BLOCK_BYTES))
            .zip(&sums)
            .filter(|((block, bytes), sum)| sum.has_data() && summer.sum(*block, bytes) != **sum)
            .map(|((block, _), _)| block)
            .collect();
        let suspect = self.0.tables.borrow().place(extent).suspect;
        if bad.is_empty() {
            if suspect {
                self.0.verified(extent, blocks);
            }
            return Ok(ReadData::Buffer(buffer));
        }
        let suspects = self.0.suspects.borrow();
        let suspect = suspect && bad.iter().all(|block| suspects.contains(extent, *block));
        Err(LaneError::Mismatch { extent: id, blocks: bad, suspect })
    }

    /// Reads blocks and the checksums that they should have, to choose among replicas (PROTOCOL S2) or to find out
    /// what is wrong. `None`: the extent is not here, or none of the blocks has bytes.
    ///
    /// # Errors
    /// The device failed.
    pub async fn read_unverified(
        &self,
        id: ExtentId,
        blocks: Blocks,
    ) -> Result<Option<Unverified<W::Buffer>>, LaneError> {
        self.0.read_raw(id, blocks, Memory::Spare).await
    }

    /// All checksums of an extent; [`Stored::NEVER`] throughout if it is not here.
    ///
    /// # Errors
    /// The device failed.
    pub async fn checksums(&self, id: ExtentId) -> Result<Sums, LaneError> {
        let inner = &self.0;
        loop {
            inner.journal.check()?;
            let Some(extent) = inner.tables.borrow().find(id) else {
                return Ok(Box::new([Stored::NEVER; SUMS]));
            };
            if let Some((sums, _)) = inner.cache.borrow().image(extent) {
                return Ok(sums);
            }
            inner.tables.borrow_mut().begin(extent);
            let loaded = inner.load_page(extent).await;
            inner.tables.borrow_mut().end(extent);
            loaded?;
        }
    }

    /// Extents with blocks that are suspect still (PROTOCOL S2), for the scan that verifies them.
    pub fn suspects(&self) -> Vec<ExtentId> {
        let tables = self.0.tables.borrow();
        let suspects = self.0.suspects.borrow();
        suspects.extents().into_iter().map(|extent| tables.place(extent).id).collect()
    }
}

impl<W: World> Inner<W> {
    /// Bytes and stored checksums of blocks, the latter as of the end of the read (PROTOCOL S8).
    async fn read_raw(
        &self,
        id: ExtentId,
        blocks: Blocks,
        memory: Memory,
    ) -> Result<Option<Unverified<W::Buffer>>, LaneError> {
        self.journal.check()?;
        let Some(extent) = self.tables.borrow().find(id) else { return Ok(None) };
        let mut sums = Vec::with_capacity(blocks.count() as usize);
        let known = self.cache.borrow_mut().get_all(extent, blocks, &mut sums);
        if known && !sums.iter().any(|sum| sum.has_data()) {
            return Ok(None);
        }
        self.tables.borrow_mut().begin(extent);
        let result = self.read_held((extent, blocks), memory, known, &mut sums).await;
        self.tables.borrow_mut().end(extent);
        let mut buffer = result?;
        // Freed meanwhile, and perhaps held by another: the shard knows that a change overtook this read.
        if self.tables.borrow().find(id) != Some(extent) || !sums.iter().any(|sum| sum.has_data()) {
            return Ok(None);
        }
        for (bytes, sum) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&sums) {
            if !sum.has_data() {
                bytes.fill(0);
            }
        }
        Ok(Some(Unverified { buffer, sums }))
    }

    async fn read_held(
        &self,
        (extent, blocks): (Extent, Blocks),
        memory: Memory,
        known: bool,
        sums: &mut Vec<Stored>,
    ) -> Result<W::Buffer, LaneError> {
        let at = self.site.layout.extent_block(extent, blocks.first());
        let count = blocks.count() as usize;
        let buffer = match memory {
            Memory::Shared => self.world.buffer(count).await,
            Memory::Spare => self.world.spare_buffer(count),
        };
        let data = self.disk.read(at, buffer);
        let (result, buffer) = if known {
            data.await
        } else {
            // PROTOCOL S11: page and data in parallel.
            let (data, page) = join(data, self.load_page(extent)).await;
            page?;
            data
        };
        result?;
        while !self.cache.borrow_mut().get_all(extent, blocks, sums) {
            self.load_page(extent).await?;
        }
        Ok(buffer)
    }
}
