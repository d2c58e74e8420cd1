//! One flush of a volatile cache serves everybody who waits for one (PROTOCOL S6).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ashlar_io::sync::Notify;
use ashlar_io::{Disk, World};

use super::journal::Journal;
use super::types::LaneError;

/// See the module.
#[derive(Default)]
pub(super) struct Flushes {
    running: Cell<bool>,
    begun: Cell<u64>,
    done: Cell<u64>,
    ended: Notify,
    failed: RefCell<Option<LaneError>>,
}

impl Flushes {
    /// Makes everything that completed before durable. On a device without a volatile cache it is already. A failure
    /// is never followed by a success that would cover the same writes: it stops the lane.
    pub(super) async fn flush<W: World>(
        self: &Rc<Self>,
        world: &W,
        disk: &W::Disk,
        journal: &Rc<Journal<W>>,
    ) -> Result<(), LaneError> {
        if !disk.geometry().volatile_cache {
            return journal.check();
        }
        // One that runs now began too early.
        let wanted = self.begun.get() + 1;
        while self.done.get() < wanted {
            journal.check()?;
            if let Some(error) = &*self.failed.borrow() {
                return Err(error.clone());
            }
            if !self.running.replace(true) {
                self.begin(world, disk, journal);
            }
            self.ended.notified().await;
        }
        Ok(())
    }

    /// The flush is a task of its own, so that nobody who leaves takes it along.
    fn begin<W: World>(self: &Rc<Self>, world: &W, disk: &W::Disk, journal: &Rc<Journal<W>>) {
        self.begun.set(self.begun.get() + 1);
        let (flushes, disk, journal) = (Rc::clone(self), disk.clone(), Rc::clone(journal));
        world.spawn(async move {
            let before = journal.before_flush();
            match disk.flush().await {
                Ok(()) => {
                    journal.after_flush(before);
                    flushes.done.set(flushes.begun.get());
                }
                Err(error) => {
                    journal.stop(&format!("its cache cannot be flushed: {error}"));
                    *flushes.failed.borrow_mut() = Some(error.into());
                }
            }
            flushes.running.set(false);
            flushes.ended.notify_all();
        });
    }
}
