//! The bar of a long transfer: bytes, speed and time left. It draws on a terminal only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two redraws.
pub(crate) const REDRAW: Duration = Duration::from_millis(200);

const KNOWN: &str = "{msg} {bar:20} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
const UNKNOWN: &str = "{msg} {spinner} {bytes} {bytes_per_sec}";

/// A bar on standard error.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// For `bytes` bytes, if their number is known.
    pub(crate) fn new(what: &'static str, bytes: Option<u64>) -> Self {
        let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        // The templates are constants; should one not parse, indicatif's own style does.
        if let Ok(style) = ProgressStyle::with_template(if bytes.is_some() { KNOWN } else { UNKNOWN }) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(bar)
    }

    /// This many bytes are done.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A count of bytes that a core raises and the drawing thread reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done(Arc<AtomicU64>);

impl Done {
    /// This many more.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
