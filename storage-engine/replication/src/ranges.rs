//! Who is at work on which blocks of a shard, and in which order they get to it.
//!
//! Changes that overlap go one after another, first come first served; what does not overlap never waits for each
//! other (design §5). An ordered read stands in the same line, but reads do not wait for reads. A *glance* is a
//! read that found nobody at work: it stands in nobody's way, and learns whether a change overtook it (PROTOCOL S8).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ashlar_io::Instant;
use ashlar_store::Blocks;

/// What somebody wants of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// To change it, or to be sure that nobody does: alone.
    Change,
    /// To read it while nobody changes it.
    Read,
    /// To read it without standing in line.
    Glance,
}

/// The members whose answer somebody waits for, one bit each.
pub(crate) type MemberBits = u8;

#[derive(Debug)]
struct Entry {
    id: u64,
    blocks: Blocks,
    want: Want,
    granted: bool,
    overtaken: bool,
    started: Instant,
    waits_for: MemberBits,
    waker: Option<Waker>,
}

impl Entry {
    /// Somebody later, who wants `blocks`, waits for this one.
    fn holds_up(&self, blocks: Blocks, want: Want) -> bool {
        let conflict = match self.want {
            Want::Change => want != Want::Glance,
            Want::Read => want == Want::Change,
            Want::Glance => false,
        };
        conflict && self.blocks.overlaps(blocks)
    }
}

/// Everybody at work in a shard.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// One line per extent, by its number within the shard, in order of arrival. Emptied lists keep their memory.
    lines: RefCell<Vec<Vec<Entry>>>,
    next: Cell<u64>,
}

/// A place in line, or a glance. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    ranges: Rc<Ranges>,
    line: usize,
    id: u64,
    blocks: Blocks,
}

impl Ranges {
    /// Takes a place for `blocks` of the shard's extent number `line`.
    pub(crate) fn line_up(self: &Rc<Self>, line: usize, blocks: Blocks, want: Want) -> Place {
        let id = self.next.get();
        self.next.set(id + 1);
        let mut lines = self.lines.borrow_mut();
        if lines.len() <= line {
            lines.resize_with(line + 1, Vec::new);
        }
        let entries = &mut lines[line];
        let granted = !entries.iter().any(|earlier| earlier.holds_up(blocks, want));
        entries.push(Entry {
            id,
            blocks,
            want,
            granted,
            overtaken: false,
            started: Instant::default(),
            waits_for: 0,
            waker: None,
        });
        Place { ranges: Rc::clone(self), line, id, blocks }
    }

    /// A change of some of `blocks` is in flight or in line.
    pub(crate) fn changing(&self, line: usize, blocks: Blocks) -> bool {
        let lines = self.lines.borrow();
        let mut entries = lines.get(line).into_iter().flatten();
        entries.any(|entry| entry.want == Want::Change && entry.blocks.overlaps(blocks))
    }

