//! SGL descriptors as NVMe/TCP uses them, and the checked meaning of a command's data pointer.

use crate::command::{Psdt, Sqe};
use crate::status::Status;
use crate::wire::{Wire, wire};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// SGL descriptor, 16 bytes (NVMe Base 2.0 §4.1.2).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address, or byte offset into the capsule's data for subtype 1.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    _rsvd: [u8; 3],
    /// Type in bits 7:4, subtype in bits 3:0.
    pub identifier: u8,
}

/// Identifier of a data block with an offset into the capsule: type 0h, subtype 1h.
pub const DATA_BLOCK_OFFSET: u8 = 0x01;
/// Identifier of a transport data block: type 5h, subtype Ah (NVMe-TCP 1.0 §3.3.2.2).
pub const TRANSPORT_DATA_BLOCK: u8 = 0x5A;

impl SglDescriptor {
    /// Data inside the command capsule.
    #[must_use]
    pub fn in_capsule(offset: u64, length: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(offset),
            length: U32::new(length),
            _rsvd: [0; 3],
            identifier: DATA_BLOCK_OFFSET,
        }
    }

    /// Data that travels in data PDUs.
    #[must_use]
    pub fn transport(length: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(0),
            length: U32::new(length),
            _rsvd: [0; 3],
            identifier: TRANSPORT_DATA_BLOCK,
        }
    }
}

/// Where a command's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPointer {
    /// Length 0: no data.
    None,
    /// In the command capsule. The range is inside the capsule's data.
    InCapsule {
        /// Bytes from the start of the capsule's data (ICDOFF is 0, NVME N2).
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// In data PDUs.
    Transport {
        /// Bytes.
        len: u32,
    },
}

impl DataPointer {
    /// Checks PSDT and the descriptor of `sqe`, whose capsule carries `capsule_data` bytes of data.
    ///
    /// Statuses by NVMe Base 2.0 §4.1.2 and NVME N5: PRP or a reserved PSDT is Invalid Field; a descriptor
    /// other than 01h and 5Ah is SGL Descriptor Type Invalid; an offset beyond the capsule is SGL Offset
    /// Invalid; a length beyond it is Data SGL Length Invalid.
    pub fn parse(sqe: &Sqe, capsule_data: u32) -> Result<DataPointer, Status> {
        match sqe.psdt()? {
            Psdt::Prp => return Err(Status::INVALID_FIELD),
            Psdt::SglMptrAddress | Psdt::SglMptrSegment => {}
        }
        sqe.dptr.locate(capsule_data)
    }

    /// Bytes of data.
    #[must_use]
    pub const fn len(self) -> u32 {
        match self {
            DataPointer::None => 0,
            DataPointer::InCapsule { len, .. } | DataPointer::Transport { len } => len,
        }
    }

    /// Whether there is no data.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The descriptor that says so. No data is a transport data block of length 0.
    #[must_use]
    pub fn descriptor(self) -> SglDescriptor {
        match self {
            DataPointer::None => SglDescriptor::transport(0),
            DataPointer::InCapsule { offset, len } => SglDescriptor::in_capsule(u64::from(offset), len),
            DataPointer::Transport { len } => SglDescriptor::transport(len),
        }
    }
}

impl SglDescriptor {
    /// Checks this descriptor against a capsule with `capsule_data` bytes of data; see
    /// [`DataPointer::parse`].
    pub fn locate(&self, capsule_data: u32) -> Result<DataPointer, Status> {
        let len = self.length.get();
        match self.identifier {
            TRANSPORT_DATA_BLOCK if len == 0 => Ok(DataPointer::None),
            TRANSPORT_DATA_BLOCK => Ok(DataPointer::Transport { len }),
            DATA_BLOCK_OFFSET if len == 0 => Ok(DataPointer::None),
            DATA_BLOCK_OFFSET => {
                let offset = u32::try_from(self.address.get()).map_err(|_| Status::SGL_OFFSET_INVALID)?;
                if offset >= capsule_data {
                    return Err(Status::SGL_OFFSET_INVALID);
                }
                if len > capsule_data - offset {
                    return Err(Status::DATA_SGL_LENGTH_INVALID);
                }
                Ok(DataPointer::InCapsule { offset, len })
            }
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }

    /// An all-zero descriptor, as in commands without data.
    #[must_use]
    pub fn empty() -> SglDescriptor {
        SglDescriptor::zeroed()
    }
}

wire! { SglDescriptor = 16, "SGL descriptor"; }
