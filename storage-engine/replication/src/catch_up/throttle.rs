//! How fast background work goes: as fast as it can while no host asks for anything, and else at a rate that leaves
//! hosts' latency alone (design §7).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{Instant, World};

use crate::load::Load;

/// The rate under load never falls below this, so that catching up ends.
const RATE_MIN: u64 = 8 << 20;
/// What the rate under load gains in each period in which hosts were not slowed down.
const RATE_STEP: u64 = 16 << 20;
/// Hosts may be slowed down by this factor.
const SLOWDOWN_MAX: f64 = 1.15;
/// How often the rate is judged.
const PERIOD: Duration = Duration::from_millis(100);

/// A token bucket, shared by all background work of a core.
#[derive(Debug)]
pub struct Throttle<W> {
    world: W,
    load: Rc<Load>,
    /// Bytes per second that are never exceeded.
    limit: Cell<Option<u64>>,
    /// Bytes per second under load.
    rate: Cell<u64>,
    judged: Cell<Instant>,
    /// When the next piece may start.
    next: Cell<Instant>,
}

impl<W: World> Throttle<W> {
    /// Without a limit of its own.
    pub fn new(world: W, load: Rc<Load>) -> Self {
        Self {
            world,
            load,
            limit: Cell::new(None),
            rate: Cell::new(RATE_MIN * 8),
            judged: Cell::default(),
            next: Cell::default(),
        }
    }

    /// Never more than this many bytes per second; `None` for as fast as hosts allow. Counts at once.
    pub fn set_limit(&self, bytes_per_s: Option<u64>) {
        self.limit.set(bytes_per_s.map(|limit| limit.max(1)));
    }

    fn judge(&self, now: Instant) {
        if now.since(self.judged.get()) < PERIOD {
            return;
        }
        self.judged.set(now);
        let slow = self.load.slowdown().is_some_and(|slowdown| slowdown > SLOWDOWN_MAX);
        let rate = self.rate.get();
        self.rate.set(if slow { (rate / 2).max(RATE_MIN) } else { rate.saturating_add(RATE_STEP) });
    }

    /// Waits until `bytes` more may be worked on.
    pub(crate) async fn take(&self, bytes: u64) {
        let now = self.world.now();
        let rate = if self.load.idle(now) {
            self.limit.get()
        } else {
            self.judge(now);
            Some(self.limit.get().unwrap_or(u64::MAX).min(self.rate.get()))
        };
        let Some(rate) = rate else { return self.world.next_turn().await };
        let start = self.next.get().max(now);
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.next.set(start + takes);
        if start > now {
            self.world.sleep(start - now).await;
        } else {
            self.world.next_turn().await;
        }
    }
}