    /// Wakes everybody who waits for a member: it may have gone.
    pub(crate) fn wake_all(&self) {
        let mut lines = self.lines.borrow_mut();
        for entry in lines.iter_mut().flatten() {
            if entry.granted
                && let Some(waker) = entry.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// When the longest wait for a member began.
    pub(crate) fn oldest_wait(&self) -> Option<Instant> {
        let lines = self.lines.borrow();
        let waiting = lines.iter().flatten().filter(|entry| entry.waits_for != 0);
        waiting.map(|entry| entry.started).min()
    }

    /// The members who have been waited for since `moment` or longer.
    pub(crate) fn waited_for_since(&self, moment: Instant) -> MemberBits {
        let lines = self.lines.borrow();
        let late = lines.iter().flatten().filter(|entry| entry.started <= moment);
        late.fold(0, |bits, entry| bits | entry.waits_for)
    }

    fn with<R>(&self, place: &Place, then: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut lines = self.lines.borrow_mut();
        let entry = lines.get_mut(place.line)?.iter_mut().find(|entry| entry.id == place.id)?;
        Some(then(entry))
    }
}

impl Place {
    /// Its blocks.
    pub(crate) fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Waits for everybody in front who is in the way.
    pub(crate) async fn granted(&self) {
        poll_fn(|context| {
            let granted = self.ranges.with(self, |entry| {
                if !entry.granted {
                    entry.waker = Some(context.waker().clone());
                }
                entry.granted
            });
            if granted.unwrap_or(true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The change at this place got its version: glances that overlap it know that they were overtaken.
    pub(crate) fn overtakes(&self) {
        let mut lines = self.ranges.lines.borrow_mut();
        for entry in lines.get_mut(self.line).into_iter().flatten() {
            if entry.want == Want::Glance && entry.blocks.overlaps(self.blocks) {
                entry.overtaken = true;
            }
        }
    }

    /// A change overtook this glance.
    pub(crate) fn overtaken(&self) -> bool {
        self.ranges.with(self, |entry| entry.overtaken).unwrap_or(false)
    }

    /// A wait for members begins.
    pub(crate) fn starts(&self, now: Instant) {
        self.ranges.with(self, |entry| entry.started = now);
    }

    /// Whom it waits for, and whom to wake when one of them has gone.
    pub(crate) fn waits_for(&self, members: MemberBits, context: &Context<'_>) {
        self.ranges.with(self, |entry| {
            entry.waits_for = members;
            if members == 0 {
                entry.waker = None;
            } else if entry.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
                entry.waker = Some(context.waker().clone());
            }
        });
    }

    /// It waits for nobody any more.
    pub(crate) fn waits_for_nobody(&self) {
        self.ranges.with(self, |entry| {
            entry.waits_for = 0;
            entry.waker = None;
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.ranges.lines.borrow_mut();
        let Some(entries) = lines.get_mut(self.line) else { return };
        let Some(index) = entries.iter().position(|entry| entry.id == self.id) else { return };
        let gone = entries.remove(index);
        if gone.want == Want::Glance {
            return;
        }
        for later in index..entries.len() {
            let (earlier, rest) = entries.split_at_mut(later);
            let entry = &mut rest[0];
            if entry.granted || !gone.holds_up(entry.blocks, entry.want) {
                continue;
            }
            entry.granted = !earlier.iter().any(|earlier| earlier.holds_up(entry.blocks, entry.want));
            if entry.granted
                && let Some(waker) = entry.waker.take()
            {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use super::*;

    fn blocks(first: u32, count: u32) -> Blocks {
        Blocks::new(first, count).expect("within an extent")
    }

    fn granted(place: &Place) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(place.granted()).poll(&mut context).is_ready()
    }

    #[test]
    fn overlapping_changes_go_one_after_another() {
        let ranges = Rc::new(Ranges::default());
        let first = ranges.line_up(0, blocks(0, 4), Want::Change);
        let second = ranges.line_up(0, blocks(3, 4), Want::Change);
        let third = ranges.line_up(0, blocks(6, 4), Want::Change);
        assert!(granted(&first) && !granted(&second) && !granted(&third));
        drop(first);
        assert!(granted(&second) && !granted(&third));
        drop(second);
        assert!(granted(&third));
    }

    #[test]
    fn what_does_not_overlap_never_waits() {
        let ranges = Rc::new(Ranges::default());
        let first = ranges.line_up(0, blocks(0, 4), Want::Change);
        let waits = ranges.line_up(0, blocks(0, 4), Want::Change);
        let beside = ranges.line_up(0, blocks(4, 4), Want::Change);
        let elsewhere = ranges.line_up(1, blocks(0, 4), Want::Change);
        assert!(granted(&first) && granted(&beside) && granted(&elsewhere) && !granted(&waits));
    }

    #[test]
    fn who_gives_up_lets_the_next_one_pass() {
        let ranges = Rc::new(Ranges::default());
        let _first = ranges.line_up(0, blocks(0, 1), Want::Change);
        let wide = ranges.line_up(0, blocks(0, 8), Want::Change);
        let last = ranges.line_up(0, blocks(7, 1), Want::Change);
        assert!(!granted(&last));
        drop(wide);
        assert!(granted(&last));
    }

    #[test]
    fn ordered_reads_share_and_hold_up_later_changes() {
        let ranges = Rc::new(Ranges::default());
        let one = ranges.line_up(0, blocks(0, 1), Want::Read);
        let other = ranges.line_up(0, blocks(0, 1), Want::Read);
        let change = ranges.line_up(0, blocks(0, 1), Want::Change);
        assert!(granted(&one) && granted(&other) && !granted(&change));
        drop((one, other));
        assert!(granted(&change));
    }

    #[test]
    fn a_glance_learns_of_the_change_that_overtook_it() {
        let ranges = Rc::new(Ranges::default());
        let glance = ranges.line_up(0, blocks(0, 2), Want::Glance);
        let beside = ranges.line_up(0, blocks(2, 2), Want::Change);
        beside.overtakes();
        assert!(!glance.overtaken());
        let change = ranges.line_up(0, blocks(1, 1), Want::Change);
        assert!(granted(&change));
        change.overtakes();
        drop(change);
        assert!(glance.overtaken());
    }
}
