//! I/O command set independent Identify Namespace, CNS 08h (NVMe Base 2.0 figure 281).

use crate::wire::wire;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What every command set knows of a namespace, 4096 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyIndependentNamespace {
    /// Common features: bit 3 UIDREUSE, bit 4 RMEDIA (rotational), bit 5 VWCNP.
    pub nsfeat: u8,
    /// Multi-path and sharing: bit 0 shared.
    pub nmic: u8,
    /// Reservation capabilities.
    pub rescap: u8,
    /// Format progress.
    pub fpi: u8,
    /// ANA group identifier.
    pub anagrpid: U32,
    /// Attributes: bit 0 write protected.
    pub nsattr: u8,
    _rsvd9: u8,
    /// NVM set identifier.
    pub nvmsetid: U16,
    /// Endurance group identifier.
    pub endgid: U16,
    /// Status: see [`NSTAT_NRDY`].
    pub nstat: u8,
    _rsvd15: [u8; 4081],
}

/// NSTAT bit NRDY: the namespace is ready; without it Linux hides it (NVME N3).
pub const NSTAT_NRDY: u8 = 1 << 0;

wire! { IdentifyIndependentNamespace = 4096, "independent Identify Namespace"; }
