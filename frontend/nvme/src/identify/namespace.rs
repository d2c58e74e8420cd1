//! Identify Namespace, CNS 00h, and its NVM command set part, CNS 05h (NVM Command Set 1.0 §4.1.5).

use crate::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identify Namespace of the NVM command set, 4096 bytes. All zero for an inactive NSID.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Size in blocks.
    pub nsze: U64,
    /// Capacity in blocks.
    pub ncap: U64,
    /// Utilization in blocks.
    pub nuse: U64,
    /// Features: see [`nsfeat`].
    pub nsfeat: u8,
    /// Number of LBA formats, 0-based.
    pub nlbaf: u8,
    /// Format in use: index in bits 3:0 (and 6:5), bit 4 metadata inline.
    pub flbas: u8,
    /// Metadata capabilities.
    pub mc: u8,
    /// Protection capabilities.
    pub dpc: u8,
    /// Protection settings.
    pub dps: u8,
    /// Multi-path and sharing: see [`NMIC_SHARED`].
    pub nmic: u8,
    /// Reservation capabilities.
    pub rescap: u8,
    /// Format progress.
    pub fpi: u8,
    /// What deallocated blocks read as: see [`dlfeat`].
    pub dlfeat: u8,
    /// Atomic write unit normal, 0-based blocks.
    pub nawun: U16,
    /// Atomic write unit power fail, 0-based blocks.
    pub nawupf: U16,
    /// Atomic compare and write unit, 0-based blocks.
    pub nacwu: U16,
    /// Atomic boundary size normal, 0-based blocks.
    pub nabsn: U16,
    /// Atomic boundary offset, blocks.
    pub nabo: U16,
    /// Atomic boundary size power fail, 0-based blocks.
    pub nabspf: U16,
    /// Optimal I/O boundary, blocks; 0 is none.
    pub noiob: U16,
    /// Capacity in bytes, 128 bits.
    pub nvmcap: [u8; 16],
    /// Preferred write granularity, 0-based blocks.
    pub npwg: U16,
    /// Preferred write alignment, 0-based blocks.
    pub npwa: U16,
    /// Preferred deallocate granularity, 0-based blocks.
    pub npdg: U16,
    /// Preferred deallocate alignment, 0-based blocks.
    pub npda: U16,
    /// Optimal write size, 0-based blocks.
    pub nows: U16,
    /// Maximum single source range length of Copy, blocks.
    pub mssrl: U16,
    /// Maximum copy length, blocks.
    pub mcl: U32,
    /// Maximum source range count, 0-based.
    pub msrc: u8,
    _rsvd81: u8,
    /// Number of unique capability LBA formats.
    pub nulbaf: u8,
    _rsvd83: [u8; 9],
    /// ANA group identifier.
    pub anagrpid: U32,
    _rsvd96: [u8; 3],
    /// Attributes: bit 0 write protected.
    pub nsattr: u8,
    /// NVM set identifier.
    pub nvmsetid: U16,
    /// Endurance group identifier.
    pub endgid: U16,
    /// NGUID, big-endian.
    pub nguid: [u8; 16],
    /// EUI64, big-endian.
    pub eui64: [u8; 8],
    /// LBA formats.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vs: [u8; 3712],
}

bits! {
    /// LBAF: one LBA format (NVM Command Set 1.0 figure 98).
    LbaFormatBits: u32 {
        /// Metadata bytes per block.
        ms, with_ms: 0..16 as u16;
        /// Block size, 2^n bytes; 0 is no format.
        lbads, with_lbads: 16..8 as u8;
        /// Relative performance, 0 best.
        rp, with_rp: 24..2 as u8;
    }
}

/// LBAF as it lies in the structure.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct LbaFormat(pub U32);

impl LbaFormat {
    /// A format without metadata.
    #[must_use]
    pub fn new(lbads: u8) -> LbaFormat {
        LbaFormat(U32::new(LbaFormatBits(0).with_lbads(lbads).0))
    }

    /// Its fields.
    #[must_use]
    pub fn bits(self) -> LbaFormatBits {
        LbaFormatBits(self.0.get())
    }
}

impl IdentifyNamespace {
    /// Index of the format in use (FLBAS bits 6:5 and 3:0).
    #[must_use]
    pub fn format_index(&self) -> u8 {
        (self.flbas & 0x0F) | ((self.flbas >> 1) & 0x30)
    }

    /// The format in use.
    #[must_use]
    pub fn format(&self) -> LbaFormatBits {
        self.lbaf.get(usize::from(self.format_index())).map(|f| f.bits()).unwrap_or_default()
    }

    /// Block size in bytes as 2^n, if the format in use is one.
    #[must_use]
    pub fn block_size(&self) -> Option<u64> {
        match self.format().lbads() {
            lbads @ 9..=63 => Some(1 << lbads),
            _ => None,
        }
    }
}

/// Bits of NSFEAT.
pub mod nsfeat {
    /// Thin provisioning.
    pub const THIN: u8 = 1 << 0;
    /// NSABP: NAWUN, NAWUPF, NACWU are valid.
    pub const NSABP: u8 = 1 << 1;
    /// DAE: deallocated or unwritten block error is supported.
    pub const DAE: u8 = 1 << 2;
    /// UIDREUSE: NGUID and EUI64 are never used again.
    pub const UIDREUSE: u8 = 1 << 3;
    /// OPTPERF: NPWG, NPWA, NPDG, NPDA, NOWS are valid.
    pub const OPTPERF: u8 = 1 << 4;
}

/// NMIC bit: the namespace may be attached to several controllers.
pub const NMIC_SHARED: u8 = 1 << 0;

/// Bits of DLFEAT.
pub mod dlfeat {
    /// Deallocated blocks read as zeroes (bits 2:0 are 001b).
    pub const READS_ZEROES: u8 = 0b001;
    /// Write Zeroes with DEAC is supported.
    pub const WRITE_ZEROES_DEALLOCATE: u8 = 1 << 3;
}

/// NSATTR bit: currently write protected.
pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;

/// Identify Namespace of the NVM command set, CNS 05h with CSI 0, 4096 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyNvmNamespace {
    /// Logical block storage tag mask.
    pub lbstm: U64,
    /// Protection information capabilities.
    pub pic: u8,
    _rsvd9: [u8; 3],
    /// Extended LBA formats.
    pub elbaf: [U32; 64],
    _rsvd268: [u8; 3828],
}

wire! {
    IdentifyNamespace = 4096, "Identify Namespace";
    LbaFormat = 4, "LBA format";
    IdentifyNvmNamespace = 4096, "NVM Identify Namespace";
}
