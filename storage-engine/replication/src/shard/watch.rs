//! Notices members that do not answer (design §7).
//!
//! While something is in flight, one task per shard sleeps until the oldest wait would have lasted too long. Requests
//! pay nothing for it.

use std::rc::Rc;
use std::time::Duration;

use ashlar_io::{Instant, World};

use crate::peer::{Peer, PeerError};
use crate::shard::Inner;

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// Something is in flight from now on.
    pub(super) fn watch(self: &Rc<Self>) {
        if self.watching.replace(true) {
            return;
        }
        let weak = Rc::downgrade(self);
        let (world, hang) = (self.world.clone(), self.limits.hang);
        // It ends soon after the last request, and reports again until the member has gone: the last report may have
        // come at a bad moment.
        let (pause_min, pause_max) = (hang / 8, hang / 4);
        let task = async move {
            let mut pause = pause_max;
            loop {
                world.sleep(pause).await;
                let Some(shard) = weak.upgrade() else { return };
                let Some(oldest) = shard.ranges.oldest_wait() else {
                    shard.watching.set(false);
                    return;
                };
                let now = world.now();
                let waited = now.since(oldest);
                pause = if waited >= hang {
                    shard.give_up(now, hang);
                    pause_min
                } else {
                    (hang - waited).clamp(pause_min, pause_max)
                };
            }
        };
        self.world.spawn(task);
    }

    /// Reports the members that somebody has waited for since `hang` ago.
    fn give_up(&self, now: Instant, hang: Duration) {
        let hang_ns = u64::try_from(hang.as_nanos()).unwrap_or(u64::MAX);
        let late = self.ranges.waited_for_since(Instant::from_ns(now.as_ns().saturating_sub(hang_ns)));
        let members = self.members.borrow().clone();
        for member in members.iter().filter(|member| member.bit & late != 0) {
            self.member_failed(member, PeerError::Hung);
        }
    }
}
