//! What recovery reports is checked, then settled as replication would (PROTOCOL S1).

use ashlar_store::ids::{Blocks, Version};
use ashlar_store::lane::{Lane, Order, ShardReport, TailKind, TailRecord, Verdict};

use super::Engine;
use super::shard::Shard;
use crate::world::SimWorld;

impl Engine {
    /// Checks the reports of lanes that were just opened, and begins the shards' new lives.
    pub(super) async fn settle(&self, lanes: &[Lane<SimWorld>], epoch: u32) {
        let shards = self.state.borrow().shards.len();
        for index in 0..shards {
            let (id, lane, order) = {
                let state = self.state.borrow();
                let shard = &state.shards[index];
                (shard.id, &lanes[shard.lane], shard.order)
            };
            let report = lane.reports().iter().find(|report| report.shard == id);
            let checked = check(&self.state.borrow().shards[index], report);
            if let Err(violation) = checked {
                self.simulation.fail(format!("shard {}: {violation}", id.index));
            }
            let slot = match lane.shard(id).await {
                Ok(slot) => slot,
                Err(error) => return self.simulation.fail(format!("a shard cannot be added: {error}")),
            };
            let alone = order == Order::RecordFirst;
            if alone
                && report.is_none_or(|report| !report.single)
                && let Err(error) = lane.set_single(slot, true).await
            {
                return self.simulation.fail(format!("single-replica mode cannot begin: {error}"));
            }
            let mut state = self.state.borrow_mut();
            let shard = &mut state.shards[index];
            shard.begin(epoch, slot);
            let committed = report.map_or(Version::ZERO, |report| report.committed);
            shard.acknowledged.retain(|version, _| *version > committed);
            self.simulation.note(format!(
                "shard {} settled: committed {committed}, {} records above",
                id.index,
                report.map_or(0, |report| report.tail.len())
            ));
        }
    }
}

/// A report names everything that was acknowledged above the commit watermark, and nothing that never was.
fn check(shard: &Shard, report: Option<&ShardReport>) -> Result<(), String> {
    let nothing = Vec::new();
    let (committed, tail) =
        report.map_or((Version::ZERO, &nothing), |report| (report.committed, &report.tail));
    if committed > shard.committed {
        return Err(format!("{committed} counts as committed, and was never said to be (S1)"));
    }
    for record in tail {
        let copy = record.origin == ashlar_store::lane::Origin::Copy;
        if !copy && !shard.given.contains(&record.version) {
            return Err(format!("{} is reported and was never given", record.version));
        }
        if shard.order == Order::RecordFirst && is_bad(record) {
            return Err(format!(
                "{record:?} found bytes that no record knows, with records written first (S2)"
            ));
        }
    }
    for (version, acknowledged) in
        shard.acknowledged.range(committed..).filter(|(version, _)| **version > committed)
    {
        let at = tail.iter().position(|record| record.version == *version);
        let Some(at) = at else {
            return Err(format!("{version} was acknowledged and is not reported: {acknowledged:?} (S1)"));
        };
        let Some(blocks) = acknowledged.wrote else { continue };
        let TailKind::Write { sums, .. } = &tail[at].kind else {
            return Err(format!("{version} is reported as {:?}, and was a write", tail[at].kind));
        };
        for (block, (_, verdict)) in (blocks.first()..).zip(sums) {
            // Of a later write, data may have landed and the record not (S2).
            let explained = match verdict {
                Verdict::Valid => true,
                Verdict::Bad => shard.order == Order::Parallel,
                Verdict::NotLanded => {
                    let chosen = shard.chosen.contains(&(acknowledged.extent, block));
                    chosen || is_overtaken(tail, *version, acknowledged.extent, block)
                }
            };
            if !explained {
                return Err(format!(
                    "block {block} of {version} was acknowledged and is {verdict:?}: {tail:#?}"
                ));
            }
        }
    }
    Ok(())
}

fn is_bad(record: &TailRecord) -> bool {
    matches!(&record.kind, TailKind::Write { sums, .. } if sums.iter().any(|(_, verdict)| *verdict == Verdict::Bad))
}

/// A later change is about the same block. Records that were carried forward stand behind later ones.
fn is_overtaken(tail: &[TailRecord], version: Version, extent: u32, block: u32) -> bool {
    let within = |blocks: &Blocks| (blocks.first()..blocks.end()).contains(&block);
    tail.iter().filter(|record| record.extent == extent && record.version > version).any(|record| {
        match &record.kind {
            TailKind::Write { blocks, .. } | TailKind::Zero { blocks } => within(blocks),
            TailKind::Free => true,
            TailKind::Empty => false,
        }
    })
}
