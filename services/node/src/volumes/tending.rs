//! Looks after a core's part of a volume: replicas that are not in sync are brought back, and what a crash left suspect
//! is verified in the background (PROTOCOL S2).

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use ashlar_replication::ReplicaId;

use super::part::{Opened, Peer};

/// How often replicas that are away are looked at. Short beside what a catch-up takes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Tends until the volume is closed.
pub(super) async fn tend(opened: Weak<Opened>) {
    if let Some(opened) = opened.upgrade() {
        verify_suspects(&opened).await;
    }
    let busy: Rc<std::cell::RefCell<BTreeSet<(u32, ReplicaId)>>> = Rc::default();
    loop {
        {
            let Some(opened) = opened.upgrade() else { return };
            for Away { segment, replica, peers } in away(&opened) {
                if !busy.borrow_mut().insert((segment, replica)) {
                    continue;
                }
                let (volume, busy) = (Rc::clone(&opened.volume), Rc::clone(&busy));
                let held = Rc::downgrade(&opened);
                ashlar_reactor::spawn(async move {
                    // A catch-up tries again by itself as long as that makes sense. It ends with the volume.
                    let catch_up = std::pin::pin!(volume.catch_up(segment, replica, peers));
                    if let Some(Err(error)) = until_closed(&held, catch_up).await {
                        tracing::error!(segment, %replica, %error, "a replica cannot be brought back");
                        // Only another device cures it: it stays in `busy`.
                        return;
                    }
                    busy.borrow_mut().remove(&(segment, replica));
                });
            }
        }
        ashlar_reactor::sleep(LOOK_AGAIN).await;
    }
}

/// Drives a future as long as the volume is open: once it is closed nothing begins any more, and it ends within a
/// second.
pub(super) async fn until_closed<F: Future + Unpin>(
    opened: &Weak<Opened>,
    mut future: F,
) -> Option<F::Output> {
    let mut while_open = std::future::poll_fn(|context| match opened.strong_count() {
        0 => Poll::Ready(None),
        _ => std::pin::Pin::new(&mut future).poll(context).map(Some),
    });
    loop {
        if let Ok(output) = ashlar_reactor::timeout(LOOK_AGAIN, &mut while_open).await {
            return output;
        }
    }
}

/// A replica that is not in sync.
struct Away {
    segment: u32,
    replica: ReplicaId,
    /// Its part of each shard.
    peers: Vec<(u32, Rc<Peer>)>,
}

/// Replicas that are not in sync and have all shards of this core, on lanes that work.
fn away(opened: &Opened) -> Vec<Away> {
    let mut away = Vec::new();
    for segment in opened.volume.status().segments {
        let Some(peers) = opened.peers.get(&segment.index) else { continue };
        let shards: BTreeSet<u32> = peers.keys().map(|(shard, _)| *shard).collect();
        let replicas: BTreeSet<ReplicaId> = peers.keys().map(|(_, replica)| *replica).collect();
        for replica in replicas {
            let in_sync = segment.replicas.get(&replica);
            if matches!(in_sync, Some(ashlar_replication::status::ReplicaState::InSync)) {
                continue;
            }
            let of_replica = peers.iter().filter(|((_, of), _)| *of == replica);
            let there: Vec<_> = of_replica.map(|((shard, _), peer)| (*shard, Rc::clone(peer))).collect();
            let works = there.iter().all(|(_, peer)| peer.lane().stopped().is_none());
            if there.len() == shards.len() && works {
                away.push(Away { segment: segment.index, replica, peers: there });
            }
        }
    }
    away
}

/// Verifies every extent that was open at a crash.
async fn verify_suspects(opened: &Rc<Opened>) {
    for (segment, peers) in &opened.peers {
        let mut suspects: BTreeSet<(u32, u32)> = BTreeSet::new();
        for ((shard, _), peer) in peers {
            suspects.extend(peer.suspects().into_iter().map(|extent| (*shard, extent)));
        }
        for (shard, extent) in suspects {
            let Some(shard) = opened.volume.shard(*segment, shard) else { continue };
            if let Err(error) = shard.verify(extent).await {
                tracing::error!(shard = %shard.id(), extent, %error, "blocks of an extent are lost");
            }
            ashlar_reactor::next_turn().await;
        }
    }
}
