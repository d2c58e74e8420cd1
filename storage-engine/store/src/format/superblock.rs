//! The superblock: what a device is, whose, and how it is laid out.

use std::fmt;

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, BadBlock, BlockKind, DeviceId, HEADER_BYTES, Place};
use super::layout::{Geometry, Layout, LayoutError, Row};

/// The version of the format that this code writes.
pub const FORMAT_VERSION: u32 = 1;
/// Longest label, in bytes of UTF-8.
pub const LABEL_BYTES: usize = 64;

/// Bit of the flags: the device may tear blocks (PROTOCOL S9).
const FLAG_TORN_PRONE: u32 = 1 << 0;

/// What a device is called by people: at most 64 bytes of UTF-8 without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Label(String);

impl Label {
    /// `None` if it is too long or has control characters.
    pub fn new(label: impl Into<String>) -> Option<Self> {
        let label = label.into();
        (label.len() <= LABEL_BYTES && !label.chars().any(char::is_control)).then_some(Self(label))
    }

    /// The label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with each change.
    pub generation: u64,
    /// The device.
    pub device: DeviceId,
    /// The cluster; `None` on a node that belongs to none.
    pub cluster: Option<Uuid>,
    /// The node.
    pub node: Uuid,
    /// The pool.
    pub pool: Uuid,
    /// Where things are.
    pub layout: Layout,
    /// When it was formatted, in seconds since 1970.
    pub formatted_at: u64,
    /// It may tear blocks: writes are logged (PROTOCOL S9).
    pub torn_prone: bool,
    /// What people call it.
    pub label: Label,
}

/// Why a superblock copy cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSuperblock {
    /// The block is bad.
    #[error(transparent)]
    Block(#[from] BadBlock),
    /// It has another format.
    #[error("it has format version {found}, and this program knows {FORMAT_VERSION}")]
    Version {
        /// Which one.
        found: u32,
    },
    /// It needs features that this code does not know.
    #[error("it needs features that this program does not know (bits {bits:#x})")]
    Features {
        /// Their bits.
        bits: u32,
    },
    /// Its layout is impossible.
    #[error("its layout is impossible: {0}")]
    Layout(#[from] LayoutError),
    /// Its label is no text.
    #[error("its label is not UTF-8, or has control characters")]
    Label,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    version: U32,
    incompatible: U32,
    cluster: [u8; 16],
    node: [u8; 16],
    pool: [u8; 16],
    device_blocks: U64,
    extents_per_slab: U32,
    lanes: U32,
    catalog: [U64; 2],
    roots: [U64; 2],
    journals: [U64; 2],
    slabs: [U64; 2],
    formatted_at: U64,
    flags: U32,
    reserved: U32,
    label: [u8; LABEL_BYTES],
}

const _: () = assert!(HEADER_BYTES + size_of::<Raw>() == 256, "the label ends at byte 256");

impl Superblock {
    /// The copies that hold this generation: one at the front, one at the back (see [`Layout::superblocks`]). Those
    /// of the generation before stay until this one is durable.
    pub const fn copies(&self) -> [usize; 2] {
        let odd = (self.generation % 2) as usize;
        [odd, 2 + odd]
    }

    /// Writes it as the copy at `address`.
    ///
    /// # Panics
    /// If `block` is not 4096 bytes.
    pub fn encode(&self, block: &mut [u8], address: u64) {
        let Geometry { device_blocks, extents_per_slab, lanes, catalog, roots, journals, slabs_first, slabs } =
            self.layout.geometry();
        let row = |row: Row| [row.first.into(), row.blocks.into()];
        let mut label = [0; LABEL_BYTES];
        label[..self.label.0.len()].copy_from_slice(self.label.0.as_bytes());
        let raw = Raw {
            version: FORMAT_VERSION.into(),
            incompatible: U32::ZERO,
            cluster: self.cluster.unwrap_or(Uuid::nil()).into_bytes(),
            node: self.node.into_bytes(),
            pool: self.pool.into_bytes(),
            device_blocks: device_blocks.into(),
            extents_per_slab: extents_per_slab.into(),
            lanes: lanes.into(),
            catalog: row(catalog),
            roots: row(roots),
            journals: row(journals),
            slabs: [slabs_first.into(), slabs.into()],
            formatted_at: self.formatted_at.into(),
            flags: if self.torn_prone { FLAG_TORN_PRONE } else { 0 }.into(),
            reserved: U32::ZERO,
            label,
        };
        block.fill(0);
        block[HEADER_BYTES..HEADER_BYTES + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        block::seal(block, BlockKind::Superblock, Place { device: self.device, address }, self.generation);
    }

    /// Reads the copy at `address`, which must be one of its places.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn decode(block: &[u8], address: u64) -> Result<Self, BadSuperblock> {
        let (device, header) = block::open_of_any_device(block, BlockKind::Superblock, address)?;
        let raw: &Raw = block::fields(block, HEADER_BYTES)?;
        // Before anything else: the rest may mean something else in another version.
        if raw.version.get() != FORMAT_VERSION {
            return Err(BadSuperblock::Version { found: raw.version.get() });
        }
        if raw.incompatible.get() != 0 {
            return Err(BadSuperblock::Features { bits: raw.incompatible.get() });
        }
        let row = |row: [U64; 2]| Row { first: row[0].get(), blocks: row[1].get() };
        let layout = Layout::check(Geometry {
            device_blocks: raw.device_blocks.get(),
            extents_per_slab: raw.extents_per_slab.get(),
            lanes: raw.lanes.get(),
            catalog: row(raw.catalog),
            roots: row(raw.roots),
            journals: row(raw.journals),
            slabs_first: raw.slabs[0].get(),
            slabs: raw.slabs[1].get(),
        })?;
        let odd = (header.generation % 2) as usize;
        if ![odd, 2 + odd].iter().any(|copy| layout.superblocks()[*copy] == address) {
            return Err(block::bad_field("generation", header.generation).into());
        }
        let used = LABEL_BYTES - raw.label.iter().rev().take_while(|byte| **byte == 0).count();
        let label = std::str::from_utf8(&raw.label[..used]).map_err(|_| BadSuperblock::Label)?;
        let cluster = Uuid::from_bytes(raw.cluster);
        Ok(Self {
            generation: header.generation,
            device,
            cluster: (!cluster.is_nil()).then_some(cluster),
            node: Uuid::from_bytes(raw.node),
            pool: Uuid::from_bytes(raw.pool),
            layout,
            formatted_at: raw.formatted_at.get(),
            torn_prone: raw.flags.get() & FLAG_TORN_PRONE != 0,
            label: Label::new(label).ok_or(BadSuperblock::Label)?,
        })
    }
}
