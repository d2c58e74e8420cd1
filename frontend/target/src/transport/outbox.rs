//! What a connection has to send: PDUs gathered over a turn, sent by one task with one call at a time.
//!
//! Whoever completes a command appends its PDUs to the gather that is being filled; the first to do so wakes
//! the sender, which runs behind everything that is ready in this turn, so that the rest of the turn joins.
//! While a gather is with the kernel the next one fills. Payloads are sent where they lie (design §11).
//!
//! Bounds: a gather has a fixed number of segments; payloads larger than [`SMALL_BYTES`] take at most one
//! slice of each gather, so that a small read waits behind at most one slice of its neighbours (NVME N14);
//! and when [`UNSENT_BYTES_MAX`] bytes are unsent everybody waits. Those who wait are served in order.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use ashlar_nvme::digest::{Crc32c, DIGEST_SIZE, crc32c};
use ashlar_nvme::pdu::data::Last;
use ashlar_nvme::pdu::header::Framing;
use ashlar_nvme::pdu::{C2hData, CapsuleResp, DigestUse, Direction, HeaderError, PduKind, R2t, TermReq};
use ashlar_nvme::{CommandId, Cqe, Wire};
use ashlar_reactor::net::{Gather, Stream};
use ashlar_reactor::{Instant, Line, Notify};

use crate::backend::ReadData;
use crate::limits::{SLICE_BYTES, UNSENT_BYTES_MAX};
use crate::transport::gathers::Gathers;

/// Payloads up to this do not wait for their neighbours' large ones.
pub(super) const SMALL_BYTES: usize = 16 * 1024;

/// Bytes that all PDU headers of one command's slice need at most: a C2HData header with digest and padding
/// to 128 bytes, a data digest, a response with digest.
const HEADERS_MAX: usize = 128 + 128 + DIGEST_SIZE + 24 + DIGEST_SIZE;

/// Nothing can be sent on this connection any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    /// What is there is the last to be sent.
    Terminating,
    Closed,
}

/// See the module.
pub(crate) struct Outbox {
    framing: Framing,
    gathers: Gathers,
    filling: RefCell<Option<Box<Gather>>>,
    /// Bytes of large payloads in `filling`.
    bulk: Cell<usize>,
    /// Bytes of the gather that is being sent.
    sending: Cell<usize>,
    /// When the peer last took something, while something is being sent.
    progress: Cell<Instant>,
    sender: Cell<Option<Waker>>,
    /// Told when there may be room: the first of each line waits for it, and the receiver.
    room: Notify,
    headers: Line,
    small: Line,
    large: Line,
    life: Cell<Life>,
    /// Digest of the last all-zero payload: its length and sum.
    zeroes: Cell<(usize, u32)>,
}

impl Outbox {
    pub(crate) fn new(framing: Framing, gathers: Gathers) -> Self {
        Self {
            framing,
            gathers,
            filling: RefCell::new(None),
            bulk: Cell::new(0),
            sending: Cell::new(0),
            progress: Cell::default(),
            sender: Cell::new(None),
            room: Notify::new(),
            headers: Line::new(),
            small: Line::new(),
            large: Line::new(),
            life: Cell::new(Life::Open),
            zeroes: Cell::new((0, 0)),
        }
    }

    /// Bytes that the peer has not taken yet.
    pub(crate) fn unsent(&self) -> usize {
        self.sending.get() + self.filling.borrow().as_ref().map_or(0, |gather| gather.remaining())
    }

