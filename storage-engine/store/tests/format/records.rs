//! Records of the journal: each reads back, and bytes that are none are refused.

use ashlar_store::format::journal::{MAX_WRITE_BLOCKS, RECORD_BYTES};
use ashlar_store::format::record::BadRecord;
use ashlar_store::format::{
    Extent, JournalBlock, JournalBuilder, JournalHeader, Record, ShardEntry, Slab, Subject, Sums,
};
use ashlar_store::lane::{Origin, ShardSlot};
use ashlar_store::{Blocks, EXTENT_BLOCKS, ExtentId, SegmentId, ShardId, Stored, Version};
use proptest::prelude::*;
use uuid::Uuid;

use crate::samples;

/// A record that owns its checksums.
#[derive(Debug, Clone)]
struct Owned {
    record: Record<'static>,
    sums: Vec<Stored>,
}

impl Owned {
    fn get(&self) -> Record<'_> {
        match self.record {
            Record::Write { subject, blocks, .. } => {
                Record::Write { subject, blocks, sums: Sums::from(self.sums.as_slice()) }
            }
            record => record,
        }
    }
}

fn version() -> impl Strategy<Value = Version> {
    (any::<u32>(), any::<u64>()).prop_map(|(epoch, sequence)| Version { epoch, sequence })
}

fn extent() -> impl Strategy<Value = Extent> {
    (0..samples::layout().extents()).prop_map(Extent)
}

fn slab() -> impl Strategy<Value = Slab> {
    (0..samples::layout().slabs()).prop_map(Slab)
}

fn segment() -> impl Strategy<Value = SegmentId> {
    (any::<u128>(), any::<u32>())
        .prop_map(|(volume, index)| SegmentId { volume: Uuid::from_u128(volume), index })
}

fn subject() -> impl Strategy<Value = Subject> {
    (extent(), any::<u32>(), any::<u32>(), version(), any::<bool>(), any::<bool>()).prop_map(
        |(extent, shard, index, version, copy, carried)| Subject {
            extent,
            shard: ShardSlot(shard),
            index,
            version,
            origin: if copy { Origin::Copy } else { Origin::Shard },
            carried,
        },
    )
}

fn blocks(most: u32) -> impl Strategy<Value = Blocks> {
    (0..EXTENT_BLOCKS).prop_flat_map(move |first| {
        (1..=(EXTENT_BLOCKS - first).min(most))
            .prop_map(move |count| Blocks::new(first, count).expect("it ends within the extent"))
    })
}

fn shard() -> impl Strategy<Value = ShardEntry> {
    (any::<u32>(), segment(), any::<u32>(), any::<bool>(), version(), version()).prop_map(
        |(slot, segment, index, single, committed, base)| ShardEntry {
            slot: ShardSlot(slot),
            shard: ShardId { segment, index },
            single,
            committed,
            base,
        },
    )
}

fn record() -> impl Strategy<Value = Owned> {
    let plain = |record| Owned { record, sums: Vec::new() };
    let write =
        (subject(), blocks(MAX_WRITE_BLOCKS), any::<u32>()).prop_map(|(subject, blocks, seed)| Owned {
            record: Record::Write { subject, blocks, sums: Sums::from(&[][..]) },
            sums: (0..blocks.count()).map(|block| Stored(seed.wrapping_mul(block + 1))).collect(),
        });
    let mark = || (any::<u32>().prop_map(ShardSlot), version(), any::<bool>());
    prop_oneof![
        4 => write,
        1 => (subject(), blocks(EXTENT_BLOCKS))
            .prop_map(move |(subject, blocks)| plain(Record::Zero { subject, blocks })),
        1 => (subject(), segment(), any::<u32>()).prop_map(move |(subject, segment, index)| {
            plain(Record::Allocate { subject: Subject { index, ..subject }, holds: ExtentId { segment, index } })
        }),
        1 => subject().prop_map(move |subject| plain(Record::Free { subject })),
        1 => extent().prop_map(move |extent| plain(Record::Open { extent })),
        1 => extent().prop_map(move |extent| plain(Record::Close { extent })),
        1 => extent().prop_map(move |extent| plain(Record::Verified { extent })),
        1 => mark().prop_map(move |(shard, version, _)| plain(Record::Committed { shard, version })),
        1 => mark()
            .prop_map(move |(shard, version, carried)| plain(Record::Empty { shard, version, carried })),
        1 => shard().prop_map(move |entry| plain(Record::Shard(entry))),
        1 => mark().prop_map(move |(shard, _, _)| plain(Record::ShardForgotten { shard })),
        1 => (slab(), any::<u64>())
            .prop_map(move |(slab, generation)| plain(Record::SlabTaken { slab, generation })),
        1 => (slab(), any::<u64>())
            .prop_map(move |(slab, generation)| plain(Record::SlabReleased { slab, generation })),
    ]
}

/// Encodes into a buffer of exactly its size.
fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = vec![0; record.encoded_bytes()];
    assert_eq!(record.encode(&mut bytes), Some(bytes.len()));
    bytes
}

