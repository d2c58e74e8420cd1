//! What a core looks at from time to time while it has host connections: whether it ran too late itself,
//! keep-alive, and peers that make no progress. One timer per core; nothing is armed per command.

use std::rc::Rc;
use std::time::Duration;

use ashlar_reactor::{Instant, first, sleep_until};

use crate::backend::OpenBackend;
use crate::limits::{LATENESS_MAX, Limits};
use crate::target::core_state::CoreState;
use crate::transport::queue::Reason;

/// How often a core looks whether it is late: what waited longer than [`LATENESS_MAX`] and this is never
/// executed. 40 wake-ups per second cost an idle core about 0.1%.
const PERIOD: Duration = Duration::from_millis(25);

/// Looks after which the slower things are looked at, too: every 200 ms.
const SLOW: u32 = 8;

/// Longer than a turn takes to hand out what has arrived.
const TURN: Duration = Duration::from_millis(1);

/// Watches until the core stops.
pub(crate) async fn watch<F: OpenBackend>(state: Rc<CoreState<F>>) {
    let mut looks = 0;
    while !state.is_over() {
        if ashlar_reactor::is_stopping() {
            // The cores stop under a target that was not ended: nothing of it stays.
            state.end().await;
            return;
        }
        if state.is_empty() {
            // One of both is enough.
            let _ = first(state.changed.notified(), ashlar_reactor::stop_requested()).await;
            continue;
        }
        state.watched_sleep(PERIOD).await;
        looks += 1;
        if looks >= SLOW {
            looks = 0;
            state.look_at_queues(ashlar_reactor::now());
            // What arrived before this turn is taken in first (NVME N7).
            state.watched_sleep(TURN).await;
            state.look_at_associations(ashlar_reactor::now());
        }
    }
}

impl<F: OpenBackend> CoreState<F> {
    /// Sleeps, and closes all host connections if the core woke too late. Timers are looked at before input of the
    /// same turn, so what waited meanwhile has not started (PROTOCOL R9).
    async fn watched_sleep(&self, time: Duration) {
        let due = ashlar_reactor::now() + time;
        sleep_until(due).await;
        let late = ashlar_reactor::now().since(due);
        if late > LATENESS_MAX {
            let late_ms = late.as_millis();
            tracing::warn!(core = %self.id, late_ms, "core ran too late: its host connections are closed");
            self.close_all(Reason::CoreLate);
        }
    }

    fn look_at_queues(&self, now: Instant) {
        let Limits { receive_progress, send_progress, .. } = self.shared.limits;
        let queues: Vec<_> = self.queues.borrow().clone();
        for queue in queues.iter().filter(|queue| !queue.is_closed()) {
            let older = |since: Option<Instant>, limit| since.is_some_and(|since| now.since(since) > limit);
            let received = queue.partial_since.get();
            if older(received, receive_progress) || older(queue.transfers.stalled_since(), receive_progress) {
                queue.close(Reason::ReceiveStalled);
            } else if older(queue.outbox.stalled_since(), send_progress) {
                queue.close(Reason::SendStalled);
            }
        }
    }

    fn look_at_associations(&self, now: Instant) {
        let associations: Vec<_> = self.associations.borrow().values().cloned().collect();
        for association in associations {
            if association.controller.expires_at().is_some_and(|expiry| expiry <= now) {
                association.end(Reason::KeepAlive);
            }
        }
    }
}
