//! A running node: data cores, the target on them, what it serves, and its metrics; from start to stop.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ashlar_reactor::{Cores, CoresConfig, Error as ReactorError};
use ashlar_target::Target;
use ashlar_target::inventory::Portal;
use ashlar_target::target::ChangeError;

use crate::apply::Served;
use crate::config::{Config, ConfigError, PortalSettings};
use crate::limits::DRAIN;
use crate::log::LevelSwitch;
use crate::metrics::server;
use crate::observer::Observer;
use crate::storage::{Means, Storage};
use crate::volumes::{Engine, EngineError};

/// Why a node cannot start or did not stop well.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The data cores.
    #[error("the data cores: {0}")]
    Cores(#[from] ReactorError),
    /// A portal, mostly.
    #[error(transparent)]
    Target(#[from] ChangeError),
    /// The address of the metrics.
    #[error(
        "could not listen on {address} for metrics: {source}; [metrics] listen gives another address, \
         enabled = false does without"
    )]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// What volumes need.
    #[error("the volumes cannot be started: {0}")]
    Engine(#[from] EngineError),
    /// Signals cannot be heeded.
    #[error("signals cannot be heeded: {0}")]
    Signals(#[source] io::Error),
    /// Commands of hosts, or what they hold, did not end in time.
    #[error("hosts' commands did not end within {} s and were given up", DRAIN.as_secs())]
    Drain,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    path: PathBuf,
    cores: Cores,
    target: Target<Storage>,
    served: Served,
    observer: Arc<Observer>,
    level: LevelSwitch,
}

/// Where a node can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Portals, in the order of the configuration.
    pub portals: Vec<SocketAddr>,
    /// Metrics, if they are served.
    pub metrics: Option<SocketAddr>,
}

impl Node {
    /// Starts a node that serves what `config` says. `path` is where the configuration is read again. Storage
    /// that is not usable is logged and left out: the rest is served.
    ///
    /// # Errors
    /// If the cores do not start, or an address cannot be listened on.
    pub async fn start(
        path: &Path,
        config: &Config,
        level: LevelSwitch,
    ) -> Result<(Self, Addresses), NodeError> {
        let cores = Cores::start(&CoresConfig {
            cpus: config.cores.cpus.clone(),
            buffers: config.cores.buffers,
            spin: config.cores.spin,
        })?;
        let target = Target::start(cores.handle()).await?;
        let engine = match config.pools.is_empty() {
            true => None,
            false => Some(Engine::start(cores.handle(), config).await?),
        };
        let observer = Arc::new(Observer::new(cores.handle(), target.clone(), engine.clone()));
        let metrics = match config.metrics {
            None => None,
            Some(address) => {
                let listening = server::listen(address).await;
                let (listener, bound) = listening.map_err(|source| NodeError::Metrics { address, source })?;
                tokio::spawn(server::serve(listener, Arc::clone(&observer)));
                Some(bound)
            }
        };
        let mut served = Served::nothing(target.clone(), Means { cores: cores.handle(), engine }, config);
        observer.note_start(served.apply(config).await);
        for (nqn, subsystem) in &config.subsystems {
            if subsystem.hosts == ashlar_target::inventory::HostAccess::default() {
                tracing::warn!(subsystem = %nqn, "no host may connect: give hosts or allow_any_host");
            }
        }
        let mut portals = Vec::new();
        for (index, settings) in config.portals.iter().enumerate() {
            portals.push(target.add_portal(portal(index, *settings)).await?);
        }
        observer.note_serving();
        let node = Self { path: path.to_owned(), cores, target, served, observer, level };
        Ok((node, Addresses { portals, metrics }))
    }

    /// Reads the configuration again and serves what it says. If it is not valid, nothing changes.
    pub async fn reload(&mut self) {
        let config = match Config::load(&self.path) {
            Ok(config) => config,
            Err(error) => return self.refuse(&error),
        };
        self.level.set(config.log.level);
        let outcome = self.served.apply(&config).await;
        self.observer.note_reload(outcome);
        let (applied, failed) = (outcome.applied, outcome.failed);
        tracing::info!(applied, failed, "configuration read again");
    }

    fn refuse(&self, error: &ConfigError) {
        self.observer.note_refusal();
        for line in error.to_string().lines() {
            tracing::error!("configuration refused: {line}");
        }
        tracing::error!("everything stays as it was");
    }

    /// Lets hosts go, waits for their commands, stops the cores.
    ///
    /// # Errors
    /// If something had to be given up.
    pub async fn stop(self) -> Result<(), NodeError> {
        let begin = Instant::now();
        self.observer.note_stopping();
        let drained = tokio::time::timeout(DRAIN, self.target.stop()).await;
        drop((self.served, self.target, self.observer));
        let cores = self.cores;
        let left = DRAIN.saturating_sub(begin.elapsed());
        let stopped = tokio::task::spawn_blocking(move || cores.stop(left)).await;
        match stopped {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
        drained.map_err(|_| NodeError::Drain)??;
        Ok(())
    }
}

/// Portal number `index` of the configuration.
fn portal(index: usize, settings: PortalSettings) -> Portal {
    let PortalSettings { listen, advertise, discovery_only } = settings;
    // There are few portals.
    let port_id = u16::try_from(index + 1).unwrap_or(u16::MAX);
    Portal { listen, advertise, port_id, discovery_only }
}
