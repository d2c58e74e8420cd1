//! The state of a queue: which commands are outstanding, what goes out next, what a completion means. No I/O.
//!
//! A command takes a slot; its capsule is written into the gather that is being filled, or waits in the
//! backlog until there is room. The connection sends one gather while the other is being filled. What comes
//! in is judged here against the slot that it names.

use std::collections::VecDeque;

use ashlar_nvme::digest::digest;
use ashlar_nvme::pdu::data::Last;
use ashlar_nvme::pdu::header::{Framing, PduKind};
use ashlar_nvme::pdu::{CapsuleCmd, H2cData};
use ashlar_nvme::sgl::SglDescriptor;
use ashlar_nvme::status::StatusField;
use ashlar_nvme::wire::{U16, Wire};
use ashlar_nvme::{CommandId, Sqe};
use ashlar_reactor::IoBuf;
use ashlar_reactor::net::Gather;

use crate::data::{Data, Payload, Sink};
use crate::error::{Loss, ProtocolError};
use crate::incoming::{C2H_DATA, CAPSULE_RESP, Ending, R2T};
use crate::load::{Done, Handler, Outcome, Refused, Submitter};
use crate::slot::{Movement, Owner, Phase, Slot, index_of};

/// Header room that a PDU may take: capsule header, digest, alignment of up to 128 bytes, data digest.
const PDU_ROOM: usize = 72 + 4 + 128 + 4;

/// Most bytes of one send: several data PDUs, yet a capsule that comes next does not wait long.
const SEND_BYTES_MAX: usize = 1024 * 1024;

/// Most data of one H2CData, whatever the controller takes, so that commands interleave (NVME N5).
const DATA_PDU_MAX: u32 = 128 * 1024;

/// Waiting capsules that go out between two data PDUs.
const CAPSULES_PER_DATA_PDU: usize = 16;

/// What the controller said about queue heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadPointer {
    /// Not known before Connect is answered.
    Unknown,
    /// Flow control is on: SQHD is an entry of the queue.
    Within(u16),
    /// Flow control is off: SQHD says nothing, and reads may end with the success flag.
    Disabled,
}

/// What ICReq and ICResp agreed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    /// Digests and alignment of what we send.
    pub(crate) framing: Framing,
    /// Most data of one H2CData.
    pub(crate) data_max: u32,
    /// Outstanding R2Ts per command.
    pub(crate) r2t_max: u32,
}

/// An R2T that is being answered.
#[derive(Debug)]
struct Transfer {
    index: usize,
    ttag: u16,
    offset: u32,
    left: u32,
}

/// State of a queue.
#[derive(Debug)]
pub(crate) struct Engine {
    agreed: Agreed,
    pub(crate) heads: HeadPointer,
    /// Most data in a capsule.
    pub(crate) in_capsule_max: u32,
    /// SQHD of the last response.
    pub(crate) last_sqhd: u16,
    slots: Vec<Slot>,
    free: Vec<u16>,
    backlog: VecDeque<(usize, Sqe)>,
    transfers: VecDeque<Transfer>,
    /// Commands answered before their last data went out, which it has now.
    drained: Vec<usize>,
    filling: Box<Gather>,
    lost: Option<Loss>,
    /// Commands of the handler that are outstanding.
    pub(crate) handled: usize,
    /// Counts the watch's rounds.
    pub(crate) epoch: u32,
}

