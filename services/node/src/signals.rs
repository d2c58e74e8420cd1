//! What the system asks of the node by signals.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM or SIGINT: end.
    Stop,
}

/// The signals that the node heeds.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Heeds them from now on.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.hangup.recv() => Request::Reload,
            _ = self.terminate.recv() => Request::Stop,
            _ = self.interrupt.recv() => Request::Stop,
        }
    }

    /// Waits for the next request to stop.
    pub async fn stop(&mut self) {
        while self.next().await != Request::Stop {}
    }
}
