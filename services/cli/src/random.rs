//! Numbers that look random and are the same at every run of one seed.

/// xorshift64*: three shifts and a multiplication. Good enough to spread offsets, and always the same for one
/// seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// From a seed; neighbouring seeds give unrelated streams.
    pub(crate) fn new(seed: u64) -> Self {
        // One step of splitmix64; the state must not be zero.
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self((z ^ (z >> 31)).max(1))
    }

    /// The next 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, by multiplication instead of division.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills `bytes` with noise that does not compress.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let noise = self.next().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(noise) {
                *to = from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_seeds_give_different_noise() {
        let noise = |seed| {
            let mut bytes = [0; 20];
            Random::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(noise(1), noise(1));
        assert_ne!(noise(1), noise(2));
        assert_ne!(noise(1)[12..], [0; 8]);
    }
}