    /// So much is unsent that no further command may start.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.unsent() > UNSENT_BYTES_MAX
    }

    /// Since when the peer takes nothing of what is being sent.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        (self.sending.get() > 0).then(|| self.progress.get())
    }

    fn fits(&self, payload: usize) -> bool {
        let filling = self.filling.borrow();
        let Some(gather) = filling.as_ref() else { return self.sending.get() <= UNSENT_BYTES_MAX };
        gather.has_room(HEADERS_MAX)
            && self.sending.get() + gather.remaining() <= UNSENT_BYTES_MAX
            && (payload <= SMALL_BYTES
                || self.bulk.get() == 0
                || self.bulk.get() + payload <= SLICE_BYTES as usize)
    }

    /// Waits until the PDUs of one step of one command, with `payload` bytes of data, can be appended. They
    /// must be appended before anything else is awaited. Small payloads and large ones stand in lines of their own.
    pub(crate) async fn room_for(&self, payload: usize) -> Result<(), Closed> {
        let line = if payload <= SMALL_BYTES { &self.small } else { &self.large };
        let _turn = line.turn().await;
        self.wait_until(|| self.fits(payload)).await
    }

    /// Waits until one more PDU without data can be appended. It must be appended before anything else is
    /// awaited.
    pub(crate) async fn room_for_header(&self) -> Result<(), Closed> {
        let _turn = self.headers.turn().await;
        self.wait_until(|| self.fits_header()).await
    }

    /// One more PDU without data can be appended now, and nobody waits to do so.
    pub(crate) fn has_room_for_header(&self) -> bool {
        self.life.get() == Life::Open && !self.headers.is_busy() && self.fits_header()
    }

    fn fits_header(&self) -> bool {
        self.filling.borrow().as_ref().is_none_or(|gather| gather.has_room(HEADERS_MAX))
    }

    async fn wait_until(&self, fits: impl Fn() -> bool) -> Result<(), Closed> {
        loop {
            if self.life.get() != Life::Open {
                return Err(Closed);
            }
            if fits() {
                return Ok(());
            }
            self.room.notified().await;
        }
    }

    /// Waits until unsent bytes are below the limit again.
    pub(crate) async fn below_limit(&self) {
        while self.is_over_limit() && self.life.get() == Life::Open {
            self.room.notified().await;
        }
    }

    fn with_gather<R>(&self, append: impl FnOnce(&mut Gather) -> R) -> R {
        let mut filling = self.filling.borrow_mut();
        let gather = filling.get_or_insert_with(|| self.gathers.take());
        let result = append(gather);
        drop(filling);
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
        result
    }

    /// Writes a header with its digest.
    fn put_header<H: Wire>(&self, gather: &mut Gather, header: &H, padding: usize) -> Option<()> {
        let digest = self.framing.header_digest.bytes() as usize;
        let space = gather.header(H::SIZE + digest + padding)?;
        let bytes = header.bytes();
        let (head, rest) = space.split_at_mut(H::SIZE);
        head.copy_from_slice(bytes);
        if digest > 0 {
            rest[..DIGEST_SIZE].copy_from_slice(&crc32c(bytes).to_le_bytes());
        }
        rest[digest..].fill(0);
        Some(())
    }

    /// Appends a response.
    pub(crate) fn response(&self, cqe: Cqe) -> Result<(), Closed> {
        if self.life.get() != Life::Open {
            return Err(Closed);
        }
        let response = CapsuleResp::new(self.framing, cqe);
        self.with_gather(|gather| self.put_header(gather, &response, 0)).ok_or(Closed)
    }

    /// Appends a request for a part of a command's data.
    pub(crate) fn r2t(&self, cid: CommandId, ttag: u16, offset: u32, len: u32) -> Result<(), Closed> {
        if self.life.get() != Life::Open {
            return Err(Closed);
        }
        let r2t = R2t::new(self.framing, cid, ttag, offset, len);
        self.with_gather(|gather| self.put_header(gather, &r2t, 0)).ok_or(Closed)
    }

    /// Appends a part of a command's data, at most one slice.
    pub(crate) fn data(
        &self,
        cid: CommandId,
        offset: u32,
        len: u32,
        data: ReadData,
        last: Last,
    ) -> Result<(), Closed> {
        if self.life.get() != Life::Open {
            return Err(Closed);
        }
        let bytes = len as usize;
        if bytes > SMALL_BYTES {
            self.bulk.set(self.bulk.get() + bytes);
        }
        let header = C2hData::new(self.framing, cid, offset, len, last);
        let padding = usize::from(self.framing.padding(PduKind::C2hData, len));
        let digest = match (self.framing.data_digest, &data) {
            (DigestUse::Off, _) => None,
            (DigestUse::On, ReadData::Buffer(buffer)) => Some(crc32c(buffer)),
            (DigestUse::On, ReadData::Zeroes) => Some(self.digest_of_zeroes(bytes)),
        };
        self.with_gather(|gather| {
            self.put_header(gather, &header, padding)?;
            match data {
                ReadData::Buffer(buffer) => gather.buffer(buffer, 0..bytes).ok()?,
                ReadData::Zeroes => gather.zeroes(bytes).then_some(())?,
            }
            if let Some(digest) = digest {
                gather.header(DIGEST_SIZE)?.copy_from_slice(&digest.to_le_bytes());
            }
            Some(())
        })
        .ok_or(Closed)
    }

    /// Reads of one size follow one another, and zeroes have always the same sum.
    fn digest_of_zeroes(&self, len: usize) -> u32 {
        static BLOCK: [u8; 4096] = [0; 4096];
        let (known, sum) = self.zeroes.get();
        if known == len {
            return sum;
        }
        let mut crc = Crc32c::default();
        let mut left = len;
        while left > 0 {
            let step = left.min(BLOCK.len());
            crc.update(&BLOCK[..step]);
            left -= step;
        }
        self.zeroes.set((len, crc.finish()));
        crc.finish()
    }

    /// Appends a termination request, the last thing that is sent (NVMe-TCP 1.0 §3.6.2.5).
    pub(crate) fn terminate(&self, error: HeaderError, offending: &[u8]) {
        if self.life.get() != Life::Open {
            return;
        }
        self.life.set(Life::Terminating);
        let mut pdu = [0; TermReq::PLEN_MAX];
        let written = TermReq::put_with(Direction::ControllerToHost, error, offending, &mut pdu);
        if let Ok(len) = written {
            // Without room the connection ends without the request.
            self.with_gather(|gather| gather.header(len).map(|space| space.copy_from_slice(&pdu[..len])));
        }
        self.room.notify_all();
    }

    /// Sends what is there, and nothing more.
    pub(crate) fn finish(&self) {
        if self.life.get() == Life::Open {
            self.life.set(Life::Terminating);
        }
        self.room.notify_all();
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }

    /// Sends nothing any more; those who wait for room end.
    pub(crate) fn close(&self) {
        self.life.set(Life::Closed);
        self.room.notify_all();
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }

    async fn next(&self) -> Option<Box<Gather>> {
        poll_fn(|context| {
            if self.life.get() == Life::Closed {
                return Poll::Ready(None);
            }
            match self.filling.borrow_mut().take() {
                Some(gather) => Poll::Ready(Some(gather)),
                None if self.life.get() == Life::Terminating => Poll::Ready(None),
                None => {
                    let known = self.sender.take().filter(|waker| waker.will_wake(context.waker()));
                    self.sender.set(Some(known.unwrap_or_else(|| context.waker().clone())));
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Sends until the outbox is closed, the last PDU is sent, or the peer is gone.
    pub(crate) async fn run(&self, stream: &Stream) {
        while let Some(mut gather) = self.next().await {
            self.bulk.set(0);
            self.sending.set(gather.remaining());
            // The next gather fills while this one is sent.
            self.room.notify_all();
            while !gather.is_empty() {
                self.progress.set(ashlar_reactor::now());
                self.sending.set(gather.remaining());
                let (result, rest) = stream.send(gather).await;
                gather = rest;
                if result.is_err() || self.life.get() == Life::Closed {
                    self.sending.set(0);
                    gather.clear();
                    self.gathers.give(gather);
                    return self.close();
                }
            }
            self.sending.set(0);
            self.gathers.give(gather);
            self.room.notify_all();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if let Some(mut gather) = self.filling.take() {
            gather.clear();
            self.gathers.give(gather);
        }
    }
}
