//! The single-replica mode: with one copy, a record must be durable before its data (PROTOCOL S2).
//!
//! Going in: new writes put their record first at once; when the earlier ones are complete, the mark is written.
//! Going out: the mark is taken away first. So a mark is never there while data may land without its record.

use std::cell::Cell;
use std::rc::Rc;

use ashlar_io::World;
use ashlar_store::Blocks;
use ashlar_store::lane::Order;

use crate::peer::Peer;
use crate::ranges::Want;
use crate::shard::{Fanout, Inner, Job, Targets};

/// How far the marks are.
#[derive(Debug, Default)]
pub(super) struct Mode {
    /// The mark that all in-sync members have, if it is known.
    marked: Cell<Option<bool>>,
    changing: Cell<bool>,
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    fn is_single(&self) -> bool {
        self.failures.set().members.len() == 1
    }

    /// All members have this mark, as they reported.
    pub(crate) fn marked(&self, single: bool) {
        self.mode.marked.set(Some(single));
        if !single && !self.is_single() {
            self.order.set(Order::Parallel);
        }
    }

    /// The in-sync set may have another size now.
    pub(crate) fn follow_mode(self: &Rc<Self>) {
        if self.is_single() {
            self.order.set(Order::RecordFirst);
        }
        if self.mode.changing.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        self.world.spawn(async move {
            shard.change_mode().await;
            shard.mode.changing.set(false);
        });
    }

    async fn change_mode(self: &Rc<Self>) {
        loop {
            let single = self.is_single();
            if self.mode.marked.get() == Some(single) {
                if !single {
                    self.order.set(Order::Parallel);
                }
                return;
            }
            if single {
                self.settled().await;
            }
            // Marks are in doubt from the first one on.
            self.mode.marked.set(None);
            let place = self.place(0, Blocks::ALL, Want::Glance).await;
            let (_place, outcome) = Fanout::start(self, place, Job::Single(single), Targets::All, None).await;
            if outcome.is_err() {
                // The last member failed. Records stay first; the next change of the set tries again.
                return;
            }
            self.mode.marked.set(Some(single));
        }
    }
}
