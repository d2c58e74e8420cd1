//! What hosts ask of the volumes of a core, and how long it takes: background work yields to it.

use std::cell::Cell;
use std::time::Duration;

use ashlar_io::Instant;

/// Without a request for this long, nobody is there to be slowed down.
const IDLE_AFTER: Duration = Duration::from_millis(50);

/// Weight of one request in the averages: the last few dozen count.
const WEIGHT: f64 = 1.0 / 32.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Load {
    last: Cell<Instant>,
    /// Average latency now, in nanoseconds. Zero before the first request.
    now_ns: Cell<f64>,
    /// The same, without background work.
    alone_ns: Cell<f64>,
    /// Background work that runs.
    background: Cell<u32>,
}

impl Load {
    /// A request of a host was served.
    pub(crate) fn served(&self, began: Instant, ended: Instant) {
        let latency = ended.since(began).as_nanos() as f64;
        self.last.set(ended);
        let average = |cell: &Cell<f64>| {
            let before = cell.get();
            cell.set(if before == 0.0 { latency } else { before + (latency - before) * WEIGHT });
        };
        average(&self.now_ns);
        if self.background.get() == 0 {
            average(&self.alone_ns);
        }
    }

    /// No host asks for anything.
    pub(crate) fn idle(&self, now: Instant) -> bool {
        now.since(self.last.get()) >= IDLE_AFTER
    }

    /// How many times as long requests take as they would without background work, if that is known.
    pub(crate) fn slowdown(&self) -> Option<f64> {
        let alone = self.alone_ns.get();
        (alone > 0.0).then(|| self.now_ns.get() / alone)
    }

    /// Background work runs until the guard is dropped.
    pub(crate) fn background(&self) -> Background<'_> {
        self.background.set(self.background.get() + 1);
        Background(self)
    }
}

/// See [`Load::background`].
#[derive(Debug)]
pub(crate) struct Background<'a>(&'a Load);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.0.background.set(self.0.background.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_measured_against_undisturbed_requests() {
        let load = Load::default();
        let at = Instant::from_ns;
        (0..200).for_each(|n| load.served(at(n * 1_000), at(n * 1_000 + 100)));
        let background = load.background();
        (200..400).for_each(|n| load.served(at(n * 1_000), at(n * 1_000 + 200)));
        assert!(load.slowdown().is_some_and(|slowdown| slowdown > 1.5));
        assert!(!load.idle(at(400_000)) && load.idle(at(400_000) + IDLE_AFTER));
        drop(background);
    }
}
