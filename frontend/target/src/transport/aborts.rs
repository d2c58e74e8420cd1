//! Commands of a queue that can be aborted while they wait for a place: for buffers, or for a fused pair to pass (NVMe
//! Base 2.0 §5.1). Those that wait for the host's data are with the transfers. A command that a backend is carrying
//! out is in nobody's list, and is not aborted.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use ashlar_nvme::{CommandId, Status};
use ashlar_reactor::{Notify, first};

/// See the module.
#[derive(Default)]
pub(crate) struct Aborts {
    waiting: RefCell<Vec<Rc<Waiting>>>,
    /// Aborted commands whose end somebody waits for.
    watched: RefCell<Vec<Rc<Watched>>>,
    ended: Notify,
}

struct Waiting {
    cid: CommandId,
    aborted: Cell<bool>,
    wake: Notify,
}

struct Watched {
    cid: CommandId,
    ended: Cell<bool>,
}

impl Aborts {
    /// Waits for `place` on behalf of a command, which stops waiting when it is aborted.
    pub(crate) async fn wait<T>(&self, cid: CommandId, place: impl Future<Output = T>) -> Result<T, Status> {
        let mut place = pin!(place);
        // Mostly there is nothing to wait for.
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(place.as_mut().poll(context))).await {
            return Ok(output);
        }
        let waiting = Rc::new(Waiting { cid, aborted: Cell::new(false), wake: Notify::new() });
        self.waiting.borrow_mut().push(Rc::clone(&waiting));
        let _leave = Leave { aborts: self, waiting: &waiting };
        let aborted = async {
            while !waiting.aborted.get() {
                waiting.wake.notified().await;
            }
        };
        // What was aborted goes on in no case, also if its place is there by now.
        match first(aborted, place).await {
            Ok(()) => Err(Status::ABORT_REQUESTED),
            Err(output) => Ok(output),
        }
    }

    /// A command that waits for a place stops waiting. False if none with this identifier does.
    pub(crate) fn abort(&self, cid: CommandId) -> bool {
        let mut stopped = false;
        for waiting in self.waiting.borrow().iter().filter(|waiting| waiting.cid == cid) {
            waiting.aborted.set(true);
            waiting.wake.notify_one();
            stopped = true;
        }
        stopped
    }

    /// Begins to watch for a command's end.
    pub(crate) fn watch(&self, cid: CommandId) -> Watch<'_> {
        let watched = Rc::new(Watched { cid, ended: Cell::new(false) });
        self.watched.borrow_mut().push(Rc::clone(&watched));
        Watch { aborts: self, watched }
    }

    /// A command has been answered, or never will be.
    pub(crate) fn note_end(&self, cid: CommandId) {
        let watched = self.watched.borrow();
        if watched.is_empty() {
            return;
        }
        for watched in watched.iter().filter(|watched| watched.cid == cid) {
            watched.ended.set(true);
        }
        self.ended.notify_all();
    }
}

struct Leave<'a> {
    aborts: &'a Aborts,
    waiting: &'a Rc<Waiting>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.aborts.waiting.borrow_mut().retain(|known| !Rc::ptr_eq(known, self.waiting));
    }
}

/// Watches for a command's end.
pub(crate) struct Watch<'a> {
    aborts: &'a Aborts,
    watched: Rc<Watched>,
}

impl Watch<'_> {
    /// Waits until the command has ended.
    pub(crate) async fn ended(&self) {
        while !self.watched.ended.get() {
            self.aborts.ended.notified().await;
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.aborts.watched.borrow_mut().retain(|known| !Rc::ptr_eq(known, &self.watched));
    }
}