impl Engine {
    /// A queue of `entries` entries, of which one stays empty (NVMe Base 2.0 §3.3.1.5).
    pub(crate) fn new(entries: u16, agreed: Agreed, in_capsule_max: u32) -> Self {
        let commands = entries.saturating_sub(1).max(1);
        Self {
            agreed,
            heads: HeadPointer::Unknown,
            in_capsule_max,
            last_sqhd: 0,
            slots: (0..commands).map(Slot::new).collect(),
            free: (0..commands).rev().collect(),
            backlog: VecDeque::with_capacity(usize::from(commands)),
            transfers: VecDeque::new(),
            drained: Vec::new(),
            filling: Box::default(),
            lost: None,
            handled: 0,
            epoch: 0,
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.lost
    }

    // ---- submission ----

    pub(crate) fn submit(&mut self, owner: Owner, sqe: Sqe, data: Data) -> Result<usize, Refused> {
        if self.lost.is_some() {
            return Err(Refused::Lost);
        }
        let Some(index) = self.free.pop() else { return Err(Refused::Full(data)) };
        let index = usize::from(index);
        let sqe = self.occupy(index, owner, sqe, data);
        if !self.backlog.is_empty() || !self.put_capsule(index, &sqe) {
            self.backlog.push_back((index, sqe));
        }
        Ok(index)
    }

    /// Gives the slot to a command; returns its entry as it is sent.
    fn occupy(&mut self, index: usize, owner: Owner, mut sqe: Sqe, data: Data) -> Sqe {
        let slot = &mut self.slots[index];
        sqe.cid = U16::new(slot.next_cid());
        slot.phase = Phase::Active;
        slot.damaged = false;
        slot.moved = 0;
        slot.len = data.len();
        slot.epoch = self.epoch;
        slot.movement = Movement::Done;
        // Without data the descriptor is a transport block of length 0, as Linux has it.
        sqe.dptr = SglDescriptor::transport(slot.len);
        match data {
            Data::None => {}
            Data::Out(payload) => {
                if slot.len > self.in_capsule_max {
                    slot.movement = Movement::Out;
                } else if slot.len > 0 {
                    sqe.dptr = SglDescriptor::in_capsule(0, slot.len);
                }
                slot.payload = Some(payload);
            }
            Data::In { len, sink } => {
                if len > 0 {
                    slot.movement = Movement::In;
                }
                slot.sink = sink;
            }
        }
        if matches!(owner, Owner::Handler(_)) {
            self.handled += 1;
        }
        slot.owner = owner;
        sqe
    }

    fn has_room(&self) -> bool {
        self.filling.has_room(PDU_ROOM) && self.filling.remaining() < SEND_BYTES_MAX
    }

    /// Writes a command capsule, data and all. False if it must wait.
    fn put_capsule(&mut self, index: usize, sqe: &Sqe) -> bool {
        if !self.has_room() {
            return false;
        }
        let slot = &mut self.slots[index];
        let payload = match slot.movement {
            Movement::Done => slot.payload.take(),
            Movement::Out | Movement::In => None,
        };
        let len = payload.as_ref().map_or(0, |payload| payload.len);
        let capsule = CapsuleCmd::new(self.agreed.framing, *sqe, len);
        put_pdu(&mut self.filling, self.agreed.framing, capsule.bytes(), payload.map(|p| (p, 0, len)))
    }

    /// Writes the next data PDU that the controller asked for. False if there is none, or it must wait.
    fn put_data(&mut self) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(transfer) = self.transfers.front_mut() else { return false };
        let slot = &mut self.slots[transfer.index];
        let Some(payload) = slot.payload.clone() else {
            self.transfers.pop_front();
            return false;
        };
        let (cid, framing) = (CommandId(slot.cid), self.agreed.framing);
        // Linux's target (6.1, 6.12) computes the data digest over a command's whole data, in however many
        // PDUs it came: with digests an R2T is answered by one PDU, as Linux's host does.
        let slice = if framing.data_digest.is_on() { u32::MAX } else { DATA_PDU_MAX };
        let len = transfer.left.min(self.agreed.data_max).min(slice);
        let last = if len == transfer.left { Last::Yes } else { Last::No };
        let header = H2cData::new(framing, cid, transfer.ttag, transfer.offset, len, last);
        let data = Some((payload, transfer.offset, len));
        if !put_pdu(&mut self.filling, framing, header.bytes(), data) {
            return false;
        }
        transfer.offset += len;
        transfer.left -= len;
        if transfer.left == 0 {
            slot.requests -= 1;
            if slot.requests == 0 && matches!(slot.phase, Phase::Answered(..)) {
                self.drained.push(transfer.index);
            }
            self.transfers.pop_front();
        }
        true
    }

