//! Checksum pages between memory and device, neighbours in one I/O (PROTOCOL S4, S10).

use ashlar_io::{BLOCK_BYTES, Bug, DiskError, World};

use super::checkpoint::PAGES_IN_FLIGHT;
use super::tables::Life;
use super::types::LaneError;
use super::{Inner, many, retry};
use crate::checksum::Stored;
use crate::format::checksum_page::{self, SUMS};
use crate::format::{Extent, PageRef, Place, Slot};
use crate::ids::ExtentId;

/// Pages that a checkpoint loads before it writes them: a bound on memory beyond the cache.
const PORTION: usize = 1024;

/// Where a page is, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    extent: Extent,
    address: u64,
    /// The page that is read, or the generation that is written.
    page: PageRef,
    id: ExtentId,
    /// For a write: stamp of the image.
    stamp: u64,
}

impl<W: World> Inner<W> {
    /// Brings the checksum page of an extent into memory. The caller has I/O on the extent counted.
    pub(super) async fn load_page(&self, extent: Extent) -> Result<(), LaneError> {
        while !self.cache.borrow().has_whole(extent) {
            match self.page_to_load(extent) {
                None => self.cache.borrow_mut().install(extent, Box::new([Stored::NEVER; SUMS])),
                Some(at) => self.load_run(&[at]).await?,
            }
        }
        Ok(())
    }

    /// The page on the device, if the extent has one.
    fn page_to_load(&self, extent: Extent) -> Option<At> {
        let tables = self.tables.borrow();
        let place = tables.place(extent);
        let page = place.page()?;
        let address = self.site.layout.checksum_page(extent, Slot::of(page.generation));
        Some(At { extent, address, page, id: place.id, stamp: 0 })
    }

    /// Reads neighbouring pages.
    async fn load_run(&self, run: &[At]) -> Result<(), LaneError> {
        let Some(first) = run.first() else { return Ok(()) };
        self.metadata_writes.set(self.metadata_writes.get() + 1);
        let buffer = self.world.spare_buffer(run.len());
        let (result, buffer): (Result<(), DiskError>, _) =
            retry::read(&self.world, &self.disk, first.address, buffer).await;
        result?;
        for (at, bytes) in run.iter().zip(buffer.chunks_exact(BLOCK_BYTES)) {
            // A checkpoint may have written a newer page meanwhile, or the extent has another holder.
            let unchanged = {
                let tables = self.tables.borrow();
                let place = tables.place(at.extent);
                place.page() == Some(at.page) && place.id == at.id
            };
            if !unchanged {
                continue;
            }
            let place = Place { device: self.site.device, address: at.address };
            let mut cache = self.cache.borrow_mut();
            match checksum_page::decode(bytes, place, at.page) {
                Ok(sums) => cache.install(at.extent, sums),
                Err(_) if self.world.bug(Bug::AcceptStaleChecksumPage) => {
                    cache.install(at.extent, as_they_are(bytes));
                }
                Err(error) => {
                    // PROTOCOL S4: what it said comes from other replicas, as reads find each block not to match.
                    tracing::warn!(extent = %at.id, address = at.address, %error, "a checksum page is lost");
                    self.lost_pages.set(self.lost_pages.get() + 1);
                    cache.install_lost(at.extent);
                }
            }
        }
        Ok(())
    }

    /// Writes all pages that changed, in the order in which they lie.
    pub(super) async fn write_checksum_pages(&self) -> Result<(), LaneError> {
        let dirty = self.cache.borrow().dirty();
        for portion in dirty.chunks(PORTION) {
            let mut held = Vec::with_capacity(portion.len());
            {
                let mut tables = self.tables.borrow_mut();
                for extent in portion {
                    // Freed since the list was made, and its slab given to another lane?
                    let is_held = tables.owns(*extent)
                        && matches!(tables.place(*extent).life, Life::Held | Life::Allocating);
                    if is_held {
                        tables.begin(*extent);
                        held.push(*extent);
                    }
                }
            }
            let result = self.write_portion(&held).await;
            let mut tables = self.tables.borrow_mut();
            for extent in held {
                tables.end(extent);
            }
            result?;
        }
        Ok(())
    }

