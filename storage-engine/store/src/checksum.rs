//! Stored checksums: CRC-32C mixed with the identity that a block was written for (PROTOCOL S4, S7).

use ashlar_io::BLOCK_BYTES;

use crate::ids::ExtentId;

/// What is stored about a block: that it was never written, that it is zero, or the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Stored(pub u32);

impl Stored {
    /// Never written: reads as zeroes (or, with a parent, as the parent's block, S14).
    pub const NEVER: Self = Self(0);
    /// Deallocated or zeroed: reads as zeroes.
    pub const ZERO: Self = Self(1);
    /// The checksum page was lost (S4): no bytes verify, so the block is repaired from another replica.
    pub const LOST: Self = Self(2);

    /// The block has bytes on the device.
    pub const fn has_data(self) -> bool {
        self.0 > Self::ZERO.0
    }
}

/// Computes the checksums of one extent's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summer {
    identity: u32,
}

impl Summer {
    /// For blocks of `extent`.
    pub fn new(extent: ExtentId) -> Self {
        let crc = crc32c::crc32c(extent.segment.volume.as_bytes());
        let crc = crc32c::crc32c_append(crc, &extent.segment.index.to_le_bytes());
        Self { identity: crc32c::crc32c_append(crc, &extent.index.to_le_bytes()) }
    }

    /// Of the extent's block number `block`, with these bytes.
    pub fn sum(self, block: u32, bytes: &[u8]) -> Stored {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES);
        let crc = crc32c::crc32c_append(self.identity, &block.to_le_bytes());
        match crc32c::crc32c_append(crc, bytes) {
            // The three smallest values are codes (S4).
            crc @ 0..=2 => Stored(crc + 3),
            crc => Stored(crc),
        }
    }

    /// Of all blocks of `bytes`, the first being the extent's number `first`.
    pub fn sums(self, first: u32, bytes: &[u8]) -> impl Iterator<Item = Stored> + '_ {
        (first..).zip(bytes.chunks_exact(BLOCK_BYTES)).map(move |(block, bytes)| self.sum(block, bytes))
    }
}
