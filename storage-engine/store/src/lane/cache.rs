//! Checksum pages in memory (PROTOCOL S4, S10, S11).
//!
//! A page is here as a whole, or only the changes since it was written: an overwrite never reads its page. Pages with
//! changes stay until a checkpoint has written them.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::checksum::Stored;
use crate::format::Extent;
use crate::format::checksum_page::SUMS;
use crate::ids::Blocks;

/// All stored checksums of an extent.
pub(super) type Sums = Box<[Stored; SUMS]>;

/// Changes of a page that count as much memory as a whole page.
const CHANGES_PER_PAGE: usize = 64;

struct Page {
    whole: Option<Sums>,
    /// Changes to a page that is not here as a whole.
    changes: BTreeMap<u16, Stored>,
    /// Changed since it was written: counts up with each change.
    changed: u64,
    /// What `changed` was when the image that is on the device was made.
    written: u64,
    /// Used since the hand passed.
    used: bool,
}

impl Page {
    fn empty() -> Self {
        Self { whole: None, changes: BTreeMap::new(), changed: 0, written: 0, used: true }
    }

    fn is_dirty(&self) -> bool {
        self.changed != self.written
    }
}

/// See the module.
pub(super) struct Cache {
    pages: FxHashMap<Extent, Page>,
    /// Whole pages in the order in which the hand visits them.
    hand: VecDeque<Extent>,
    whole: usize,
    changes: usize,
    dirty: usize,
    limit: usize,
}

