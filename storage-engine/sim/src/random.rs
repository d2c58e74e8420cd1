//! Random numbers of a seed: xoshiro256**, seeded by SplitMix64. Our own, so that no release of a crate changes what
//! a seed means.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

/// A well-mixed function of its input (the finaliser of SplitMix64).
pub const fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut last = seed;
        let state = [(); 4].map(|()| {
            last = mix(last);
            last
        });
        Self { state }
    }

    /// Another stream, which does not depend on how much of this one is used afterwards.
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number below `bound`; 0 if `bound` is 0. The bias is below 2^-32 for every bound that occurs here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.bits()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// An index of something that has `length` entries.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True in `per_million` of a million cases.
    pub fn per_million(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// A fair coin.
    pub fn coin(&mut self) -> bool {
        self.bits() >> 63 == 1
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_decides_the_stream() {
        let stream = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.bits())
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[random.between(3, 7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|count| (100..300).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
