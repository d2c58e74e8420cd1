//! Volatile caches: what is complete becomes committed by a flush (PROTOCOL S1, S6).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::World;
use ashlar_store::Blocks;

use crate::peer::Peer;
use crate::ranges::Want;
use crate::shard::{Fanout, Inner, Job, Shard, ShardError, Targets};

/// Longest time for which something is complete and not durable (PROTOCOL S1).
const FLUSH_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// The flusher's state.
#[derive(Debug, Default)]
pub(super) struct Flush {
    running: Cell<bool>,
    /// A flush failed on the last member: what it should have covered may be lost, and no later flush brings it back.
    failed: Cell<bool>,
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// Something is complete that no flush covers yet.
    pub(super) fn flush_by_and_by(self: &Rc<Self>) {
        if self.flush.running.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        self.world.spawn(async move {
            loop {
                shard.world.sleep(FLUSH_AT_LEAST_EVERY).await;
                if shard.flush().await.is_err() || shard.committed.get() >= shard.sequence.borrow().complete()
                {
                    break;
                }
            }
            shard.flush.running.set(false);
        });
    }

    /// Makes everything that is complete now durable on all members.
    pub(crate) async fn flush(self: &Rc<Self>) -> Result<(), ShardError> {
        let complete = self.sequence.borrow().complete();
        if !self.volatile() {
            self.commit(complete);
            return Ok(());
        }
        // Also what is complete out of turn is covered: acknowledged, it counts.
        if complete <= self.committed.get() && self.sequence.borrow().newest() <= complete {
            return Ok(());
        }
        if self.flush.failed.get() {
            return Err(ShardError::Failed {
                shard: self.id,
                cause: crate::peer::PeerError::Stopped { cause: "an earlier flush failed".to_owned() },
            });
        }
        let place = self.place(0, Blocks::ALL, Want::Glance).await;
        let (_place, outcome) = Fanout::start(self, place, Job::Flush, Targets::All, None).await;
        match outcome {
            Ok(()) => self.commit(complete),
            Err(_) => self.flush.failed.set(true),
        }
        outcome
    }
}

impl<W: World, P: Peer<W>> Shard<W, P> {
    /// Makes every write that completed before durable on all in-sync replicas. Costs nothing where caches are not
    /// volatile. Once it has failed, it fails until the volume is opened again.
    pub async fn flush(&self) -> Result<(), ShardError> {
        self.0.flush().await
    }
}
