//! Ready to Transfer (NVMe-TCP 1.0 §3.6.2.10).

use crate::ids::CommandId;
use crate::pdu::check::HeaderError;
use crate::pdu::header::{CommonHeader, Framing, PduKind};
use crate::wire::{Wire, wire};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// R2T, 24 bytes: the controller can take a part of a command's data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct R2t {
    /// Common header.
    pub ch: CommonHeader,
    /// Command capsule CID: the command it belongs to.
    pub cccid: U16,
    /// Transfer tag, which the H2CData PDUs repeat.
    pub ttag: U16,
    /// Offset from the start of the command's data, bytes.
    pub r2to: U32,
    /// Bytes asked for, never 0.
    pub r2tl: U32,
    _rsvd20: [u8; 4],
}

impl R2t {
    /// Builds it.
    #[must_use]
    pub fn new(framing: Framing, cid: CommandId, ttag: u16, r2to: u32, r2tl: u32) -> R2t {
        let mut p = R2t::zeroed();
        p.ch = framing.header(PduKind::R2t, 0, 0);
        p.cccid = U16::new(cid.0);
        p.ttag = U16::new(ttag);
        p.r2to = U32::new(r2to);
        p.r2tl = U32::new(r2tl);
        p
    }

    /// Checks offset and length by themselves; the range is the host's to check against its command.
    pub fn check(&self) -> Result<(), HeaderError> {
        if !self.r2to.get().is_multiple_of(4) {
            return Err(HeaderError::invalid(12));
        }
        if self.r2tl.get() == 0 || !self.r2tl.get().is_multiple_of(4) {
            return Err(HeaderError::invalid(16));
        }
        if self.r2to.get().checked_add(self.r2tl.get()).is_none() {
            return Err(HeaderError::out_of_range());
        }
        Ok(())
    }
}

wire! { R2t = 24, "R2T"; }
