//! The queue's state: slots, what is to be sent, what is being received.

/// State of a queue.
#[derive(Debug)]
pub(crate) struct Engine {}
