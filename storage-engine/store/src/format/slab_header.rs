//! The header of a slab: which lane owns it (PROTOCOL S7).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, BadBlock, BlockKind, HEADER_BYTES, Place, bad_field};
use super::layout::{Layout, Slab, Slot};

/// The owner field of a slab that nobody owns.
const NOBODY: u32 = u32::MAX;

/// Who owns a slab. It stands in the slot of its generation; the good one of the higher generation holds. A slab
/// without a good header was never owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabHeader {
    /// The slab.
    pub slab: Slab,
    /// The lane, or nobody.
    pub owner: Option<u32>,
    /// The owner generation: records of older ones are ignored.
    pub generation: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    owner: U32,
    slab: U32,
}

impl SlabHeader {
    /// Writes it for `place`, the slot of its generation.
    ///
    /// # Panics
    /// If `block` is not 4096 bytes.
    pub fn encode(&self, block: &mut [u8], place: Place) {
        let raw = Raw { owner: self.owner.unwrap_or(NOBODY).into(), slab: self.slab.0.into() };
        block.fill(0);
        block[HEADER_BYTES..HEADER_BYTES + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        block::seal(block, BlockKind::SlabHeader, place, self.generation);
    }

    /// Reads the one of `slab` at `place`.
    ///
    /// # Errors
    /// What is wrong with it.
    ///
    /// # Panics
    /// If the device has no such slab.
    pub fn decode(block: &[u8], place: Place, layout: &Layout, slab: Slab) -> Result<Self, BadBlock> {
        let header = block::open(block, BlockKind::SlabHeader, place)?;
        let raw: &Raw = block::fields(block, HEADER_BYTES)?;
        if layout.slab(slab).header(Slot::of(header.generation)) != place.address {
            return Err(bad_field("generation", header.generation));
        }
        if raw.slab.get() != slab.0 {
            return Err(bad_field("slab", raw.slab.get()));
        }
        let owner = match raw.owner.get() {
            NOBODY => None,
            lane if lane < layout.lanes() => Some(lane),
            lane => return Err(bad_field("owner", lane)),
        };
        Ok(Self { slab, owner, generation: header.generation })
    }
}
