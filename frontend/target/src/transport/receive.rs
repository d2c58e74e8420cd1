//! Receiving: a stream of bytes in pieces of any size becomes PDUs, and PDUs become commands and data.
//!
//! A PDU that lies wholly in what was received is used where it lies, its in-capsule data without a copy. A
//! header that is cut is carried over in a small buffer; in-capsule data that is cut is put together in a
//! buffer of its own; data that was asked for goes into its transfer's buffer, and when much of it is missing
//! the kernel receives it directly there. The state machine is the same for a stream cut at every byte.
//!
//! After [`COMMANDS_PER_ROUND`] commands the queue lets others of its core have their turn; while too much is
//! unsent nothing is parsed, and so nothing is received (NVME N14).

use std::rc::Rc;

use ashlar_nvme::Wire;
use ashlar_nvme::digest::{Crc32c, DIGEST_SIZE, crc32c, matches};
use ashlar_nvme::pdu::{CapsuleCmd, CommonHeader, H2cData, HeaderError, PduKind, PduLayout};
use ashlar_reactor::IoBuf;
use ashlar_reactor::net::Received;

use crate::backend::OpenBackend;
use crate::transport::host_data::{CapsuleBytes, CapsuleData};
use crate::transport::queue::{Queue, Reason};
use crate::transport::transfers::{DigestCheck, Piece};

/// Commands that a queue starts before others of its core have their turn: a full usual queue.
const COMMANDS_PER_ROUND: u32 = 128;

/// Missing bytes of a PDU's data from which on the kernel receives directly into place: below it an extra
/// call costs more than the copy.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// Longest header with digest and padding: PDO is one byte.
const HEAD_MAX: usize = 256;

/// Bytes of a common header.
const COMMON: usize = CommonHeader::SIZE;

/// How a connection's input ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It shall be closed.
    Close(Reason),
    /// The peer shall be told what it did wrong, with the start of the offending PDU.
    Terminate(HeaderError, Box<Head>),
}

/// The start of a PDU.
#[derive(Clone)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Head {
    const EMPTY: Head = Head { bytes: [0; HEAD_MAX], len: 0 };

    fn of(bytes: &[u8]) -> Head {
        let mut head = Head::EMPTY;
        head.extend_to(bytes, HEAD_MAX);
        head
    }

    /// Takes from `bytes` until `target` bytes are there; returns how many were taken.
    fn extend_to(&mut self, bytes: &[u8], target: usize) -> usize {
        let take = target.min(HEAD_MAX).saturating_sub(self.len).min(bytes.len());
        self.bytes[self.len..self.len + take].copy_from_slice(&bytes[..take]);
        self.len += take;
        take
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// What a termination request echoes: the header without what follows it.
    pub(crate) fn header(&self) -> &[u8] {
        let hlen = self.bytes.get(2).copied().map_or(0, usize::from);
        let echoed = if hlen < COMMON { COMMON } else { hlen };
        self.bytes().get(..echoed).unwrap_or(self.bytes())
    }
}

/// Where data of a PDU goes.
enum Sink {
    /// In-capsule data of a command.
    Capsule(CapsuleCmd, IoBuf),
    /// Data that was asked for.
    Transfer(Piece),
    /// Nobody wants it: a termination request's echo.
    Nowhere,
}

enum Stage {
    /// Collecting a header, of which so much is there.
    Head(Head),
    /// Collecting data and its digest.
    Body {
        layout: PduLayout,
        sink: Sink,
        have: usize,
        sum: Crc32c,
        digest: [u8; DIGEST_SIZE],
        digest_have: usize,
    },
}

/// What stopped the parser.
enum Stop {
    /// Everything was used.
    Empty,
    /// Others shall have their turn.
    Round,
    /// Too much is unsent.
    Unsent,
}

/// Where the parser's bytes lie.
enum Source {
    Shared(Rc<Received>),
    /// Surplus of the handshake.
    Own(Vec<u8>),
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            Source::Shared(received) => received,
            Source::Own(bytes) => bytes,
        }
    }
}

