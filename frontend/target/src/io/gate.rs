//! How a fused pair keeps other writes out of its block, on all cores, without cost to ordinary writes.
//!
//! The problem: Compare-and-Write reads, compares and writes. No other write to the block may fall in
//! between, on whichever core it runs. Ordinary writes must pay neither an atomic operation nor a message for
//! that.
//!
//! The protocol, in the manner of read-copy-update:
//!
//! 1. Each core counts its running writes of a namespace in plain cells, by the parity of the gate's epoch on
//!    that core ([`Gate::enter`]). A write enters when its data is there, just before it goes to the backend,
//!    and leaves when the backend is done; so a host that stalls in mid-transfer holds nobody up.
//! 2. A fused pair first takes the namespace's turn at its home core (nsid modulo cores): one pair per
//!    namespace at a time, in the order in which they ask.
//! 3. It then asks every core to close its gate for the pair's range ([`Gate::close`]). From then on writes
//!    that overlap the range wait there. The epoch flips, and the core answers when the writes of the old
//!    parity have ended: those ran when the gate closed. Writes that start later count for the new parity and
//!    overlap nothing.
//! 4. When all have answered no write that overlaps is running anywhere: the pair reads, compares and writes.
//! 5. Every core is told to open its gate, and the turn is given back.
//!
//! What can go wrong: a core's inbox is full. Before the pair has written anything it gives up, opens what it
//! closed and answers Command Interrupted, which hosts repeat. Opening and giving back are repeated until
//! they are through. The whole runs as a task of its own, so a connection that ends in between leaves no gate
//! closed. A core that has not opened the namespace yet closes a gate all the same, and finds it closed when
//! it opens.
//!
//! With one core there are no messages. Nothing else than fused pairs may use the gate.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ashlar_reactor::{CoreId, CoresHandle, Error, Notify, current_core, peers, sleep};

use crate::backend::ByteRange;

/// Pause before a message is sent again to a core whose inbox was full: it empties it every turn.
const INBOX_RETRY: Duration = Duration::from_millis(1);

/// Names a namespace's gate on all cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GateId(u64);

impl GateId {
    pub(super) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        GateId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

thread_local! {
    static GATES: RefCell<HashMap<GateId, Rc<Gate>>> = RefCell::default();
}

/// This core's gate of a namespace.
pub(super) fn local(id: GateId) -> Rc<Gate> {
    GATES.with_borrow_mut(|gates| Rc::clone(gates.entry(id).or_default()))
}

/// Forgets this core's gate if nobody needs it: the caller's own reference and the table's are the last.
pub(super) fn release(id: GateId, gate: &Rc<Gate>) {
    let idle = gate.closed.get().is_none() && !gate.taken.get();
    if idle && Rc::strong_count(gate) <= 2 {
        // At the end of the thread the table may be gone already, and the gate with it.
        let _ = GATES.try_with(|gates| gates.borrow_mut().remove(&id));
    }
}

/// One core's part of the protocol.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Running writes by parity.
    running: [Cell<u64>; 2],
    parity: Cell<usize>,
    closed: Cell<Option<ByteRange>>,
    opened: Notify,
    drained: Notify,
    /// On the home core: a pair has the turn.
    taken: Cell<bool>,
    turn: Notify,
}

/// A write is running. Leaves when dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    gate: &'a Gate,
    parity: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let count = &self.gate.running[self.parity];
        count.set(count.get() - 1);
        if count.get() == 0 && self.parity != self.gate.parity.get() {
            self.gate.drained.notify_all();
        }
    }
}

impl Gate {
    /// Counts a write to `range`, once the gate is open for it.
    pub(super) async fn enter(&self, range: ByteRange) -> Running<'_> {
        while self.closed.get().is_some_and(|closed| closed.overlaps(range)) {
            self.opened.notified().await;
        }
        let parity = self.parity.get();
        let count = &self.running[parity];
        count.set(count.get() + 1);
        Running { gate: self, parity }
    }

    /// Closes the gate for `range`; done when the writes that were running have ended.
    async fn close(&self, range: ByteRange) {
        self.closed.set(Some(range));
        let old = self.parity.get();
        // Empty unless an earlier closing was given up; without this its writes would be taken for new ones.
        self.drain(1 - old).await;
        self.parity.set(1 - old);
        self.drain(old).await;
    }

    async fn drain(&self, parity: usize) {
        while self.running[parity].get() > 0 {
            self.drained.notified().await;
        }
    }

    fn open(&self) {
        self.closed.set(None);
        self.opened.notify_all();
    }

    async fn take_turn(&self) {
        while self.taken.replace(true) {
            self.turn.notified().await;
        }
    }

    fn give_turn(&self) {
        self.taken.set(false);
        self.turn.notify_one();
    }
}

