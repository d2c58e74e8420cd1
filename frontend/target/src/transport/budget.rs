//! Buffers that one queue may hold at a time, so that none takes a core's all (NVME N14).

use std::cell::Cell;

use ashlar_nvme::Status;
use ashlar_reactor::{Line, Notify};

/// Bytes of host data that one queue may have asked for by R2T, and bytes of large reads that it may be carrying out,
/// at a time: 32 slices each, a tenth of a core's; or a thousand small writes. Alone it always gets one, so that each
/// queue makes progress.
const BYTES_MAX: u32 = 4 * 1024 * 1024;

/// What a queue holds of one kind.
pub(crate) struct Budget {
    used: Cell<u32>,
    line: Line,
    room: Notify,
    ended: Cell<bool>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { used: Cell::new(0), line: Line::new(), room: Notify::new(), ended: Cell::new(false) }
    }

    /// Waits for the right to hold `bytes` bytes, which [`Allowance`] gives back. Those who wait are served in order.
    pub(crate) async fn take(&self, bytes: u32) -> Result<Allowance<'_>, Status> {
        let _turn = self.line.turn().await;
        loop {
            if self.ended.get() {
                return Err(Status::ABORTED_SQ_DELETION);
            }
            let used = self.used.get();
            if used == 0 || used + bytes <= BYTES_MAX {
                self.used.set(used + bytes);
                return Ok(Allowance { budget: self, bytes });
            }
            self.room.notified().await;
        }
    }

    /// The right to hold `bytes` bytes, if nobody has to wait for it.
    pub(crate) fn try_take(&self, bytes: u32) -> Option<Allowance<'_>> {
        let used = self.used.get();
        if self.ended.get() || self.line.is_busy() || used + bytes > BYTES_MAX {
            return None;
        }
        self.used.set(used + bytes);
        Some(Allowance { budget: self, bytes })
    }

    /// Takes back what an [`Allowance`] that was kept allowed.
    pub(crate) fn give(&self, bytes: u32) {
        self.used.set(self.used.get().saturating_sub(bytes));
        self.room.notify_one();
    }

    /// The queue has ended: nobody waits any more.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.room.notify_all();
    }
}

/// The right to hold some bytes.
pub(crate) struct Allowance<'a> {
    budget: &'a Budget,
    bytes: u32,
}

impl Allowance<'_> {
    /// The queue holds nothing else of this kind.
    pub(crate) fn is_only_one(&self) -> bool {
        self.budget.used.get() == self.bytes
    }

    /// Leaves it to the caller to [`Budget::give`] it back.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}
