//! Firmware slot information log, 03h (NVMe Base 2.0 §5.16.1.4).

use crate::wire::wire;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Firmware slots, 512 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active slot in bits 2:0, slot after the next reset in bits 6:4.
    pub afi: u8,
    _rsvd1: [u8; 7],
    /// Revision per slot 1–7, ASCII; zero is empty.
    pub frs: [[u8; 8]; 7],
    _rsvd64: [u8; 448],
}

wire! { FirmwareSlotLog = 512, "firmware slot log"; }
