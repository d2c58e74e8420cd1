//! Reads and writes what replication keeps on a device (PROTOCOL R4, R10).

use ashlar_io::{DiskError, World};

use super::blocks::Blocks;
use crate::format::catalog::CatalogTooLarge;
use crate::format::{BadBlock, CatalogHeader, CatalogImage, Slot, Superblock};

/// What replication keeps on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// Rises with each writing.
    pub generation: u64,
    /// Bytes that the store does not read.
    pub bytes: Vec<u8>,
}

/// A catalog could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// Both slots are bad.
    #[error(
        "both slots of its catalog are bad ({even}; {odd}): which replicas it holds is lost, and they must be rebuilt \
         from others after `ashlar device format --force`"
    )]
    BothBad {
        /// What is wrong with the one.
        even: BadBlock,
        /// What is wrong with the other.
        odd: BadBlock,
    },
    /// It does not fit.
    #[error(transparent)]
    TooLarge(#[from] CatalogTooLarge),
    /// The disk failed.
    #[error("the catalog: {0}")]
    Disk(#[from] DiskError),
}

/// Reads the newest catalog that is good.
///
/// # Errors
/// There is none, or a read failed.
pub async fn read_catalog<W: World>(
    world: &W,
    disk: &W::Disk,
    superblock: &Superblock,
) -> Result<Catalog, CatalogError> {
    let blocks = Blocks::new(world, disk);
    let even = read_slot(&blocks, superblock, Slot::Even).await?;
    let odd = read_slot(&blocks, superblock, Slot::Odd).await?;
    match (even, odd) {
        (Ok(even), Ok(odd)) => Ok(if even.generation > odd.generation { even } else { odd }),
        (Ok(good), Err(_)) | (Err(_), Ok(good)) => Ok(good),
        (Err(even), Err(odd)) => Err(CatalogError::BothBad { even, odd }),
    }
}

/// Reads one slot.
pub(super) async fn read_slot<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
    slot: Slot,
) -> Result<Result<Catalog, BadBlock>, DiskError> {
    let layout = &superblock.layout;
    let area = layout.catalog(slot);
    let first = blocks.read_one(area.first).await?;
    let header = match CatalogHeader::decode(&first, layout, superblock.device, slot) {
        Ok(header) => header,
        Err(bad) => return Ok(Err(bad)),
    };
    let body = blocks.read(area.first + 1, header.body_blocks()).await?;
    Ok(header.open_body(&body).map(|bytes| Catalog { generation: header.generation, bytes: bytes.to_vec() }))
}

/// Replaces the catalog of `generation` by `bytes`. It is durable when this returns; until then the old one holds.
///
/// # Errors
/// It does not fit, or the disk failed.
pub async fn write_catalog<W: World>(
    world: &W,
    disk: &W::Disk,
    superblock: &Superblock,
    generation: u64,
    bytes: &[u8],
) -> Result<Catalog, CatalogError> {
    let blocks = Blocks::new(world, disk);
    let generation = generation.saturating_add(1);
    let image = CatalogImage::new(&superblock.layout, superblock.device, generation, bytes)?;
    if !image.body.is_empty() {
        blocks.write(image.slot.first + 1, &image.body).await?;
        blocks.flush().await?;
    }
    blocks.write(image.slot.first, &image.first).await?;
    blocks.flush().await?;
    Ok(Catalog { generation, bytes: bytes.to_vec() })
}