/// Receives until the connection ends, and says how.
pub(crate) async fn run<F: OpenBackend>(queue: &Rc<Queue<F>>, surplus: Vec<u8>) -> Ending {
    let mut parser = Parser { queue, stage: Stage::Head(Head::EMPTY) };
    let mut source = Source::Own(surplus);
    loop {
        if let Err(ending) = parser.use_all(&source).await {
            return ending;
        }
        drop(source);
        if let Err(ending) = parser.receive_directly().await {
            return ending;
        }
        let partial = !matches!(&parser.stage, Stage::Head(head) if head.len == 0);
        queue.partial_since.set(partial.then(ashlar_reactor::now));
        let received = queue.stream.receive().await;
        queue.partial_since.set(None);
        match received {
            Ok(Some(received)) => source = Source::Shared(Rc::new(received)),
            Ok(None) | Err(_) => return Ending::Close(queue.reason().unwrap_or(Reason::PeerGone)),
        }
        queue.note_traffic();
    }
}

struct Parser<'a, F: OpenBackend> {
    queue: &'a Rc<Queue<F>>,
    stage: Stage,
}

impl<F: OpenBackend> Parser<'_, F> {
    async fn use_all(&mut self, source: &Source) -> Result<(), Ending> {
        let mut at = 0;
        loop {
            // Nothing starts once the queue was closed: here input that waited meets a core that was late.
            if let Some(reason) = self.queue.reason() {
                return Err(Ending::Close(reason));
            }
            match self.parse(source, &mut at)? {
                Stop::Empty => return Ok(()),
                Stop::Round => ashlar_reactor::next_turn().await,
                Stop::Unsent => self.queue.outbox.below_limit().await,
            }
        }
    }

    fn parse(&mut self, source: &Source, at: &mut usize) -> Result<Stop, Ending> {
        let bytes = source.bytes();
        let mut commands = 0;
        while let Some(rest) = bytes.get(*at..).filter(|rest| !rest.is_empty()) {
            if self.queue.outbox.is_over_limit() {
                return Ok(Stop::Unsent);
            }
            if commands >= COMMANDS_PER_ROUND {
                return Ok(Stop::Round);
            }
            commands += 1;
            if let Stage::Head(head) = &self.stage
                && head.len == 0
                && let Some(taken) = self.whole(source, *at, rest)?
            {
                *at += taken;
            } else {
                *at += self.piece(rest)?;
            }
            if self.queue.is_closed() {
                return Ok(Stop::Round);
            }
        }
        Ok(Stop::Empty)
    }

    fn layout(&self, head: &[u8]) -> Result<PduLayout, HeaderError> {
        // At least 8 bytes are there.
        let ch = CommonHeader::ref_from(head).map_err(|_| HeaderError::invalid(0))?;
        self.queue.terms.rules.check(ch)
    }

    /// Uses a PDU that lies wholly in `rest`. `None` if it does not.
    fn whole(&mut self, source: &Source, at: usize, rest: &[u8]) -> Result<Option<usize>, Ending> {
        if rest.len() < COMMON {
            return Ok(None);
        }
        let fatal = |error| Ending::Terminate(error, Box::new(Head::of(rest)));
        let layout = self.layout(rest).map_err(fatal)?;
        let plen = layout.plen() as usize;
        let Some(pdu) = rest.get(..plen) else { return Ok(None) };
        check_header_digest(pdu, &layout).map_err(fatal)?;
        let (from, len) = (layout.data_offset as usize, layout.data_len as usize);
        let data = &pdu[from..from + len];
        let digest = match layout.data_digest.is_on() {
            true if !matches(data, array_at(pdu, from + len)) => DigestCheck::Failed,
            _ => DigestCheck::Passed,
        };
        match layout.kind {
            PduKind::CapsuleCmd => {
                let capsule = capsule(pdu).map_err(fatal)?;
                let bytes = match source {
                    _ if len == 0 => CapsuleBytes::None,
                    Source::Shared(received) => {
                        CapsuleBytes::Received { received: Rc::clone(received), start: at + from, len }
                    }
                    Source::Own(_) => {
                        let mut buffer = self.capsule_buffer(len);
                        buffer.copy_from_slice(data);
                        CapsuleBytes::Buffer(buffer)
                    }
                };
                self.queue.arrive(capsule.sqe, CapsuleData { bytes, digest }).map_err(fatal)?;
            }
            PduKind::H2cData => {
                let piece = self.accept(pdu, &layout).map_err(fatal)?;
                self.queue.transfers.write(piece.ttag, piece.at, data);
                self.queue.transfers.finish(piece, digest);
            }
            _ => return Err(Ending::Close(Reason::HostTerminated)),
        }
        Ok(Some(plen))
    }

    /// Uses a part of a PDU; returns how many bytes.
    fn piece(&mut self, rest: &[u8]) -> Result<usize, Ending> {
        match &mut self.stage {
            Stage::Head(head) => {
                let mut taken = head.extend_to(rest, COMMON);
                if head.len < COMMON {
                    return Ok(taken);
                }
                let head = head.clone();
                self.head_piece(head, rest, &mut taken)?;
                Ok(taken)
            }
            Stage::Body { .. } => self.body_piece(rest),
        }
    }

    fn head_piece(&mut self, mut head: Head, rest: &[u8], taken: &mut usize) -> Result<(), Ending> {
        let fatal = |error, head: &Head| Ending::Terminate(error, Box::new(head.clone()));
        let layout = self.layout(head.bytes()).map_err(|error| fatal(error, &head))?;
        let end = layout.data_offset as usize;
        *taken += head.extend_to(&rest[*taken..], end);
        if head.len < end {
            self.stage = Stage::Head(head);
            return Ok(());
        }
        check_header_digest(head.bytes(), &layout).map_err(|error| fatal(error, &head))?;
        let len = layout.data_len as usize;
        let sink = match layout.kind {
            PduKind::CapsuleCmd => {
                let capsule = capsule(head.bytes()).map_err(|error| fatal(error, &head))?;
                if len == 0 {
                    self.stage = Stage::Head(Head::EMPTY);
                    let arrived = self.queue.arrive(capsule.sqe, CapsuleData::NONE);
                    return arrived.map_err(|error| fatal(error, &head));
                }
                Sink::Capsule(capsule, self.capsule_buffer(len))
            }
            PduKind::H2cData => {
                let piece = self.accept(head.bytes(), &layout).map_err(|error| fatal(error, &head))?;
                Sink::Transfer(piece)
            }
            _ if len == 0 => return Err(Ending::Close(Reason::HostTerminated)),
            _ => Sink::Nowhere,
        };
        let (sum, digest) = (Crc32c::default(), [0; DIGEST_SIZE]);
        self.stage = Stage::Body { layout, sink, have: 0, sum, digest, digest_have: 0 };
        Ok(())
    }

    fn body_piece(&mut self, rest: &[u8]) -> Result<usize, Ending> {
        let Stage::Body { layout, sink, have, sum, digest, digest_have } = &mut self.stage else {
            return Ok(0);
        };
        let missing = layout.data_len as usize - *have;
        let data = &rest[..missing.min(rest.len())];
        match sink {
            Sink::Capsule(_, buffer) => buffer[*have..*have + data.len()].copy_from_slice(data),
            Sink::Transfer(piece) => self.queue.transfers.write(piece.ttag, piece.at + *have, data),
            Sink::Nowhere => {}
        }
        let digested = layout.data_digest.is_on();
        if digested {
            sum.update(data);
        }
        *have += data.len();
        let mut taken = data.len();
        if *have < layout.data_len as usize {
            return Ok(taken);
        }
        if digested {
            let tail = &rest[taken..];
            let more = (DIGEST_SIZE - *digest_have).min(tail.len());
            digest[*digest_have..*digest_have + more].copy_from_slice(&tail[..more]);
            *digest_have += more;
            taken += more;
            if *digest_have < DIGEST_SIZE {
                return Ok(taken);
            }
        }
        let passed = !digested || sum.finish() == u32::from_le_bytes(*digest);
        let check = if passed { DigestCheck::Passed } else { DigestCheck::Failed };
        self.end_body(check)?;
        Ok(taken)
    }

    fn end_body(&mut self, digest: DigestCheck) -> Result<(), Ending> {
        let stage = std::mem::replace(&mut self.stage, Stage::Head(Head::EMPTY));
        let Stage::Body { sink, .. } = stage else { return Ok(()) };
        match sink {
            Sink::Capsule(capsule, buffer) => {
                let data = CapsuleData { bytes: CapsuleBytes::Buffer(buffer), digest };
                let fatal = |error| Ending::Terminate(error, Box::new(Head::of(capsule.bytes())));
                self.queue.arrive(capsule.sqe, data).map_err(fatal)
            }
            Sink::Transfer(piece) => {
                self.queue.transfers.finish(piece, digest);
                Ok(())
            }
            Sink::Nowhere => Err(Ending::Close(Reason::HostTerminated)),
        }
    }

    fn accept(&self, pdu: &[u8], layout: &PduLayout) -> Result<Piece, HeaderError> {
        let header = H2cData::ref_from(pdu).map_err(|_| HeaderError::invalid(0))?;
        // Who the data belongs to is judged before how much it is: fields in the order in which they lie.
        self.queue.transfers.identify(header)?;
        header.check(layout)?;
        self.queue.transfers.accept(header)
    }

    /// In-capsule data that came in pieces, at most one per connection at a time here. Without a free buffer
    /// it gets one from the heap, so that a queue never waits for what only its own input could free (NVME
    /// N14).
    fn capsule_buffer(&self, len: usize) -> IoBuf {
        IoBuf::take(len).unwrap_or_else(|| IoBuf::heap(len))
    }

    /// Lets the kernel put the rest of a large piece of data where it belongs.
    async fn receive_directly(&mut self) -> Result<(), Ending> {
        loop {
            let Stage::Body { layout, sink: Sink::Transfer(piece), have, sum, .. } = &mut self.stage else {
                return Ok(());
            };
            let missing = layout.data_len as usize - *have;
            if missing < DIRECT_BYTES_MIN {
                return Ok(());
            }
            let queue = self.queue;
            let Some(mut buffer) = queue.transfers.lend(piece.ttag) else { return Ok(()) };
            let (whole, from) = (buffer.len(), piece.at + *have);
            buffer.truncate(from + missing);
            queue.partial_since.set(Some(ashlar_reactor::now()));
            let (result, mut buffer) = queue.stream.receive_into(buffer, from).await;
            let received = result.as_ref().copied().unwrap_or(0);
            if layout.data_digest.is_on() {
                sum.update(buffer.get(from..from + received).unwrap_or_default());
            }
            *have += received;
            let done = *have == layout.data_len as usize && !layout.data_digest.is_on();
            buffer.truncate(whole);
            queue.transfers.take_back(piece.ttag, buffer);
            if received == 0 {
                return Err(Ending::Close(queue.reason().unwrap_or(Reason::PeerGone)));
            }
            if let Some(reason) = queue.reason() {
                return Err(Ending::Close(reason));
            }
            queue.note_traffic();
            if done {
                self.end_body(DigestCheck::Passed)?;
            }
        }
    }
}

fn array_at(pdu: &[u8], at: usize) -> [u8; DIGEST_SIZE] {
    pdu.get(at..at + DIGEST_SIZE).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
}

fn check_header_digest(pdu: &[u8], layout: &PduLayout) -> Result<(), HeaderError> {
    if !layout.header_digest.is_on() {
        return Ok(());
    }
    let hlen = layout.hlen as usize;
    let received = u32::from_le_bytes(array_at(pdu, hlen));
    if crc32c(&pdu[..hlen]) == received { Ok(()) } else { Err(HeaderError::header_digest(received)) }
}

fn capsule(pdu: &[u8]) -> Result<CapsuleCmd, HeaderError> {
    CapsuleCmd::read_from(pdu).map_err(|_| HeaderError::invalid(0))
}
