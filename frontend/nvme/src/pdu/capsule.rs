//! Command and response capsules (NVMe-TCP 1.0 §3.6.2.6, §3.6.2.7).

use crate::command::{Cqe, Sqe};
use crate::pdu::header::{CommonHeader, Framing, PduKind};
use crate::wire::wire;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CapsuleCmd header, 72 bytes; in-capsule data follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CapsuleCmd {
    /// Common header.
    pub ch: CommonHeader,
    /// The command.
    pub sqe: Sqe,
}

impl CapsuleCmd {
    /// Builds the header for `data_len` bytes of in-capsule data.
    #[must_use]
    pub fn new(framing: Framing, sqe: Sqe, data_len: u32) -> CapsuleCmd {
        CapsuleCmd { ch: framing.header(PduKind::CapsuleCmd, 0, data_len), sqe }
    }
}

/// CapsuleResp, 24 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CapsuleResp {
    /// Common header.
    pub ch: CommonHeader,
    /// The completion.
    pub cqe: Cqe,
}

impl CapsuleResp {
    /// Builds it.
    #[must_use]
    pub fn new(framing: Framing, cqe: Cqe) -> CapsuleResp {
        CapsuleResp { ch: framing.header(PduKind::CapsuleResp, 0, 0), cqe }
    }
}

wire! {
    CapsuleCmd = 72, "CapsuleCmd";
    CapsuleResp = 24, "CapsuleResp";
}
