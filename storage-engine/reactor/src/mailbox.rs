//! Mailboxes: typed, bounded queues from any thread to a core.
//!
//! A sender on a busy core pays for one push. Only the first message to a receiver that waits wakes it, and
//! only if its core sleeps is a wake-up sent, through the sender's own ring, together with that turn's
//! submissions.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use crossbeam_queue::ArrayQueue;

struct Shared<T> {
    queue: ArrayQueue<T>,
    receiver: AtomicWaker,
    senders: AtomicUsize,
    closed: AtomicBool,
}

/// Makes a mailbox that holds up to `capacity` messages (at least one).
pub fn mailbox<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(capacity.max(1)),
        receiver: AtomicWaker::new(),
        senders: AtomicUsize::new(1),
        closed: AtomicBool::new(false),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

/// Puts messages in, from any thread.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Takes messages out, on one core.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// Why a message was not taken; it comes back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError<T> {
    /// The mailbox is full.
    #[error("the mailbox is full")]
    Full(T),
    /// The receiver is gone.
    #[error("the receiver is gone")]
    Closed(T),
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("queued", &self.shared.queue.len()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("queued", &self.shared.queue.len()).finish()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.receiver.wake();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        while self.shared.queue.pop().is_some() {}
    }
}

impl<T: Send> Sender<T> {
    /// Puts a message in, or gives it back.
    pub fn try_send(&self, message: T) -> Result<(), SendError<T>> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(SendError::Closed(message));
        }
        self.shared.queue.push(message).map_err(SendError::Full)?;
        self.shared.receiver.wake();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// The next message, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        self.shared.queue.pop()
    }

    /// The next message; `None` once all senders are gone and the mailbox is empty.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// As [`Receiver::recv`], for hand-written futures.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(message) = self.shared.queue.pop() {
            return Poll::Ready(Some(message));
        }
        self.shared.receiver.register(context.waker());
        // Between the look and the registration a message may have come, or the last sender gone.
        let gone = self.shared.senders.load(Ordering::Acquire) == 0;
        match self.shared.queue.pop() {
            Some(message) => Poll::Ready(Some(message)),
            None if gone => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
