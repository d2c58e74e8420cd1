//! Reads a lane's journal offline, from the tail of its root on (PROTOCOL S5).

use ashlar_io::{BLOCK_BYTES, DiskError, World};

use super::blocks::{Blocks, parts};
use crate::format::{Area, JournalBlock, Root, Superblock};

/// What a journal holds from its tail on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSummary {
    /// Sequence of the oldest block that recovery needs.
    pub tail: u64,
    /// Sequence of the first block behind the tail that is not there: the journal's end.
    pub end: u64,
    /// Incarnation of the last block, or of the root if there is none.
    pub incarnation: u32,
    /// Number of the first record of the tail.
    pub first_record: u64,
    /// Number of the record that comes next.
    pub next_record: u64,
    /// The data of all records below this number is durable (PROTOCOL S1).
    pub landed: u64,
    /// A later block says that the block at the end was durable, and it is not there: what it recorded is lost.
    pub gap: Option<u64>,
}

/// Reads the whole ring and finds out where the journal ends.
pub(super) async fn scan<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
    root: &Root,
) -> Result<JournalSummary, DiskError> {
    let (layout, lane) = (&superblock.layout, root.lane);
    let mut summary = JournalSummary {
        tail: root.tail,
        end: root.tail,
        incarnation: root.incarnation,
        first_record: root.first_record,
        next_record: root.first_record,
        landed: 0,
        gap: None,
    };
    let mut last_crc = None;
    let mut ended = false;
    let mut expected = root.tail;
    for (first, count) in ring::<W>(layout.journal(lane), root.tail) {
        let buffer = blocks.read_part(first, count).await?;
        for (address, bytes) in (first..).zip(buffer.chunks_exact(BLOCK_BYTES)) {
            let sequence = expected;
            expected = expected.saturating_add(1);
            let opened = JournalBlock::open(bytes, layout, superblock.device, lane, address);
            let Some(block) = opened.ok().filter(|block| block.header.sequence == sequence) else {
                ended = true;
                continue;
            };
            let header = block.header;
            // The predecessor of the tail block may be gone.
            let continues = last_crc.is_none_or(|crc| header.predecessor == crc)
                && header.first_record == summary.next_record
                && header.incarnation >= summary.incarnation;
            if ended || !continues {
                ended = true;
                if header.acked_through >= summary.end {
                    summary.gap = Some(summary.end);
                }
                continue;
            }
            summary.end = sequence.saturating_add(1);
            summary.incarnation = header.incarnation;
            summary.next_record = header.first_record + u64::from(block.records);
            summary.landed = summary.landed.max(header.landed);
            last_crc = Some(block.crc);
        }
        blocks.world.next_turn().await;
    }
    // A root names a tail that was durable, but the first of all.
    if last_crc.is_none() && root.incarnation > 0 {
        summary.gap = Some(root.tail);
    }
    Ok(summary)
}

/// Hands on each block from the tail to the end that [`scan`] found.
pub(super) async fn replay<W: World>(
    blocks: &Blocks<'_, W>,
    superblock: &Superblock,
    lane: u32,
    journal: &JournalSummary,
    mut each: impl FnMut(&JournalBlock<'_>),
) -> Result<(), DiskError> {
    let layout = &superblock.layout;
    let mut left = journal.end - journal.tail;
    for (first, count) in ring::<W>(layout.journal(lane), journal.tail) {
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            break;
        }
        left -= count as u64;
        let buffer = blocks.read_part(first, count).await?;
        for (address, bytes) in (first..).zip(buffer.chunks_exact(BLOCK_BYTES)) {
            // Good a moment ago.
            if let Ok(block) = JournalBlock::open(bytes, layout, superblock.device, lane, address) {
                each(&block);
            }
        }
        blocks.world.next_turn().await;
    }
    Ok(())
}

/// The ring from the block of `tail` to its end, then from its beginning, in parts that fit a buffer.
fn ring<W: World>(ring: Area, tail: u64) -> impl Iterator<Item = (u64, usize)> {
    let start = tail % ring.blocks;
    parts::<W>(ring.first + start, ring.blocks - start).chain(parts::<W>(ring.first, start))
}
