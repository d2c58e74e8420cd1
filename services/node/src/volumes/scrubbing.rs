//! When which volume is scrubbed. Volumes have their turns one after the other, so that one rate holds for all
//! of them; a pass goes on after a restart where it was.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ashlar_reactor::CoreId;
use ashlar_replication::scrub::Position;
use uuid::Uuid;

use super::engine::{Engine, EngineError};
use super::part;
use crate::config::ScrubSettings;
use crate::state::ScrubState;

/// How often it is looked whether a pass is due. Short beside what a pass takes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often a pass's position is made durable. What lies between is read again after a restart.
const SAVE_AGAIN: Duration = Duration::from_secs(30);

/// Where every pass begins.
const BEGIN: Position = Position { segment: 0, extent: 0 };

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Of a volume that has nothing yet that could have gone bad.
pub(super) fn of_new_volume() -> ScrubState {
    ScrubState { began_s: Some(now_s()), ended_s: None, at: None }
}

/// Where a pass goes on or begins, if one is due.
fn due(scrub: &ScrubState, now_s: u64, interval: Duration) -> Option<Position> {
    if let Some((segment, extent)) = scrub.at {
        return Some(Position { segment, extent });
    }
    // A clock that was set back tells nothing: rather too early than never.
    let age_s = scrub.began_s.and_then(|began_s| now_s.checked_sub(began_s));
    age_s.is_none_or(|age_s| age_s >= interval.as_secs()).then_some(BEGIN)
}

/// Scrubs all volumes until the node stops.
pub(super) async fn scrub(engine: Weak<Engine>, settings: ScrubSettings) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let Some(there) = engine.upgrade() else { return };
        let next = next(&there, settings.interval).await;
        drop(there);
        let outcome = match next {
            Ok(Some(next)) => pass(&engine, next, settings).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            // Also what a node that stops answers; otherwise the next turn shows it again.
            tracing::debug!(%error, "a scrub did not go on");
        }
    }
}

/// A pass that is due.
struct Next {
    volume: Uuid,
    name: String,
    from: Position,
    /// Those that have shards of the volume.
    cores: Vec<CoreId>,
}

async fn next(engine: &Engine, interval: Duration) -> Result<Option<Next>, EngineError> {
    let state = engine.keeper.state().await?;
    let now_s = now_s();
    let due = |(id, volume): (&Uuid, &crate::state::VolumeState)| {
        let from = due(&volume.scrub, now_s, interval)?;
        Some((volume.scrub.began_s, *id, volume.name.clone(), from))
    };
    let mut due: Vec<_> = state.volumes.iter().filter_map(due).collect();
    // Whoever waits longest comes next.
    due.sort_by_key(|(began_s, id, ..)| (*began_s, *id));
    if due.is_empty() {
        return Ok(None);
    }
    let mut open: BTreeMap<Uuid, Vec<CoreId>> = BTreeMap::new();
    for core in engine.cores.ids() {
        for id in engine.cores.run_on(core, || async { part::open_volumes() }).await? {
            open.entry(id).or_default().push(core);
        }
    }
    let next = due.into_iter().find_map(|(_, volume, name, from)| {
        let cores = open.remove(&volume)?;
        Some(Next { volume, name, from, cores })
    });
    Ok(next)
}

/// Makes it durable how far a volume's scrub is.
async fn keep(
    engine: &Weak<Engine>,
    volume: Uuid,
    change: impl FnOnce(&mut ScrubState) + Send + 'static,
) -> Result<(), EngineError> {
    let Some(engine) = engine.upgrade() else { return Ok(()) };
    let kept = engine.keeper.change(move |state| {
        if let Some(volume) = state.volumes.get_mut(&volume) {
            change(&mut volume.scrub);
        }
    });
    Ok(kept.await?)
}

/// Scrubs a volume from where it is due to its end, or until it is closed.
async fn pass(engine: &Weak<Engine>, next: Next, settings: ScrubSettings) -> Result<(), EngineError> {
    let Next { volume, name, from, cores } = next;
    let begins = from == BEGIN;
    let at = (from.segment, from.extent);
    keep(engine, volume, move |scrub| {
        scrub.at = Some(at);
        if begins {
            scrub.began_s = Some(now_s());
        }
    })
    .await?;
    let Some(handle) = engine.upgrade().map(|engine| engine.cores.clone()) else { return Ok(()) };
    tracing::info!(volume = %name, segment = at.0, extent = at.1, "scrubbing");
    let bytes_per_s = (settings.bytes_per_s / (cores.len() as u64).max(1)).max(1);
    let running = cores.iter().map(|core| {
        handle.run_on(*core, move || async move { part::scrub(volume, from, bytes_per_s).await })
    });
    let mut all = std::pin::pin!(futures_util::future::join_all(running));
    let ended = loop {
        match tokio::time::timeout(SAVE_AGAIN, &mut all).await {
            Ok(ended) => break ended,
            Err(_) => save(engine, volume).await?,
        }
    };
    for ended in ended {
        if !ended? {
            tracing::info!(volume = %name, "the scrub goes on when the volume is open again");
            return Ok(());
        }
    }
    keep(engine, volume, |scrub| {
        scrub.at = None;
        scrub.ended_s = Some(now_s());
    })
    .await?;
    tracing::info!(volume = %name, "scrubbed");
    Ok(())
}

/// Makes durable how far all cores are.
async fn save(engine: &Weak<Engine>, volume: Uuid) -> Result<(), EngineError> {
    let Some(there) = engine.upgrade() else { return Ok(()) };
    let mut least: Option<Position> = None;
    for core in there.cores.ids() {
        let at = there.cores.run_on(core, move || async move { part::scrubbing(volume) }).await?;
        least = [least, at].into_iter().flatten().min();
    }
    drop(there);
    match least {
        Some(Position { segment, extent }) => {
            keep(engine, volume, move |scrub| scrub.at = Some((segment, extent))).await
        }
        // All are at the end.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_pass_is_due_when_the_last_began_an_interval_ago() {
        let scrub = |began_s| ScrubState { began_s, ended_s: None, at: None };
        assert_eq!(due(&scrub(Some(1000)), 4599, HOUR), None);
        assert_eq!(due(&scrub(Some(1000)), 4600, HOUR), Some(BEGIN));
        assert_eq!(due(&scrub(None), 0, HOUR), Some(BEGIN), "it never was");
        assert_eq!(due(&scrub(Some(1000)), 999, HOUR), Some(BEGIN), "the clock was set back");
        assert_eq!(due(&of_new_volume(), now_s(), HOUR), None);
    }

    #[test]
    fn a_pass_that_did_not_end_goes_on_at_once() {
        let scrub = ScrubState { began_s: Some(1000), ended_s: Some(900), at: Some((2, 7)) };
        assert_eq!(due(&scrub, 1001, HOUR), Some(Position { segment: 2, extent: 7 }));
    }
}
