//! Nothing is in flight: every block of every replica in sync is the same (design D3), and what the model knows.

use std::rc::Rc;

use ashlar_store::ids::{Blocks, EXTENT_BLOCKS, ExtentId};
use ashlar_store::lane::{LaneError, ReadData};

use super::node::{MirrorVolume, Node, Open};
use super::worker::{RANGE_MAX, Worker};
use super::{BLOCKS, EXTENTS, HALF, SEGMENT, SHARDS, halves};
use crate::random::Random;
use crate::value::Value;

/// What a copy may be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// A crash may have left data without a record: such blocks wait for their verification (PROTOCOL S2).
    Suspect,
    /// Each one has its checksum.
    Verified,
}

impl Node {
    /// Checks everything; nobody asks for anything meanwhile. `intact` if no medium has had a fault.
    pub(super) async fn rest(&self, volume: &Rc<MirrorVolume>, intact: bool, random: Random) {
        for shard in 0..SHARDS {
            volume.shard(0, shard).expect("all shards are open here").quiesce().await;
        }
        let worker = Worker::new(self, volume, random);
        for extent in 0..EXTENTS {
            if intact {
                self.compare(extent, Copies::Suspect).await;
            }
            let shard = volume.shard(0, extent % SHARDS).expect("all shards are open here");
            if let Err(error) = shard.verify(extent).await {
                self.fail(format!("extent {extent} cannot be repaired: {error}"));
            }
            self.compare(extent, Copies::Verified).await;
            for first in (0..BLOCKS).step_by(RANGE_MAX as usize) {
                worker.read(extent, Blocks::new(first, RANGE_MAX).expect("within the extent")).await;
            }
        }
        let lost = volume.status().counts.lost;
        if lost > 0 {
            self.fail(format!("{lost} reads found blocks without a good copy (D4)"));
        }
        self.world.simulation().note("everything is equal");
    }

    async fn compare(&self, extent: u32, copies: Copies) {
        let open: Vec<Rc<Open>> = (0..2).filter_map(|slot| self.replica(slot)).collect();
        let open: Vec<_> =
            open.into_iter().filter(|open| self.mirror.decisions.contains(open.replica)).collect();
        let id = ExtentId { segment: SEGMENT, index: extent };
        let shard = (extent % SHARDS) as usize;
        let mut sums = Vec::new();
        for open in &open {
            match open.peers[shard].lane().checksums(id).await {
                Ok(found) => sums.push(found),
                Err(error) => return self.fail(format!("no checksums of extent {extent}: {error}")),
            }
        }
        for pair in sums.windows(2) {
            let differs = (0..EXTENT_BLOCKS as usize).find(|&block| {
                let (one, two) = (pair[0][block], pair[1][block]);
                one.has_data() != two.has_data() || (one.has_data() && one != two)
            });
            if let Some(block) = differs {
                let sums = (pair[0][block], pair[1][block]);
                return self.fail(format!("checksums of block {block} of extent {extent} are {sums:?} (D3)"));
            }
        }
        for block in 0..BLOCKS {
            let one = Blocks::new(block, 1).expect("within the extent");
            let mut found: [Vec<Option<Value>>; 2] = Default::default();
            for open in &open {
                let data = match open.peers[shard].lane().read(id, one).await {
                    Ok(ReadData::Zeroes) => vec![0; 2 * HALF],
                    Ok(ReadData::Buffer(buffer)) => buffer.to_vec(),
                    Err(LaneError::Mismatch { suspect: true, .. }) if copies == Copies::Suspect => continue,
                    Err(error) => {
                        let replica = open.replica;
                        return self.fail(format!("{replica} at rest, {copies:?}: {error}"));
                    }
                };
                for (half, (at, bytes)) in halves(extent, one).zip(data.chunks_exact(HALF)).enumerate() {
                    found[half].push(Value::of(at, bytes));
                }
            }
            for (at, values) in halves(extent, one).zip(&found).filter(|(_, values)| !values.is_empty()) {
                if let Err(violation) = self.mirror.model.borrow().at_rest(at, values) {
                    return self.fail(violation.to_string());
                }
            }
        }
    }
}
