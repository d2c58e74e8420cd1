//! Brings the target from what it serves to what a configuration asks for, step by step.
//!
//! A step that fails leaves what it concerns as it was, and is tried again with the next configuration: what
//! is served is known at every moment as a configuration of its own.

use std::collections::BTreeMap;

use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_target::Target;
use ashlar_target::inventory::AnaState;
use ashlar_target::target::{ChangeError, NewNamespace, NewSubsystem};

use crate::changes::{Change, difference};
use crate::config::{Config, NamespaceSettings, SubsystemSettings, identity};
use crate::storage::{self, Means, Storage, StorageError};

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The target refused it.
    #[error(transparent)]
    Target(#[from] ChangeError),
    /// The storage behind a namespace is not usable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The subsystem that it concerns could not be added before.
    #[error("subsystem {0} is not served")]
    NoSubsystem(Nqn),
}

/// What came of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Steps that were taken.
    pub applied: usize,
    /// Steps that failed; each is in the log.
    pub failed: usize,
}

/// What is served: subsystems and namespaces, and the storage behind them.
#[derive(Debug)]
pub struct Served {
    target: Target<Storage>,
    means: Means,
    /// What is served now, as a configuration.
    config: Config,
    storage: BTreeMap<(Nqn, Nsid), Storage>,
}

impl Served {
    /// A target that serves nothing yet, with the settings of `config` for everything else.
    pub fn nothing(target: Target<Storage>, means: Means, config: &Config) -> Self {
        let config = Config { subsystems: BTreeMap::new(), ..config.clone() };
        Self { target, means, config, storage: BTreeMap::new() }
    }

    /// What is served now.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Serves what `new` says, as far as it can be.
    pub async fn apply(&mut self, new: &Config) -> Outcome {
        let difference = difference(&self.config, new);
        for key in &difference.after_restart {
            tracing::warn!(key, "this change of the configuration needs a restart");
        }
        let mut outcome = Outcome::default();
        for change in &difference.changes {
            match self.step(change, new).await {
                Ok(Step::Taken) => {
                    outcome.applied += 1;
                    tracing::info!("applied: {change}");
                }
                Ok(Step::NothingToDo) => {}
                Err(error) => {
                    outcome.failed += 1;
                    tracing::error!(%error, "failed: {change}");
                }
            }
        }
        self.config.log = new.log;
        outcome
    }

    async fn step(&mut self, change: &Change, new: &Config) -> Result<Step, ApplyError> {
        match change {
            Change::RemoveNamespace(nqn, nsid) => self.remove_namespace(nqn, *nsid).await,
            Change::RemoveSubsystem(nqn) => {
                self.target.remove_subsystem(nqn).await?;
                self.config.subsystems.remove(nqn);
                for (_, storage) in self.storage.extract_if(.., |(subsystem, _), _| subsystem == nqn) {
                    storage.close(&self.means).await;
                }
                Ok(Step::Taken)
            }
            // Steps that add are made from the new configuration: what they name is there.
            Change::AddSubsystem(nqn) => match new.subsystems.get(nqn) {
                Some(settings) => self.add_subsystem(nqn, settings).await,
                None => Ok(Step::NothingToDo),
            },
            Change::SetHosts(nqn) => match new.subsystems.get(nqn) {
                Some(settings) => {
                    self.target.set_hosts(nqn, settings.hosts.clone()).await?;
                    self.served(nqn)?.hosts = settings.hosts.clone();
                    Ok(Step::Taken)
                }
                None => Ok(Step::NothingToDo),
            },
            Change::Resize(nqn, nsid) => match namespace_of(new, nqn, *nsid) {
                Some(settings) => self.resize(nqn, *nsid, settings).await,
                None => Ok(Step::NothingToDo),
            },
            Change::AddNamespace(nqn, nsid) => match namespace_of(new, nqn, *nsid) {
                Some(settings) => self.add_namespace(nqn, *nsid, settings, new).await,
                None => Ok(Step::NothingToDo),
            },
        }
    }

    fn served(&mut self, nqn: &Nqn) -> Result<&mut SubsystemSettings, ApplyError> {
        self.config.subsystems.get_mut(nqn).ok_or_else(|| ApplyError::NoSubsystem(nqn.clone()))
    }

    async fn add_subsystem(&mut self, nqn: &Nqn, settings: &SubsystemSettings) -> Result<Step, ApplyError> {
        let SubsystemSettings { serial, model, hosts, .. } = settings.clone();
        let new = NewSubsystem { nqn: nqn.clone(), serial, model, hosts };
        self.target.add_subsystem(new).await?;
        let settings = SubsystemSettings { namespaces: BTreeMap::new(), ..settings.clone() };
        self.config.subsystems.insert(nqn.clone(), settings);
        Ok(Step::Taken)
    }

    async fn add_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: Nsid,
        settings: &NamespaceSettings,
        config: &Config,
    ) -> Result<Step, ApplyError> {
        self.served(nqn)?;
        let storage = Storage::prepare(&self.means, &settings.backend, &config.volumes).await?;
        let new = NewNamespace {
            nsid,
            uuid: settings.uuid,
            nguid: identity::nguid(settings.uuid),
            lba: settings.block_size,
            blocks: storage::blocks(settings),
            ana_state: AnaState::Optimized,
        };
        if let Err(error) = self.target.add_namespace(nqn, new, storage.clone()).await {
            storage.close(&self.means).await;
            return Err(error.into());
        }
        self.storage.insert((nqn.clone(), nsid), storage);
        self.served(nqn)?.namespaces.insert(nsid, settings.clone());
        Ok(Step::Taken)
    }

    async fn remove_namespace(&mut self, nqn: &Nqn, nsid: Nsid) -> Result<Step, ApplyError> {
        self.target.remove_namespace(nqn, nsid).await?;
        if let Some(storage) = self.storage.remove(&(nqn.clone(), nsid)) {
            storage.close(&self.means).await;
        }
        self.served(nqn)?.namespaces.remove(&nsid);
        Ok(Step::Taken)
    }

    async fn resize(
        &mut self,
        nqn: &Nqn,
        nsid: Nsid,
        settings: &NamespaceSettings,
    ) -> Result<Step, ApplyError> {
        let Some(storage) = self.storage.get(&(nqn.clone(), nsid)) else { return Ok(Step::NothingToDo) };
        let blocks = storage.resize(&settings.backend)? >> settings.block_size.shift();
        let inventory = self.target.inventory();
        let namespace = inventory.subsystems.get(nqn).and_then(|subsystem| subsystem.namespaces.get(&nsid));
        let step = match namespace {
            Some(namespace) if namespace.blocks == blocks => Step::NothingToDo,
            _ => {
                self.target.resize_namespace(nqn, nsid, blocks).await?;
                Step::Taken
            }
        };
        self.served(nqn)?.namespaces.insert(nsid, settings.clone());
        Ok(step)
    }
}

/// Whether a step changed anything.
enum Step {
    Taken,
    NothingToDo,
}

fn namespace_of<'a>(config: &'a Config, nqn: &Nqn, nsid: Nsid) -> Option<&'a NamespaceSettings> {
    config.subsystems.get(nqn)?.namespaces.get(&nsid)
}
