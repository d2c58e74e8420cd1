//! The entries of a queue: one slot per command that can be outstanding.

use std::task::Waker;

use ashlar_nvme::status::StatusField;
use ashlar_reactor::IoBuf;

use crate::data::{Payload, Sink};
use crate::load::{Outcome, Token};

/// Bits of a command identifier that hold the slot's number. The others count its uses, so that an answer to
/// an earlier command of the slot is noticed. No slot has the number FFFh, so no identifier is FFFFh.
pub(crate) const SLOT_BITS: u32 = 12;

const SLOT_MASK: u16 = (1 << SLOT_BITS) - 1;

/// Number of the slot that a command identifier names.
pub(crate) fn index_of(cid: u16) -> usize {
    usize::from(cid & SLOT_MASK)
}

/// Who is told when the command ends.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Nobody: the future was dropped, or the slot is free.
    Nobody,
    /// The handler.
    Handler(Token),
    /// A future.
    Future(Option<Waker>),
}

/// How the command's data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Movement {
    /// There is none, or it went in the capsule.
    Done,
    /// To the controller, when it asks for it.
    Out,
    /// From the controller.
    In,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    Active,
    /// The response came while data that the controller had asked for was still to be sent.
    Answered(StatusField, u64),
    /// The outcome waits for the future.
    Ended(Outcome, u64),
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) cid: u16,
    pub(crate) phase: Phase,
    pub(crate) movement: Movement,
    /// The data's digest was wrong.
    pub(crate) damaged: bool,
    /// Requests for data that are not answered yet.
    pub(crate) requests: u32,
    /// Bytes of data.
    pub(crate) len: u32,
    /// Bytes received, or asked for.
    pub(crate) moved: u32,
    /// The watch's count when it was submitted.
    pub(crate) epoch: u32,
    pub(crate) owner: Owner,
    pub(crate) payload: Option<Payload>,
    pub(crate) sink: Sink,
}

impl Slot {
    pub(crate) fn new(index: u16) -> Self {
        Self {
            cid: index,
            phase: Phase::Free,
            movement: Movement::Done,
            damaged: false,
            requests: 0,
            len: 0,
            moved: 0,
            epoch: 0,
            owner: Owner::Nobody,
            payload: None,
            sink: Sink::Discard,
        }
    }

    /// The identifier of the slot's next command.
    pub(crate) fn next_cid(&mut self) -> u16 {
        self.cid = self.cid.wrapping_add(1 << SLOT_BITS);
        self.cid
    }

    pub(crate) fn take_buffer(&mut self) -> Option<IoBuf> {
        match std::mem::take(&mut self.sink) {
            Sink::Into(buffer) => Some(buffer),
            Sink::Discard | Sink::Handler => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slots_identifiers_differ_in_sixteen_uses_and_never_are_ffff() {
        let last = 4094;
        let mut slot = Slot::new(last);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..16 {
            let cid = slot.next_cid();
            assert_eq!(index_of(cid), usize::from(last));
            assert_ne!(cid, 0xffff);
            seen.insert(cid);
        }
        assert_eq!(seen.len(), 16);
    }
}
