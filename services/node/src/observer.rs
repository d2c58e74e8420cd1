//! Looks at the running node for whoever asks: counters for metrics, health for supervisors.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ashlar_reactor::{CoreId, CoresHandle, Instant};
use ashlar_target::Target;

use crate::apply::Outcome;
use crate::metrics::server::{Source, Volumes};
use crate::metrics::{CoreSnapshot, LastReload, NodeCounts, Snapshot};
use crate::storage::Storage;
use crate::volumes::Engine;

/// How long a scrape waits for a core to tell the time that it has just slept. A core that is too busy for
/// that has not slept.
const FRESH: Duration = Duration::from_millis(100);

/// How long a core may take to answer and still be called healthy.
const HEALTHY: Duration = Duration::from_secs(2);

/// How far the node's life has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Storage is opened; hosts cannot connect.
    Starting,
    /// Hosts can connect.
    Serving,
    /// Hosts are let go.
    Stopping,
}

/// See the module.
#[derive(Debug)]
pub struct Observer {
    cores: CoresHandle,
    target: Target<Storage>,
    engine: Option<Arc<Engine>>,
    started: Instant,
    counts: Mutex<NodeCounts>,
    phase: Mutex<Phase>,
    /// Busy time that was told last, per core: a counter never falls.
    busy_ns: Mutex<Vec<u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer {
    /// Observes cores that have just started.
    pub fn new(cores: CoresHandle, target: Target<Storage>, engine: Option<Arc<Engine>>) -> Self {
        let start_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let busy_ns = Mutex::new(vec![0; cores.count()]);
        let counts = Mutex::new(NodeCounts { start_s, ..NodeCounts::default() });
        let (started, phase) = (ashlar_reactor::clock::read(), Mutex::new(Phase::Starting));
        Self { cores, target, engine, started, counts, phase, busy_ns }
    }

    /// Hosts can connect from now on.
    pub fn note_serving(&self) {
        *lock(&self.phase) = Phase::Serving;
    }

    /// Hosts are let go from now on.
    pub fn note_stopping(&self) {
        *lock(&self.phase) = Phase::Stopping;
    }

    /// The configuration of the start was applied.
    pub fn note_start(&self, outcome: Outcome) {
        lock(&self.counts).last_reload = result(outcome);
    }

    /// A configuration was read again and applied.
    pub fn note_reload(&self, outcome: Outcome) {
        let mut counts = lock(&self.counts);
        counts.last_reload = result(outcome);
        match counts.last_reload {
            LastReload::Applied => counts.reloads_applied += 1,
            LastReload::Failed => counts.reloads_failed += 1,
        }
    }

    /// A configuration was read again and refused.
    pub fn note_refusal(&self) {
        let mut counts = lock(&self.counts);
        counts.last_reload = LastReload::Failed;
        counts.reloads_failed += 1;
    }

    /// Whether a core answers in time.
    async fn answers(&self, core: CoreId, within: Duration) -> bool {
        let reply = self.cores.run_on(core, || async {});
        matches!(tokio::time::timeout(within, reply).await, Ok(Ok(())))
    }

    async fn core(&self, core: CoreId) -> CoreSnapshot {
        // A sleeping core tells how long it slept when it wakes.
        self.answers(core, FRESH).await;
        let elapsed_ns =
            u64::try_from(ashlar_reactor::clock::read().since(self.started).as_nanos()).unwrap_or(u64::MAX);
        let counters = self.cores.counters(core);
        let now = elapsed_ns.saturating_sub(counters.spin_ns).saturating_sub(counters.sleep_ns);
        let mut told = lock(&self.busy_ns);
        let busy_ns = match told.get_mut(core.index()) {
            Some(before) => {
                *before = now.max(*before);
                *before
            }
            None => now,
        };
        CoreSnapshot { counters, busy_ns }
    }
}

fn result(outcome: Outcome) -> LastReload {
    if outcome.failed == 0 { LastReload::Applied } else { LastReload::Failed }
}

impl Source for Observer {
    async fn snapshot(&self) -> Snapshot {
        let mut cores = Vec::new();
        for id in self.cores.ids() {
            cores.push(self.core(id).await);
        }
        let node = *lock(&self.counts);
        // A core that does not answer is what /healthz tells.
        let Volumes { volumes, devices } = self.volumes().await.unwrap_or_default();
        let (target, inventory) = (self.target.metrics(), self.target.inventory());
        Snapshot { cores, node, target, inventory, volumes, devices }
    }

    async fn volumes(&self) -> Option<Volumes> {
        let Some(engine) = &self.engine else { return Some(Volumes::default()) };
        let both = async { engine.volumes().await.ok().zip(engine.device_statuses().await.ok()) };
        let (volumes, devices) = tokio::time::timeout(HEALTHY, both).await.ok()??;
        Some(Volumes { volumes, devices })
    }

    async fn trouble(&self) -> Option<String> {
        let phase = *lock(&self.phase);
        match phase {
            Phase::Starting => return Some("the node is starting: hosts cannot connect yet".to_owned()),
            Phase::Stopping => return Some("the node is stopping".to_owned()),
            Phase::Serving => {}
        }
        for id in self.cores.ids() {
            if !self.answers(id, HEALTHY).await {
                return Some(format!("data core {id} does not answer"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use ashlar_reactor::{Cores, CoresConfig};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn node_is_healthy_only_while_hosts_can_connect() {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
        let target = Target::start(cores.handle()).await.expect("a target");
        let observer = Observer::new(cores.handle(), target.clone(), None);
        assert!(observer.trouble().await.is_some_and(|reason| reason.contains("starting")));
        observer.note_serving();
        assert_eq!(observer.trouble().await, None);
        observer.note_stopping();
        assert!(observer.trouble().await.is_some_and(|reason| reason.contains("stopping")));
        target.stop().await.expect("nothing is under way");
        drop((observer, target));
        cores.stop(HEALTHY).expect("nothing is left over");
    }
}
