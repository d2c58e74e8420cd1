//! The content of a block, or a part of one, that names the write it comes from.

use crate::random::mix;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Zeroes: never written, zeroed or deallocated.
    Zero,
    /// What the write with this number put there.
    Write(u64),
}

/// First word of a written block.
const MARK: u64 = 0x414c_5352_5345_4544;

impl Value {
    /// Fills a block, which is the one at `address` in the scenario's own numbering.
    pub fn fill(self, address: u64, block: &mut [u8]) {
        match self {
            Value::Zero => block.fill(0),
            Value::Write(id) => {
                for (word, expected) in block.chunks_exact_mut(8).zip(words(id, address)) {
                    word.copy_from_slice(&expected.to_le_bytes());
                }
            }
        }
    }

    /// The value of a block at `address`; none if the bytes are not whole, or belong elsewhere.
    pub fn of(address: u64, block: &[u8]) -> Option<Self> {
        debug_assert!(block.len() >= 16, "room for the mark and the write");
        let id = u64::from_le_bytes(block[8..16].try_into().ok()?);
        if block[..16].iter().all(|byte| *byte == 0) {
            return block.iter().all(|byte| *byte == 0).then_some(Self::Zero);
        }
        let whole = block
            .chunks_exact(8)
            .zip(words(id, address))
            .all(|(word, expected)| word == expected.to_le_bytes());
        whole.then_some(Self::Write(id))
    }
}

/// What stands in a block: the mark, the write, then what differs in every sector of every block of every write.
fn words(id: u64, address: u64) -> impl Iterator<Item = u64> {
    let salt = mix(id ^ mix(address));
    [MARK, id].into_iter().chain((1..).map(move |index: u64| salt.wrapping_mul(index * 2 + 1)))
}

#[cfg(test)]
mod tests {
    use ashlar_io::BLOCK_BYTES;

    use super::*;

    #[test]
    fn value_is_read_back_at_its_own_address_only() {
        let mut block = vec![0; BLOCK_BYTES];
        Value::Write(7).fill(3, &mut block);
        assert_eq!(Value::of(3, &block), Some(Value::Write(7)));
        assert_eq!(Value::of(4, &block), None);
        block[4000] ^= 1;
        assert_eq!(Value::of(3, &block), None);
        Value::Zero.fill(3, &mut block);
        assert_eq!(Value::of(3, &block), Some(Value::Zero));
    }
}
