//! Makes a device of a disk.
//!
//! A kill at any moment leaves either a disk without a superblock, which can be formatted again without force, or a
//! complete device. First what was there before is wiped and that made durable; then everything that a device must
//! have; its superblock comes last. All fields of a superblock are in the block's first sector, and the block was
//! zero: so even a disk that tears blocks writes it as a whole.

use std::collections::BTreeSet;

use ashlar_io::{BLOCK_BYTES, DiskError, Tearing, World};
use uuid::Uuid;

use super::blocks::Blocks;
use super::signature::{self, Found};
use crate::format::catalog::CatalogTooLarge;
use crate::format::root::RootTooLarge;
use crate::format::{CatalogImage, DeviceId, Label, Layout, LayoutError, Root, Superblock};

/// What to do with what a disk carries already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave the disk as it is.
    Refuse,
    /// It is lost.
    Overwrite,
}

/// Whether the device may tear blocks (PROTOCOL S9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TornBlocks {
    /// A disk that does, or is not known not to, is refused.
    Refuse,
    /// Writes are logged, so that it does not matter.
    Log,
}

/// What a new device shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatOptions {
    /// A new id, never used before.
    pub device: DeviceId,
    /// The cluster; `None` on a node that belongs to none.
    pub cluster: Option<Uuid>,
    /// The node.
    pub node: Uuid,
    /// The pool.
    pub pool: Uuid,
    /// Lanes, 1 to 16 (design §6).
    pub lanes: u32,
    /// What people call it.
    pub label: Label,
    /// Now, in seconds since 1970.
    pub formatted_at: u64,
    /// What to do if it may tear blocks.
    pub torn: TornBlocks,
    /// What to do if it carries something.
    pub existing: Existing,
}

/// A disk was not formatted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It carries something.
    #[error(
        "it carries {list}; if that may be lost, format it with --force",
        list = signature::list(.found)
    )]
    Carries {
        /// What, and where.
        found: Vec<Found>,
    },
    /// It may tear blocks.
    #[error(
        "it does not promise to write aligned 4 KiB as a whole when power fails; --torn-prone formats it for logged \
         writes, which cost a second write each"
    )]
    Tears,
    /// It cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A root has no room.
    #[error(transparent)]
    Root(#[from] RootTooLarge),
    /// A catalog has no room.
    #[error(transparent)]
    Catalog(#[from] CatalogTooLarge),
    /// The disk failed.
    #[error("{doing}: {cause}")]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// What the disk said.
        #[source]
        cause: DiskError,
    },
}

fn while_doing(doing: &'static str) -> impl Fn(DiskError) -> FormatError {
    move |cause| FormatError::Disk { doing, cause }
}

/// Makes a device of a disk, and says what it is.
///
/// # Errors
/// Why it did not. The disk is untouched if it carries something, tears or cannot be laid out; otherwise it may be
/// left without a superblock.
pub async fn format<W: World>(
    world: &W,
    disk: &W::Disk,
    options: &FormatOptions,
) -> Result<Superblock, FormatError> {
    let blocks = Blocks::new(world, disk);
    let geometry = ashlar_io::Disk::geometry(disk);
    if geometry.tearing == Tearing::Torn && options.torn == TornBlocks::Refuse {
        return Err(FormatError::Tears);
    }
    let layout = Layout::plan(geometry.blocks, options.lanes)?;
    let found = signature::find(world, disk).await.map_err(while_doing("looking at what it carries"))?;
    if !found.is_empty() && options.existing == Existing::Refuse {
        return Err(FormatError::Carries { found });
    }
    let mut superblock = Superblock {
        generation: 1,
        device: options.device,
        cluster: options.cluster,
        node: options.node,
        pool: options.pool,
        layout,
        formatted_at: options.formatted_at,
        torn_prone: options.torn == TornBlocks::Log,
        label: options.label.clone(),
    };
    wipe(&blocks, &layout, &found).await.map_err(while_doing("wiping what it carried"))?;
    write_contents(&blocks, &superblock).await?;
    let doing = "writing the superblock";
    write_copies(&blocks, &superblock).await.map_err(while_doing(doing))?;
    superblock.generation += 1;
    write_copies(&blocks, &superblock).await.map_err(while_doing(doing))?;
    Ok(superblock)
}

/// Wipes what was found, and where superblocks will be. From the back to the front: an earlier device is one until its
/// last superblock has gone.
async fn wipe<W: World>(blocks: &Blocks<'_, W>, layout: &Layout, found: &[Found]) -> Result<(), DiskError> {
    let mut wiped: BTreeSet<u64> = signature::blocks(found);
    wiped.extend(layout.superblocks());
    for block in wiped.into_iter().rev() {
        blocks.write(block, &[0; BLOCK_BYTES]).await?;
    }
    blocks.flush().await
}

/// What must be there when a superblock is: the roots of the lanes, which own nothing yet, and an empty catalog.
/// Everything else is recognised by the new device's id, and nothing has that yet.
async fn write_contents<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
) -> Result<(), FormatError> {
    let (layout, device) = (&superblock.layout, superblock.device);
    for lane in 0..layout.lanes() {
        let image = Root::empty(lane).encode(layout, device)?;
        blocks.write(image.slot.first, &image.first).await.map_err(while_doing("writing a lane's root"))?;
    }
    let image = CatalogImage::new(layout, device, 1, &[])?;
    blocks.write(image.slot.first, &image.first).await.map_err(while_doing("writing the catalog"))?;
    blocks.flush().await.map_err(while_doing("flushing"))
}

/// Writes the two copies that hold the superblock's generation, and makes them durable.
pub(super) async fn write_copies<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
) -> Result<(), DiskError> {
    for copy in superblock.copies() {
        write_copy(blocks, superblock, copy).await?;
    }
    blocks.flush().await
}

/// Writes one copy.
pub(super) async fn write_copy<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
    copy: usize,
) -> Result<(), DiskError> {
    let address = superblock.layout.superblocks()[copy];
    let mut block = vec![0; BLOCK_BYTES];
    superblock.encode(&mut block, address);
    blocks.write(address, &block).await
}
