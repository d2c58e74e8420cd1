//! Strict checking of a received PDU's common header: where its parts lie, or exactly which field is wrong.
//!
//! A receiver has the 8 bytes of the common header and what was negotiated. [`HeaderRules::check`] then says
//! how long header, padding, data and digests are, or gives the fatal error status and information for the
//! termination request. It is total: every 8 bytes are either a layout or an error, and a layout's parts
//! always add up to PLEN. Fields are judged in the order in which they lie, so that the information names the
//! first wrong one.

use crate::pdu::header::{CommonHeader, DigestUse, Pda, PduKind, flags};
use crate::pdu::term::{FatalErrorStatus, TermReq};

/// Which way a PDU travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The target receives.
    HostToController,
    /// The host receives.
    ControllerToHost,
}

/// How far the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing but ICReq or ICResp, or a termination request, may come.
    Initialize,
    /// ICReq and ICResp are over.
    Running,
}

/// Why a connection must end: what the termination request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("malformed PDU: {fes:?}, information {fei:#x}")]
pub struct HeaderError {
    /// Fatal error status.
    pub fes: FatalErrorStatus,
    /// Fatal error information: a byte offset, or the digest received.
    pub fei: u32,
}

impl HeaderError {
    /// Invalid PDU header field at a byte offset of the PDU.
    #[must_use]
    pub const fn invalid(offset: u32) -> HeaderError {
        HeaderError { fes: FatalErrorStatus::InvalidHeaderField, fei: offset }
    }

    /// Unsupported parameter at a byte offset of the PDU.
    #[must_use]
    pub const fn unsupported(offset: u32) -> HeaderError {
        HeaderError { fes: FatalErrorStatus::UnsupportedParameter, fei: offset }
    }

    /// A PDU that may not come now.
    #[must_use]
    pub const fn sequence() -> HeaderError {
        HeaderError { fes: FatalErrorStatus::SequenceError, fei: 0 }
    }

    /// Data outside what was asked for.
    #[must_use]
    pub const fn out_of_range() -> HeaderError {
        HeaderError { fes: FatalErrorStatus::DataOutOfRange, fei: 0 }
    }

    /// More data, or more R2Ts, than the negotiated limit.
    #[must_use]
    pub const fn limit_exceeded() -> HeaderError {
        HeaderError { fes: FatalErrorStatus::LimitExceeded, fei: 0 }
    }

    /// A header that does not match its digest; `received` is the digest that came.
    #[must_use]
    pub const fn header_digest(received: u32) -> HeaderError {
        HeaderError { fes: FatalErrorStatus::HeaderDigestError, fei: received }
    }
}

/// Byte offsets of the common header's fields.
mod offset {
    pub(super) const TYPE: u32 = 0;
    pub(super) const FLAGS: u32 = 1;
    pub(super) const HLEN: u32 = 2;
    pub(super) const PDO: u32 = 3;
    pub(super) const PLEN: u32 = 4;
}

/// What the receiver negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRules {
    /// Which way PDUs come.
    pub direction: Direction,
    /// How far the connection is.
    pub phase: Phase,
    /// Header digest.
    pub header_digest: DigestUse,
    /// Data digest.
    pub data_digest: DigestUse,
    /// Alignment of received data: CPDA at the target, HPDA at the host.
    pub alignment: Pda,
    /// Most in-capsule data, bytes: 8192 on admin queues whatever IOCCSZ says (NVME N4).
    pub in_capsule_max: u32,
    /// Most data of one data PDU, bytes: MAXH2CDATA at the target; at the host its largest transfer.
    pub data_max: u32,
}

/// Where the parts of a PDU lie. `data_offset + data_len` and the data digest end the PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PduLayout {
    /// Kind.
    pub kind: PduKind,
    /// Bytes of the header without digest, the common header included.
    pub hlen: u32,
    /// Header digest after the header: `hlen..hlen + 4`.
    pub header_digest: DigestUse,
    /// Where data starts; with no data, where the PDU ends.
    pub data_offset: u32,
    /// Bytes of data (of a termination request: of the echoed header).
    pub data_len: u32,
    /// Data digest after the data. Off without data.
    pub data_digest: DigestUse,
}

impl PduLayout {
    /// Bytes of the whole PDU.
    #[must_use]
    pub const fn plen(&self) -> u32 {
        self.data_offset.saturating_add(self.data_len).saturating_add(self.data_digest.bytes())
    }

    /// Bytes to receive before the header can be used: header and its digest.
    #[must_use]
    pub const fn head_len(&self) -> u32 {
        self.hlen + self.header_digest.bytes()
    }

    /// Bytes of padding between the head and the data.
    #[must_use]
    pub const fn padding(&self) -> u32 {
        self.data_offset.saturating_sub(self.head_len())
    }
}

