//! Identify Controller of the NVM command set, CNS 06h, and primary controller capabilities, CNS 14h.

use crate::wire::wire;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Limits of NVM commands, 4096 bytes (NVM Command Set 1.0 §4.1.5.4).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// Verify size limit, 2^n × CAP.MPSMIN bytes; 0 is none.
    pub vsl: u8,
    /// Write Zeroes size limit, 2^n × CAP.MPSMIN bytes; 0 is none (NVME N9).
    pub wzsl: u8,
    /// Write Uncorrectable size limit, 2^n × CAP.MPSMIN bytes; 0 is none.
    pub wusl: u8,
    /// Dataset Management ranges limit; 0 is none (NVME N10).
    pub dmrl: u8,
    /// Dataset Management range size limit, blocks; 0 is none.
    pub dmrsl: U32,
    /// Dataset Management size limit, blocks of all ranges; 0 is none.
    pub dmsl: U64,
    _rsvd16: [u8; 4080],
}

/// Primary controller capabilities, 4096 bytes (NVMe Base 2.0 figure 284).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PrimaryControllerCapabilities {
    /// The controller.
    pub cntlid: U16,
    /// Port identifier.
    pub portid: U16,
    /// Controller resource types: bit 0 queues, bit 1 interrupts.
    pub crt: u8,
    _rsvd5: [u8; 27],
    /// Queue resources flexible total.
    pub vqfrt: U32,
    /// Queue resources flexible assigned.
    pub vqrfa: U32,
    /// Queue resources flexible allocated to the primary.
    pub vqrfap: U16,
    /// Queue resources private total.
    pub vqprt: U16,
    /// Queue resources flexible secondary maximum.
    pub vqfrsm: U16,
    /// Queue resources granularity.
    pub vqgran: U16,
    _rsvd48: [u8; 16],
    /// Interrupt resources flexible total.
    pub vifrt: U32,
    /// Interrupt resources flexible assigned.
    pub virfa: U32,
    /// Interrupt resources flexible allocated to the primary.
    pub virfap: U16,
    /// Interrupt resources private total.
    pub viprt: U16,
    /// Interrupt resources flexible secondary maximum.
    pub vifrsm: U16,
    /// Interrupt resources granularity.
    pub vigran: U16,
    _rsvd80: [u8; 4016],
}

wire! {
    IdentifyNvmController = 4096, "NVM Identify Controller";
    PrimaryControllerCapabilities = 4096, "primary controller capabilities";
}
