//! Terminate Connection Requests of both directions (NVMe-TCP 1.0 §3.6.2.4, §3.6.2.5).

use crate::pdu::check::{Direction, HeaderError};
use crate::pdu::header::{CommonHeader, Framing, PduKind};
use crate::wire::{DecodeError, Wire, coded, wire};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

coded! {
    /// FES: fatal error status.
    FatalErrorStatus: u16, "FES" {
        /// Invalid PDU header field; FEI is its byte offset.
        InvalidHeaderField = 0x01,
        /// PDU sequence error.
        SequenceError = 0x02,
        /// Header digest error; FEI is the digest received.
        HeaderDigestError = 0x03,
        /// Data transfer out of range.
        DataOutOfRange = 0x04,
        /// Data transfer limit exceeded (R2T limit exceeded, to a host).
        LimitExceeded = 0x05,
        /// Unsupported parameter; FEI is its byte offset.
        UnsupportedParameter = 0x06,
    }
}

/// Header of H2CTermReq and C2HTermReq, 24 bytes; up to 128 bytes of the offending header follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TermReq {
    /// Common header.
    pub ch: CommonHeader,
    /// Fatal error status.
    pub fes: U16,
    /// Fatal error information.
    pub fei: U32,
    _rsvd14: [u8; 10],
}

impl TermReq {
    /// Most bytes of the offending header.
    pub const DATA_MAX: usize = 128;
    /// Longest PDU.
    pub const PLEN_MAX: usize = TermReq::SIZE + TermReq::DATA_MAX;

    /// Writes the PDU that travels in `direction` into `out` with the start of the offending PDU's header;
    /// returns its length.
    pub fn put_with(
        direction: Direction,
        error: HeaderError,
        offending: &[u8],
        out: &mut [u8],
    ) -> Result<usize, DecodeError> {
        let kind = match direction {
            Direction::HostToController => PduKind::H2cTermReq,
            Direction::ControllerToHost => PduKind::C2hTermReq,
        };
        let data = offending.get(..TermReq::DATA_MAX).unwrap_or(offending);
        let len = TermReq::SIZE + data.len();
        let mut term = TermReq::zeroed();
        term.ch = Framing::PLAIN.header(kind, 0, 0);
        term.ch.plen = U32::new(len as u32);
        term.fes = U16::new(error.fes.code());
        term.fei = U32::new(error.fei);
        let have = out.len();
        let room = out.get_mut(..len).ok_or(DecodeError::Truncated { what: Self::NAME, need: len, have })?;
        term.put(room)?;
        if let Some(to) = room.get_mut(TermReq::SIZE..) {
            to.copy_from_slice(data);
        }
        Ok(len)
    }

    /// The reason, if it is a defined one.
    pub fn reason(&self) -> Result<FatalErrorStatus, DecodeError> {
        FatalErrorStatus::try_from(self.fes.get())
    }
}

wire! { TermReq = 24, "Terminate Connection Request"; }
