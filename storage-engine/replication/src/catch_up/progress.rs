//! How a catch-up gets on, for people.

use std::cell::Cell;
use std::time::Duration;

use ashlar_io::Instant;

use crate::status::CatchUpStatus;

/// Counters of one replica's catch-up in one segment, shared by its shards.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    /// Shards in all, and those that have listed what they must compare.
    shards: (u64, Cell<u64>),
    /// What they listed.
    total: Cell<u64>,
    done: Cell<u64>,
    copied: Cell<u64>,
}

impl Progress {
    pub(crate) fn new(began: Instant, shards: u64) -> Self {
        let shards = (shards, Cell::new(0));
        Self { began, shards, total: Cell::new(0), done: Cell::new(0), copied: Cell::new(0) }
    }

    /// One more shard knows how many bytes it must compare.
    pub(crate) fn lists(&self, bytes: u64) {
        self.shards.1.set(self.shards.1.get() + 1);
        self.total.set(self.total.get() + bytes);
    }

    pub(crate) fn compared(&self, bytes: u64) {
        self.done.set(self.done.get() + bytes);
    }

    pub(crate) fn copied(&self, bytes: u64) {
        self.copied.set(self.copied.get() + bytes);
    }

    pub(crate) fn status(&self, now: Instant) -> CatchUpStatus {
        let (shards, listed) = (self.shards.0, self.shards.1.get());
        let done = self.done.get();
        // Shards that have not begun are taken to be like those that have.
        let total = self.total.get() * shards.max(listed) / listed.max(1);
        let elapsed = now.since(self.began).as_secs_f64();
        let rate = if elapsed > 0.0 { done as f64 / elapsed } else { 0.0 };
        let left = total.saturating_sub(done) as f64;
        let eta = (rate > 0.0).then(|| Duration::try_from_secs_f64(left / rate).unwrap_or(Duration::MAX));
        CatchUpStatus {
            total_bytes: total,
            done_bytes: done,
            copied_bytes: self.copied.get(),
            bytes_per_s: rate,
            eta,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_the_rate() {
        let progress = Progress::new(Instant::from_ns(0), 2);
        progress.lists(500);
        progress.compared(250);
        let status = progress.status(Instant::from_ns(1_000_000_000));
        assert_eq!(status.total_bytes, 1000, "the other shard is expected to have as much");
        assert_eq!(status.percent(), 25.0);
        assert_eq!(status.eta, Some(Duration::from_secs(3)));
    }
}