    /// Moves what waits into the gather, as far as there is room.
    pub(crate) fn fill(&mut self) {
        loop {
            let mut moved = self.put_data();
            for _ in 0..CAPSULES_PER_DATA_PDU {
                let Some((index, sqe)) = self.backlog.front().copied() else { break };
                if !self.put_capsule(index, &sqe) {
                    break;
                }
                self.backlog.pop_front();
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// What is to be sent now, in exchange for an empty gather; nothing if there is nothing to send.
    pub(crate) fn take_filled(&mut self, spare: &mut Option<Box<Gather>>) -> Option<Box<Gather>> {
        self.fill();
        if self.filling.is_empty() {
            return None;
        }
        let empty = spare.take().unwrap_or_default();
        Some(std::mem::replace(&mut self.filling, empty))
    }

    /// Replaces everything that was to be sent by a last message.
    pub(crate) fn put_last(&mut self, message: &[u8]) {
        self.filling.clear();
        if let Some(space) = self.filling.header(message.len()) {
            space.copy_from_slice(message);
        }
    }

    // ---- what comes in ----

    fn lookup(&mut self, kind: u8, cid: u16) -> Result<(usize, &mut Slot), ProtocolError> {
        let index = index_of(cid);
        match self.slots.get_mut(index) {
            Some(slot) if slot.cid == cid && slot.phase == Phase::Active => Ok((index, slot)),
            _ => Err(ProtocolError::UnknownCommand { kind, cid }),
        }
    }

    pub(crate) fn response(
        &mut self,
        cid: u16,
        result: u64,
        sqhd: u16,
        status: u16,
        handler: &mut dyn Handler,
    ) -> Result<(), ProtocolError> {
        if let HeadPointer::Within(entries) = self.heads
            && sqhd >= entries
        {
            return Err(ProtocolError::Sqhd { cid, sqhd, entries });
        }
        self.last_sqhd = sqhd;
        let (index, slot) = self.lookup(CAPSULE_RESP, cid)?;
        let status = StatusField(status);
        if slot.movement != Movement::Done && slot.moved != slot.len && status.status().is_success() {
            return Err(ProtocolError::Short { cid, moved: slot.moved, total: slot.len });
        }
        if slot.requests > 0 {
            slot.phase = Phase::Answered(status, result);
            return Ok(());
        }
        self.finish_with(index, status, result, handler);
        Ok(())
    }

    /// An R2T: its data will be sent.
    pub(crate) fn request(
        &mut self,
        cid: u16,
        ttag: u16,
        offset: u32,
        len: u32,
    ) -> Result<(), ProtocolError> {
        let most = self.agreed.r2t_max;
        let (index, slot) = self.lookup(R2T, cid)?;
        if slot.movement != Movement::Out {
            return Err(ProtocolError::WrongDirection { kind: R2T, cid });
        }
        // A command's R2Ts ascend without gaps (NVME N5).
        advance(R2T, slot, offset, len)?;
        if slot.requests == most {
            return Err(ProtocolError::TooManyR2ts { cid, most });
        }
        slot.requests += 1;
        self.transfers.push_back(Transfer { index, ttag, offset, left: len });
        Ok(())
    }

    /// The header of a C2HData; returns the slot that its data belongs to.
    pub(crate) fn data_begins(
        &mut self,
        cid: u16,
        offset: u32,
        len: u32,
        ending: Ending,
    ) -> Result<usize, ProtocolError> {
        let flow_control = self.heads != HeadPointer::Disabled;
        let (index, slot) = self.lookup(C2H_DATA, cid)?;
        if slot.movement != Movement::In {
            return Err(ProtocolError::WrongDirection { kind: C2H_DATA, cid });
        }
        advance(C2H_DATA, slot, offset, len)?;
        if (slot.moved == slot.len) != (ending != Ending::More) {
            return Err(ProtocolError::Last { cid });
        }
        if ending == Ending::LastWithSuccess && flow_control {
            return Err(ProtocolError::SuccessFlag { cid });
        }
        Ok(index)
    }

    /// Data of a C2HData whose header was accepted.
    pub(crate) fn data(&mut self, index: usize, offset: u32, piece: &[u8], handler: &mut dyn Handler) {
        let slot = &mut self.slots[index];
        match &mut slot.sink {
            Sink::Discard => {}
            Sink::Into(buffer) => {
                let at = offset as usize;
                if let Some(space) = buffer.get_mut(at..at + piece.len()) {
                    space.copy_from_slice(piece);
                }
            }
            Sink::Handler => {
                if let Owner::Handler(token) = slot.owner {
                    handler.data(token, offset, piece);
                }
            }
        }
    }

    /// Takes the buffer that a slot's data goes to, to be received into directly.
    pub(crate) fn take_sink(&mut self, index: usize) -> Option<IoBuf> {
        self.slots[index].take_buffer()
    }

    /// Gives it back.
    pub(crate) fn put_sink(&mut self, index: usize, buffer: IoBuf) {
        self.slots[index].sink = Sink::Into(buffer);
    }

    pub(crate) fn has_buffer(&self, index: usize) -> bool {
        matches!(self.slots[index].sink, Sink::Into(_))
    }

    /// The data's digest was wrong: the command fails, the connection goes on.
    pub(crate) fn data_damaged(&mut self, index: usize) {
        self.slots[index].damaged = true;
    }

    /// A C2HData with the success flag has ended.
    pub(crate) fn succeeded(&mut self, index: usize, handler: &mut dyn Handler) {
        self.finish_with(index, StatusField::SUCCESS, 0, handler);
    }

    // ---- ends ----

    fn finish_with(&mut self, index: usize, status: StatusField, result: u64, handler: &mut dyn Handler) {
        let outcome = if self.slots[index].damaged && status.status().is_success() {
            Outcome::DataDigest
        } else {
            Outcome::Completed(status)
        };
        self.finish(index, outcome, result, handler);
    }

    fn finish(&mut self, index: usize, outcome: Outcome, result: u64, handler: &mut dyn Handler) {
        let slot = &mut self.slots[index];
        match &mut slot.owner {
            Owner::Handler(token) => {
                let token = *token;
                let buffer = self.release(index);
                self.handled -= 1;
                handler.complete(&mut Submitter { engine: self }, Done { token, outcome, result, buffer });
            }
            Owner::Future(waker) => {
                slot.phase = Phase::Ended(outcome, result);
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Owner::Nobody => drop(self.release(index)),
        }
    }

    fn release(&mut self, index: usize) -> Option<IoBuf> {
        let slot = &mut self.slots[index];
        slot.phase = Phase::Free;
        slot.owner = Owner::Nobody;
        slot.payload = None;
        self.free.push(index as u16);
        slot.take_buffer()
    }

    /// Ends commands that were answered before their data had gone out.
    pub(crate) fn finish_drained(&mut self, handler: &mut dyn Handler) {
        while let Some(index) = self.drained.pop() {
            if let Phase::Answered(status, result) = self.slots[index].phase {
                self.finish_with(index, status, result, handler);
            }
        }
    }

    pub(crate) fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// The connection is gone: every command ends.
    pub(crate) fn lose(&mut self, loss: Loss, handler: &mut dyn Handler) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(loss);
        self.backlog.clear();
        self.transfers.clear();
        self.drained.clear();
        self.filling.clear();
        for index in 0..self.slots.len() {
            if matches!(self.slots[index].phase, Phase::Active | Phase::Answered(..)) {
                self.slots[index].requests = 0;
                self.finish(index, Outcome::Lost, 0, handler);
            }
        }
    }

    // ---- futures ----

    /// The identifier that the slot's command has.
    pub(crate) fn command_id(&self, index: usize) -> CommandId {
        CommandId(self.slots[index].cid)
    }

    /// Takes the outcome, if the command has ended.
    pub(crate) fn take_ended(&mut self, index: usize) -> Option<(Outcome, u64, Option<IoBuf>)> {
        let Phase::Ended(outcome, result) = self.slots[index].phase else { return None };
        Some((outcome, result, self.release(index)))
    }

    pub(crate) fn set_waker(&mut self, index: usize, waker: &std::task::Waker) {
        if let Owner::Future(place) = &mut self.slots[index].owner
            && !place.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            *place = Some(waker.clone());
        }
    }

    /// Nobody waits for the command any more; it goes on.
    pub(crate) fn forget(&mut self, index: usize) {
        if self.take_ended(index).is_none() {
            self.slots[index].owner = Owner::Nobody;
        }
    }

    /// As [`Engine::forget`], for all commands of the handler.
    pub(crate) fn forget_handler(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot.owner, Owner::Handler(_)) {
                slot.owner = Owner::Nobody;
            }
        }
        self.handled = 0;
    }

