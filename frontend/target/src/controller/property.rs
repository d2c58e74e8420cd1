//! Properties: CAP, VS, CC, CSTS, CRTO, and what setting CC does (NVMe Base 2.0 §3.1.3, §3.5, §3.6).

use ashlar_nvme::Status;
use ashlar_nvme::fabrics::PropertySize;
use ashlar_nvme::registers::{CSS_NVM, Cap, Cc, Crto, Csts, Property, Shn, Shst, Vs};
use ashlar_reactor::Instant;

use super::{Access, Controller, ControllerState};
use crate::limits;

/// Worst time until CSTS.RDY follows CC.EN, in units of 500 ms: as long as the I/O queues may take to close.
/// CAP.TO and CRTO.CRWMT say the same (NVME N3).
const READY_TIMEOUT_HALF_SECONDS: u8 = 20;

/// IOSQES for 64-byte entries.
const SUBMISSION_ENTRY_SHIFT: u8 = 6;
/// IOCQES for 16-byte entries.
const COMPLETION_ENTRY_SHIFT: u8 = 4;

/// What setting a property did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyEffect {
    /// Nothing that concerns others.
    None,
    /// CC.EN 0→1: I/O queues may connect, commands may start.
    Enabled,
    /// CC.EN 1→0: abort I/O and close the I/O queues; the admin queue stays (NVME N6). CSTS.RDY turns 0 when
    /// the last of them has been released.
    Disabled,
    /// CC.SHN: as [`PropertyEffect::Disabled`], and CSTS.SHST becomes 10b when the last I/O queue has been
    /// released.
    ShutDown,
}

/// Whether the host asked for shutdown since the last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    Asked,
}

/// The properties that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    cc: Cc,
    shutdown: Shutdown,
    /// Since when commands may not start.
    disabled_since: Instant,
}

impl Registers {
    pub(super) fn new(now: Instant) -> Self {
        Self { cc: Cc(0), shutdown: Shutdown::No, disabled_since: now }
    }

    /// Since when commands may not start; `None` while they may.
    pub(super) fn disabled_since(&self) -> Option<Instant> {
        (!self.is_running()).then_some(self.disabled_since)
    }

    /// Enabled and not shut down.
    pub(super) fn is_running(&self) -> bool {
        self.cc.en() && self.shutdown == Shutdown::No
    }

    /// The sizes that the host set are those of the entries it will send (NVME N6).
    pub(super) fn entry_sizes_are_right(&self) -> bool {
        self.cc.iosqes() == SUBMISSION_ENTRY_SHIFT && self.cc.iocqes() == COMPLETION_ENTRY_SHIFT
    }
}

/// CAP: the same on all controllers. Only the NVM command set is offered, so that hosts need no CC.CSS choice
/// (NVME N3).
pub(super) fn capabilities() -> Cap {
    Cap(0)
        .with_mqes(limits::QUEUE_ENTRIES_MAX - 1)
        .with_cqr(true)
        .with_to(READY_TIMEOUT_HALF_SECONDS)
        .with_css(CSS_NVM)
        .with_crwms(true)
}

/// VS, also VER of Identify Controller.
pub(super) const VERSION: Vs = Vs::V2_0;

impl Controller {
    /// Property Get.
    pub fn property_get(&self, offset: u32, size: PropertySize) -> Result<u64, Status> {
        let property = Property::try_from(offset).map_err(|_| Status::INVALID_FIELD)?;
        if property.size() != size {
            return Err(Status::INVALID_FIELD);
        }
        match property {
            Property::Cap => Ok(capabilities().0),
            Property::Vs => Ok(u64::from(VERSION.0)),
            Property::Cc => Ok(u64::from(self.registers.get().cc.0)),
            Property::Csts => Ok(u64::from(self.status_register().0)),
            Property::Crto => Ok(u64::from(Crto(0).with_crwmt(u16::from(READY_TIMEOUT_HALF_SECONDS)).0)),
            // CAP.NSSRS is 0.
            Property::Nssr => Err(Status::INVALID_FIELD),
        }
    }

    /// CSTS. Stopping is over only when no I/O queue is left (NVME N6).
    fn status_register(&self) -> Csts {
        let registers = self.registers.get();
        let drained = self.io_queues.borrow().is_empty();
        let shst = match (registers.shutdown, drained) {
            (Shutdown::No, _) => Shst::Normal,
            (Shutdown::Asked, false) => Shst::Occurring,
            (Shutdown::Asked, true) => Shst::Complete,
        };
        Csts(0).with_rdy(registers.cc.en() || !drained).with_shst(shst.code())
    }

    /// Property Set.
    pub fn property_set(
        &self,
        offset: u32,
        size: PropertySize,
        value: u64,
    ) -> Result<PropertyEffect, Status> {
        match Property::try_from(offset) {
            Ok(Property::Cc) if size == PropertySize::Four => self.set_configuration(Cc(value as u32)),
            // All others are read-only or absent.
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn set_configuration(&self, cc: Cc) -> Result<PropertyEffect, Status> {
        let shn = Shn::try_from(cc.shn()).map_err(|_| Status::INVALID_FIELD)?;
        // Nothing but what CAP offers: NVM command set, 4 KiB pages, round robin, readiness with media.
        if cc.css() != 0 || cc.mps() != 0 || cc.ams() != 0 || cc.crime() {
            return Err(Status::INVALID_FIELD);
        }
        if self.shared.state() == ControllerState::Ended {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let old = self.registers.get();
        match (old.cc.en(), cc.en()) {
            (false, true) => self.enable(cc, shn),
            (true, false) => {
                // A shutdown that was asked for before or with it stays reported.
                let shutdown = if shn == Shn::None { Shutdown::No } else { Shutdown::Asked };
                self.stop(Registers { cc, shutdown, disabled_since: self.disabled_from(old) });
                self.reset();
                Ok(PropertyEffect::Disabled)
            }
            (true, true) if shn != Shn::None && old.shutdown == Shutdown::No => {
                self.stop(Registers { cc, shutdown: Shutdown::Asked, disabled_since: (self.now)() });
                Ok(PropertyEffect::ShutDown)
            }
            (false, false) if shn != Shn::None => {
                self.registers.set(Registers { cc, shutdown: Shutdown::Asked, ..old });
                Ok(PropertyEffect::None)
            }
            (true, true) | (false, false) => {
                self.registers.set(Registers { cc, ..old });
                Ok(PropertyEffect::None)
            }
        }
    }

    fn enable(&self, cc: Cc, shn: Shn) -> Result<PropertyEffect, Status> {
        // The host must have seen CSTS.RDY 0 first (NVMe Base 2.0 §3.1.3.5), and shutdown needs no start.
        if shn != Shn::None || !self.io_queues.borrow().is_empty() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        // Connect was judged by another core, which may have known an older inventory.
        if self.access() == Access::Lost {
            return Err(Status::OPERATION_DENIED);
        }
        self.registers.set(Registers { cc, shutdown: Shutdown::No, disabled_since: (self.now)() });
        self.shared.set_state(ControllerState::Ready);
        Ok(PropertyEffect::Enabled)
    }

    fn disabled_from(&self, old: Registers) -> Instant {
        old.disabled_since().unwrap_or_else(|| (self.now)())
    }

    fn stop(&self, registers: Registers) {
        self.registers.set(registers);
        self.shared.set_state(ControllerState::Disabled);
    }
}
