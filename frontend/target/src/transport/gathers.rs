//! Gathers that a core's connections share: one that sends nothing holds none.

use std::cell::RefCell;
use std::rc::Rc;

use ashlar_reactor::net::Gather;

/// Idle gathers kept per core: two for each of 64 connections that send in the same turn.
const KEPT_MAX: usize = 128;

/// The gathers of one core. A send takes its gather in a box, which is kept with it.
#[derive(Clone, Default)]
#[allow(clippy::vec_box, reason = "the boxes are what is kept")]
pub(crate) struct Gathers(Rc<RefCell<Vec<Box<Gather>>>>);

impl Gathers {
    /// An empty gather, the most recently used first: it is still in the cache.
    pub(crate) fn take(&self) -> Box<Gather> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a gather back that holds nothing.
    pub(crate) fn give(&self, gather: Box<Gather>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT_MAX && gather.is_empty() {
            kept.push(gather);
        }
    }
}
