//! Which command identifiers of a queue are live (NVMe Base 2.0 §3.3.3.1; NVME N15).
//!
//! Hosts use arbitrary 16-bit identifiers, so there is a bit for each: a test and a set touch one word.

use std::cell::Cell;

use ashlar_nvme::CommandId;

/// Words of the bitmap: 65536 identifiers.
const WORDS: usize = 1024;

/// The identifiers of commands that have arrived and are not answered.
pub(crate) struct LiveCids {
    words: Box<[Cell<u64>]>,
}

/// The identifier belongs to a command that is still live.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CidConflict;

impl LiveCids {
    pub(crate) fn new() -> Self {
        Self { words: (0..WORDS).map(|_| Cell::new(0)).collect() }
    }

    fn place(&self, cid: CommandId) -> (Option<&Cell<u64>>, u64) {
        (self.words.get(usize::from(cid.0 >> 6)), 1 << (cid.0 & 63))
    }

    /// Marks an identifier as live.
    pub(crate) fn begin(&self, cid: CommandId) -> Result<(), CidConflict> {
        let (word, bit) = self.place(cid);
        match word {
            Some(word) if word.get() & bit == 0 => {
                word.set(word.get() | bit);
                Ok(())
            }
            _ => Err(CidConflict),
        }
    }

    /// The command was answered.
    pub(crate) fn end(&self, cid: CommandId) {
        let (word, bit) = self.place(cid);
        if let Some(word) = word {
            word.set(word.get() & !bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_free_again_once_its_command_was_answered() {
        let live = LiveCids::new();
        for cid in [0, 1, 63, 64, 0xFFFE, 0xFFFF].map(CommandId) {
            assert_eq!(live.begin(cid), Ok(()));
            assert_eq!(live.begin(cid), Err(CidConflict));
        }
        live.end(CommandId(64));
        assert_eq!(live.begin(CommandId(64)), Ok(()));
        assert_eq!(live.begin(CommandId(63)), Err(CidConflict));
    }
}