impl Cache {
    /// For at most `limit` clean pages.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            pages: FxHashMap::default(),
            hand: VecDeque::new(),
            whole: 0,
            changes: 0,
            dirty: 0,
            limit: limit.max(16),
        }
    }

    /// So much cannot be dropped that a checkpoint should write some.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.dirty + self.changes / CHANGES_PER_PAGE > self.limit * 3 / 4
    }

    /// The checksum of one block, if it is known.
    pub(super) fn get(&mut self, extent: Extent, block: u32) -> Option<Stored> {
        let page = self.pages.get_mut(&extent)?;
        page.used = true;
        match &page.whole {
            Some(sums) => sums.get(block as usize).copied(),
            None => page.changes.get(&(block as u16)).copied(),
        }
    }

    /// The checksums of some blocks, if all are known.
    pub(super) fn get_all(&mut self, extent: Extent, blocks: Blocks, sums: &mut Vec<Stored>) -> bool {
        sums.clear();
        let Some(page) = self.pages.get_mut(&extent) else { return false };
        page.used = true;
        match &page.whole {
            Some(whole) => {
                sums.extend_from_slice(&whole[blocks.indices()]);
                true
            }
            None => {
                sums.extend(
                    page.changes.range(blocks.first() as u16..blocks.end() as u16).map(|(_, sum)| *sum),
                );
                sums.len() == blocks.count() as usize
            }
        }
    }

    /// The whole page is here.
    pub(super) fn has_whole(&self, extent: Extent) -> bool {
        self.pages.get(&extent).is_some_and(|page| page.whole.is_some())
    }

    /// Sets the checksum of a block.
    pub(super) fn set(&mut self, extent: Extent, block: u32, sum: Stored) {
        let page = self.pages.entry(extent).or_insert_with(Page::empty);
        if !page.is_dirty() {
            self.dirty += 1;
        }
        page.changed += 1;
        page.used = true;
        match &mut page.whole {
            Some(sums) => sums[block as usize] = sum,
            None => {
                if page.changes.insert(block as u16, sum).is_none() {
                    self.changes += 1;
                }
            }
        }
    }

    /// Adds the whole page, as it is on the device or as an extent begins: changes made meanwhile stay.
    pub(super) fn install(&mut self, extent: Extent, mut sums: Sums) {
        let page = self.pages.entry(extent).or_insert_with(Page::empty);
        if page.whole.is_some() {
            return;
        }
        self.changes -= page.changes.len();
        for (block, sum) in std::mem::take(&mut page.changes) {
            sums[block as usize] = sum;
        }
        page.whole = Some(sums);
        page.used = true;
        self.whole += 1;
        self.hand.push_back(extent);
        if self.hand.len() > self.whole * 2 + self.limit {
            // Forgotten pages left their places in the row.
            let mut seen = std::collections::HashSet::new();
            let pages = &self.pages;
            self.hand.retain(|extent| {
                pages.get(extent).is_some_and(|page| page.whole.is_some()) && seen.insert(*extent)
            });
        }
        self.shrink();
    }

    /// Adds a page of which nothing is known but the changes since: it must be written.
    pub(super) fn install_lost(&mut self, extent: Extent) {
        self.install(extent, Box::new([Stored::LOST; SUMS]));
        if let Some(page) = self.pages.get_mut(&extent) {
            if !page.is_dirty() {
                self.dirty += 1;
            }
            page.changed += 1;
        }
    }

    /// What [`Cache::image`] would say beside the page.
    pub(super) fn stamp(&self, extent: Extent) -> Option<u64> {
        let page = self.pages.get(&extent)?;
        page.whole.as_ref().map(|_| page.changed)
    }

    /// A copy of the whole page and a stamp for [`Cache::written`]; `None` if it is not here as a whole.
    pub(super) fn image(&self, extent: Extent) -> Option<(Sums, u64)> {
        let page = self.pages.get(&extent)?;
        Some((page.whole.clone()?, page.changed))
    }

    /// The image with this stamp is on the device.
    pub(super) fn written(&mut self, extent: Extent, stamp: u64) {
        let Some(page) = self.pages.get_mut(&extent) else { return };
        let was_dirty = page.is_dirty();
        page.written = stamp;
        if was_dirty && !page.is_dirty() {
            self.dirty -= 1;
        }
    }

    /// Extents whose pages changed since they were written, in the order in which their pages lie.
    pub(super) fn dirty(&self) -> Vec<Extent> {
        let dirty = self.pages.iter().filter(|(_, page)| page.is_dirty());
        let mut extents: Vec<_> = dirty.map(|(extent, _)| *extent).collect();
        extents.sort_unstable();
        extents
    }

    /// Forgets a page: its extent begins a new life.
    pub(super) fn forget(&mut self, extent: Extent) {
        let Some(page) = self.pages.remove(&extent) else { return };
        self.changes -= page.changes.len();
        if page.is_dirty() {
            self.dirty -= 1;
        }
        if page.whole.is_some() {
            self.whole -= 1;
        }
    }

    /// Drops clean pages that were not used lately until the limit is kept.
    fn shrink(&mut self) {
        let mut visits = self.hand.len() * 2;
        while self.whole > self.limit && visits > 0 {
            visits -= 1;
            let Some(extent) = self.hand.pop_front() else { return };
            match self.pages.get_mut(&extent) {
                // Forgotten, or here in part: its place in the row goes.
                None => {}
                Some(page) if page.whole.is_none() => {}
                Some(page) if page.used || page.is_dirty() => {
                    page.used = false;
                    self.hand.push_back(extent);
                }
                Some(_) => {
                    self.pages.remove(&extent);
                    self.whole -= 1;
                }
            }
        }
    }

    /// Whole pages held.
    pub(super) fn len(&self) -> usize {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> Sums {
        Box::new([Stored::NEVER; SUMS])
    }

    #[test]
    fn changes_made_before_the_page_came_stay() {
        let mut cache = Cache::new(16);
        cache.set(Extent(1), 7, Stored(99));
        assert_eq!(cache.get(Extent(1), 7), Some(Stored(99)));
        assert_eq!(cache.get(Extent(1), 8), None);
        let mut sums = never();
        sums[7] = Stored(5);
        sums[8] = Stored(6);
        cache.install(Extent(1), sums);
        assert_eq!(cache.get(Extent(1), 7), Some(Stored(99)));
        assert_eq!(cache.get(Extent(1), 8), Some(Stored(6)));
    }

    #[test]
    fn a_page_that_changed_after_its_image_stays_dirty() {
        let mut cache = Cache::new(16);
        cache.install(Extent(1), never());
        cache.set(Extent(1), 0, Stored(10));
        let (_, stamp) = cache.image(Extent(1)).expect("it is whole");
        cache.set(Extent(1), 1, Stored(11));
        cache.written(Extent(1), stamp);
        assert_eq!(cache.dirty(), [Extent(1)]);
        let (_, stamp) = cache.image(Extent(1)).expect("it is whole");
        cache.written(Extent(1), stamp);
        assert!(cache.dirty().is_empty());
    }

    #[test]
    fn only_clean_pages_are_dropped() {
        let mut cache = Cache::new(16);
        cache.install(Extent(0), never());
        cache.set(Extent(0), 0, Stored(10));
        for extent in 1..100 {
            cache.install(Extent(extent), never());
        }
        assert!(cache.has_whole(Extent(0)));
        assert_eq!(cache.len(), 16);
    }
}
