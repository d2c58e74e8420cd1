//! Scrub: every copy of every block is read and verified in the background, and a bad one is repaired before its last
//! good copy goes bad too (design D4, PROTOCOL S8).
//!
//! A pass goes through a volume in the order of its addresses. The cores of a node own different shards and all walk
//! the same way, so that the smallest of their positions says how far the volume is, also to a node that starts again
//! with another number of cores.

use std::cell::Cell;
use std::rc::Rc;

use ashlar_io::{BLOCK_BYTES, World};
use ashlar_store::Blocks;

use crate::catch_up::throttle::Throttle;
use crate::digest::{largest_read, parts};
use crate::load::Load;
use crate::peer::Peer;
use crate::shard::{Shard, ShardError};
use crate::status::Counter;

/// Extents that are only looked at, for they are not there, before others get their turn.
const LOOKS_PER_TURN: u32 = 1024;

/// How far a pass is: everything before it has been verified. Ordered as the volume's addresses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Index of the segment in the volume.
    pub segment: u32,
    /// Index of the extent in the segment.
    pub extent: u32,
}

/// How scrubbing gets on, as one core sees it. Counts go on from pass to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubStatus {
    /// Where the pass is that runs, or did not end.
    pub at: Option<Position>,
    /// Bytes of copies that were read.
    pub verified_bytes: u64,
    /// Copies of blocks that failed at first; those that failed again were repaired or are lost.
    pub bad_blocks: u64,
    /// Blocks of which no good copy was found.
    pub lost_blocks: u64,
    /// Blocks that could not be read because the last replica failed.
    pub unread_blocks: u64,
}

/// Scrubbing of a core's part of a volume.
#[derive(Debug)]
pub(crate) struct Scrub<W> {
    world: W,
    load: Rc<Load>,
    /// Of its own: a replica that must be brought back does not wait for this.
    throttle: Throttle<W>,
    at: Cell<Option<Position>>,
    verified: Counter,
    bad: Counter,
    lost: Counter,
    unread: Counter,
}

/// A pass under way.
pub(crate) struct Pass<'a, W> {
    scrub: &'a Scrub<W>,
    looks: Cell<u32>,
}

impl<W: World> Scrub<W> {
    pub(crate) fn new(world: W, load: Rc<Load>) -> Self {
        Self {
            throttle: Throttle::new(world.clone(), Rc::clone(&load)),
            world,
            load,
            at: Cell::default(),
            verified: Counter::default(),
            bad: Counter::default(),
            lost: Counter::default(),
            unread: Counter::default(),
        }
    }

    pub(crate) fn status(&self) -> ScrubStatus {
        ScrubStatus {
            at: self.at.get(),
            verified_bytes: self.verified.get(),
            bad_blocks: self.bad.get(),
            lost_blocks: self.lost.get(),
            unread_blocks: self.unread.get(),
        }
    }

    pub(crate) fn begin(&self, from: Position, bytes_per_s: u64) -> Pass<'_, W> {
        self.throttle.set_limit(Some(bytes_per_s));
        self.at.set(Some(from));
        Pass { scrub: self, looks: Cell::new(0) }
    }

    /// Verifies all copies of an extent.
    pub(crate) async fn extent<P: Peer<W>>(&self, shard: &Shard<W, P>, extent: u32) {
        let shard = &shard.0;
        for part in parts(Blocks::ALL, largest_read::<W>()) {
            for member in shard.in_sync() {
                // Freed meanwhile, or never written.
                if !shard.is_present(extent) {
                    return;
                }
                let bytes = u64::from(part.count()) * BLOCK_BYTES as u64;
                self.throttle.take(bytes).await;
                // Not while it waits for its turn: what hosts see then is how fast they are without it.
                let _background = self.load.background();
                let (bad, outcome) = shard.verify_copy(member, extent, part).await;
                self.verified.add(bytes);
                self.bad.add(bad);
                match outcome {
                    Ok(()) => continue,
                    Err(ShardError::Unrecovered { blocks, .. }) => self.lost.add(blocks.len() as u64),
                    Err(_) => self.unread.add(u64::from(part.count())),
                }
                // All copies were asked.
                break;
            }
        }
    }
}

impl<W: World> Pass<'_, W> {
    /// Comes to an extent.
    pub(crate) async fn reach(&self, position: Position) {
        self.scrub.at.set(Some(position));
        self.looks.set(self.looks.get() + 1);
        if self.looks.get() >= LOOKS_PER_TURN {
            self.looks.set(0);
            self.scrub.world.next_turn().await;
        }
    }

    /// Has come to the end.
    pub(crate) fn end(self) {
        self.scrub.at.set(None);
    }
}

#[cfg(test)]
mod tests;
