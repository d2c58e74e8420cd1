//! Finds the superblock of a device, whatever is left of its copies.
//!
//! The front copies say where the back ones are. If both are bad, the last two blocks of the disk are looked at; they
//! are looked at in any case, because growing writes the new back copies first (PROTOCOL S17). The highest generation
//! holds.

use ashlar_io::{DiskError, World};

use super::blocks::Blocks;
use super::signature::{self, Found};
use crate::format::{BadBlock, BadSuperblock, DeviceId, Superblock};

/// A copy of the superblock, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyState {
    /// Where.
    pub address: u64,
    /// Its generation, or what is wrong with it.
    pub state: Result<u64, BadSuperblock>,
}

/// A device that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDevice {
    /// What it is.
    pub superblock: Superblock,
    /// Its copies, in the order of their numbers.
    pub copies: [CopyState; 4],
    /// Blocks that the disk has beyond those of the device: see [`super::grow`].
    pub grown_by: u64,
}

impl OpenDevice {
    /// Some copy is bad or left behind: before anything is written, [`super::restore`] shall write them again.
    pub fn needs_restoring(&self) -> bool {
        // Generations go to two copies, those of the one before stay in the others.
        let newest = self.superblock.generation;
        !self.copies.iter().all(|copy| copy.state.is_ok_and(|generation| newest - generation <= 1))
    }
}

/// A device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A read failed.
    #[error("reading its superblock: {0}")]
    Disk(#[from] DiskError),
    /// There is no superblock.
    #[error("it is not an Ashlar device: {}; `ashlar device format` makes it one", carried(.found))]
    NotADevice {
        /// What it carries instead.
        found: Vec<Found>,
    },
    /// All superblocks are bad.
    #[error(
        "all copies of its superblock are bad (the first: {first}); what it held must be rebuilt from other replicas, \
         after `ashlar device format --force`"
    )]
    AllBad {
        /// What is wrong with the first that once was one.
        first: BadSuperblock,
    },
    /// It is of a version that this program does not know.
    #[error("{0}; a newer version of this program opens it")]
    Newer(BadSuperblock),
    /// It has become smaller.
    #[error(
        "it has {found} blocks and had {expected} when it was formatted: give it its size back, or, if the end is lost, \
         `ashlar device format --force` and let it be rebuilt from other replicas"
    )]
    Shrunk {
        /// Blocks that it had.
        expected: u64,
        /// Blocks that it has.
        found: u64,
    },
    /// Its front copies belong to different devices.
    #[error(
        "its first superblock is that of device {first}, its second that of device {second}: something else was \
         written over it; `ashlar device inspect` shows both"
    )]
    TwoDevices {
        /// What the first says.
        first: DeviceId,
        /// What the second says.
        second: DeviceId,
    },
}

fn carried(found: &[Found]) -> String {
    if found.is_empty() { "it carries nothing that is known".to_owned() } else { signature::list(found) }
}

/// A copy, decoded.
type Copy = (u64, Result<Superblock, BadSuperblock>);

/// Finds out what device a disk is. Nothing is written.
///
/// # Errors
/// It is none, or not one that can be used; the message says which command helps.
pub async fn open<W: World>(world: &W, disk: &W::Disk) -> Result<OpenDevice, OpenError> {
    let blocks = Blocks::new(world, disk);
    let count = blocks.count();
    if count < 2 {
        return Err(OpenError::NotADevice { found: Vec::new() });
    }
    let ends = [0, 1, count.saturating_sub(2), count.saturating_sub(1)];
    let mut copies: Vec<Copy> = Vec::new();
    for address in ends {
        copies.push((address, Superblock::decode(&blocks.read_one(address).await?, address)));
    }
    let front: Vec<&Superblock> = copies[..2].iter().filter_map(|(_, copy)| copy.as_ref().ok()).collect();
    if let [first, second] = front.as_slice()
        && first.device != second.device
    {
        return Err(OpenError::TwoDevices { first: first.device, second: second.device });
    }
    // What another device left at the end of the disk does not count.
    let front = front.into_iter().max_by_key(|copy| copy.generation).cloned();
    if let Some(front) = &front {
        for address in front.layout.superblocks().into_iter().skip(2).filter(|at| !ends.contains(at)) {
            if address < count {
                copies.push((address, Superblock::decode(&blocks.read_one(address).await?, address)));
            }
        }
    }
    for (_, copy) in &copies {
        if let Err(newer @ (BadSuperblock::Version { .. } | BadSuperblock::Features { .. })) = copy {
            return Err(OpenError::Newer(*newer));
        }
    }
    let ours = |copy: &&Superblock| front.as_ref().is_none_or(|front| front.device == copy.device);
    let good = copies.iter().filter_map(|(_, copy)| copy.as_ref().ok()).filter(ours);
    let Some(superblock) = good.max_by_key(|copy| copy.generation).cloned() else {
        return Err(no_superblock(world, disk, &copies).await?);
    };
    let expected = superblock.layout.device_blocks();
    if expected > count {
        return Err(OpenError::Shrunk { expected, found: count });
    }
    let state = |address| {
        let state = copies.iter().find(|(at, _)| *at == address).map(|(_, copy)| match copy {
            Ok(copy) if copy.device == superblock.device => Ok(copy.generation),
            Ok(copy) => Err(BadBlock::Device { found: copy.device }.into()),
            Err(bad) => Err(*bad),
        });
        // Every copy that the superblock names was read: its own back copies are at the end, or where the front says.
        let unread = Err(BadBlock::Length(0).into());
        CopyState { address, state: state.unwrap_or(unread) }
    };
    let copies = superblock.layout.superblocks().map(state);
    Ok(OpenDevice { copies, grown_by: count - expected, superblock })
}

/// Says why there is no good superblock.
async fn no_superblock<W: World>(world: &W, disk: &W::Disk, copies: &[Copy]) -> Result<OpenError, DiskError> {
    let once = copies.iter().find_map(|(_, copy)| match copy {
        Err(BadSuperblock::Block(BadBlock::Magic { .. })) | Ok(_) => None,
        Err(bad) => Some(*bad),
    });
    Ok(match once {
        Some(first) => OpenError::AllBad { first },
        None => OpenError::NotADevice { found: signature::find(world, disk).await? },
    })
}
