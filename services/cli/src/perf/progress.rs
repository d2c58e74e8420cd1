//! The live line of a run on a terminal: what the queues have done so far, read from counters that each core
//! writes once per batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::units::{show_bytes, show_rate};

/// Time between two redraws: fast enough to look alive, slow enough to cost nothing.
pub(crate) const REDRAW: Duration = Duration::from_millis(250);

/// Counters of one core, alone on their cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    ops: AtomicU64,
    bytes: AtomicU64,
}

impl Live {
    /// Adds a batch. Only its core writes.
    #[inline]
    pub(crate) fn add(&self, ops: u64, bytes: u64) {
        self.ops.fetch_add(ops, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Draws the line; on anything but a terminal it draws nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
    live: Vec<Arc<Live>>,
    started: Instant,
    length: Duration,
    last: (Instant, u64, u64),
}

impl Progress {
    /// For a run of `length`.
    pub(crate) fn new(live: Vec<Arc<Live>>, length: Duration) -> Self {
        let bar = ProgressBar::new(length.as_millis() as u64);
        // The template is a constant; should it not parse, indicatif's own style does.
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        let now = Instant::now();
        Self { bar, live, started: now, length, last: (now, 0, 0) }
    }

    /// Draws what happened since the last time.
    pub(crate) fn draw(&mut self) {
        let now = Instant::now();
        let sum = |of: fn(&Live) -> &AtomicU64| -> u64 {
            self.live.iter().map(|live| of(live).load(Ordering::Relaxed)).sum()
        };
        let (ops, bytes) = (sum(|live| &live.ops), sum(|live| &live.bytes));
        let (then, ops_then, bytes_then) = self.last;
        let seconds = now.duration_since(then).as_secs_f64().max(1e-6);
        self.last = (now, ops, bytes);
        let elapsed = now.duration_since(self.started);
        self.bar.set_position(elapsed.as_millis() as u64);
        self.bar.set_message(line(
            elapsed,
            self.length,
            (ops - ops_then) as f64 / seconds,
            (bytes - bytes_then) as f64 / seconds,
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn line(elapsed: Duration, length: Duration, iops: f64, bytes_per_s: f64) -> String {
    format!(
        "{:.0} of {:.0} s  {} IOPS  {}/s",
        elapsed.as_secs_f64(),
        length.as_secs_f64(),
        show_rate(iops),
        show_bytes(bytes_per_s as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_beside_its_bar() {
        let text = line(Duration::from_secs(9999), Duration::from_secs(10_000), 1_234_567.0, 12.3e9);
        assert!(text.len() + 21 <= 80, "{text}");
        assert!(text.contains("1.23M IOPS"), "{text}");
    }
}
