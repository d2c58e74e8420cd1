//! The hash by which two peers prove that they have the same bytes (PROTOCOL S13).

use ashlar_io::{BLOCK_BYTES, World};
use ashlar_store::Blocks;
use ashlar_store::lane::{Memory, ReadData};

use crate::peer::{Peer, PeerError};

/// Blocks that are compared by one hash.
pub(crate) const RUN_BLOCKS: u32 = 64;

/// 128 bits of a hash over the bytes of some blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 16]);

/// Hashes by reading, for peers that have the blocks at hand.
pub(crate) async fn by_reading<W, P>(peer: &P, extent: u32, blocks: Blocks) -> Result<Digest, PeerError>
where
    W: World,
    P: Peer<W>,
{
    const ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let mut hasher = blake3::Hasher::new();
    for part in parts(blocks, largest_read::<W>()) {
        match peer.read(extent, part, Memory::Spare).await? {
            ReadData::Zeroes => (0..part.count()).for_each(|_| {
                hasher.update(&ZEROES);
            }),
            ReadData::Buffer(buffer) => {
                hasher.update(&buffer);
            }
        }
    }
    let mut short = [0; 16];
    hasher.finalize_xof().fill(&mut short);
    Ok(Digest(short))
}

/// Blocks of the largest read that a world has buffers for, at most a run.
pub(crate) fn largest_read<W: World>() -> u32 {
    u32::try_from(W::MAX_BUFFER_BLOCKS).unwrap_or(RUN_BLOCKS).clamp(1, RUN_BLOCKS)
}

/// `blocks` in parts of at most `size`.
pub(crate) fn parts(blocks: Blocks, size: u32) -> impl Iterator<Item = Blocks> {
    let size = size.max(1);
    (blocks.first()..blocks.end())
        .step_by(size as usize)
        .filter_map(move |first| Blocks::new(first, size.min(blocks.end() - first)))
}

/// The parts of `blocks`, of at most `size`, within which `class` says the same of each block.
pub(crate) fn alike<T: PartialEq + Copy>(
    blocks: Blocks,
    size: u32,
    class: impl Fn(u32) -> T,
) -> Vec<(Blocks, T)> {
    let mut found: Vec<(Blocks, T)> = Vec::new();
    for block in blocks.first()..blocks.end() {
        let now = class(block);
        if let Some((last, before)) = found.last_mut()
            && *before == now
            && last.end() == block
            && last.count() < size
            && let Some(longer) = Blocks::new(last.first(), last.count() + 1)
        {
            *last = longer;
            continue;
        }
        found.extend(Blocks::new(block, 1).map(|one| (one, now)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        let blocks = Blocks::new(5, 70).expect("within an extent");
        let parts: Vec<_> = parts(blocks, 32).map(|part| (part.first(), part.count())).collect();
        assert_eq!(parts, [(5, 32), (37, 32), (69, 6)]);
    }

    #[test]
    fn neighbours_of_one_kind_stay_together() {
        let blocks = Blocks::new(0, 10).expect("within an extent");
        let alike = alike(blocks, 4, |block| block >= 6);
        let alike: Vec<_> =
            alike.into_iter().map(|(part, late)| (part.first(), part.count(), late)).collect();
        assert_eq!(alike, [(0, 4, false), (4, 2, false), (6, 4, true)]);
    }
}
