//! The catalog: bytes that replication keeps about its replicas on this device (PROTOCOL R4, R10). The store does
//! not read them.

use ashlar_io::BLOCK_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, BadBlock, BlockKind, DeviceId, HEADER_BYTES, Place, bad_field};
use super::layout::{Area, Layout, Slot};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    bytes: U64,
    crc: U32,
}

/// What is written for a catalog: the body, a flush, the first block, a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogImage {
    /// Where it is written.
    pub slot: Area,
    /// The slot's first block.
    pub first: Vec<u8>,
    /// What stands behind it, whole blocks; maybe none.
    pub body: Vec<u8>,
}

/// A catalog has more bytes than the device has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a catalog of {bytes} bytes does not fit: the device has room for {room}")]
pub struct CatalogTooLarge {
    /// Bytes of the catalog.
    pub bytes: u64,
    /// Bytes that fit.
    pub room: u64,
}

/// The first block of a catalog slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogHeader {
    /// Rises with each writing.
    pub generation: u64,
    /// Bytes of the body.
    pub bytes: u64,
    crc: u32,
}

impl CatalogImage {
    /// Puts `bytes` into the slot of `generation`.
    ///
    /// # Errors
    /// They are too many.
    pub fn new(
        layout: &Layout,
        device: DeviceId,
        generation: u64,
        bytes: &[u8],
    ) -> Result<Self, CatalogTooLarge> {
        let slot = layout.catalog(Slot::of(generation));
        let room = (slot.blocks - 1) * BLOCK_BYTES as u64;
        if bytes.len() as u64 > room {
            return Err(CatalogTooLarge { bytes: bytes.len() as u64, room });
        }
        let raw = Raw { bytes: (bytes.len() as u64).into(), crc: crc32c::crc32c(bytes).into() };
        let mut first = vec![0; BLOCK_BYTES];
        first[HEADER_BYTES..HEADER_BYTES + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        block::seal(&mut first, BlockKind::Catalog, Place { device, address: slot.first }, generation);
        let mut body = bytes.to_vec();
        body.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        Ok(Self { slot, first, body })
    }
}

impl CatalogHeader {
    /// Reads the first block of a slot.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(block: &[u8], layout: &Layout, device: DeviceId, slot: Slot) -> Result<Self, BadBlock> {
        let area = layout.catalog(slot);
        let header = block::open(block, BlockKind::Catalog, Place { device, address: area.first })?;
        let raw: &Raw = block::fields(block, HEADER_BYTES)?;
        if Slot::of(header.generation) != slot {
            return Err(bad_field("generation", header.generation));
        }
        let bytes = raw.bytes.get();
        if bytes > (area.blocks - 1) * BLOCK_BYTES as u64 {
            return Err(bad_field("length", bytes));
        }
        Ok(Self { generation: header.generation, bytes, crc: raw.crc.get() })
    }

    /// Blocks of the body, which follow the first.
    pub const fn body_blocks(&self) -> u64 {
        self.bytes.div_ceil(BLOCK_BYTES as u64)
    }

    /// Takes the catalog's bytes from the body's blocks.
    ///
    /// # Errors
    /// They are not those that were written.
    pub fn open_body<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], BadBlock> {
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let bytes = body.get(..bytes).ok_or(BadBlock::Length(body.len()))?;
        let computed = crc32c::crc32c(bytes);
        if computed != self.crc {
            return Err(BadBlock::Crc { stored: self.crc, computed });
        }
        Ok(bytes)
    }
}
