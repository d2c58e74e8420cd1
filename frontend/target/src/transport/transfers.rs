//! Data that was asked for by R2T and has not all come (NVMe-TCP 1.0 §3.3.2; NVME N5, N14, N15).
//!
//! Each R2T has a transfer tag, the index of a slot here. A slot lives until all of its data has come, also when its
//! command failed or was aborted meanwhile: a host that has the R2T sends the data all the same. The command is not
//! answered before ([`Transfers::drained`]), so that no host is told of the end of a command that it still sends
//! data for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use ashlar_nvme::pdu::{H2cData, HeaderError};
use ashlar_nvme::{CommandId, Status};
use ashlar_reactor::{Instant, IoBuf};

use crate::transport::budget::{Allowance, Budget};

/// Byte offsets of an H2CData header's fields (NVMe-TCP 1.0 §3.6.2.8).
mod field {
    pub(super) const FLAGS: u32 = 1;
    pub(super) const CCCID: u32 = 8;
    pub(super) const TTAG: u32 = 10;
    pub(super) const DATAO: u32 = 12;
}

/// Names a transfer; the TTAG on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ttag(pub(crate) u16);

#[derive(Debug)]
enum State {
    Vacant,
    /// The command waits.
    Waiting(Option<Waker>),
    /// All data is there.
    Complete,
    /// The command will not use the data; why.
    Failed(Status),
    /// The command waits for what it will not use.
    Draining(Option<Waker>),
    /// The command has gone; what still comes is thrown away.
    Abandoned,
}

struct Slot {
    state: State,
    cid: CommandId,
    /// First byte asked for, from the start of the command's data.
    start: u32,
    /// Byte expected next.
    next: u32,
    end: u32,
    /// Bytes that are there.
    landed: u32,
    /// Away while the kernel receives into it.
    buffer: Option<IoBuf>,
    digest_failed: bool,
    progress: Instant,
}

impl Slot {
    fn wants_data(&self) -> bool {
        !matches!(self.state, State::Vacant) && self.next < self.end
    }

    fn len(&self) -> u32 {
        self.end - self.start
    }

    fn has_landed(&self) -> bool {
        self.landed == self.len()
    }

    fn vacant() -> Self {
        Self {
            state: State::Vacant,
            cid: CommandId(0),
            start: 0,
            next: 0,
            end: 0,
            landed: 0,
            buffer: None,
            digest_failed: false,
            progress: Instant::default(),
        }
    }
}

/// Where a transfer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The host owes data.
    Owed,
    /// All data has come.
    Landed,
    /// The command will not use the data.
    Failed,
}

/// A piece of data that an H2CData PDU brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) ttag: Ttag,
    /// Where it goes in the transfer's buffer.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// The transfers of one queue.
pub(crate) struct Transfers {
    slots: RefCell<Vec<Slot>>,
    /// Used again oldest first, so that a tag is not soon seen again.
    free: RefCell<VecDeque<u16>>,
    ended: Cell<bool>,
    pub(crate) budget: Budget,
}

impl Transfers {
    pub(crate) fn new() -> Self {
        let (slots, free) = (RefCell::default(), RefCell::default());
        Self { slots, free, ended: Cell::new(false), budget: Budget::new() }
    }

    /// Opens a transfer into `buffer`, which has its length, as `allowance` has. `None` without a free tag. It must be
    /// left ([`Transfers::leave`]).
    pub(crate) fn open(
        &self,
        cid: CommandId,
        start: u32,
        buffer: IoBuf,
        allowance: Allowance<'_>,
    ) -> Option<Ttag> {
        let mut slots = self.slots.borrow_mut();
        let tag = match self.free.borrow_mut().pop_front() {
            Some(tag) => tag,
            None => {
                let tag = u16::try_from(slots.len()).ok()?;
                slots.push(Slot::vacant());
                tag
            }
        };
        let slot = slots.get_mut(usize::from(tag))?;
        *slot = Slot {
            state: State::Waiting(None),
            cid,
            start,
            next: start,
            end: start + buffer.len() as u32,
            landed: 0,
            buffer: Some(buffer),
            digest_failed: false,
            progress: ashlar_reactor::now(),
        };
        // Given back when the transfer is left.
        allowance.keep();
        Some(Ttag(tag))
    }

    /// Where an open transfer stands.
    pub(crate) fn standing(&self, ttag: Ttag) -> Standing {
        match self.slots.borrow().get(usize::from(ttag.0)) {
            Some(slot) if matches!(slot.state, State::Waiting(_)) => Standing::Owed,
            Some(slot) if matches!(slot.state, State::Complete) => Standing::Landed,
            _ => Standing::Failed,
        }
    }

    /// Waits until all data of a transfer is there.
    pub(crate) async fn complete(&self, ttag: Ttag) -> Result<IoBuf, Status> {
        poll_fn(|context| {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(usize::from(ttag.0)) else {
                return Poll::Ready(Err(Status::INTERNAL_ERROR));
            };
            match &mut slot.state {
                State::Waiting(waker) => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
                // A data digest error fails its command only (NVMe-TCP 1.0 §3.3.1.1).
                State::Complete if slot.digest_failed => Poll::Ready(Err(Status::TRANSIENT_TRANSPORT_ERROR)),
                State::Complete => Poll::Ready(slot.buffer.take().ok_or(Status::INTERNAL_ERROR)),
                State::Failed(status) => Poll::Ready(Err(*status)),
                State::Vacant | State::Draining(_) | State::Abandoned => {
                    Poll::Ready(Err(Status::INTERNAL_ERROR))
                }
            }
        })
        .await
    }

