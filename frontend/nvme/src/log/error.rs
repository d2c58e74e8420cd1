//! Error information log, 01h: one entry (NVMe Base 2.0 §5.16.1.2).

use crate::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One error, 64 bytes; newest first, an error count of 0 is no entry.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of the error over the controller's life, from 1.
    pub error_count: U64,
    /// Queue.
    pub sqid: U16,
    /// Command.
    pub cid: U16,
    /// Status field as in the completion.
    pub status: U16,
    /// Where in the command; see [`ParameterLocation`].
    pub location: U16,
    /// First block with the error.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor specific log page with more.
    pub vs: u8,
    /// Transport; 3 is TCP.
    pub trtype: u8,
    _rsvd30: [u8; 2],
    /// Command specific.
    pub cs: U64,
    /// Transport specific.
    pub trtype_specific: U16,
    _rsvd42: [u8; 22],
}

bits! {
    /// Parameter error location. FFFFh: not about a parameter.
    ParameterLocation: u16 {
        /// Byte of the submission entry.
        byte, with_byte: 0..8 as u8;
        /// Bit of that byte.
        bit, with_bit: 8..3 as u8;
    }
}

wire! { ErrorEntry = 64, "error information entry"; }