#[test]
fn every_kind_has_its_documented_length() {
    let lengths: Vec<_> = samples::records().iter().map(Record::encoded_bytes).collect();
    assert_eq!(lengths, [32 + 3 * 4, 32, 48, 28, 8, 8, 8, 20, 60, 8, 16, 16, 20, 20]);
}

#[test]
fn a_record_that_names_what_the_device_lacks_is_refused() {
    let layout = samples::layout();
    let extent = Extent(layout.extents());
    let bytes = encoded(&Record::Open { extent });
    assert_eq!(Record::decode(&bytes, &layout), Err(BadRecord::Extent(extent)));
    let slab = Slab(layout.slabs());
    let bytes = encoded(&Record::SlabTaken { slab, generation: 1 });
    assert_eq!(Record::decode(&bytes, &layout), Err(BadRecord::Slab(slab)));
}

#[test]
fn a_record_of_an_unknown_kind_or_flag_is_refused() {
    let layout = samples::layout();
    let mut bytes = encoded(&Record::Open { extent: Extent(0) });
    bytes[0] = 14;
    assert_eq!(Record::decode(&bytes, &layout), Err(BadRecord::Kind(14)));
    bytes[0] = 5;
    bytes[1] = 2;
    assert_eq!(Record::decode(&bytes, &layout), Err(BadRecord::Flags(2)), "an open is not carried forward");
}

#[test]
fn a_record_of_no_length_does_not_stop_the_reader() {
    let layout = samples::layout();
    let bytes = [5, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Record::decode(&bytes, &layout), Err(BadRecord::Length { length: 0, left: 8 }));
}

#[test]
fn a_write_of_as_many_blocks_as_fit_fills_a_journal_block() {
    let sums = vec![Stored(7); MAX_WRITE_BLOCKS as usize];
    let Record::Write { subject, .. } = samples::records()[0] else { panic!("the first sample is a write") };
    let blocks = Blocks::new(0, MAX_WRITE_BLOCKS).expect("an extent has more");
    let record = Record::Write { subject, blocks, sums: Sums::from(sums.as_slice()) };
    assert_eq!(record.encoded_bytes(), RECORD_BYTES);
    let mut builder = JournalBuilder::new(vec![0; 4096]);
    assert_eq!(builder.push(&record), Some(0));
    assert_eq!(builder.room(), 0);
    assert_eq!(builder.push(&Record::Open { extent: Extent(0) }), None, "nothing fits behind it");
    assert_eq!(builder.records(), 1);
}

proptest! {
    #[test]
    fn a_record_reads_back(record in record(), behind in prop::collection::vec(any::<u8>(), 0..16)) {
        let mut bytes = encoded(&record.get());
        let length = bytes.len();
        bytes.extend(behind);
        prop_assert_eq!(Record::decode(&bytes, &samples::layout()), Ok((record.get(), length)));
    }

    #[test]
    fn a_record_does_not_go_beyond_its_room(record in record(), missing in 1_usize..64) {
        let mut bytes = vec![0xee; record.get().encoded_bytes().saturating_sub(missing)];
        prop_assert_eq!(record.get().encode(&mut bytes), None);
        prop_assert!(bytes.iter().all(|byte| *byte == 0xee), "nothing was written");
        let whole = encoded(&record.get());
        let cut = &whole[..whole.len().saturating_sub(missing)];
        prop_assert!(Record::decode(cut, &samples::layout()).is_err());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), kind in 0_u8..16) {
        let layout = samples::layout();
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let length = u16::try_from(bytes.len()).expect("it is short");
        if let Some(field) = bytes.get_mut(2..4) {
            field.copy_from_slice(&length.to_le_bytes());
        }
        if let Ok((record, length)) = Record::decode(&bytes, &layout) {
            prop_assert_eq!(encoded(&record).len(), length, "what was understood is written as long");
        }
    }

    #[test]
    fn a_journal_block_gives_back_what_was_put_in(
        records in prop::collection::vec(record(), 0..40),
        sequence in 1_u64..u64::MAX,
        first_record in 0..u64::MAX / 2,
    ) {
        let (layout, device) = (samples::layout(), samples::DEVICE);
        let mut builder = JournalBuilder::new(vec![0x5a; 4096]);
        let put: Vec<_> = records.iter().filter(|record| builder.push(&record.get()).is_some()).collect();
        let header = JournalHeader {
            sequence,
            incarnation: 1,
            predecessor: 2,
            first_record,
            acked_through: sequence - 1,
            landed: 3,
        };
        let (bytes, crc) = builder.seal(&header, &layout, device, 3);
        let address = layout.journal_block(3, sequence);
        let block = JournalBlock::open(&bytes, &layout, device, 3, address);
        prop_assert!(block.is_ok(), "{:?}", block.err());
        let block = block.expect("just checked");
        prop_assert_eq!(block.header, header);
        prop_assert_eq!(block.crc, crc);
        let numbered = (first_record..).zip(put.iter().map(|record| record.get()));
        prop_assert!(block.records().eq(numbered));
        // Not in another lane's journal, nor elsewhere in this one.
        prop_assert!(JournalBlock::open(&bytes, &layout, device, 2, address).is_err());
        prop_assert!(JournalBlock::open(&bytes, &layout, device, 3, address + 1).is_err());
    }
}