/// Runs `work` while no write that overlaps `range` runs on any core. `None` if the cores could not be asked;
/// `work` has then not begun.
pub(super) async fn alone<T>(
    id: GateId,
    home: CoreId,
    range: ByteRange,
    work: impl Future<Output = T>,
) -> Option<T> {
    let cores = peers().filter(|cores| cores.count() > 1);
    let Some(cores) = cores else {
        let gate = local(id);
        gate.take_turn().await;
        gate.close(range).await;
        let outcome = work.await;
        gate.open();
        gate.give_turn();
        release(id, &gate);
        return Some(outcome);
    };
    let taken = cores.run_on(home, move || async move { local(id).take_turn().await });
    taken.await.ok()?;
    let outcome = if close_everywhere(&cores, id, range).await { Some(work.await) } else { None };
    for core in cores.ids() {
        told(&cores, core, move || {
            let gate = local(id);
            gate.open();
            release(id, &gate);
        })
        .await;
    }
    told(&cores, home, move || {
        let gate = local(id);
        gate.give_turn();
        release(id, &gate);
    })
    .await;
    outcome
}

async fn close_everywhere(cores: &CoresHandle, id: GateId, range: ByteRange) -> bool {
    let here = current_core();
    let others = cores.ids().filter(|core| Some(*core) != here);
    let asked: Vec<_> =
        others.map(|core| cores.run_on(core, move || async move { local(id).close(range).await })).collect();
    let gate = local(id);
    gate.close(range).await;
    let mut all = true;
    for answer in asked {
        all &= answer.await.is_ok();
    }
    all
}

/// Runs `message` on a core, however often it has to be sent. A core that has stopped needs no message.
async fn told(cores: &CoresHandle, core: CoreId, message: impl FnOnce() + Send + Copy + 'static) {
    if current_core() == Some(core) {
        message();
        return;
    }
    while let Err(Error::InboxFull { .. }) = cores.run_on(core, move || async move { message() }).await {
        sleep(INBOX_RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const BLOCK: ByteRange = ByteRange { offset: 4096, len: 4096 };
    const NEXT: ByteRange = ByteRange { offset: 8192, len: 4096 };

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn closing_waits_for_writes_that_run_and_not_for_those_that_start_later() {
        let gate = Gate::default();
        let Poll::Ready(before) = poll(pin!(gate.enter(NEXT))) else { panic!("an open gate lets in") };
        let mut closing = pin!(gate.close(BLOCK));
        assert!(poll(closing.as_mut()).is_pending());
        let Poll::Ready(later) = poll(pin!(gate.enter(NEXT))) else { panic!("another block is open") };
        drop(before);
        assert!(poll(closing.as_mut()).is_ready());
        drop(later);
    }

    #[test]
    fn an_overlapping_write_waits_until_the_gate_opens() {
        let gate = Gate::default();
        assert!(poll(pin!(gate.close(BLOCK))).is_ready());
        let mut entering = pin!(gate.enter(ByteRange { offset: 8191, len: 1 }));
        assert!(poll(entering.as_mut()).is_pending());
        gate.open();
        assert!(poll(entering.as_mut()).is_ready());
    }

    #[test]
    fn a_closing_that_was_given_up_leaves_no_write_uncounted() {
        let gate = Gate::default();
        let Poll::Ready(before) = poll(pin!(gate.enter(NEXT))) else { panic!("an open gate lets in") };
        {
            let mut given_up = pin!(gate.close(BLOCK));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        gate.open();
        let mut closing = pin!(gate.close(NEXT));
        assert!(poll(closing.as_mut()).is_pending());
        drop(before);
        assert!(poll(closing.as_mut()).is_ready());
    }

    #[test]
    fn the_turn_goes_round_in_order() {
        let gate = Gate::default();
        assert!(poll(pin!(gate.take_turn())).is_ready());
        let mut second = pin!(gate.take_turn());
        let mut third = pin!(gate.take_turn());
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(third.as_mut()).is_pending());
        gate.give_turn();
        assert!(poll(third.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_ready());
    }
}
