//! Initialize Connection Request and Response, 128 bytes each (NVMe-TCP 1.0 §3.6.2.2, §3.6.2.3).

use crate::pdu::check::HeaderError;
use crate::pdu::header::{CommonHeader, DigestUse, Framing, Pda, PduKind};
use crate::wire::{Wire, wire};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The one PDU format version.
pub const PFV: u16 = 0;

/// Smallest MAXH2CDATA that a controller may name, bytes.
pub const MAXH2CDATA_MIN: u32 = 4096;

const HDGST_ENABLE: u8 = 1 << 0;
const DDGST_ENABLE: u8 = 1 << 1;

/// ICReq.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IcReq {
    /// Common header.
    pub ch: CommonHeader,
    /// PDU format version.
    pub pfv: U16,
    /// Host PDU data alignment: how the host wants C2HData aligned; 0-based dwords, 0–31.
    pub hpda: u8,
    /// Digests that the host asks for: bit 0 header, bit 1 data.
    pub dgst: u8,
    /// Largest number of outstanding R2Ts per command, 0-based.
    pub maxr2t: U32,
    _rsvd16: [u8; 112],
}

/// ICResp.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IcResp {
    /// Common header.
    pub ch: CommonHeader,
    /// PDU format version.
    pub pfv: U16,
    /// Controller PDU data alignment: how the controller wants data from the host aligned.
    pub cpda: u8,
    /// Digests granted: bit 0 header, bit 1 data.
    pub dgst: u8,
    /// Most data of one H2CData PDU, bytes.
    pub maxh2cdata: U32,
    _rsvd16: [u8; 112],
}

/// Digests asked for or granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DigestGrant {
    /// Header digest.
    pub header: DigestUse,
    /// Data digest.
    pub data: DigestUse,
}

impl DigestGrant {
    /// The DGST byte.
    #[must_use]
    pub const fn code(self) -> u8 {
        let mut code = 0;
        if self.header.is_on() {
            code |= HDGST_ENABLE;
        }
        if self.data.is_on() {
            code |= DDGST_ENABLE;
        }
        code
    }

    fn parse(code: u8) -> Option<DigestGrant> {
        if code & !(HDGST_ENABLE | DDGST_ENABLE) != 0 {
            return None;
        }
        Some(DigestGrant {
            header: DigestUse::from(code & HDGST_ENABLE != 0),
            data: DigestUse::from(code & DDGST_ENABLE != 0),
        })
    }
}

/// What a valid ICReq asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcReqParams {
    /// Alignment of C2HData.
    pub hpda: Pda,
    /// Digests.
    pub digests: DigestGrant,
    /// Outstanding R2Ts per command, 1 or more.
    pub r2t_max: u64,
}

/// What a valid ICResp grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcRespParams {
    /// Alignment of H2CData and capsule data.
    pub cpda: Pda,
    /// Digests.
    pub digests: DigestGrant,
    /// Most data of one H2CData PDU, bytes.
    pub maxh2cdata: u32,
}

impl IcReq {
    /// Builds one. `r2t_max` is 1-based; 0 is taken as 1.
    #[must_use]
    pub fn new(hpda: Pda, digests: DigestGrant, r2t_max: u32) -> IcReq {
        let mut p = IcReq::zeroed();
        p.ch = Framing::PLAIN.header(PduKind::IcReq, 0, 0);
        p.pfv = U16::new(PFV);
        p.hpda = hpda.code();
        p.dgst = digests.code();
        p.maxr2t = U32::new(r2t_max.saturating_sub(1));
        p
    }

    /// Checks the fields after the common header.
    pub fn params(&self) -> Result<IcReqParams, HeaderError> {
        if self.pfv.get() != PFV {
            return Err(HeaderError::unsupported(8));
        }
        let hpda = Pda::new(self.hpda).ok_or(HeaderError::invalid(10))?;
        let digests = DigestGrant::parse(self.dgst).ok_or(HeaderError::invalid(11))?;
        Ok(IcReqParams { hpda, digests, r2t_max: u64::from(self.maxr2t.get()) + 1 })
    }
}

impl IcResp {
    /// Builds one. MAXH2CDATA is raised to 4096 and cut to a multiple of 4 (NVME N4).
    #[must_use]
    pub fn new(cpda: Pda, digests: DigestGrant, maxh2cdata: u32) -> IcResp {
        let mut p = IcResp::zeroed();
        p.ch = Framing::PLAIN.header(PduKind::IcResp, 0, 0);
        p.pfv = U16::new(PFV);
        p.cpda = cpda.code();
        p.dgst = digests.code();
        p.maxh2cdata = U32::new(maxh2cdata.max(MAXH2CDATA_MIN) & !3);
        p
    }

    /// Checks the fields after the common header.
    pub fn params(&self) -> Result<IcRespParams, HeaderError> {
        if self.pfv.get() != PFV {
            return Err(HeaderError::unsupported(8));
        }
        let cpda = Pda::new(self.cpda).ok_or(HeaderError::invalid(10))?;
        let digests = DigestGrant::parse(self.dgst).ok_or(HeaderError::invalid(11))?;
        let maxh2cdata = self.maxh2cdata.get();
        if maxh2cdata < MAXH2CDATA_MIN || !maxh2cdata.is_multiple_of(4) {
            return Err(HeaderError::invalid(12));
        }
        Ok(IcRespParams { cpda, digests, maxh2cdata })
    }
}

wire! {
    IcReq = 128, "ICReq";
    IcResp = 128, "ICResp";
}
