//! Judges records whose data may not have landed by the bytes on the device, over the whole chain of a block's records
//! (PROTOCOL S1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_io::{BLOCK_BYTES, Bug, World};
use smallvec::SmallVec;

use super::super::tables::{Life, Uncommitted, UncommittedKind};
use super::super::types::{LaneError, Origin, ShardReport, ShardSlot, TailKind, TailRecord, Verdict};
use super::super::{Inner, many, retry};
use super::replay::{Doubtful, Sums, Tail, apply};
use crate::checksum::{Stored, Summer};
use crate::format::Extent;

/// Blocks that are read at a time.
const READS: usize = 32;

/// A block of an extent.
type At = (Extent, u32);

/// What a block may hold, oldest first: states newer than its floor.
#[derive(Default)]
struct Chain {
    candidates: SmallVec<[Stored; 4]>,
}

/// Blocks whose bytes are nobody's.
pub(super) type Bad = BTreeSet<At>;

impl<W: World> Inner<W> {
    /// Applies the records that are in doubt, each block as its bytes say. What no record and not the floor explains
    /// counts as the newest, and will be found not to match.
    pub(super) async fn judge(&self, window: VecDeque<(u64, Doubtful)>) -> Result<Bad, LaneError> {
        let mut chains: BTreeMap<At, Chain> = BTreeMap::new();
        {
            let mut tables = self.tables.borrow_mut();
            let mut cache = self.cache.borrow_mut();
            for (_, record) in &window {
                let extent = record.extent();
                let held = tables.owns(extent) && tables.place(extent).life == Life::Held;
                match record {
                    Doubtful::Write { blocks, sums, .. } if held => {
                        for (block, sum) in (blocks.first()..).zip(sums) {
                            chains.entry((extent, block)).or_default().candidates.push(*sum);
                        }
                    }
                    // Its record is durable, and it has no data: this is the new floor.
                    Doubtful::Zero { blocks, .. } => {
                        for block in blocks.first()..blocks.end() {
                            chains.remove(&(extent, block));
                        }
                    }
                    Doubtful::Allocate { .. } | Doubtful::Free { .. } => {
                        let old: Vec<At> =
                            chains.range((extent, 0)..=(extent, u32::MAX)).map(|(at, _)| *at).collect();
                        for at in old {
                            chains.remove(&at);
                        }
                    }
                    _ => {}
                }
                apply(&mut tables, &mut cache, record, Sums::Judged);
            }
        }
        let bad = std::cell::RefCell::new(Bad::new());
        let chains: Vec<(At, Chain)> = chains.into_iter().collect();
        many(&chains, READS, async |(at, chain): &(At, Chain)| {
            if !self.judge_block(*at, chain).await? {
                bad.borrow_mut().insert(*at);
            }
            Ok::<_, LaneError>(())
        })
        .await?;
        Ok(bad.into_inner())
    }

    /// Decides what one block holds. False if its bytes are nobody's.
    async fn judge_block(&self, (extent, block): At, chain: &Chain) -> Result<bool, LaneError> {
        let known = self.cache.borrow_mut().get(extent, block);
        if known.is_none() {
            self.load_page(extent).await?;
        }
        let floor = self.cache.borrow_mut().get(extent, block).unwrap_or(Stored::NEVER);
        let id = self.tables.borrow().place(extent).id;
        let address = self.site.layout.extent_block(extent, block);
        let (result, buffer) =
            retry::read(&self.world, &self.disk, address, self.world.spare_buffer(1)).await;
        result?;
        let found = Summer::new(id).sum(block, &buffer[..BLOCK_BYTES]);
        let newest = chain.candidates.last().copied().unwrap_or(floor);
        let chosen = match self.world.bug(Bug::JudgeRecordsSingly) {
            true => (found == newest).then_some(newest),
            false => chain
                .candidates
                .iter()
                .rev()
                .copied()
                .find(|sum| *sum == found)
                // A floor without bytes needs none.
                .or_else(|| (floor == found || !floor.has_data()).then_some(floor)),
        };
        self.cache.borrow_mut().set(extent, block, chosen.unwrap_or(newest));
        Ok(chosen.is_some())
    }

    /// What replication has to settle, per shard (PROTOCOL S1); it stays in the journal until it is committed.
    pub(super) async fn report(
        &self,
        tails: BTreeMap<ShardSlot, Vec<Tail>>,
        bad: &Bad,
    ) -> Result<Vec<ShardReport>, LaneError> {
        let mut tails = tails;
        let slots: Vec<ShardSlot> = self.tables.borrow().shards.keys().copied().collect();
        let mut reports = Vec::with_capacity(slots.len());
        for slot in slots {
            let tail = tails.remove(&slot).unwrap_or_default();
            let mut records = Vec::with_capacity(tail.len());
            for record in &tail {
                records.push(TailRecord {
                    extent: record.index,
                    version: record.version,
                    origin: record.origin,
                    kind: self.tail_kind(record, bad).await?,
                });
            }
            let mut tables = self.tables.borrow_mut();
            let Some(shard) = tables.shards.get_mut(&slot) else { continue };
            if self.world.bug(Bug::HideInvalidTail) {
                records.retain(|record| match &record.kind {
                    TailKind::Write { sums, .. } => {
                        sums.iter().all(|(_, verdict)| *verdict == Verdict::Valid)
                    }
                    _ => true,
                });
            }
            reports.push(ShardReport {
                shard: shard.id,
                slot,
                committed: shard.committed,
                base: shard.base,
                single: shard.single,
                tail: records,
            });
            // Copies are outside the contiguity of sequences: catching up compares them anyway (R5).
            shard.uncommitted = tail
                .into_iter()
                .filter(|record| record.origin == Origin::Shard)
                .map(|record| Uncommitted {
                    version: record.version,
                    record: record.record,
                    kind: record.kind,
                })
                .collect();
        }
        Ok(reports)
    }

    async fn tail_kind(&self, record: &Tail, bad: &Bad) -> Result<TailKind, LaneError> {
        let UncommittedKind::Write { subject, blocks, sums } = &record.kind else {
            return Ok(match &record.kind {
                UncommittedKind::Zero { blocks, .. } => TailKind::Zero { blocks: *blocks },
                UncommittedKind::Free { .. } => TailKind::Free,
                _ => TailKind::Empty,
            });
        };
        // The place may hold another extent by now, or nothing: then this record was overtaken by a later one.
        let here = {
            let tables = self.tables.borrow();
            tables.owns(subject.extent) && {
                let place = tables.place(subject.extent);
                place.life == Life::Held && place.shard == subject.shard && place.id.index == record.index
            }
        };
        let mut judged = Vec::with_capacity(sums.len());
        for (block, sum) in (blocks.first()..).zip(sums) {
            let verdict = match here {
                false => Verdict::NotLanded,
                true if bad.contains(&(subject.extent, block)) => Verdict::Bad,
                true => {
                    let known = self.cache.borrow_mut().get(subject.extent, block);
                    let stored = match known {
                        Some(stored) => stored,
                        None => {
                            self.load_page(subject.extent).await?;
                            self.cache.borrow_mut().get(subject.extent, block).unwrap_or(Stored::NEVER)
                        }
                    };
                    if stored == *sum { Verdict::Valid } else { Verdict::NotLanded }
                }
            };
            judged.push((*sum, verdict));
        }
        Ok(TailKind::Write { blocks: *blocks, sums: judged })
    }
}
