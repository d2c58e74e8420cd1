//! Header and data digests: CRC-32C, little-endian on the wire (NVMe-TCP 1.0 §3.3.1.1).

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a digest.
pub const DIGEST_SIZE: usize = 4;

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C over pieces that arrive one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Takes the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all pieces.
    #[must_use]
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Whether `digest`, as received, belongs to `bytes`.
#[must_use]
pub fn matches(bytes: &[u8], digest: [u8; DIGEST_SIZE]) -> bool {
    crc32c(bytes) == u32::from_le_bytes(digest)
}
