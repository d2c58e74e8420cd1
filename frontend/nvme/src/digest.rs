//! Header and data digests: CRC-32C, little-endian on the wire (NVMe-TCP 1.0 §3.3.1.1).

/// Bytes of a digest.
pub const DIGEST_SIZE: usize = 4;

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The digest of `bytes` as it travels.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_SIZE] {
    crc32c(bytes).to_le_bytes()
}

/// CRC-32C over pieces that arrive one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Takes the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The sum of all pieces.
    #[must_use]
    pub const fn finish(&self) -> u32 {
        self.0
    }
}

/// Whether `digest`, as received, belongs to `bytes`.
#[must_use]
pub fn matches(bytes: &[u8], received: [u8; DIGEST_SIZE]) -> bool {
    digest(bytes) == received
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 §B.4 gives these sums.
    #[test]
    fn sums_are_those_of_the_iscsi_standard() {
        assert_eq!(digest(&[0; 32]), [0xAA, 0x36, 0x91, 0x8A]);
        assert_eq!(digest(&[0xFF; 32]), [0x43, 0xAB, 0xA8, 0x62]);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(digest(&ascending), [0x4E, 0x79, 0xDD, 0x46]);
    }

    #[test]
    fn pieces_give_the_sum_of_the_whole() {
        let whole: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        for cut in [0, 1, 3, 24, 4096, 5000] {
            let (a, b) = whole.split_at(cut);
            let mut sum = Crc32c::default();
            sum.update(a);
            sum.update(b);
            assert_eq!(sum.finish(), crc32c(&whole), "cut at {cut}");
        }
    }

    #[test]
    fn one_flipped_bit_is_noticed() {
        let mut bytes = vec![7u8; 4096];
        let good = digest(&bytes);
        assert!(matches(&bytes, good));
        bytes[1000] ^= 0x10;
        assert!(!matches(&bytes, good));
    }
}
