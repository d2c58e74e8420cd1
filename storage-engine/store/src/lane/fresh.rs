//! Blocks that read as zeroes until a write whose landing is not durably marked yet (PROTOCOL S12).
//!
//! Of such a block recovery cannot tell a first write that did not land from an unrecorded overwrite that did: the
//! bytes are nobody's in both cases, and zeroes need none. So an overwrite waits for its record, until a mark says that
//! the first write landed; from then on that is the floor.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::format::Extent;
use crate::ids::Blocks;

/// See the module.
#[derive(Default)]
pub(super) struct Fresh {
    /// Number of the record of the first write, by extent and block.
    first: FxHashMap<(Extent, u32), u64>,
    /// The same in the order of the records, to forget them.
    order: VecDeque<(u64, Extent, u32)>,
}

impl Fresh {
    /// A block that reads as zeroes is written, with this record.
    pub(super) fn add(&mut self, extent: Extent, block: u32, record: u64) {
        self.first.entry((extent, block)).or_insert_with(|| {
            self.order.push_back((record, extent, block));
            record
        });
    }

    /// Some of these blocks are such.
    pub(super) fn has_some(&self, extent: Extent, blocks: Blocks) -> bool {
        !self.first.is_empty()
            && (blocks.first()..blocks.end()).any(|block| self.first.contains_key(&(extent, block)))
    }

    /// Records below `landed` are durably known to have landed.
    pub(super) fn forget(&mut self, landed: u64) {
        while let Some((record, extent, block)) = self.order.front().copied() {
            if record >= landed {
                return;
            }
            self.order.pop_front();
            self.first.remove(&(extent, block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_write_counts_until_it_has_landed() {
        let (mut fresh, extent) = (Fresh::default(), Extent(3));
        let blocks = |first| Blocks::new(first, 2).expect("within the extent");
        fresh.add(extent, 5, 10);
        fresh.add(extent, 5, 11);
        fresh.add(extent, 6, 12);
        assert!(fresh.has_some(extent, blocks(4)));
        assert!(!fresh.has_some(extent, blocks(7)));
        assert!(!fresh.has_some(Extent(4), blocks(5)));
        fresh.forget(11);
        assert!(!fresh.has_some(extent, blocks(4)));
        assert!(fresh.has_some(extent, blocks(5)));
    }
}