impl HeaderRules {
    /// Rules before ICReq and ICResp.
    #[must_use]
    pub const fn initialize(direction: Direction) -> HeaderRules {
        HeaderRules {
            direction,
            phase: Phase::Initialize,
            header_digest: DigestUse::Off,
            data_digest: DigestUse::Off,
            alignment: Pda::NONE,
            in_capsule_max: 0,
            data_max: 0,
        }
    }

    /// Judges the common header of a received PDU.
    pub fn check(&self, ch: &CommonHeader) -> Result<PduLayout, HeaderError> {
        let kind = self.kind(ch)?;
        self.check_flags(kind, ch)?;
        if ch.hlen != kind.hlen() {
            return Err(HeaderError::invalid(offset::HLEN));
        }
        let header_digest = if kind.has_header_digest() { self.header_digest } else { DigestUse::Off };
        let hlen = u32::from(ch.hlen);
        let head = hlen + header_digest.bytes();
        let plen = ch.plen.get();
        let none = PduLayout {
            kind,
            hlen,
            header_digest,
            data_offset: head,
            data_len: 0,
            data_digest: DigestUse::Off,
        };
        match kind {
            PduKind::IcReq | PduKind::IcResp | PduKind::CapsuleResp | PduKind::R2t => {
                if plen == head {
                    Ok(none)
                } else {
                    Err(HeaderError::invalid(offset::PLEN))
                }
            }
            PduKind::H2cTermReq | PduKind::C2hTermReq => {
                if plen < head || plen > TermReq::PLEN_MAX as u32 {
                    return Err(HeaderError::invalid(offset::PLEN));
                }
                Ok(PduLayout { data_len: plen - head, ..none })
            }
            PduKind::CapsuleCmd if plen == head => Ok(none),
            PduKind::CapsuleCmd => self.with_data(none, ch, self.in_capsule_max),
            PduKind::H2cData | PduKind::C2hData => self.with_data(none, ch, self.data_max),
        }
    }

    fn kind(&self, ch: &CommonHeader) -> Result<PduKind, HeaderError> {
        let kind = PduKind::try_from(ch.pdu_type).map_err(|_| HeaderError::invalid(offset::TYPE))?;
        let from_host = match kind {
            PduKind::IcReq | PduKind::H2cTermReq | PduKind::CapsuleCmd | PduKind::H2cData => true,
            PduKind::IcResp
            | PduKind::C2hTermReq
            | PduKind::CapsuleResp
            | PduKind::C2hData
            | PduKind::R2t => false,
        };
        if from_host != (self.direction == Direction::HostToController) {
            return Err(HeaderError::invalid(offset::TYPE));
        }
        match (self.phase, kind) {
            (_, PduKind::H2cTermReq | PduKind::C2hTermReq) => Ok(kind),
            (Phase::Initialize, PduKind::IcReq | PduKind::IcResp) => Ok(kind),
            (Phase::Initialize, _) | (Phase::Running, PduKind::IcReq | PduKind::IcResp) => {
                Err(HeaderError::sequence())
            }
            (Phase::Running, _) => Ok(kind),
        }
    }

    /// Digest flags must say what was negotiated; reserved flags are not judged.
    fn check_flags(&self, kind: PduKind, ch: &CommonHeader) -> Result<(), HeaderError> {
        let has = |flag: u8| ch.flags & flag != 0;
        let header_digest = self.header_digest.is_on();
        // FLAGS is reserved in the others.
        let bad = kind.has_header_digest()
            && (has(flags::HDGSTF) != header_digest
                || (has(flags::DDGSTF) && (!self.data_digest.is_on() || !kind.carries_data()))
                // SUCCESS belongs to the last PDU of a transfer (NVMe-TCP 1.0 §3.6.2.9).
                || (kind == PduKind::C2hData && has(flags::SUCCESS) && !has(flags::LAST_PDU)));
        if bad { Err(HeaderError::invalid(offset::FLAGS)) } else { Ok(()) }
    }

    fn with_data(&self, none: PduLayout, ch: &CommonHeader, max: u32) -> Result<PduLayout, HeaderError> {
        // Data without its negotiated digest.
        if (ch.flags & flags::DDGSTF != 0) != self.data_digest.is_on() {
            return Err(HeaderError::invalid(offset::FLAGS));
        }
        let (pdo, plen) = (u32::from(ch.pdo), ch.plen.get());
        if plen <= none.head_len() {
            return Err(HeaderError::invalid(offset::PLEN));
        }
        if pdo < none.head_len() || !pdo.is_multiple_of(self.alignment.bytes()) {
            return Err(HeaderError::invalid(offset::PDO));
        }
        let data_len = match plen.checked_sub(pdo + self.data_digest.bytes()) {
            None | Some(0) => return Err(HeaderError::invalid(offset::PLEN)),
            Some(len) => len,
        };
        if data_len > max {
            return Err(HeaderError::limit_exceeded());
        }
        Ok(PduLayout { data_offset: pdo, data_len, data_digest: self.data_digest, ..none })
    }
}
