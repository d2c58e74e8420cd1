//! Blocks of extents that were open at a crash and were not verified since (PROTOCOL S2).

use std::collections::BTreeMap;

use crate::format::Extent;
use crate::ids::{Blocks, EXTENT_BLOCKS};

const WORDS: usize = EXTENT_BLOCKS as usize / 64;

/// Unverified blocks, by extent.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    extents: BTreeMap<Extent, Box<[u64; WORDS]>>,
}

impl Suspects {
    /// No block of the extent is verified.
    pub(super) fn add(&mut self, extent: Extent) {
        self.extents.insert(extent, Box::new([u64::MAX; WORDS]));
    }

    /// The block was not verified since.
    pub(super) fn contains(&self, extent: Extent, block: u32) -> bool {
        self.extents.get(&extent).is_some_and(|words| words[block as usize / 64] >> (block % 64) & 1 == 1)
    }

    /// The blocks are what their checksums say. True if that was the last of the extent.
    pub(super) fn verified(&mut self, extent: Extent, blocks: Blocks) -> bool {
        let Some(words) = self.extents.get_mut(&extent) else { return false };
        for block in blocks.indices() {
            words[block / 64] &= !(1 << (block % 64));
        }
        if words.iter().any(|word| *word != 0) {
            return false;
        }
        self.extents.remove(&extent);
        true
    }

    /// The extent has another life.
    pub(super) fn forget(&mut self, extent: Extent) {
        self.extents.remove(&extent);
    }

    /// Extents with unverified blocks.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.extents.keys().copied().collect()
    }
}
