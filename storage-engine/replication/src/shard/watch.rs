//! Notices members that do not answer (design §7).
//!
//! While something is in flight, one task per shard sleeps until the oldest wait would have lasted too long. Requests
//! pay nothing for it.

use std::rc::Rc;

use ashlar_io::World;

use crate::peer::{Peer, PeerError};
use crate::shard::Inner;

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// Something is in flight from now on.
    pub(super) fn watch(self: &Rc<Self>) {
        if self.watching.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        let task = async move {
            let world = shard.world.clone();
            let hang = shard.limits.hang;
            // It reports again until the member has gone: the last report may have come at a bad moment.
            let pause_min = hang / 8;
            let mut pause = hang;
            loop {
                world.sleep(pause).await;
                let Some(oldest) = shard.ranges.oldest_wait() else { break };
                let now = world.now();
                let waited = now.since(oldest);
                pause = if waited >= hang {
                    let late = shard.ranges.waited_for_since(ashlar_io::Instant::from_ns(
                        now.as_ns().saturating_sub(u64::try_from(hang.as_nanos()).unwrap_or(u64::MAX)),
                    ));
                    let members = shard.members.borrow().clone();
                    for member in members.iter().filter(|member| member.bit & late != 0) {
                        shard.member_failed(member, PeerError::Hung);
                    }
                    pause_min
                } else {
                    (hang - waited).max(pause_min)
                };
            }
            shard.watching.set(false);
        };
        self.world.spawn(task);
    }
}
