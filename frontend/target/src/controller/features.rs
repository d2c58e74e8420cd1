//! Get and Set Features, by FID (NVMe Base 2.0 §5.15, §5.27). Nothing is saved over restarts.

use std::collections::BTreeMap;

use ashlar_nvme::admin::{GetFeaturesCommand, SetFeaturesCommand};
use ashlar_nvme::feature::{
    Arbitration, AsyncEventConfig, ErrorRecovery, FeatureId, HostBehaviorSupport, HostIdentifierDw11,
    NumberOfQueues, PowerManagement, Select, SupportedCapabilities, TemperatureThreshold, VolatileWriteCache,
    WriteAtomicity,
};
use ashlar_nvme::ids::Nsid;
use ashlar_nvme::log::FeatureEffectsLog;
use ashlar_nvme::log::effects::FeatureEffects;
use ashlar_nvme::{HostId, Sqe, Status, Wire};

use super::execute::{Answer, expect_length};
use super::keep_alive::granted_ms;
use super::{Controller, ControllerKind, ReportedCache};
use crate::WriteCache;
use crate::limits;

/// What a feature is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Controller,
    Namespace,
}

/// Whether hosts may change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changes {
    Allowed,
    Never,
}

struct Supported {
    fid: FeatureId,
    scope: Scope,
    changes: Changes,
}

const fn feature(fid: FeatureId, scope: Scope, changes: Changes) -> Supported {
    Supported { fid, scope, changes }
}

/// Features of I/O controllers. Over Fabrics there are no interrupts; reservations have their place here once
/// they exist.
const IO_FEATURES: &[Supported] = &[
    feature(FeatureId::Arbitration, Scope::Controller, Changes::Allowed),
    feature(FeatureId::PowerManagement, Scope::Controller, Changes::Allowed),
    feature(FeatureId::TemperatureThreshold, Scope::Controller, Changes::Allowed),
    feature(FeatureId::ErrorRecovery, Scope::Namespace, Changes::Allowed),
    feature(FeatureId::VolatileWriteCache, Scope::Controller, Changes::Allowed),
    feature(FeatureId::NumberOfQueues, Scope::Controller, Changes::Allowed),
    feature(FeatureId::WriteAtomicity, Scope::Controller, Changes::Allowed),
    feature(FeatureId::AsyncEventConfiguration, Scope::Controller, Changes::Allowed),
    feature(FeatureId::KeepAliveTimer, Scope::Controller, Changes::Allowed),
    feature(FeatureId::HostBehaviorSupport, Scope::Controller, Changes::Allowed),
    feature(FeatureId::HostIdentifier, Scope::Controller, Changes::Never),
];

/// Features of discovery controllers.
const DISCOVERY_FEATURES: &[Supported] = &[
    feature(FeatureId::AsyncEventConfiguration, Scope::Controller, Changes::Allowed),
    feature(FeatureId::KeepAliveTimer, Scope::Controller, Changes::Allowed),
    feature(FeatureId::HostIdentifier, Scope::Controller, Changes::Never),
];

/// Bits of the scope field of the feature effects log (NVMe Base 2.0 figure 262).
const FSP_NAMESPACE: u16 = 1 << 0;
const FSP_CONTROLLER: u16 = 1 << 1;

/// TMPSEL: all sensors; only to set.
const TMPSEL_ALL: u8 = 0xF;

/// A number of queues that is an error when asked for.
const QUEUES_RESERVED: u16 = 0xFFFF;

/// Values that a host can change, as they are after a reset.
#[derive(Debug, Clone)]
pub(super) struct Features {
    arbitration: Arbitration,
    power: PowerManagement,
    over_temperature: u16,
    under_temperature: u16,
    error_recovery: BTreeMap<Nsid, u16>,
    queues: NumberOfQueues,
    write_atomicity: WriteAtomicity,
    async_events: AsyncEventConfig,
    host_behavior: HostBehaviorSupport,
}

impl Default for Features {
    fn default() -> Self {
        let queues = limits::IO_QUEUES_MAX - 1;
        Self {
            // No limit to a burst: queues are served in turn anyway.
            arbitration: Arbitration(0).with_ab(7),
            power: PowerManagement(0),
            over_temperature: 0xFFFF,
            under_temperature: 0,
            error_recovery: BTreeMap::new(),
            queues: NumberOfQueues(0).with_nsq(queues).with_ncq(queues),
            write_atomicity: WriteAtomicity(0),
            async_events: AsyncEventConfig(0),
            host_behavior: HostBehaviorSupport::zeroed(),
        }
    }
}

impl Features {
    pub(super) fn async_events(&self) -> AsyncEventConfig {
        self.async_events
    }

    /// The largest QID that may connect.
    pub(super) fn io_queues_granted(&self) -> u16 {
        self.queues.nsq().min(self.queues.ncq()) + 1
    }
}

/// Asynchronous events that a controller can raise: OAES (NVME N2).
pub(super) fn optional_events(kind: ControllerKind) -> AsyncEventConfig {
    match kind {
        ControllerKind::Io => AsyncEventConfig(0).with_namespace_attribute(true).with_ana_change(true),
        ControllerKind::Discovery => AsyncEventConfig(0).with_discovery_change(true),
    }
}

