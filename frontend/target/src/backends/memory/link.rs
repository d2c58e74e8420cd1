//! How a request reaches the core that keeps its blocks, and how the answer comes back.
//!
//! One mailbox per core takes requests from all other cores and answers to its own. Data travels in I/O
//! buffers, whose memory is copied once, by the core that keeps the blocks. Nothing is allocated per request:
//! a request waits in one of a fixed number of slots of its core, which also bounds every mailbox so that it
//! is never full.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ashlar_reactor::mailbox::Sender;
use ashlar_reactor::{IoBuf, Notify};

use crate::backend::{BackendError, ByteRange};

/// What another core is asked to do. Buffers come back with the answer.
#[derive(Debug)]
pub(super) enum Work {
    /// Fill `len` bytes of the buffer, from `at` on, with what is at `offset` of the owner's shard.
    Read { buffer: IoBuf, at: usize, len: usize, offset: u64 },
    /// Store these bytes there.
    Write { buffer: IoBuf, at: usize, len: usize, offset: u64 },
    /// Clear what the owner keeps of this range of the namespace.
    Clear { range: ByteRange },
}

/// How it went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) buffer: Option<IoBuf>,
    pub(super) result: Result<Found, BackendError>,
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Bytes that were written at some time; or the work was no read.
    Data,
    /// Nothing but unwritten blocks.
    Unwritten,
}

/// What travels between cores.
#[derive(Debug)]
pub(super) enum Message {
    /// Core `from` wants something done, and waits in `slot`.
    Request { from: usize, slot: usize, work: Work },
    /// The answer for `slot`.
    Answer { slot: usize, outcome: Outcome },
    /// The last handle was closed.
    End,
}

enum Slot {
    Free,
    Waiting(Option<Waker>),
    Done(Outcome),
    /// Nobody waits any more; the answer frees it.
    Abandoned,
}

/// Requests that one core may have at others: so deep a queue hides the way there and back, and with many
/// cores the mailboxes stay small.
pub(super) fn slots_per_core(cores: usize) -> usize {
    (4096 / cores.max(1)).clamp(64, 1024)
}

/// Messages that a core's mailbox can have to hold: every core's requests, the answers to its own, and
/// endings.
pub(super) fn mailbox_capacity(cores: usize) -> usize {
    const ENDINGS: usize = 64;
    (cores + 1) * slots_per_core(cores) + ENDINGS
}

/// One core's side of all ways to others.
pub(super) struct Link {
    core: usize,
    senders: Box<[Sender<Message>]>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    room: Notify,
    waiting_for_room: Cell<usize>,
}

impl Link {
    pub(super) fn new(core: usize, senders: Box<[Sender<Message>]>) -> Self {
        let count = slots_per_core(senders.len());
        Self {
            core,
            senders,
            slots: RefCell::new((0..count).map(|_| Slot::Free).collect()),
            free: RefCell::new((0..count).rev().collect()),
            room: Notify::new(),
            waiting_for_room: Cell::new(0),
        }
    }

    /// Has `work` done by core `owner`.
    pub(super) async fn ask(&self, owner: usize, work: Work) -> Outcome {
        let slot = loop {
            if let Some(slot) = self.free.borrow_mut().pop() {
                break slot;
            }
            self.waiting_for_room.set(self.waiting_for_room.get() + 1);
            self.room.notified().await;
        };
        self.slots.borrow_mut()[slot] = Slot::Waiting(None);
        let request = Message::Request { from: self.core, slot, work };
        if self.senders[owner].try_send(request).is_err() {
            self.release(slot);
            return Outcome { buffer: None, result: Err(BackendError::NotReady) };
        }
        Answered { link: self, slot }.await
    }

    /// Sends the answer to a request.
    pub(super) fn answer(&self, to: usize, slot: usize, outcome: Outcome) {
        // There is room, see `mailbox_capacity`; and a core whose receiver is gone has nobody who waits.
        let _ = self.senders[to].try_send(Message::Answer { slot, outcome });
    }

    /// Takes an answer in.
    pub(super) fn answered(&self, slot: usize, outcome: Outcome) {
        let before = std::mem::replace(&mut self.slots.borrow_mut()[slot], Slot::Done(outcome));
        match before {
            Slot::Waiting(Some(waker)) => waker.wake(),
            Slot::Waiting(None) => {}
            Slot::Abandoned | Slot::Free | Slot::Done(_) => self.release(slot),
        }
    }

    fn release(&self, slot: usize) {
        let before = std::mem::replace(&mut self.slots.borrow_mut()[slot], Slot::Free);
        drop(before);
        self.free.borrow_mut().push(slot);
        if self.waiting_for_room.get() > 0 {
            self.waiting_for_room.set(self.waiting_for_room.get() - 1);
            self.room.notify_one();
        }
    }
}

struct Answered<'a> {
    link: &'a Link,
    slot: usize,
}

impl Future for Answered<'_> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut slots = self.link.slots.borrow_mut();
        let slot = &mut slots[self.slot];
        match slot {
            Slot::Waiting(Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            Slot::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            Slot::Done(_) => match std::mem::replace(slot, Slot::Free) {
                Slot::Done(outcome) => Poll::Ready(outcome),
                Slot::Free | Slot::Waiting(_) | Slot::Abandoned => Poll::Pending,
            },
            // Not polled again after it was ready.
            Slot::Free | Slot::Abandoned => Poll::Pending,
        }
    }
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut slots = self.link.slots.borrow_mut();
            let slot = &mut slots[self.slot];
            let waiting = matches!(slot, Slot::Waiting(_));
            if waiting {
                *slot = Slot::Abandoned;
            }
            waiting
        };
        if !waiting {
            self.link.release(self.slot);
        }
    }
}
