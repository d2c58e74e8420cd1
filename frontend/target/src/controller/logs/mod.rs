//! Get Log Page: which page answers which LID, and any part of it (NVMe Base 2.0 §5.16).

mod ana;
mod effects;
pub(super) mod errors;

use ashlar_nvme::admin::{GetLogPageCommand, OffsetType, RetainEvent};
use ashlar_nvme::ids::Nsid;
use ashlar_nvme::log::smart::SmartLog;
use ashlar_nvme::log::{FirmwareSlotLog, LogId, SupportedLogPages};
use ashlar_nvme::wire::U128;
use ashlar_nvme::{Sqe, Status, Wire};

use super::execute::{Answer, expect_length};
use super::{Controller, ControllerKind, identify};
use crate::limits;

const IO_LOGS: &[LogId] = &[
    LogId::SupportedLogPages,
    LogId::ErrorInformation,
    LogId::Smart,
    LogId::FirmwareSlot,
    LogId::ChangedNamespaces,
    LogId::CommandsEffects,
    LogId::Ana,
    LogId::FeatureEffects,
];

const DISCOVERY_LOGS: &[LogId] = &[
    LogId::SupportedLogPages,
    LogId::ErrorInformation,
    LogId::CommandsEffects,
    LogId::FeatureEffects,
    LogId::Discovery,
];

/// Bytes that one data unit of the SMART log stands for.
const DATA_UNIT_BYTES: u64 = 512 * 1000;

impl Controller {
    fn log_pages(&self) -> &'static [LogId] {
        match self.shared.kind {
            ControllerKind::Io => IO_LOGS,
            ControllerKind::Discovery => DISCOVERY_LOGS,
        }
    }

    pub(super) fn get_log_page(&self, sqe: &Sqe) -> Result<Answer, Status> {
        let command = GetLogPageCommand::from_sqe(sqe);
        let lid = LogId::try_from(command.lid)
            .ok()
            .filter(|lid| self.log_pages().contains(lid))
            .ok_or(Status::INVALID_LOG_PAGE)?;
        // All pages are about the controller or the subsystem (LPA bit 0 is 0).
        let nsid = sqe.namespace();
        if nsid != Nsid::NONE && nsid != Nsid::BROADCAST {
            return Err(Status::INVALID_FIELD);
        }
        // No page has an index (IOS is 0); offsets are in dwords.
        if command.ot == OffsetType::Index || !command.lpo.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        if command.len > u64::from(limits::MAX_TRANSFER_BYTES) {
            return Err(Status::INVALID_FIELD);
        }
        expect_length(sqe, command.len)?;
        let page = self.log_page(lid, command.lsp);
        let part = part(&page, command.lpo, command.len)?;
        if lid == LogId::ChangedNamespaces && command.rae == RetainEvent::Clear {
            self.changed.borrow_mut().clear();
        }
        self.events.log_read(lid, command.rae);
        Ok(Answer::data(part))
    }

    fn log_page(&self, lid: LogId, lsp: u8) -> Vec<u8> {
        match lid {
            LogId::SupportedLogPages => {
                let mut log = SupportedLogPages::zeroed();
                for lid in self.log_pages() {
                    log.set(*lid);
                }
                log.bytes().to_vec()
            }
            LogId::ErrorInformation => self.errors.borrow().log(),
            LogId::Smart => self.smart().bytes().to_vec(),
            LogId::FirmwareSlot => {
                let mut log = FirmwareSlotLog::zeroed();
                log.afi = 1;
                if let Some(slot) = log.frs.first_mut() {
                    *slot = identify::firmware_revision();
                }
                log.bytes().to_vec()
            }
            LogId::ChangedNamespaces => self.changed.borrow().list().bytes().to_vec(),
            LogId::CommandsEffects => effects::commands(self.shared.kind).bytes().to_vec(),
            LogId::Ana => {
                let mut log = self.ana_log(lsp);
                log.resize(ana::LOG_BYTES as usize, 0);
                log
            }
            LogId::FeatureEffects => self.feature_effects().bytes().to_vec(),
            LogId::Discovery => self.discovery.borrow().log(),
            // None of the two tables names another.
            _ => Vec::new(),
        }
    }

    /// There is no temperature and no wear to report; a temperature of 0 K says so.
    fn smart(&self) -> SmartLog {
        let counters = self.health.health();
        let units = |bytes: u64| U128::new(u128::from(bytes.div_ceil(DATA_UNIT_BYTES)));
        let mut log = SmartLog::zeroed();
        log.avail_spare = 100;
        log.data_units_read = units(counters.bytes_read);
        log.data_units_written = units(counters.bytes_written);
        log.host_reads = U128::new(u128::from(counters.reads));
        log.host_writes = U128::new(u128::from(counters.writes));
        log.ctrl_busy_time = U128::new(u128::from(counters.busy_minutes));
        log.media_errors = U128::new(u128::from(counters.media_errors));
        log.num_err_log_entries = U128::new(u128::from(self.errors.borrow().count()));
        log
    }
}

/// `len` bytes of a page from `offset` on, with zeroes behind its end (NVME N11). An offset beyond the end is
/// an Invalid Field, the end itself is not (NVMe Base 2.0 §5.16).
fn part(page: &[u8], offset: u64, len: u64) -> Result<Vec<u8>, Status> {
    let rest =
        usize::try_from(offset).ok().and_then(|offset| page.get(offset..)).ok_or(Status::INVALID_FIELD)?;
    let len = usize::try_from(len).map_err(|_| Status::INVALID_FIELD)?;
    let mut part = vec![0; len];
    for (to, from) in part.iter_mut().zip(rest) {
        *to = *from;
    }
    Ok(part)
}
