//! What kind of device it is, and what it counts.

use std::time::Duration;

use ashlar_io::{DiskGeometry, Tearing};

use crate::random::Random;

/// How long an operation takes: at least, plus up to a spread; one in 50 takes ten times, one in 1000 a hundred
/// times the spread, as real devices do while they collect garbage.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// The least.
    pub least: Duration,
    /// The spread.
    pub spread: Duration,
}

impl Latency {
    /// From `least` to `least + spread`, in microseconds, mostly.
    pub const fn micros(least: u64, spread: u64) -> Self {
        Self { least: Duration::from_micros(least), spread: Duration::from_micros(spread) }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let times = match random.below(1000) {
            0 => 100,
            1..=20 => 10,
            _ => 1,
        };
        self.least.as_nanos() as u64 + random.below(self.spread.as_nanos() as u64 * times + 1)
    }
}

/// A kind of device.
#[derive(Debug, Clone)]
pub struct DeviceSettings {
    /// Size and promises.
    pub geometry: DiskGeometry,
    /// Of reads.
    pub read: Latency,
    /// Of writes.
    pub write: Latency,
    /// Of flushes.
    pub flush: Latency,
    /// Of discards.
    pub discard: Latency,
    /// Operations that it works on at a time; further ones queue inside it.
    pub channels: usize,
    /// How long after its process died an operation may still land.
    pub late_max: Duration,
}

impl DeviceSettings {
    /// A fast device of `blocks` blocks without a volatile cache, which writes blocks atomically.
    pub fn solid(blocks: u64) -> Self {
        Self {
            geometry: DiskGeometry { blocks, volatile_cache: false, tearing: Tearing::Atomic, discard: true },
            read: Latency::micros(60, 40),
            write: Latency::micros(10, 20),
            flush: Latency::micros(5, 5),
            discard: Latency::micros(20, 200),
            channels: 8,
            late_max: Duration::from_secs(8),
        }
    }

    /// The same with a volatile cache, whose flush takes long.
    pub fn volatile(blocks: u64) -> Self {
        let mut this = Self::solid(blocks);
        this.geometry.volatile_cache = true;
        this.flush = Latency::micros(500, 2000);
        this
    }
}

/// I/O in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks written.
    pub blocks_written: u64,
}
