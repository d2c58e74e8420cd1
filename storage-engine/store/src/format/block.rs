//! The header that metadata blocks share: what kind of block it is, whose, where it belongs, and that it is whole.

use std::fmt;

use ashlar_io::BLOCK_BYTES;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the common header: a block's own fields follow.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();

/// Where the CRC stands in the block.
const CRC_BYTES: std::ops::Range<usize> = 4..8;

/// A device, for as long as it keeps this format: formatting again gives another id, so that blocks of the earlier
/// format never verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub Uuid);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kinds of metadata blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// A copy of the superblock.
    Superblock,
    /// First block of a catalog slot.
    Catalog,
    /// First block of a root slot.
    Root,
    /// Header of a slab.
    SlabHeader,
    /// Table page of a slab.
    TablePage,
    /// Journal block of a lane.
    Journal,
}

impl BlockKind {
    /// The four bytes with which such a block begins.
    pub const fn magic(self) -> [u8; 4] {
        match self {
            BlockKind::Superblock => *b"ASLS",
            BlockKind::Catalog => *b"ASLC",
            BlockKind::Root => *b"ASLR",
            BlockKind::SlabHeader => *b"ASLH",
            BlockKind::TablePage => *b"ASLT",
            BlockKind::Journal => *b"ASLJ",
        }
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockKind::Superblock => "superblock",
            BlockKind::Catalog => "catalog block",
            BlockKind::Root => "root block",
            BlockKind::SlabHeader => "slab header",
            BlockKind::TablePage => "table page",
            BlockKind::Journal => "journal block",
        })
    }
}

/// Where a block belongs. A block of another device or address never verifies (PROTOCOL S4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The device.
    pub device: DeviceId,
    /// The block's number on it.
    pub address: u64,
}

/// A version of a page in two slots: enough to find it and to know that it is the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRef {
    /// Its generation, from 1; the slot is its remainder (see [`super::Slot::of`]).
    pub generation: u64,
    /// Its CRC.
    pub crc: u32,
}

/// What the header of a good block says beside what was expected of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Rises with each writing of this kind of block.
    pub generation: u64,
    /// CRC of the block.
    pub crc: u32,
}

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// It is not 4096 bytes.
    #[error("it has {0} bytes instead of {BLOCK_BYTES}")]
    Length(usize),
    /// It is of another kind, or nothing that the store wrote.
    #[error("it does not begin as a {expected} does")]
    Magic {
        /// What it should be.
        expected: BlockKind,
    },
    /// Its bytes changed after it was sealed.
    #[error("its CRC is {computed:#010x} instead of {stored:#010x}")]
    Crc {
        /// What stands in it or, for checksum pages, in the table.
        stored: u32,
        /// That of its bytes.
        computed: u32,
    },
    /// It was written for another device.
    #[error("it belongs to device {found}")]
    Device {
        /// That device.
        found: DeviceId,
    },
    /// It was written for another place.
    #[error("it belongs to block {found} instead of {expected}")]
    Address {
        /// Where it was read.
        expected: u64,
        /// Where it belongs.
        found: u64,
    },
    /// It is whole, but a field has a value that it must not have.
    #[error("its {field} is {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// A field has a value that it must not have.
pub(crate) fn bad_field(field: &'static str, value: impl Into<u64>) -> BadBlock {
    BadBlock::Field { field, value: value.into() }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    crc: U32,
    device: [u8; 16],
    address: U64,
    generation: U64,
}

/// CRC of a block whose CRC field counts as zero.
fn crc(block: &[u8]) -> u32 {
    let head = crc32c::crc32c(&block[..CRC_BYTES.start]);
    let head = crc32c::crc32c_append(head, &[0; 4]);
    crc32c::crc32c_append(head, &block[CRC_BYTES.end..])
}

/// Completes a block whose fields behind the header are filled in, and says its CRC.
///
/// # Panics
/// If `block` is not 4096 bytes.
pub fn seal(block: &mut [u8], kind: BlockKind, place: Place, generation: u64) -> u32 {
    assert_eq!(block.len(), BLOCK_BYTES, "a {kind} is one block");
    let mut header = RawHeader {
        magic: kind.magic(),
        crc: U32::ZERO,
        device: *place.device.0.as_bytes(),
        address: place.address.into(),
        generation: generation.into(),
    };
    block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    header.crc = crc(block).into();
    block[CRC_BYTES].copy_from_slice(header.crc.as_bytes());
    header.crc.get()
}

/// Checks a block of `kind` that was read from `place`.
///
/// # Errors
/// What is wrong with it, the first of: length, magic, CRC, device, address.
pub fn open(block: &[u8], kind: BlockKind, place: Place) -> Result<Header, BadBlock> {
    let (device, header) = open_of_any_device(block, kind, place.address)?;
    if device != place.device {
        return Err(BadBlock::Device { found: device });
    }
    Ok(header)
}

/// The same for a block that says itself which device this is.
///
/// # Errors
/// See [`open`].
pub fn open_of_any_device(
    block: &[u8],
    kind: BlockKind,
    address: u64,
) -> Result<(DeviceId, Header), BadBlock> {
    if block.len() != BLOCK_BYTES {
        return Err(BadBlock::Length(block.len()));
    }
    let Ok((header, _)) = RawHeader::ref_from_prefix(block) else {
        return Err(BadBlock::Length(block.len()));
    };
    if header.magic != kind.magic() {
        return Err(BadBlock::Magic { expected: kind });
    }
    let computed = crc(block);
    if header.crc.get() != computed {
        return Err(BadBlock::Crc { stored: header.crc.get(), computed });
    }
    if header.address.get() != address {
        return Err(BadBlock::Address { expected: address, found: header.address.get() });
    }
    let device = DeviceId(Uuid::from_bytes(header.device));
    Ok((device, Header { generation: header.generation.get(), crc: computed }))
}

/// The structure that stands at `at`: the caller's block has been opened, so it is long enough.
pub(crate) fn fields<T>(block: &[u8], at: usize) -> Result<&T, BadBlock>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let bytes = block.get(at..).unwrap_or_default();
    T::ref_from_prefix(bytes).map(|(fields, _)| fields).map_err(|_| BadBlock::Length(block.len()))
}