    /// Waits until the host owes no data of a transfer any more; what comes is thrown away. Ends when the queue does.
    pub(crate) async fn drained(&self, ttag: Ttag) {
        poll_fn(|context| {
            let mut slots = self.slots.borrow_mut();
            match slots.get_mut(usize::from(ttag.0)) {
                Some(slot) if !self.ended.get() && !slot.has_landed() => {
                    slot.buffer = None;
                    slot.state = State::Draining(Some(context.waker().clone()));
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// The command has done with a transfer.
    pub(crate) fn leave(&self, ttag: Ttag) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(usize::from(ttag.0)) else { return };
        if matches!(slot.state, State::Vacant | State::Abandoned) {
            return;
        }
        let len = slot.len();
        if slot.has_landed() {
            *slot = Slot::vacant();
            self.free.borrow_mut().push_back(ttag.0);
        } else {
            slot.state = State::Abandoned;
            slot.buffer = None;
        }
        drop(slots);
        self.budget.give(len);
    }

    /// Whether an H2CData header names a transfer that waits for data, and its command.
    pub(crate) fn identify(&self, header: &H2cData) -> Result<(), HeaderError> {
        let slots = self.slots.borrow();
        let slot = slots.get(usize::from(header.ttag.get())).filter(|slot| slot.wants_data());
        match slot {
            Some(slot) if slot.cid.0 == header.cccid.get() => Ok(()),
            Some(_) => Err(HeaderError::invalid(field::CCCID)),
            None => Err(HeaderError::invalid(field::TTAG)),
        }
    }

    /// Takes the data that an identified H2CData header announces, or says what is wrong with it.
    pub(crate) fn accept(&self, header: &H2cData) -> Result<Piece, HeaderError> {
        let ttag = Ttag(header.ttag.get());
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(usize::from(ttag.0)).ok_or(HeaderError::invalid(field::TTAG))?;
        let (from, len) = (header.datao.get(), header.datal.get());
        if from < slot.start || u64::from(from) + u64::from(len) > u64::from(slot.end) {
            return Err(HeaderError::out_of_range());
        }
        // Data of one R2T comes in order (NVMe-TCP 1.0 §3.3.2.1).
        if from != slot.next {
            return Err(HeaderError::invalid(field::DATAO));
        }
        if header.is_last() != (from + len == slot.end) {
            return Err(HeaderError::invalid(field::FLAGS));
        }
        slot.next = from + len;
        slot.progress = ashlar_reactor::now();
        Ok(Piece { ttag, at: (from - slot.start) as usize, len: len as usize })
    }

    /// Puts bytes of a piece where they belong, `at` bytes into the transfer's buffer.
    pub(crate) fn write(&self, ttag: Ttag, at: usize, bytes: &[u8]) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(usize::from(ttag.0)) else { return };
        slot.progress = ashlar_reactor::now();
        // Without a buffer the command has gone and the bytes are thrown away.
        if let Some(to) = slot.buffer.as_mut().and_then(|buffer| buffer.get_mut(at..at + bytes.len())) {
            to.copy_from_slice(bytes);
        }
    }

    /// Lends the buffer to the kernel.
    pub(crate) fn lend(&self, ttag: Ttag) -> Option<IoBuf> {
        self.slots.borrow_mut().get_mut(usize::from(ttag.0))?.buffer.take()
    }

    /// Takes the buffer back; it is dropped if the command has gone.
    pub(crate) fn take_back(&self, ttag: Ttag, buffer: IoBuf) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(usize::from(ttag.0)) else { return };
        slot.progress = ashlar_reactor::now();
        if matches!(slot.state, State::Waiting(_)) {
            slot.buffer = Some(buffer);
        }
    }

    /// All bytes of a piece are there.
    pub(crate) fn finish(&self, piece: Piece, digest: DigestCheck) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(usize::from(piece.ttag.0)) else { return };
        slot.digest_failed |= digest == DigestCheck::Failed;
        slot.landed += piece.len as u32;
        if !slot.has_landed() {
            return;
        }
        match std::mem::replace(&mut slot.state, State::Complete) {
            State::Waiting(waker) | State::Draining(waker) => {
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Failed(status) => slot.state = State::Failed(status),
            State::Vacant | State::Complete | State::Abandoned => {
                *slot = Slot::vacant();
                self.free.borrow_mut().push_back(piece.ttag.0);
            }
        }
    }

    fn fail(&self, status: Status, concerned: impl Fn(&Slot) -> bool) -> usize {
        let mut failed = 0;
        for slot in self.slots.borrow_mut().iter_mut() {
            if let State::Waiting(waker) = &mut slot.state {
                let waker = waker.take();
                if concerned(slot) {
                    slot.state = State::Failed(status);
                    slot.buffer = None;
                    failed += 1;
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                } else {
                    slot.state = State::Waiting(waker);
                }
            }
        }
        failed
    }

    /// A command that waits for data stops waiting. False if none with this identifier does.
    pub(crate) fn abort(&self, cid: CommandId) -> bool {
        self.fail(Status::ABORT_REQUESTED, |slot| slot.cid == cid) > 0
    }

    /// The queue has ended: nobody waits any more.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.fail(Status::ABORTED_SQ_DELETION, |_| true);
        for slot in self.slots.borrow_mut().iter_mut() {
            if let State::Draining(waker) = &mut slot.state
                && let Some(waker) = waker.take()
            {
                waker.wake();
            }
        }
        self.budget.end();
    }

    /// Since when data that was asked for makes no progress.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        let slots = self.slots.borrow();
        let owed = slots.iter().filter(|slot| !matches!(slot.state, State::Vacant) && !slot.has_landed());
        owed.map(|slot| slot.progress).min()
    }
}

/// Whether data agreed with its digest, if it had one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestCheck {
    Passed,
    Failed,
}
