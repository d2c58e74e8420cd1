//! A block that says of itself what it is. Every 512 bytes of it carry their place, the generation of the
//! write and a checksum, so that a check can tell what happened to a block that is not what it should be.

use ashlar_nvme::digest::crc32c;

use crate::random::Random;

/// A block of the pattern: the atomic unit of the store (NVME N8). A namespace with smaller blocks holds it
/// in several of them, and must not tear it either.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// What is told apart within a block: the smallest logical block.
const SECTOR_BYTES: usize = 512;

const MAGIC: [u8; 8] = *b"ASHLARv1";

/// Offsets of the fields in a sector, all little-endian: magic, seed, byte offset in the namespace,
/// generation, CRC-32C of the sector with this field zero; noise from there on.
const SEED: usize = 8;
const OFFSET: usize = 16;
const GENERATION: usize = 24;
const CRC: usize = 28;
const NOISE: usize = 32;

/// Which write of a block it was: the number of the pass, from 1. 0 is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Generation(pub(crate) u32);

/// What a check knows of a block beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// By the state file: at least `floor` was acknowledged (or read), at most `ceiling` was ever sent.
    Between {
        /// Oldest generation that may be there.
        floor: Generation,
        /// Newest generation that may be there.
        ceiling: Generation,
    },
    /// Nothing is known but that the pattern was written.
    Any,
}

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    /// An older write than the one that was acknowledged.
    Stale {
        /// What is there.
        found: Generation,
        /// What was acknowledged.
        acknowledged: Generation,
    },
    /// Zeroes, although a write was acknowledged.
    Lost,
    /// Intact, but it belongs elsewhere.
    Misplaced {
        /// Byte offset where it belongs.
        belongs: u64,
    },
    /// Parts of different writes, or of a write and something else.
    Torn,
    /// Ours by its head, but its checksum is wrong.
    Corrupt,
    /// Not ours: no pattern, another seed, or a generation that was never sent.
    Foreign,
    /// The target could not read it.
    Unreadable,
}

/// What a block turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What was acknowledged.
    Good(Generation),
    /// A write that was sent but never acknowledged. It may be there, and from now on it must stay.
    Unacknowledged(Generation),
    /// Never written by us as far as was acknowledged, and nothing of ours is there.
    Untouched,
    /// Not what it may be.
    Wrong(Wrong),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sector {
    Ours { belongs: u64, generation: Generation },
    Zero,
    Corrupt,
    Foreign,
}

/// Fills a block.
pub(crate) fn fill(block: &mut [u8], seed: u64, offset: u64, generation: Generation) {
    for (index, sector) in block.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let at = offset + (index * SECTOR_BYTES) as u64;
        put(sector, 0, &MAGIC);
        put(sector, SEED, &seed.to_le_bytes());
        put(sector, OFFSET, &at.to_le_bytes());
        put(sector, GENERATION, &generation.0.to_le_bytes());
        put(sector, CRC, &[0; 4]);
        let noise = seed ^ at.rotate_left(20) ^ (u64::from(generation.0) << 40);
        if let Some(rest) = sector.get_mut(NOISE..) {
            Random::new(noise).fill(rest);
        }
        let crc = crc32c(sector);
        put(sector, CRC, &crc.to_le_bytes());
    }
}