impl Controller {
    /// A feature that this controller has. The write cache's switch exists only with a cache.
    fn feature(&self, fid: u8) -> Result<&'static Supported, Status> {
        let fid = FeatureId::try_from(fid).map_err(|_| Status::INVALID_FIELD)?;
        if fid == FeatureId::VolatileWriteCache && self.reported_cache == ReportedCache::Absent {
            return Err(Status::INVALID_FIELD);
        }
        let table = match self.shared.kind {
            ControllerKind::Io => IO_FEATURES,
            ControllerKind::Discovery => DISCOVERY_FEATURES,
        };
        table.iter().find(|feature| feature.fid == fid).ok_or(Status::INVALID_FIELD)
    }

    pub(super) fn get_features(&self, sqe: &Sqe) -> Result<Answer, Status> {
        let command = GetFeaturesCommand::from_sqe(sqe);
        let feature = self.feature(command.fid)?;
        let select = Select::try_from(command.sel).map_err(|_| Status::INVALID_FIELD)?;
        let defaults;
        let current;
        let values = match select {
            Select::Current => {
                current = self.features.borrow();
                &*current
            }
            // What cannot be saved has its default as saved value (NVMe Base 2.0 §5.15).
            Select::Default | Select::Saved => {
                defaults = Features::default();
                &defaults
            }
            Select::SupportedCapabilities => {
                expect_length(sqe, 0)?;
                let capabilities = SupportedCapabilities(0)
                    .with_namespace_specific(feature.scope == Scope::Namespace)
                    .with_changeable(feature.changes == Changes::Allowed);
                return Ok(Answer::dw0(capabilities.0));
            }
        };
        match feature.fid {
            FeatureId::HostBehaviorSupport => {
                expect_length(sqe, HostBehaviorSupport::SIZE as u64)?;
                Ok(Answer::data(values.host_behavior.bytes().to_vec()))
            }
            FeatureId::HostIdentifier => {
                // Over Fabrics only the 128-bit form exists.
                if !HostIdentifierDw11(command.cdw11).exhid() {
                    return Err(Status::INVALID_FIELD);
                }
                expect_length(sqe, size_of::<HostId>() as u64)?;
                Ok(Answer::data(self.shared.host_id.0.to_vec()))
            }
            fid => {
                let value = self.feature_value(fid, select, values, sqe.namespace(), command.cdw11)?;
                expect_length(sqe, 0)?;
                Ok(Answer::dw0(value))
            }
        }
    }

    fn feature_value(
        &self,
        fid: FeatureId,
        select: Select,
        values: &Features,
        nsid: Nsid,
        cdw11: u32,
    ) -> Result<u32, Status> {
        match fid {
            FeatureId::Arbitration => Ok(values.arbitration.0),
            FeatureId::PowerManagement => Ok(values.power.0),
            FeatureId::TemperatureThreshold => {
                let asked = TemperatureThreshold(cdw11);
                // There is no sensor but the composite temperature.
                match (asked.tmpsel(), asked.thsel()) {
                    (0, 0) => Ok(u32::from(values.over_temperature)),
                    (0, 1) => Ok(u32::from(values.under_temperature)),
                    _ => Err(Status::INVALID_FIELD),
                }
            }
            FeatureId::ErrorRecovery => {
                self.active_namespace(nsid)?;
                let tler = values.error_recovery.get(&nsid).copied().unwrap_or_default();
                Ok(ErrorRecovery(0).with_tler(tler).0)
            }
            FeatureId::VolatileWriteCache => {
                let enabled = select != Select::Current || self.shared.write_cache() == WriteCache::Enabled;
                Ok(VolatileWriteCache(0).with_wce(enabled).0)
            }
            FeatureId::NumberOfQueues => Ok(values.queues.0),
            FeatureId::WriteAtomicity => Ok(values.write_atomicity.0),
            FeatureId::AsyncEventConfiguration => Ok(values.async_events.0),
            FeatureId::KeepAliveTimer if select == Select::Current => Ok(self.kato_ms.get()),
            FeatureId::KeepAliveTimer => Ok(0),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn set_features(&self, sqe: &Sqe, data: &[u8]) -> Result<Answer, Status> {
        let command = SetFeaturesCommand::from_sqe(sqe);
        let feature = self.feature(command.fid)?;
        if feature.fid == FeatureId::HostIdentifier {
            // It came with Connect (NVMe Base 2.0 §5.27.1.25, NVME N11).
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if command.sv {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let nsid = sqe.namespace();
        if feature.scope == Scope::Controller && nsid != Nsid::NONE && nsid != Nsid::BROADCAST {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        if feature.fid == FeatureId::HostBehaviorSupport {
            expect_length(sqe, HostBehaviorSupport::SIZE as u64)?;
            return self.set_host_behavior(data);
        }
        expect_length(sqe, 0)?;
        let cdw11 = command.cdw11;
        let mut features = self.features.borrow_mut();
        match feature.fid {
            FeatureId::Arbitration => {
                features.arbitration = Arbitration(0).with_ab(Arbitration(cdw11).ab());
            }
            FeatureId::PowerManagement => {
                // NPSS is 0: there is only state 0.
                let asked = PowerManagement(cdw11);
                if asked.ps() != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                features.power = PowerManagement(0).with_wh(asked.wh());
            }
            FeatureId::TemperatureThreshold => {
                let asked = TemperatureThreshold(cdw11);
                match (asked.tmpsel(), asked.thsel()) {
                    (0 | TMPSEL_ALL, 0) => features.over_temperature = asked.tmpth(),
                    (0 | TMPSEL_ALL, 1) => features.under_temperature = asked.tmpth(),
                    _ => return Err(Status::INVALID_FIELD),
                }
            }
            FeatureId::ErrorRecovery => self.set_error_recovery(&mut features, nsid, ErrorRecovery(cdw11))?,
            FeatureId::VolatileWriteCache => {
                self.shared.set_write_cache(if VolatileWriteCache(cdw11).wce() {
                    WriteCache::Enabled
                } else {
                    WriteCache::Disabled
                })
            }
            FeatureId::NumberOfQueues => {
                return self.set_number_of_queues(&mut features, NumberOfQueues(cdw11));
            }
            FeatureId::WriteAtomicity => {
                features.write_atomicity = WriteAtomicity(0).with_dn(WriteAtomicity(cdw11).dn());
            }
            FeatureId::AsyncEventConfiguration => {
                self.set_async_events(&mut features, AsyncEventConfig(cdw11))?;
            }
            FeatureId::KeepAliveTimer => self.kato_ms.set(granted_ms(cdw11)),
            _ => return Err(Status::FEATURE_NOT_CHANGEABLE),
        }
        Ok(Answer::default())
    }

    fn set_error_recovery(
        &self,
        features: &mut Features,
        nsid: Nsid,
        asked: ErrorRecovery,
    ) -> Result<(), Status> {
        // NSFEAT DAE is 0: there is no error for deallocated blocks.
        if asked.dulbe() {
            return Err(Status::INVALID_FIELD);
        }
        if nsid == Nsid::BROADCAST {
            let all =
                self.subsystem().into_iter().flat_map(|s| s.namespaces.keys().copied().collect::<Vec<_>>());
            features.error_recovery.extend(all.map(|nsid| (nsid, asked.tler())));
            return Ok(());
        }
        self.active_namespace(nsid)?;
        features.error_recovery.insert(nsid, asked.tler());
        Ok(())
    }

    fn set_number_of_queues(&self, features: &mut Features, asked: NumberOfQueues) -> Result<Answer, Status> {
        if asked.nsq() == QUEUES_RESERVED || asked.ncq() == QUEUES_RESERVED {
            return Err(Status::INVALID_FIELD);
        }
        // Only before the first I/O queue (NVMe Base 2.0 §5.27.1.7).
        if !self.io_queues.borrow().is_empty() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let most = limits::IO_QUEUES_MAX - 1;
        let granted = NumberOfQueues(0).with_nsq(asked.nsq().min(most)).with_ncq(asked.ncq().min(most));
        features.queues = granted;
        Ok(Answer::dw0(granted.0))
    }

    fn set_async_events(&self, features: &mut Features, asked: AsyncEventConfig) -> Result<(), Status> {
        // Notices that OAES does not offer are refused; health warnings may be asked for and never come.
        let offered = match self.shared.kind {
            ControllerKind::Io => optional_events(ControllerKind::Io).with_smart(0xFF),
            ControllerKind::Discovery => optional_events(ControllerKind::Discovery),
        };
        if asked.0 & !offered.0 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        features.async_events = asked;
        self.events.keep_only(asked);
        Ok(())
    }

    fn set_host_behavior(&self, data: &[u8]) -> Result<Answer, Status> {
        let asked = HostBehaviorSupport::read_from(data).map_err(|_| Status::DATA_SGL_LENGTH_INVALID)?;
        if asked.acre > 1 || asked.etdas > 1 || asked.lbafee > 1 {
            return Err(Status::INVALID_FIELD);
        }
        let mut kept = HostBehaviorSupport::zeroed();
        (kept.acre, kept.etdas, kept.lbafee) = (asked.acre, asked.etdas, asked.lbafee);
        self.features.borrow_mut().host_behavior = kept;
        Ok(Answer::default())
    }

    /// Log 12h.
    pub(super) fn feature_effects(&self) -> FeatureEffectsLog {
        let mut log = FeatureEffectsLog::zeroed();
        for fid in FeatureId::ALL {
            if let Ok(feature) = self.feature(fid.code()) {
                let scope = match feature.scope {
                    Scope::Namespace => FSP_NAMESPACE,
                    Scope::Controller => FSP_CONTROLLER,
                };
                log.set(fid.code(), FeatureEffects(0).with_fsupp(true).with_fsp(scope));
            }
        }
        log
    }
}
