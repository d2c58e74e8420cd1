//! Waiting for one another within a core: no atomics, no locks. Pure futures: they work on any executor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes tasks of the same core that wait for something to happen.
///
/// `notify_one` wakes the longest waiting task, or lets the next `notified` pass at once if none waits.
/// `notify_all` wakes those that wait now.
#[derive(Default)]
pub struct Notify {
    permit: Cell<bool>,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
    /// Length of the list at which those who have gone are swept out.
    sweep_at: Cell<usize>,
}

/// Shortest list that is worth sweeping.
const SWEEP_MIN: usize = 16;

struct Waiter {
    woken: Cell<bool>,
    waker: RefCell<Waker>,
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").field("waiting", &self.waiting.borrow().len()).finish()
    }
}

impl Notify {
    /// Nobody waits yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one waiter, or stores one permit.
    pub fn notify_one(&self) {
        if !self.notify_waiter() {
            self.permit.set(true);
        }
    }

    /// Wakes the longest waiting task; false, and nothing is stored, if none waits.
    pub fn notify_waiter(&self) -> bool {
        loop {
            let Some(waiter) = self.waiting.borrow_mut().pop_front() else { return false };
            // One reference is ours; without a second the waiter has gone.
            if Rc::strong_count(&waiter) > 1 {
                waiter.woken.set(true);
                waiter.waker.borrow().wake_by_ref();
                return true;
            }
        }
    }

    /// Wakes everybody who waits.
    pub fn notify_all(&self) {
        for waiter in self.waiting.take() {
            waiter.woken.set(true);
            waiter.waker.borrow().wake_by_ref();
        }
    }

    fn queue(&self, waiter: Rc<Waiter>) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.sweep_at.get().max(SWEEP_MIN) {
            waiting.retain(|waiter| Rc::strong_count(waiter) > 1);
            self.sweep_at.set(waiting.len() * 2);
        }
        waiting.push_back(waiter);
    }

    /// Waits to be woken. The place in the queue is taken at the first poll.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, waiter: None }
    }
}

/// See [`Notify::notified`].
#[must_use = "does nothing until it is awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    waiter: Option<Rc<Waiter>>,
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").field("queued", &self.waiter.is_some()).finish()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &self.waiter {
            Some(waiter) if waiter.woken.get() => {
                self.waiter = None;
                Poll::Ready(())
            }
            Some(waiter) => {
                *waiter.waker.borrow_mut() = context.waker().clone();
                Poll::Pending
            }
            None if self.notify.permit.replace(false) => Poll::Ready(()),
            None => {
                let waiter =
                    Rc::new(Waiter { woken: Cell::new(false), waker: RefCell::new(context.waker().clone()) });
                self.notify.queue(Rc::clone(&waiter));
                self.waiter = Some(waiter);
                Poll::Pending
            }
        }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        // A wake-up that nobody will see goes to the next.
        if self.waiter.take().is_some_and(|waiter| waiter.woken.get()) {
            self.notify.notify_one();
        }
    }
}

/// A line in which tasks of a core stand: one at a time has its turn, strictly in the order in which they came.
#[derive(Debug, Default)]
pub struct Line {
    busy: Cell<bool>,
    /// Told when a turn is handed on; whoever is told has it.
    freed: Notify,
}

/// A turn in a [`Line`], until it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn<'a> {
    line: &'a Line,
}

impl Line {
    /// Nobody stands in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody has the turn.
    pub fn is_busy(&self) -> bool {
        self.busy.get()
    }

    /// Waits for one's turn.
    pub async fn turn(&self) -> Turn<'_> {
        if self.busy.replace(true) {
            // The turn is handed on while `busy`, so no newcomer can take it in between.
            self.freed.notified().await;
        }
        Turn { line: self }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.line.freed.notify_waiter() {
            self.line.busy.set(false);
        }
    }
}