    /// Whether a command was submitted `rounds` or more rounds of the watch ago.
    pub(crate) fn has_older_than(&self, rounds: u32) -> bool {
        let old = |slot: &Slot| self.epoch.wrapping_sub(slot.epoch) >= rounds;
        self.slots.iter().any(|slot| !matches!(slot.phase, Phase::Free | Phase::Ended(..)) && old(slot))
    }
}

/// Judges that `offset` and `len` continue the slot's data, and counts them.
fn advance(kind: u8, slot: &mut Slot, offset: u32, len: u32) -> Result<(), ProtocolError> {
    let end = offset.checked_add(len).filter(|end| *end <= slot.len && offset == slot.moved);
    let Some(end) = end else {
        let (expected, total) = (slot.moved, slot.len);
        return Err(ProtocolError::OutOfRange { kind, cid: slot.cid, offset, len, expected, total });
    };
    slot.moved = end;
    Ok(())
}

/// Appends a PDU: header, its digest, padding, data, its digest. Needs [`PDU_ROOM`].
fn put_pdu(gather: &mut Gather, framing: Framing, header: &[u8], data: Option<(Payload, u32, u32)>) -> bool {
    let data = data.filter(|(_, _, len)| *len > 0);
    let digest_end = header.len() + framing.header_digest.bytes() as usize;
    let head = if data.is_some() {
        let kind = if header.len() == CapsuleCmd::SIZE { PduKind::CapsuleCmd } else { PduKind::H2cData };
        usize::from(framing.pdo(kind, 1))
    } else {
        digest_end
    };
    let Some(space) = gather.header(head) else { return false };
    let (start, rest) = space.split_at_mut(header.len());
    start.copy_from_slice(header);
    if framing.header_digest.is_on() {
        rest[..4].copy_from_slice(&digest(header));
    }
    // Padding is sent as zeroes.
    space[digest_end..].fill(0);
    let Some((payload, offset, len)) = data else { return true };
    let range = payload.range(offset, len);
    let sum =
        framing.data_digest.is_on().then(|| digest(payload.buffer.get(range.clone()).unwrap_or_default()));
    // There is room: see `Engine::has_room`; the range is within the payload.
    if gather.shared(payload.buffer, range).is_err() {
        return false;
    }
    if let Some(sum) = sum
        && let Some(space) = gather.header(sum.len())
    {
        space.copy_from_slice(&sum);
    }
    true
}
