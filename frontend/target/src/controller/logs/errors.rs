//! The error log: the newest errors of a controller, newest first (NVMe Base 2.0 §5.16.1.2).

use std::collections::VecDeque;

use ashlar_nvme::ids::{CommandId, Lba, Nsid, Qid};
use ashlar_nvme::log::ErrorEntry;
use ashlar_nvme::log::discovery::TransportType;
use ashlar_nvme::status::StatusField;
use ashlar_nvme::wire::{U16, U32, U64};
use ashlar_nvme::{Sqe, Status, Wire};

use crate::limits;

/// LOCATION of an error that is not about a field.
const NO_LOCATION: u16 = 0xFFFF;

/// A command that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandError {
    /// Its queue.
    pub qid: Qid,
    /// The command.
    pub command: CommandId,
    /// Why.
    pub status: Status,
    /// First block concerned, if it is about blocks.
    pub lba: Lba,
    /// Its namespace.
    pub nsid: Nsid,
}

impl CommandError {
    pub(in super::super) fn of_admin(sqe: &Sqe, status: Status) -> Self {
        Self { qid: Qid::ADMIN, command: sqe.command_id(), status, lba: Lba(0), nsid: sqe.namespace() }
    }
}

/// The newest errors, and how many there were.
#[derive(Debug, Default)]
pub(in super::super) struct ErrorLog {
    newest: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    pub(in super::super) fn record(&mut self, error: CommandError) {
        self.count += 1;
        let mut entry = ErrorEntry::zeroed();
        entry.error_count = U64::new(self.count);
        entry.sqid = U16::new(error.qid.0);
        entry.cid = U16::new(error.command.0);
        entry.status = U16::new(StatusField::from(error.status).0);
        entry.location = U16::new(NO_LOCATION);
        entry.lba = U64::new(error.lba.0);
        entry.nsid = U32::new(error.nsid.0);
        entry.trtype = TransportType::Tcp.code();
        self.newest.truncate(limits::ERROR_LOG_ENTRIES - 1);
        self.newest.push_front(entry);
    }

    /// Errors over the controller's life.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The whole log page: always as many entries as ELPE says.
    pub(super) fn log(&self) -> Vec<u8> {
        let mut log: Vec<u8> = self.newest.iter().flat_map(|entry| entry.bytes().iter().copied()).collect();
        log.resize(limits::ERROR_LOG_ENTRIES * ErrorEntry::SIZE, 0);
        log
    }
}
