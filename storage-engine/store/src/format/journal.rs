//! Blocks of a lane's journal: a ring, in which each block names its predecessor (PROTOCOL S5).

use std::ops::DerefMut;

use ashlar_io::BLOCK_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, BadBlock, BlockKind, DeviceId, HEADER_BYTES, Place, bad_field};
use super::layout::Layout;
use super::record::{BadRecord, Record, WRITE_BYTES};

/// Where the records begin.
const RECORDS_AT: usize = HEADER_BYTES + size_of::<Raw>();
/// Bytes of records of a block.
pub const RECORD_BYTES: usize = BLOCK_BYTES - RECORDS_AT;
/// Most blocks that one record of a write can have: with more it does not fit a journal block.
pub const MAX_WRITE_BLOCKS: u32 = ((RECORD_BYTES - WRITE_BYTES) / size_of::<U32>()) as u32;

const _: () = assert!(RECORD_BYTES == 4016 && MAX_WRITE_BLOCKS == 996, "as documented");

/// What a journal block says beside its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalHeader {
    /// Which block of the journal, from 1 on; it stands at the remainder by the journal's length.
    pub sequence: u64,
    /// Raised at each open of the lane.
    pub incarnation: u32,
    /// CRC of the block before; 0 in the first block of all.
    pub predecessor: u32,
    /// Number of its first record. Records are numbered without gaps over the life of a lane.
    pub first_record: u64,
    /// All blocks up to this sequence were durable when this one was written.
    pub acked_through: u64,
    /// The data of all records below this number is durable (PROTOCOL S1).
    pub landed: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    incarnation: U32,
    lane: U16,
    record_bytes: U16,
    predecessor: U32,
    reserved: U32,
    first_record: U64,
    acked_through: U64,
    landed: U64,
}

/// A journal block that is being filled.
#[derive(Debug)]
pub struct JournalBuilder<B> {
    block: B,
    used: usize,
    records: u32,
}

impl<B: DerefMut<Target = [u8]>> JournalBuilder<B> {
    /// Begins with no record in `block`.
    ///
    /// # Panics
    /// If `block` is not 4096 bytes.
    pub fn new(block: B) -> Self {
        assert_eq!(block.len(), BLOCK_BYTES, "a journal block is one block");
        Self { block, used: 0, records: 0 }
    }

    /// Appends a record and says its index in the block; `None` if it does not fit any more.
    pub fn push(&mut self, record: &Record<'_>) -> Option<u32> {
        self.used += record.encode(&mut self.block[RECORDS_AT + self.used..])?;
        self.records += 1;
        Some(self.records - 1)
    }

    /// Bytes that are left (see [`Record::encoded_bytes`]).
    pub const fn room(&self) -> usize {
        RECORD_BYTES - self.used
    }

    /// Records so far.
    pub const fn records(&self) -> u32 {
        self.records
    }

    /// There is no record yet.
    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Completes the block, and says its CRC, which the next one names.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub fn seal(mut self, header: &JournalHeader, layout: &Layout, device: DeviceId, lane: u32) -> (B, u32) {
        let raw = Raw {
            incarnation: header.incarnation.into(),
            // At most 16 lanes, and at most 4016 bytes.
            lane: (lane as u16).into(),
            record_bytes: (self.used as u16).into(),
            predecessor: header.predecessor.into(),
            reserved: U32::ZERO,
            first_record: header.first_record.into(),
            acked_through: header.acked_through.into(),
            landed: header.landed.into(),
        };
        let address = layout.journal_block(lane, header.sequence);
        self.block[HEADER_BYTES..RECORDS_AT].copy_from_slice(raw.as_bytes());
        self.block[RECORDS_AT + self.used..].fill(0);
        let crc =
            block::seal(&mut self.block, BlockKind::Journal, Place { device, address }, header.sequence);
        (self.block, crc)
    }
}

/// Why a block of the journal cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadJournal {
    /// The block is bad.
    #[error(transparent)]
    Block(#[from] BadBlock),
    /// The block is whole, but one of its records is not possible: it was written so.
    #[error("its record {index} is bad: {cause}")]
    Record {
        /// Index of the record in the block.
        index: u32,
        /// What is wrong with it.
        cause: BadRecord,
    },
}

/// A good journal block: its records have been checked.
#[derive(Debug, Clone, Copy)]
pub struct JournalBlock<'a> {
    /// What it says of itself.
    pub header: JournalHeader,
    /// Its CRC, which the next block names.
    pub crc: u32,
    /// How many records it has.
    pub records: u32,
    bytes: &'a [u8],
    layout: &'a Layout,
}

impl<'a> JournalBlock<'a> {
    /// Checks a block that was read from `address`, within the journal of `lane`.
    ///
    /// # Errors
    /// What is wrong with it.
    ///
    /// # Panics
    /// If the device has no such lane.
    pub fn open(
        block: &'a [u8],
        layout: &'a Layout,
        device: DeviceId,
        lane: u32,
        address: u64,
    ) -> Result<Self, BadJournal> {
        let found = block::open(block, BlockKind::Journal, Place { device, address })?;
        let raw: &Raw = block::fields(block, HEADER_BYTES)?;
        let sequence = found.generation;
        if sequence == 0 || layout.journal_block(lane, sequence) != address {
            return Err(bad_field("sequence", sequence).into());
        }
        if u32::from(raw.lane.get()) != lane {
            return Err(bad_field("lane", raw.lane.get()).into());
        }
        let used = usize::from(raw.record_bytes.get());
        let bytes = block
            .get(RECORDS_AT..RECORDS_AT + used)
            .ok_or_else(|| bad_field("length of records", raw.record_bytes.get()))?;
        if raw.acked_through.get() >= sequence {
            return Err(bad_field("acked-through", raw.acked_through.get()).into());
        }
        let header = JournalHeader {
            sequence,
            incarnation: raw.incarnation.get(),
            predecessor: raw.predecessor.get(),
            first_record: raw.first_record.get(),
            acked_through: raw.acked_through.get(),
            landed: raw.landed.get(),
        };
        let (mut left, mut records) = (bytes, 0);
        while !left.is_empty() {
            let (_, length) =
                Record::decode(left, layout).map_err(|cause| BadJournal::Record { index: records, cause })?;
            left = &left[length..];
            records += 1;
        }
        if header.first_record.checked_add(u64::from(records)).is_none() {
            return Err(bad_field("first record", header.first_record).into());
        }
        Ok(Self { header, crc: found.crc, records, bytes, layout })
    }

    /// Its records with their numbers.
    pub fn records(&self) -> impl Iterator<Item = (u64, Record<'a>)> + use<'a> {
        let (mut left, layout) = (self.bytes, self.layout);
        let records = std::iter::from_fn(move || {
            // Checked when the block was opened: the end is the end of the bytes.
            let (record, length) = Record::decode(left, layout).ok()?;
            left = &left[length..];
            Some(record)
        });
        (self.header.first_record..).zip(records)
    }
}