fn put(sector: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = sector.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn get<const N: usize>(sector: &[u8], at: usize) -> [u8; N] {
    sector.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

fn look(sector: &[u8], seed: u64) -> Sector {
    if get::<8>(sector, 0) != MAGIC {
        return if sector.iter().all(|&byte| byte == 0) { Sector::Zero } else { Sector::Foreign };
    }
    let mut copy = [0; SECTOR_BYTES];
    put(&mut copy, 0, sector);
    put(&mut copy, CRC, &[0; 4]);
    if crc32c(&copy) != u32::from_le_bytes(get(sector, CRC)) {
        return Sector::Corrupt;
    }
    if u64::from_le_bytes(get(sector, SEED)) != seed {
        return Sector::Foreign;
    }
    Sector::Ours {
        belongs: u64::from_le_bytes(get(sector, OFFSET)),
        generation: Generation(u32::from_le_bytes(get(sector, GENERATION))),
    }
}

/// Judges the block that was read from `offset`.
pub(crate) fn judge(block: &[u8], seed: u64, offset: u64, expect: Expect) -> Verdict {
    let sectors = || block.chunks_exact(SECTOR_BYTES).map(|sector| look(sector, seed));
    let Some(first) = sectors().next() else { return Verdict::Wrong(Wrong::Unreadable) };
    let alike = |index: usize, sector: Sector| match (first, sector) {
        (Sector::Ours { belongs, generation }, Sector::Ours { belongs: here, generation: its }) => {
            generation == its && belongs.checked_add((index * SECTOR_BYTES) as u64) == Some(here)
        }
        (first, sector) => first == sector,
    };
    if sectors().any(|sector| sector == Sector::Corrupt) {
        return Verdict::Wrong(Wrong::Corrupt);
    }
    let whole = sectors().enumerate().all(|(index, sector)| alike(index, sector));
    let nothing_expected = matches!(expect, Expect::Between { floor: Generation(0), .. });
    if !whole {
        // Foreign bytes may hold zeroes; only a part of ours beside them is a torn write.
        let ours = sectors().any(|sector| matches!(sector, Sector::Ours { .. }));
        return match (ours, nothing_expected) {
            (true, _) => Verdict::Wrong(Wrong::Torn),
            (false, true) => Verdict::Untouched,
            (false, false) => Verdict::Wrong(Wrong::Foreign),
        };
    }
    match first {
        Sector::Ours { belongs, .. } if belongs != offset => Verdict::Wrong(Wrong::Misplaced { belongs }),
        Sector::Ours { generation, .. } => judge_generation(generation, expect),
        _ if nothing_expected => Verdict::Untouched,
        Sector::Zero => Verdict::Wrong(Wrong::Lost),
        Sector::Corrupt | Sector::Foreign => Verdict::Wrong(Wrong::Foreign),
    }
}

fn judge_generation(found: Generation, expect: Expect) -> Verdict {
    match expect {
        Expect::Any => Verdict::Good(found),
        Expect::Between { floor, .. } if found < floor => {
            Verdict::Wrong(Wrong::Stale { found, acknowledged: floor })
        }
        // An earlier run with the same seed; where nothing was acknowledged it may have left something.
        Expect::Between { floor: Generation(0), ceiling } if found > ceiling => Verdict::Untouched,
        Expect::Between { ceiling, .. } if found > ceiling => Verdict::Wrong(Wrong::Foreign),
        Expect::Between { floor, .. } if found > floor => Verdict::Unacknowledged(found),
        Expect::Between { .. } => Verdict::Good(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 42;
    const AT: u64 = 1 << 20;

    fn block(offset: u64, generation: u32) -> Vec<u8> {
        let mut block = vec![0xEE; BLOCK_BYTES];
        fill(&mut block, SEED, offset, Generation(generation));
        block
    }

    fn between(floor: u32, ceiling: u32) -> Expect {
        Expect::Between { floor: Generation(floor), ceiling: Generation(ceiling) }
    }

    fn judged(block: &[u8], expect: Expect) -> Verdict {
        judge(block, SEED, AT, expect)
    }

    #[test]
    fn what_was_acknowledged_is_good() {
        assert_eq!(judged(&block(AT, 3), between(3, 3)), Verdict::Good(Generation(3)));
        assert_eq!(judged(&block(AT, 3), Expect::Any), Verdict::Good(Generation(3)));
    }

    #[test]
    fn an_older_write_than_the_acknowledged_is_stale() {
        let stale = Wrong::Stale { found: Generation(2), acknowledged: Generation(3) };
        assert_eq!(judged(&block(AT, 2), between(3, 4)), Verdict::Wrong(stale));
    }

    #[test]
    fn a_write_that_was_never_acknowledged_may_be_there() {
        assert_eq!(judged(&block(AT, 4), between(3, 4)), Verdict::Unacknowledged(Generation(4)));
        assert_eq!(judged(&block(AT, 1), between(0, 1)), Verdict::Unacknowledged(Generation(1)));
    }

    #[test]
    fn a_generation_that_was_never_sent_is_foreign() {
        assert_eq!(judged(&block(AT, 5), between(3, 4)), Verdict::Wrong(Wrong::Foreign));
        assert_eq!(judged(&block(AT, 5), between(0, 4)), Verdict::Untouched);
    }

    #[test]
    fn a_block_from_elsewhere_is_misplaced() {
        let misplaced = Wrong::Misplaced { belongs: AT + 4096 };
        assert_eq!(judged(&block(AT + 4096, 3), between(3, 3)), Verdict::Wrong(misplaced));
        assert_eq!(judged(&block(AT + 4096, 3), between(0, 3)), Verdict::Wrong(misplaced));
    }

    #[test]
    fn parts_of_two_writes_are_torn() {
        let mut torn = block(AT, 3);
        torn[2048..].copy_from_slice(&block(AT, 4)[2048..]);
        assert_eq!(judged(&torn, between(3, 4)), Verdict::Wrong(Wrong::Torn));
        let mut half = block(AT, 1);
        half[512..].fill(0);
        assert_eq!(judged(&half, between(0, 1)), Verdict::Wrong(Wrong::Torn));
    }

    #[test]
    fn a_flipped_bit_is_corruption() {
        for at in [BLOCK_BYTES - 1, 512 + 20, 40] {
            let mut flipped = block(AT, 3);
            flipped[at] ^= 0x10;
            assert_eq!(judged(&flipped, between(3, 3)), Verdict::Wrong(Wrong::Corrupt), "byte {at}");
        }
    }

    #[test]
    fn zeroes_are_a_lost_write_only_if_one_was_acknowledged() {
        let zeroes = vec![0; BLOCK_BYTES];
        assert_eq!(judged(&zeroes, between(3, 3)), Verdict::Wrong(Wrong::Lost));
        assert_eq!(judged(&zeroes, Expect::Any), Verdict::Wrong(Wrong::Lost));
        assert_eq!(judged(&zeroes, between(0, 3)), Verdict::Untouched);
    }

    #[test]
    fn other_data_is_foreign_only_where_ours_was_acknowledged() {
        let mut other = vec![0; BLOCK_BYTES];
        fill(&mut other, SEED + 1, AT, Generation(3));
        let text = b"text and zeroes".iter().copied().chain(std::iter::repeat(0));
        let text: Vec<u8> = text.take(BLOCK_BYTES).collect();
        for foreign in [other, vec![0xA5; BLOCK_BYTES], text] {
            assert_eq!(judged(&foreign, between(3, 3)), Verdict::Wrong(Wrong::Foreign));
            assert_eq!(judged(&foreign, between(0, 3)), Verdict::Untouched);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..=BLOCK_BYTES),
            floor in 0_u32..3,
        ) {
            let verdict = judged(&bytes, between(floor, 3));
            proptest::prop_assert!(!matches!(verdict, Verdict::Good(_) | Verdict::Unacknowledged(_)));
        }
    }
}
