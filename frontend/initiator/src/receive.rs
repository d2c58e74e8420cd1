//! What comes from the controller, taken apart in the buffer in which it was received, in pieces of any size.

use ashlar_nvme::digest::Crc32c;

use crate::engine::Engine;
use crate::error::{Loss, ProtocolError};
use crate::incoming::{self, DIGEST, Digests, Ending, HEAD, Incoming, decode};
use crate::load::Handler;
use ashlar_nvme::pdu::FatalErrorStatus;

/// Where in the stream of PDUs we are.
#[derive(Debug)]
pub(crate) struct Parser {
    digests: Digests,
    body: Option<Body>,
    /// A header of which a part has come.
    partial: [u8; HEAD + DIGEST],
    have: usize,
    /// The header judged last, for a termination request.
    pub(crate) judged: [u8; HEAD],
}

/// A C2HData whose data is coming.
#[derive(Debug)]
struct Body {
    index: usize,
    padding: u32,
    offset: u32,
    left: u32,
    sum: Crc32c,
    digest: [u8; DIGEST],
    digest_have: usize,
    ending: Ending,
}

/// Room for data that can be received directly: the slot, where in its buffer, how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Direct {
    pub(crate) index: usize,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl Parser {
    pub(crate) fn new(digests: Digests) -> Self {
        Self { digests, body: None, partial: [0; HEAD + DIGEST], have: 0, judged: [0; HEAD] }
    }

    /// Takes bytes in.
    pub(crate) fn feed(
        &mut self,
        engine: &mut Engine,
        handler: &mut dyn Handler,
        mut bytes: &[u8],
    ) -> Result<(), Loss> {
        while !bytes.is_empty() {
            if let Some(body) = &mut self.body {
                if body.take(engine, handler, &mut bytes, self.digests) {
                    self.body = None;
                }
                continue;
            }
            let Some((head, digest)) = self.take_head(&mut bytes) else { return Ok(()) };
            let incoming = match decode(&head, digest, self.digests) {
                Ok(incoming) => incoming,
                Err(error) => return Err(self.broken(head, error)),
            };
            if let Err(loss) = self.act(engine, handler, incoming) {
                self.judged = head;
                return Err(loss);
            }
        }
        Ok(())
    }

    fn broken(&mut self, head: [u8; HEAD], error: ProtocolError) -> Loss {
        self.judged = head;
        Loss::Protocol(error)
    }

    /// The next whole header and its digest; what there is of it is kept until it is whole.
    fn take_head(&mut self, bytes: &mut &[u8]) -> Option<([u8; HEAD], Option<[u8; DIGEST]>)> {
        let kind = if self.have == 0 { *bytes.first()? } else { self.partial[0] };
        let need = incoming::head_bytes(kind, self.digests);
        let digest = |all: &[u8]| all.get(HEAD..need).and_then(|digest| digest.try_into().ok());
        if self.have == 0
            && let Some((whole, rest)) = bytes.split_at_checked(need)
            && let Some(head) = whole.first_chunk::<HEAD>()
        {
            *bytes = rest;
            return Some((*head, digest(whole)));
        }
        let more = bytes.len().min(need - self.have);
        let (now, rest) = bytes.split_at(more);
        self.partial[self.have..self.have + more].copy_from_slice(now);
        self.have += more;
        *bytes = rest;
        if self.have < need {
            return None;
        }
        self.have = 0;
        let head = self.partial.first_chunk::<HEAD>()?;
        Some((*head, digest(&self.partial)))
    }

    fn act(
        &mut self,
        engine: &mut Engine,
        handler: &mut dyn Handler,
        incoming: Incoming,
    ) -> Result<(), Loss> {
        match incoming {
            Incoming::Response { cid, result, sqhd, status } => {
                engine.response(cid, result, sqhd, status, handler).map_err(Loss::Protocol)
            }
            Incoming::Request { cid, ttag, offset, len } => {
                engine.request(cid, ttag, offset, len).map_err(Loss::Protocol)
            }
            Incoming::Data { cid, offset, len, padding, ending } => {
                let index = engine.data_begins(cid, offset, len, ending).map_err(Loss::Protocol)?;
                let (sum, digest) = (Crc32c::default(), [0; DIGEST]);
                self.body =
                    Some(Body { index, padding, offset, left: len, sum, digest, digest_have: 0, ending });
                Ok(())
            }
            Incoming::Terminate { reason, information } => {
                Err(Loss::Terminated { reason: FatalErrorStatus::try_from(reason).ok(), information })
            }
        }
    }

    /// Data that is still to come and may go straight into its buffer: only where no digest has to be computed
    /// on the way.
    pub(crate) fn direct(&self, engine: &Engine) -> Option<Direct> {
        let body = self.body.as_ref().filter(|body| body.padding == 0 && !self.digests.data)?;
        engine.has_buffer(body.index).then_some(Direct {
            index: body.index,
            offset: body.offset,
            len: body.left,
        })
    }

    /// `bytes` bytes of [`Parser::direct`] are in place.
    pub(crate) fn received_directly(&mut self, engine: &mut Engine, handler: &mut dyn Handler, bytes: u32) {
        let Some(body) = &mut self.body else { return };
        body.offset += bytes;
        body.left -= bytes.min(body.left);
        if body.left == 0 {
            let (index, ending) = (body.index, body.ending);
            self.body = None;
            if ending == Ending::LastWithSuccess {
                engine.succeeded(index, handler);
            }
        }
    }
}

impl Body {
    /// Takes in what `bytes` has of this PDU. True once it is whole.
    fn take(
        &mut self,
        engine: &mut Engine,
        handler: &mut dyn Handler,
        bytes: &mut &[u8],
        digests: Digests,
    ) -> bool {
        if self.padding > 0 {
            let skipped = bytes.len().min(self.padding as usize);
            self.padding -= skipped as u32;
            *bytes = &bytes[skipped..];
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(self.left as usize));
        *bytes = rest;
        if !piece.is_empty() {
            engine.data(self.index, self.offset, piece, handler);
            if digests.data {
                self.sum.update(piece);
            }
            self.offset += piece.len() as u32;
            self.left -= piece.len() as u32;
        }
        if self.left > 0 || self.padding > 0 {
            return false;
        }
        if digests.data {
            let more = bytes.len().min(DIGEST - self.digest_have);
            let (now, rest) = bytes.split_at(more);
            self.digest[self.digest_have..self.digest_have + more].copy_from_slice(now);
            self.digest_have += more;
            *bytes = rest;
            if self.digest_have < DIGEST {
                return false;
            }
            if u32::from_le_bytes(self.digest) != self.sum.finish() {
                engine.data_damaged(self.index);
            }
        }
        if self.ending == Ending::LastWithSuccess {
            engine.succeeded(self.index, handler);
        }
        true
    }
}
