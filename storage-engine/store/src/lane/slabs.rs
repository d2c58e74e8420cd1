//! Which lane owns which slab of a device (PROTOCOL S7): shared by the lanes, on whichever cores they are.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ashlar_io::{BLOCK_BYTES, Buffer, Disk, World};

use crate::format::{BadBlock, DeviceId, Layout, Place, Slab, SlabHeader, Slot};

use super::retry;
use super::types::LaneError;

/// Low bits of a word that say the owner: 0 for nobody, else the lane plus one.
const OWNER_BITS: u32 = 8;

/// Owners of all slabs of a device.
#[derive(Debug)]
pub struct SlabMap {
    device: DeviceId,
    layout: Layout,
    words: Vec<AtomicU64>,
    /// Lanes that found no slab free, and wait for one.
    wanted: AtomicU32,
}

/// Who owns a slab, and since which generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) lane: Option<u32>,
    pub(super) generation: u64,
}

impl Owner {
    fn from_word(word: u64) -> Self {
        let lane = (word & ((1 << OWNER_BITS) - 1)) as u32;
        Self { lane: lane.checked_sub(1), generation: word >> OWNER_BITS }
    }

    fn word(self) -> u64 {
        self.generation << OWNER_BITS | self.lane.map_or(0, |lane| u64::from(lane) + 1)
    }
}

/// What a header says of a slab that a lane's root or journal names as its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// The same.
    Agreed,
    /// Less: it is bad, because it was durable first. The lane shall write it again.
    Lost,
    /// That the slab was released since.
    Outdated,
    /// That another lane has it.
    Disputed(u32),
}

/// Slab headers that are read at a time.
const READS: usize = 32;

impl SlabMap {
    /// Reads all slab headers of a device.
    ///
    /// # Errors
    /// A read failed.
    pub async fn read<W: World>(
        world: &W,
        disk: &W::Disk,
        device: DeviceId,
        layout: &Layout,
    ) -> Result<Self, LaneError> {
        let count = layout.slabs();
        let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let map = Self { device, layout: *layout, words, wanted: AtomicU32::new(0) };
        let slabs: Vec<_> = (0..count).map(Slab).collect();
        super::many(&slabs, READS, async |slab: &Slab| map.read_one(world, disk, *slab).await).await?;
        Ok(map)
    }

    async fn read_one<W: World>(&self, world: &W, disk: &W::Disk, slab: Slab) -> Result<(), LaneError> {
        let place = self.layout.slab(slab);
        let first = place.header(Slot::Even);
        let (result, buffer) = retry::read(world, disk, first, world.spare_buffer(2)).await;
        result?;
        let decode = |slot| {
            let address = place.header(slot);
            let at = (address - first) as usize * BLOCK_BYTES;
            let place = Place { device: self.device, address };
            SlabHeader::decode(&buffer[at..at + BLOCK_BYTES], place, &self.layout, slab)
        };
        let headers: Vec<Result<SlabHeader, BadBlock>> = Slot::BOTH.map(decode).into();
        if let Some(newest) = headers.iter().flatten().max_by_key(|header| header.generation) {
            let owner = Owner { lane: newest.owner, generation: newest.generation };
            self.words[slab.0 as usize].store(owner.word(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Who owns a slab.
    pub(super) fn owner(&self, slab: Slab) -> Owner {
        Owner::from_word(self.words[slab.0 as usize].load(Ordering::Acquire))
    }

    /// Sets what a lane's own structures say of a slab against its header (PROTOCOL S7). A header that was lost is
    /// known again at once, so that nobody takes the slab.
    pub(super) fn claim(&self, slab: Slab, lane: u32, generation: u64) -> Claim {
        let ours = Owner { lane: Some(lane), generation };
        let word = &self.words[slab.0 as usize];
        let restored = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (Owner::from_word(word).generation < generation).then(|| ours.word())
        });
        let Err(word) = restored else { return Claim::Lost };
        let owner = Owner::from_word(word);
        match owner.lane {
            _ if owner == ours => Claim::Agreed,
            Some(other) if owner.generation == generation => Claim::Disputed(other),
            _ => Claim::Outdated,
        }
    }

    /// Slabs whose header names `lane`, with their generations.
    pub(super) fn of(&self, lane: u32) -> impl Iterator<Item = (Slab, u64)> + '_ {
        (0..self.words.len() as u32).map(Slab).filter_map(move |slab| {
            let owner = self.owner(slab);
            (owner.lane == Some(lane)).then_some((slab, owner.generation))
        })
    }

    /// Slabs that nobody owns.
    pub(super) fn unowned(&self) -> u64 {
        self.words.iter().filter(|word| Owner::from_word(word.load(Ordering::Relaxed)).lane.is_none()).count()
            as u64
    }

    /// Takes a slab that nobody owns, in memory. The caller makes it durable.
    pub(super) fn take(&self, lane: u32) -> Option<(Slab, u64)> {
        for (slab, word) in self.words.iter().enumerate() {
            let old = word.load(Ordering::Relaxed);
            let owner = Owner::from_word(old);
            if owner.lane.is_some() {
                continue;
            }
            let new = Owner { lane: Some(lane), generation: owner.generation + 1 };
            if word.compare_exchange(old, new.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some((Slab(slab as u32), new.generation));
            }
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Lets others take a slab whose release is durable.
    pub(super) fn release(&self, slab: Slab, generation: u64) {
        let owner = Owner { lane: None, generation };
        self.words[slab.0 as usize].store(owner.word(), Ordering::Release);
    }

    /// A lane found no slab free since this was asked last.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.swap(0, Ordering::Relaxed) > 0
    }

    /// Writes who owns a slab and makes it durable.
    pub(super) async fn write_header<W: World>(
        &self,
        world: &W,
        disk: &W::Disk,
        slab: Slab,
        owner: Owner,
    ) -> Result<(), LaneError> {
        let address = self.layout.slab(slab).header(Slot::of(owner.generation));
        let mut buffer = world.spare_buffer(1);
        let header = SlabHeader { slab, owner: owner.lane, generation: owner.generation };
        header.encode(&mut buffer, Place { device: self.device, address });
        retry::write(world, disk, address, buffer.freeze()).await?;
        Ok(disk.flush().await?)
    }
}
