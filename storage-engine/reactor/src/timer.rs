//! Timers of a core: a sorted map from deadline to waker. The kernel is told only of the nearest one, as the
//! time limit of the core's sleep.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::Instant;
use crate::core;
use crate::sync::first;

/// Timers that are armed, by deadline and, among equals, by age.
#[derive(Default)]
pub(crate) struct Timers {
    armed: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
}

impl Timers {
    fn arm(&mut self, deadline: Instant, waker: Waker) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.armed.insert((deadline, id), waker);
        id
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.armed.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// The waker of a timer that is due, earliest first.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.armed.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

/// Ends at `deadline`, as seen by the clock that each turn of the core reads.
#[derive(Debug)]
#[must_use = "a timer does nothing until it is awaited"]
pub struct Sleep {
    deadline: Instant,
    armed: Option<u64>,
}

/// Waits until `deadline`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, armed: None }
}

/// Waits for `duration`, counted from this turn's clock value.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(crate::now() + duration)
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        core::with(|core| {
            let mut timers = core.timers.borrow_mut();
            if core.now() >= self.deadline {
                if let Some(id) = self.armed.take() {
                    timers.armed.remove(&(self.deadline, id));
                }
                return Poll::Ready(());
            }
            if let Some(id) = self.armed
                && let Some(waker) = timers.armed.get_mut(&(self.deadline, id))
            {
                if !waker.will_wake(context.waker()) {
                    *waker = context.waker().clone();
                }
                return Poll::Pending;
            }
            self.armed = Some(timers.arm(self.deadline, context.waker().clone()));
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.armed.take() {
            core::with(|core| core.timers.borrow_mut().armed.remove(&(self.deadline, id)));
        }
    }
}

/// The time limit ran out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time limit ran out")]
pub struct Elapsed;

/// Waits for `future`, but not longer than `limit`; the future is dropped when time runs out.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    first(future, sleep(limit)).await.map_err(|()| Elapsed)
}
