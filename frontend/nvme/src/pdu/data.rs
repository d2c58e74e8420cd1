//! Data PDUs of both directions (NVMe-TCP 1.0 §3.6.2.8, §3.6.2.9).

use crate::ids::CommandId;
use crate::pdu::check::{HeaderError, PduLayout};
use crate::pdu::header::{CommonHeader, Framing, PduKind, flags};
use crate::wire::{Wire, wire};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Whether a data PDU is the last of its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Last {
    /// More follow.
    No,
    /// LAST_PDU.
    Yes,
    /// LAST_PDU and SUCCESS: the command is complete with status 0 (NVME N1). Only C2HData.
    YesWithSuccess,
}

impl Last {
    const fn flags(self) -> u8 {
        match self {
            Last::No => 0,
            Last::Yes => flags::LAST_PDU,
            Last::YesWithSuccess => flags::LAST_PDU | flags::SUCCESS,
        }
    }
}

/// H2CData header, 24 bytes; data follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct H2cData {
    /// Common header.
    pub ch: CommonHeader,
    /// Command capsule CID: the command it belongs to.
    pub cccid: U16,
    /// Transfer tag of the R2T that it answers.
    pub ttag: U16,
    /// Offset from the start of the command's data, bytes.
    pub datao: U32,
    /// Bytes of data.
    pub datal: U32,
    _rsvd20: [u8; 4],
}

impl H2cData {
    /// Builds the header. SUCCESS does not exist in this direction and is left out.
    #[must_use]
    pub fn new(framing: Framing, cid: CommandId, ttag: u16, datao: u32, datal: u32, last: Last) -> H2cData {
        let mut p = H2cData::zeroed();
        p.ch = framing.header(PduKind::H2cData, last.flags() & flags::LAST_PDU, datal);
        p.cccid = U16::new(cid.0);
        p.ttag = U16::new(ttag);
        p.datao = U32::new(datao);
        p.datal = U32::new(datal);
        p
    }

    /// Checks DATAO and DATAL against the layout that the common header gave.
    pub fn check(&self, layout: &PduLayout) -> Result<(), HeaderError> {
        check_span(self.datao.get(), self.datal.get(), layout)
    }

    /// Whether it is the last of its R2T.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.ch.flags & flags::LAST_PDU != 0
    }
}

/// C2HData header, 24 bytes; data follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct C2hData {
    /// Common header.
    pub ch: CommonHeader,
    /// Command capsule CID: the command it belongs to.
    pub cccid: U16,
    _rsvd10: [u8; 2],
    /// Offset from the start of the command's data, bytes.
    pub datao: U32,
    /// Bytes of data.
    pub datal: U32,
    _rsvd20: [u8; 4],
}

impl C2hData {
    /// Builds the header.
    #[must_use]
    pub fn new(framing: Framing, cid: CommandId, datao: u32, datal: u32, last: Last) -> C2hData {
        let mut p = C2hData::zeroed();
        p.ch = framing.header(PduKind::C2hData, last.flags(), datal);
        p.cccid = U16::new(cid.0);
        p.datao = U32::new(datao);
        p.datal = U32::new(datal);
        p
    }

    /// Checks DATAO and DATAL against the layout that the common header gave.
    pub fn check(&self, layout: &PduLayout) -> Result<(), HeaderError> {
        check_span(self.datao.get(), self.datal.get(), layout)
    }

    /// Whether it ends the transfer, and the command with it. SUCCESS without LAST is refused by the header
    /// check.
    #[must_use]
    pub fn last(&self) -> Last {
        match (self.ch.flags & flags::LAST_PDU != 0, self.ch.flags & flags::SUCCESS != 0) {
            (false, _) => Last::No,
            (true, false) => Last::Yes,
            (true, true) => Last::YesWithSuccess,
        }
    }
}

const OFFSET_DATAO: u32 = 12;
const OFFSET_DATAL: u32 = 16;

fn check_span(datao: u32, datal: u32, layout: &PduLayout) -> Result<(), HeaderError> {
    // Offsets and lengths are in whole dwords (NVMe-TCP 1.0 §3.6.2.8).
    if !datao.is_multiple_of(4) {
        return Err(HeaderError::invalid(OFFSET_DATAO));
    }
    if datal == 0 || !datal.is_multiple_of(4) || datal != layout.data_len {
        return Err(HeaderError::invalid(OFFSET_DATAL));
    }
    if datao.checked_add(datal).is_none() {
        return Err(HeaderError::out_of_range());
    }
    Ok(())
}

wire! {
    H2cData = 24, "H2CData";
    C2hData = 24, "C2HData";
}
