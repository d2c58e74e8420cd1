//! Checksum pages: the stored checksums of an extent's blocks. All 4096 bytes are checksums; what tells that a page
//! is the right one stands in the table.

use ashlar_io::BLOCK_BYTES;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::block::{BadBlock, PageRef, Place};
use crate::checksum::Stored;
use crate::ids::EXTENT_BLOCKS;

/// Checksums of a page.
pub const SUMS: usize = EXTENT_BLOCKS as usize;

const _: () = assert!(SUMS * size_of::<U32>() == BLOCK_BYTES, "a page holds the checksums of one extent");

/// CRC of a page with its identity: a page of another device, address or generation never verifies (PROTOCOL S4).
fn crc(page: &[u8], place: Place, generation: u64) -> u32 {
    let crc = crc32c::crc32c(page);
    let crc = crc32c::crc32c_append(crc, place.device.0.as_bytes());
    let crc = crc32c::crc32c_append(crc, &place.address.to_le_bytes());
    crc32c::crc32c_append(crc, &generation.to_le_bytes())
}

/// Writes a page for `place`, and says what the table must say of it.
///
/// # Panics
/// If `block` is not 4096 bytes.
pub fn encode(block: &mut [u8], place: Place, generation: u64, sums: &[Stored; SUMS]) -> PageRef {
    assert_eq!(block.len(), BLOCK_BYTES, "a checksum page is one block");
    for (bytes, sum) in block.chunks_exact_mut(size_of::<U32>()).zip(sums) {
        bytes.copy_from_slice(&sum.0.to_le_bytes());
    }
    PageRef { generation, crc: crc(block, place, generation) }
}

/// Checks that a block that was read from `place` is the page that the table means.
///
/// # Errors
/// It is not.
pub fn verify(block: &[u8], place: Place, expected: PageRef) -> Result<(), BadBlock> {
    if block.len() != BLOCK_BYTES {
        return Err(BadBlock::Length(block.len()));
    }
    let computed = crc(block, place, expected.generation);
    if computed != expected.crc {
        return Err(BadBlock::Crc { stored: expected.crc, computed });
    }
    Ok(())
}

/// Reads the page that the table means.
///
/// # Errors
/// The block that was read from `place` is not that page.
pub fn decode(block: &[u8], place: Place, expected: PageRef) -> Result<Box<[Stored; SUMS]>, BadBlock> {
    verify(block, place, expected)?;
    let raw = <[U32; SUMS]>::ref_from_bytes(block).map_err(|_| BadBlock::Length(block.len()))?;
    let mut sums = Box::new([Stored::NEVER; SUMS]);
    for (sum, raw) in sums.iter_mut().zip(raw) {
        *sum = Stored(raw.get());
    }
    Ok(sums)
}
