//! The common header of all PDUs, their kinds, flags, alignment and digests (NVMe-TCP 1.0 §3.6.2.1).

use crate::wire::{Wire, coded, wire};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

coded! {
    /// PDU-Type.
    PduKind: u8, "PDU-Type" {
        /// Initialize Connection Request; host to controller.
        IcReq = 0x00,
        /// Initialize Connection Response; controller to host.
        IcResp = 0x01,
        /// Host to Controller Terminate Connection Request.
        H2cTermReq = 0x02,
        /// Controller to Host Terminate Connection Request.
        C2hTermReq = 0x03,
        /// Command capsule; host to controller.
        CapsuleCmd = 0x04,
        /// Response capsule; controller to host.
        CapsuleResp = 0x05,
        /// Host to Controller Data Transfer.
        H2cData = 0x06,
        /// Controller to Host Data Transfer.
        C2hData = 0x07,
        /// Ready to Transfer; controller to host.
        R2t = 0x09,
    }
}

impl PduKind {
    /// HLEN, the one value that this kind may have.
    #[must_use]
    pub const fn hlen(self) -> u8 {
        match self {
            PduKind::IcReq | PduKind::IcResp => 128,
            PduKind::CapsuleCmd => 72,
            PduKind::H2cTermReq
            | PduKind::C2hTermReq
            | PduKind::CapsuleResp
            | PduKind::H2cData
            | PduKind::C2hData
            | PduKind::R2t => 24,
        }
    }

    /// Whether digests, once negotiated, protect it: all but connection set-up and termination.
    #[must_use]
    pub const fn has_header_digest(self) -> bool {
        !matches!(self, PduKind::IcReq | PduKind::IcResp | PduKind::H2cTermReq | PduKind::C2hTermReq)
    }

    /// Whether it can carry data with padding and data digest.
    #[must_use]
    pub const fn carries_data(self) -> bool {
        matches!(self, PduKind::CapsuleCmd | PduKind::H2cData | PduKind::C2hData)
    }
}

/// FLAGS of the common header.
pub mod flags {
    /// A header digest follows the header.
    pub const HDGSTF: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DDGSTF: u8 = 1 << 1;
    /// Last data PDU of its transfer.
    pub const LAST_PDU: u8 = 1 << 2;
    /// C2HData: the command succeeded and no response capsule follows (NVME N1).
    pub const SUCCESS: u8 = 1 << 3;
}

/// Common header, 8 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU-Type; see [`PduKind`].
    pub pdu_type: u8,
    /// FLAGS; see [`flags`].
    pub flags: u8,
    /// Header length in bytes, without digest.
    pub hlen: u8,
    /// Offset of the data from the start of the PDU; 0 without data.
    pub pdo: u8,
    /// Length of the whole PDU with digests and padding.
    pub plen: U32,
}

/// Whether a digest was negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DigestUse {
    /// Not.
    #[default]
    Off,
    /// In every PDU that can have it.
    On,
}

impl DigestUse {
    /// Bytes of the digest.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            DigestUse::Off => 0,
            DigestUse::On => 4,
        }
    }

    /// Whether it is on.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, DigestUse::On)
    }
}

impl From<bool> for DigestUse {
    fn from(on: bool) -> DigestUse {
        if on { DigestUse::On } else { DigestUse::Off }
    }
}

/// PDU data alignment, HPDA or CPDA: data starts at a multiple of (n + 1) × 4 bytes (NVMe-TCP 1.0 §3.6.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pda(u8);

impl Pda {
    /// No alignment beyond dwords.
    pub const NONE: Pda = Pda(0);
    /// The largest code; 128 bytes.
    pub const MAX: u8 = 31;

    /// From the wire's 0-based dwords, 0–31.
    #[must_use]
    pub const fn new(code: u8) -> Option<Pda> {
        if code <= Pda::MAX { Some(Pda(code)) } else { None }
    }

    /// The wire's value.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Bytes, 4–128.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        (self.0 as u32 + 1) * 4
    }

    /// `offset` rounded up to the alignment. At most 72 + 4 + 127 for every header: fits PDO.
    #[must_use]
    pub const fn align(self, offset: u32) -> u32 {
        offset.div_ceil(self.bytes()).saturating_mul(self.bytes())
    }
}

/// Lengths of a PDU to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// Header digest.
    pub header_digest: DigestUse,
    /// Data digest.
    pub data_digest: DigestUse,
    /// Alignment that the receiver asked for: HPDA towards the host, CPDA towards the controller.
    pub alignment: Pda,
}

impl Framing {
    /// Neither digests nor alignment.
    pub const PLAIN: Framing =
        Framing { header_digest: DigestUse::Off, data_digest: DigestUse::Off, alignment: Pda::NONE };

    /// PDO for a PDU with data; 0 without.
    #[must_use]
    pub const fn pdo(self, kind: PduKind, data_len: u32) -> u8 {
        if data_len == 0 {
            return 0;
        }
        self.alignment.align(kind.hlen() as u32 + self.header_digest.bytes()) as u8
    }

    /// Bytes of padding between header (with digest) and data.
    #[must_use]
    pub const fn padding(self, kind: PduKind, data_len: u32) -> u8 {
        let head = kind.hlen() + self.header_digest.bytes() as u8;
        self.pdo(kind, data_len).saturating_sub(head)
    }

    /// The common header of a PDU of `kind` with `data_len` bytes of data (at most 2^32 − 256); `extra` are
    /// the flags besides the digests'.
    #[must_use]
    pub fn header(self, kind: PduKind, extra: u8, data_len: u32) -> CommonHeader {
        let mut ch = CommonHeader::zeroed();
        let digests = kind.has_header_digest();
        ch.pdu_type = kind.code();
        ch.hlen = kind.hlen();
        ch.flags = extra;
        let mut plen = u32::from(kind.hlen());
        if digests && self.header_digest.is_on() {
            ch.flags |= flags::HDGSTF;
            plen += self.header_digest.bytes();
        }
        if data_len > 0 && kind.carries_data() {
            ch.pdo = self.pdo(kind, data_len);
            plen = u32::from(ch.pdo).saturating_add(data_len);
            // No digest is sent where there is no data (NVMe-TCP 1.0 §3.3.1.1).
            if self.data_digest.is_on() {
                ch.flags |= flags::DDGSTF;
                plen = plen.saturating_add(self.data_digest.bytes());
            }
        }
        ch.plen = U32::new(plen);
        ch
    }
}

wire! { CommonHeader = 8, "PDU common header"; }
