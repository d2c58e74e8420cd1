//! Waiting for tasks of the same core. [`Notify`] and [`Line`] are the engine's own.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub use ashlar_io::sync::{Line, Notified, Notify, Turn};

/// A task's result, to be awaited on the same core. Dropping it lets the task go on.
pub struct JoinHandle<T> {
    shared: Rc<Joint<T>>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}

struct Joint<T> {
    value: Cell<Option<T>>,
    waker: Cell<Option<Waker>>,
}

/// The task was dropped before it ended, because its core stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task was dropped before it ended")]
pub struct Dropped;

struct Giver<T>(Rc<Joint<T>>);

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// Starts a task on the current core whose result can be awaited.
pub fn spawn_join<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let shared = Rc::new(Joint { value: Cell::new(None), waker: Cell::new(None) });
    let giver = Giver(Rc::clone(&shared));
    crate::spawn(async move {
        let value = future.await;
        giver.0.value.set(Some(value));
    });
    JoinHandle { shared }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Dropped>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(value) = self.shared.value.take() {
            return Poll::Ready(Ok(value));
        }
        if Rc::strong_count(&self.shared) == 1 {
            return Poll::Ready(Err(Dropped));
        }
        self.shared.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

/// Ends with the first of the two, `Ok` being `a`, which is looked at first; both are dropped then.
pub async fn first<A: Future, B: Future>(a: A, b: B) -> Result<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|context| {
        if let Poll::Ready(output) = a.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        b.as_mut().poll(context).map(Err)
    })
    .await
}

/// Lets everything that has arrived for this core run first: goes on behind what the next look at the ring brings. A
/// task with much to do that calls this now and then takes turns with all others, [`yield_now`] only with those that
/// are ready already.
pub async fn next_turn() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        crate::core::with(|core| core.on_next_turn(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// Lets other ready tasks of this core run first.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_first_of_two_futures_that_ends_is_the_answer() {
        assert_eq!(
            poll(first(ready(1), ready('b'))),
            Poll::Ready(Ok(1)),
            "both: the one that is named first"
        );
        assert_eq!(poll(first(ready(1), pending::<()>())), Poll::Ready(Ok(1)));
        assert_eq!(poll(first(pending::<()>(), ready('b'))), Poll::Ready(Err('b')));
        assert_eq!(poll(first(pending::<()>(), pending::<()>())), Poll::Pending);
    }
}
