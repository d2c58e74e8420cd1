//! Reads the ring from the tail on (PROTOCOL S5).

use std::collections::VecDeque;

use ashlar_io::{BLOCK_BYTES, Bug, DiskError, World};
use futures_util::stream::{self, StreamExt};

use super::super::retry;
use super::super::types::LaneSite;
use super::OpenError;
use super::replay::Replay;
use crate::format::{JournalBlock, Root};

/// Reads in flight.
const READS: usize = 8;

/// Where the journal ends.
pub(super) struct End {
    /// Sequence of the first block that is not there.
    pub(super) sequence: u64,
    /// Incarnation of the last block that is.
    pub(super) incarnation: u32,
    /// Its CRC.
    pub(super) crc: u32,
    /// Number of the next record.
    pub(super) next_record: u64,
    /// First records of all blocks from the tail on.
    pub(super) firsts: VecDeque<u64>,
}

/// Some consecutive blocks of the ring.
struct Chunk<B> {
    sequence: u64,
    address: u64,
    read: Result<B, DiskError>,
}

/// Replays all blocks that continue each other, and looks at the rest of the ring for a sign that more were durable.
pub(super) async fn journal<W: World>(
    world: &W,
    disk: &W::Disk,
    site: &LaneSite,
    root: &Root,
    replay: &mut Replay,
) -> Result<End, OpenError> {
    let ring = site.layout.journal(site.lane).blocks;
    let mut end = End {
        sequence: root.tail,
        incarnation: root.incarnation,
        crc: 0,
        next_record: root.first_record,
        firsts: VecDeque::new(),
    };
    let mut ended = false;
    let chunks = chunks(site, root.tail, ring, W::MAX_BUFFER_BLOCKS as u64);
    let reads = chunks.map(|(sequence, address, blocks)| async move {
        let buffer = world.spare_buffer(blocks as usize);
        let (result, buffer) = retry::read(world, disk, address, buffer).await;
        Chunk { sequence, address, read: result.map(|()| buffer) }
    });
    let mut reads = stream::iter(reads).buffered(READS);
    while let Some(chunk) = reads.next().await {
        let buffer = chunk.read?;
        for (at, bytes) in (0u64..).zip(buffer.chunks_exact(BLOCK_BYTES)) {
            let expected = chunk.sequence + at;
            let block = JournalBlock::open(bytes, &site.layout, site.device, site.lane, chunk.address + at);
            let Ok(block) = block else {
                ended = true;
                continue;
            };
            let header = block.header;
            if header.sequence != expected {
                ended = true;
                continue;
            }
            // The tail block's predecessor may be gone; all others continue the one before, never under an older
            // incarnation.
            let continues = end.firsts.is_empty()
                || (header.predecessor == end.crc || world.bug(Bug::IgnoreBrokenChain))
                    && header.first_record == end.next_record;
            if !ended && continues && header.incarnation >= end.incarnation {
                end.sequence = expected + 1;
                end.incarnation = header.incarnation;
                end.crc = block.crc;
                end.next_record = header.first_record + u64::from(block.records);
                end.firsts.push_back(header.first_record);
                replay.block(&block);
                continue;
            }
            ended = true;
            if header.acked_through >= end.sequence && !world.bug(Bug::IgnoreGapBelowAcked) {
                return Err(OpenError::Gap { lane: site.lane, missing: end.sequence });
            }
        }
        world.next_turn().await;
    }
    // A checkpoint names a tail that was durable: without it, the journal is gone.
    if end.firsts.is_empty() && root.incarnation > 0 {
        return Err(OpenError::Gap { lane: site.lane, missing: root.tail });
    }
    Ok(end)
}

/// The ring in order from `tail` on, as reads that do not go across its end: sequence, address and number of blocks.
fn chunks(site: &LaneSite, tail: u64, ring: u64, most: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let (layout, lane) = (site.layout, site.lane);
    let mut sequence = tail;
    std::iter::from_fn(move || {
        let left = tail + ring - sequence;
        if left == 0 {
            return None;
        }
        let blocks = most.min(left).min(ring - sequence % ring);
        let chunk = (sequence, layout.journal_block(lane, sequence), blocks);
        sequence += blocks;
        Some(chunk)
    })
}
