//! Takes in what a disk has grown by, and writes superblock copies again (PROTOCOL S17).

use ashlar_io::{BLOCK_BYTES, Bug, Disk, DiskError, World};

use super::blocks::Blocks;
use super::format::{write_copies, write_copy};
use crate::format::{LayoutError, Superblock};

/// A device did not grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The disk is smaller than the device, or larger than a device can be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The disk failed.
    #[error("writing its superblock: {0}")]
    Disk(#[from] DiskError),
}

/// Gives a device the whole of its disk: adds slabs, and moves the back copies of the superblock to the new end. The
/// lanes are not open meanwhile: slabs may lie where the old copies were.
///
/// A kill at any moment leaves a device of the old or of the new size.
///
/// # Errors
/// Why it did not. After a failed write the size may be either.
pub async fn grow<W: World>(
    world: &W,
    disk: &W::Disk,
    superblock: &Superblock,
) -> Result<Superblock, GrowError> {
    let blocks = Blocks::new(world, disk);
    let layout = superblock.layout.grown(disk.geometry().blocks)?;
    if layout == superblock.layout {
        return Ok(superblock.clone());
    }
    // Two generations: both pairs of copies say the new size.
    let next = |step| Superblock {
        generation: superblock.generation.saturating_add(step),
        layout,
        ..superblock.clone()
    };
    let (first, second) = (next(1), next(2));
    let mut ends = [2, 0];
    if world.bug(Bug::GrowFrontFirst) {
        ends.reverse();
    }
    for end in ends {
        for grown in [&first, &second] {
            write_copy(&blocks, grown, end + grown.copies()[0]).await?;
            // One front copy of the old size stays until the other is durable.
            blocks.flush().await?;
        }
    }
    let kept = layout.superblocks();
    for old in superblock.layout.superblocks().into_iter().filter(|old| !kept.contains(old)) {
        blocks.write(old, &[0; BLOCK_BYTES]).await?;
    }
    blocks.flush().await?;
    Ok(second)
}

/// Writes all copies again: after one was found bad, or growing was interrupted.
///
/// # Errors
/// The disk failed.
pub async fn restore<W: World>(
    world: &W,
    disk: &W::Disk,
    superblock: &Superblock,
) -> Result<Superblock, DiskError> {
    let blocks = Blocks::new(world, disk);
    let mut superblock = superblock.clone();
    for _ in 0..2 {
        superblock.generation = superblock.generation.saturating_add(1);
        write_copies(&blocks, &superblock).await?;
    }
    Ok(superblock)
}