    async fn write_portion(&self, extents: &[Extent]) -> Result<(), LaneError> {
        let absent: Vec<At> = extents
            .iter()
            .filter(|extent| !self.cache.borrow().has_whole(**extent))
            .filter_map(|extent| self.page_to_load(*extent))
            .collect();
        let runs = neighbours::<W>(absent);
        many(&runs, PAGES_IN_FLIGHT, async |run: &Vec<At>| self.load_run(run).await).await?;
        let mut images = Vec::with_capacity(extents.len());
        for extent in extents {
            // Whatever the runs did not bring: pages that changed hands meanwhile, extents that have none yet.
            self.load_page(*extent).await?;
            let Some(stamp) = self.cache.borrow().stamp(*extent) else { continue };
            let (id, old) = {
                let tables = self.tables.borrow();
                let place = tables.place(*extent);
                (place.id, place.page_generation)
            };
            let generation = match self.world.bug(Bug::OneSlotPages) {
                true => old.max(1).next_multiple_of(2),
                false => old + 1,
            };
            let address = self.site.layout.checksum_page(*extent, Slot::of(generation));
            let page = PageRef { generation, crc: 0 };
            images.push(At { extent: *extent, address, page, id, stamp });
        }
        let runs = neighbours::<W>(images);
        many(&runs, PAGES_IN_FLIGHT, async |run: &Vec<At>| self.write_run(run).await).await
    }

    /// Writes neighbouring pages, as they are in memory now.
    async fn write_run(&self, run: &[At]) -> Result<(), LaneError> {
        let Some(first) = run.first() else { return Ok(()) };
        let mut buffer = self.world.spare_buffer(run.len());
        let mut written = Vec::with_capacity(run.len());
        {
            let cache = self.cache.borrow();
            for (at, bytes) in run.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
                // Forgotten meanwhile, because it was freed: what is written is of no account.
                let Some((sums, stamp)) = cache.image(at.extent) else {
                    bytes.fill(0);
                    continue;
                };
                let place = Place { device: self.site.device, address: at.address };
                let page = checksum_page::encode(bytes, place, at.page.generation, &sums);
                written.push(At { page, stamp, ..*at });
            }
        }
        self.write_metadata(first.address, buffer).await?;
        let mut tables = self.tables.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        for at in written {
            let place = tables.change(at.extent);
            // The generation is used, whoever holds the extent.
            place.page_generation = at.page.generation;
            if place.id == at.id && matches!(place.life, Life::Held | Life::Allocating) {
                place.page_crc = Some(at.page.crc);
                cache.written(at.extent, at.stamp);
            }
        }
        Ok(())
    }
}

/// Cuts a list in the order of extents into runs of neighbours that fit a buffer.
fn neighbours<W: World>(mut pages: Vec<At>) -> Vec<Vec<At>> {
    pages.sort_unstable_by_key(|at| at.address);
    let mut runs: Vec<Vec<At>> = Vec::new();
    for at in pages {
        match runs.last_mut() {
            Some(run)
                if run.len() < W::MAX_BUFFER_BLOCKS
                    && run.last().is_some_and(|last| last.address + 1 == at.address) =>
            {
                run.push(at);
            }
            _ => runs.push(vec![at]),
        }
    }
    runs
}

/// What a bad checksum page says, for the simulator's deliberate bug alone.
fn as_they_are(page: &[u8]) -> Box<[Stored; SUMS]> {
    let mut sums = Box::new([Stored::NEVER; SUMS]);
    for (sum, bytes) in sums.iter_mut().zip(page.as_chunks::<4>().0) {
        *sum = Stored(u32::from_le_bytes(*bytes));
    }
    sums
}
