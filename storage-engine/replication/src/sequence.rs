//! The versions that a shard gives, and up to which of them everything is complete.

use std::collections::VecDeque;

use ashlar_store::Version;

/// Gives versions without holes and follows their completion.
#[derive(Debug)]
pub(crate) struct Sequence {
    epoch: u32,
    given: u64,
    complete: u64,
    /// Of the numbers above `complete`, in order: whether each is done.
    done: VecDeque<bool>,
}

impl Sequence {
    /// Goes on behind `last`, the highest number that any replica has seen: numbers never restart (PROTOCOL R15).
    pub(crate) fn new(epoch: u32, last: u64) -> Self {
        Self { epoch, given: last, complete: last, done: VecDeque::new() }
    }

    /// The next version.
    pub(crate) fn give(&mut self) -> Version {
        self.given += 1;
        self.done.push_back(false);
        self.newest()
    }

    /// The newest version that was given: what changes of one replica carry (PROTOCOL S3).
    pub(crate) fn newest(&self) -> Version {
        Version { epoch: self.epoch, sequence: self.given }
    }

    /// Everything up to here is complete. With nothing given yet in this epoch, that is everything of older epochs.
    pub(crate) fn complete(&self) -> Version {
        Version { epoch: self.epoch, sequence: self.complete }
    }

    /// `version` is done. The new mark, if it moved: it never passes a number that is not done.
    pub(crate) fn finish(&mut self, version: Version) -> Option<Version> {
        let index = version.sequence.checked_sub(self.complete + 1)?;
        let done = self.done.get_mut(usize::try_from(index).ok()?)?;
        *done = true;
        let before = self.complete;
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.complete += 1;
        }
        (self.complete > before).then(|| self.complete())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_never_passes_what_is_not_done() {
        let mut sequence = Sequence::new(3, 10);
        let first = sequence.give();
        let second = sequence.give();
        assert_eq!((first.sequence, second.sequence, first.epoch), (11, 12, 3));
        assert_eq!(sequence.finish(second), None);
        assert_eq!(sequence.complete().sequence, 10);
        assert_eq!(sequence.finish(first), Some(second));
        assert_eq!(sequence.finish(first), None, "twice is once");
    }
}
