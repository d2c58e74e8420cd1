//! What stands on a device, and what of it a power loss can take: blocks that were never written cost nothing, and
//! equal writes to several devices share their bytes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use ashlar_io::{BLOCK_BYTES, Tearing};

use crate::random::{Random, mix};

/// The part of a block that no device tears (its sector of old).
const SECTOR_BYTES: usize = 512;

/// The content of a block.
#[derive(Clone)]
pub struct Content(Option<(Arc<Vec<u8>>, usize)>);

impl Content {
    /// All zeroes.
    pub const ZERO: Self = Self(None);

    pub(crate) fn shared(bytes: Arc<Vec<u8>>, offset: usize) -> Self {
        if bytes[offset..offset + BLOCK_BYTES].iter().all(|byte| *byte == 0) {
            return Self::ZERO;
        }
        Self(Some((bytes, offset)))
    }

    /// A block's bytes.
    ///
    /// # Panics
    /// If they are not [`BLOCK_BYTES`].
    pub fn new(bytes: Vec<u8>) -> Self {
        assert_eq!(bytes.len(), BLOCK_BYTES);
        Self::shared(Arc::new(bytes), 0)
    }

    /// The bytes; `None` if all are zero.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|(bytes, offset)| &bytes[*offset..*offset + BLOCK_BYTES])
    }

    pub(crate) fn copy_to(&self, target: &mut [u8]) {
        match self.bytes() {
            Some(bytes) => target.copy_from_slice(bytes),
            None => target.fill(0),
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        self.bytes().map_or_else(|| vec![0; BLOCK_BYTES], <[u8]>::to_vec)
    }

    /// Junk that no one wrote.
    pub(crate) fn junk(random: &mut Random) -> Self {
        let words = (0..BLOCK_BYTES / 8).flat_map(|_| random.bits().to_le_bytes());
        Self::new(words.collect())
    }

    /// With some bits flipped.
    pub(crate) fn rotten(&self, random: &mut Random) -> Self {
        let mut bytes = self.to_vec();
        for _ in 0..random.between(1, 16) {
            let bit = random.index(BLOCK_BYTES * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // An even number of flips of one bit is none.
        bytes[random.index(BLOCK_BYTES)] ^= 0x5a;
        Self::new(bytes)
    }

    /// Some sectors of each.
    fn torn(&self, newer: &Self, random: &mut Random) -> Self {
        let mut bytes = self.to_vec();
        let new = newer.to_vec();
        let sectors = bytes.chunks_exact_mut(SECTOR_BYTES).zip(new.chunks_exact(SECTOR_BYTES));
        for (old, new) in sectors {
            if random.coin() {
                old.copy_from_slice(new);
            }
        }
        Self::new(bytes)
    }

    fn fingerprint(&self) -> u64 {
        self.bytes().map_or(0, |bytes| {
            let words =
                bytes.chunks_exact(8).map(|word| word.iter().fold(0, |sum, b| sum << 8 | u64::from(*b)));
            words.fold(1, |hash, word| mix(hash ^ word))
        })
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({:016x})", self.fingerprint())
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

/// All blocks of a device.
#[derive(Debug)]
pub(crate) struct Contents {
    volatile: bool,
    /// What a power loss leaves. Looked up only, never iterated in its own order.
    stable: HashMap<u64, Content>,
    /// What it may take: the writes of each block since the last flush, oldest first, each with its place in the
    /// order of all.
    cached: BTreeMap<u64, Vec<(u64, Content)>>,
    sequence: u64,
}

impl Contents {
    pub(crate) fn new(volatile: bool) -> Self {
        Self { volatile, stable: HashMap::new(), cached: BTreeMap::new(), sequence: 0 }
    }

    pub(crate) fn get(&self, block: u64) -> Content {
        let cached = self.cached.get(&block).and_then(|versions| versions.last()).map(|(_, content)| content);
        cached.or_else(|| self.stable.get(&block)).cloned().unwrap_or(Content::ZERO)
    }

    pub(crate) fn set(&mut self, block: u64, content: Content) {
        self.sequence += 1;
        if self.volatile {
            self.cached.entry(block).or_default().push((self.sequence, content));
        } else {
            self.set_stable(block, content);
        }
    }

    /// Changes the medium itself, whatever the cache holds.
    pub(crate) fn set_stable(&mut self, block: u64, content: Content) {
        if content.bytes().is_some() {
            self.stable.insert(block, content);
        } else {
            self.stable.remove(&block);
        }
    }

    /// The place of the last write in the order of all.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Everything up to a place in the order is on the medium now.
    pub(crate) fn flush(&mut self, through: u64) {
        let cached = std::mem::take(&mut self.cached);
        for (block, mut versions) in cached {
            let flushed = versions.partition_point(|(sequence, _)| *sequence <= through);
            if let Some((_, content)) = versions.drain(..flushed).next_back() {
                self.set_stable(block, content);
            }
            if !versions.is_empty() {
                self.cached.insert(block, versions);
            }
        }
    }

    /// Of each block that is not flushed, any of its versions stays.
    pub(crate) fn lose_power(&mut self, tearing: Tearing, random: &mut Random) {
        for (block, versions) in std::mem::take(&mut self.cached) {
            let kept = random.index(versions.len() + 1);
            let Some((_, content)) = kept.checked_sub(1).and_then(|index| versions.get(index)) else {
                continue;
            };
            let old = self.stable.get(&block).cloned().unwrap_or(Content::ZERO);
            self.set_stable(block, resolve(&old, content, tearing, random));
        }
    }

    /// Forgets everything from `blocks` on.
    pub(crate) fn truncate(&mut self, blocks: u64) {
        self.cached.split_off(&blocks);
        self.stable.retain(|block, _| *block < blocks);
    }

    /// The same for the same contents, as good as never for others.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of = |block: u64, content: &Content| mix(mix(block) ^ content.fingerprint());
        // A sum, so that the order of the map does not matter.
        let stable = self.stable.iter().map(|(block, content)| of(*block, content));
        let cached = self
            .cached
            .iter()
            .flat_map(|(block, versions)| versions.iter().map(move |(_, content)| !of(*block, content)));
        stable.chain(cached).fold(0, u64::wrapping_add)
    }
}

/// What a write that was cut short leaves of a block that it did reach.
pub(crate) fn resolve(old: &Content, new: &Content, tearing: Tearing, random: &mut Random) -> Content {
    match tearing {
        Tearing::Torn if random.one_in(3) => old.torn(new, random),
        Tearing::Torn | Tearing::Atomic => new.clone(),
    }
}
