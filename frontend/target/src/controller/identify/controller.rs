//! Identify Controller (CNS 01h) and its NVM command set part (CNS 06h); NVME N2.

use ashlar_nvme::Wire;
use ashlar_nvme::identify::controller::{
    ControllerType, FUSES_COMPARE_AND_WRITE, OFCS_DISCONNECT, anacap, cmic, ctratt, lpa, oncs, sgls, vwc,
};
use ashlar_nvme::identify::{IdentifyController, IdentifyNvmController, ascii_field};
use ashlar_nvme::wire::{U16, U32};

use super::super::abort::ABORTS_MAX;
use super::super::features::optional_events;
use super::super::keep_alive::granularity_ms;
use super::super::property::VERSION;
use super::super::{Controller, ControllerKind, ReportedCache};
use crate::limits;

/// FR, and the revision in the firmware log.
pub(in super::super) fn firmware_revision() -> [u8; 8] {
    ascii_field(env!("CARGO_PKG_VERSION"))
}

/// Serial and model number of discovery controllers.
const DISCOVERY_SERIAL: &str = "ASHLAR-DISCOVERY";
const DISCOVERY_MODEL: &str = "Ashlar discovery";

// Linux cuts the length of Write Zeroes to 16 bits: at 512 bytes that is 32 MiB, and a namespace with such
// blocks may be added to any subsystem later (NVME N9).
const _: () = assert!(4096_u64 << limits::WZSL == limits::WRITE_ZEROES_BYTES_MAX);
const _: () = assert!(limits::WRITE_ZEROES_BYTES_MAX <= 65_536 * 512);

/// ANATT: how long a group may stay in Change, in seconds (NVME N11).
const ANA_TRANSITION_SECONDS: u8 = 10;

/// SQES and CQES: only 64 and 16 bytes.
const SUBMISSION_ENTRY_SIZES: u8 = 0x66;
const COMPLETION_ENTRY_SIZES: u8 = 0x44;

/// FRMW: one slot, read-only.
const FIRMWARE_SLOTS: u8 = 0b11;

/// DCTYPE: a discovery controller of its own, not a central one.
const DCTYPE_DIRECT: u8 = 1;

/// Bytes of a submission entry, in front of in-capsule data.
const CAPSULE_ENTRY_BYTES: u32 = 64;

impl Controller {
    pub(super) fn identify_controller(&self) -> IdentifyController {
        let mut id = self.identify_any();
        match self.shared.kind {
            ControllerKind::Io => self.identify_io(&mut id),
            ControllerKind::Discovery => identify_discovery(&mut id),
        }
        id
    }

    /// What both kinds say.
    fn identify_any(&self) -> IdentifyController {
        let mut id = IdentifyController::zeroed();
        id.fr = firmware_revision();
        id.mdts = limits::MDTS;
        id.cntlid = U16::new(self.shared.cntlid.0);
        id.ver = U32::new(VERSION.0);
        id.oaes = U32::new(optional_events(self.shared.kind).0);
        id.ctratt = U32::new(ctratt::HOST_ID_128 | ctratt::TBKAS);
        id.acl = (ABORTS_MAX - 1) as u8;
        id.aerl = (limits::ASYNC_EVENTS_MAX - 1) as u8;
        id.lpa = lpa::COMMANDS_EFFECTS | lpa::EXTENDED_DATA | lpa::SUPPORTED_PAGES;
        id.elpe = (limits::ERROR_LOG_ENTRIES - 1) as u8;
        id.kas = U16::new((granularity_ms() / 100) as u16);
        id.sgls = U32::new(sgls::SUPPORTED | sgls::OFFSET | sgls::TRANSPORT);
        id.maxcmd = U16::new(limits::QUEUE_ENTRIES_MAX);
        id.subnqn = self.shared.subsystem.to_field();
        id
    }

    fn identify_io(&self, id: &mut IdentifyController) {
        let subsystem = self.subsystem();
        let (serial, model) =
            subsystem.as_ref().map_or(("", ""), |subsystem| (&subsystem.serial, &subsystem.model));
        id.sn = ascii_field(serial);
        id.mn = ascii_field(model);
        id.cntrltype = ControllerType::Io.code();
        id.cmic = cmic::MULTI_PORT | cmic::MULTI_CONTROLLER | cmic::ANA;
        id.frmw = FIRMWARE_SLOTS;
        id.anatt = ANA_TRANSITION_SECONDS;
        id.anacap = anacap::OPTIMIZED | anacap::INACCESSIBLE | anacap::CHANGE | anacap::GROUP_ID_FIXED;
        id.anagrpmax = U32::new(limits::NAMESPACES_MAX);
        id.nanagrpid = U32::new(limits::NAMESPACES_MAX);
        id.sqes = SUBMISSION_ENTRY_SIZES;
        id.cqes = COMPLETION_ENTRY_SIZES;
        id.nn = U32::new(limits::NAMESPACES_MAX);
        id.mnan = U32::new(limits::NAMESPACES_MAX);
        id.oncs = U16::new(
            oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::SAVE_SELECT | oncs::VERIFY,
        );
        id.fuses = U16::new(FUSES_COMPARE_AND_WRITE);
        id.vwc = vwc::FLUSH_BROADCAST_SUPPORTED
            | match self.reported_cache {
                ReportedCache::Present => vwc::PRESENT,
                ReportedCache::Absent => 0,
            };
        // AWUN, AWUPF and ACWU stay one block, which is atomic in every format (NVME N8); namespaces say
        // more.
        id.ioccsz = U32::new((CAPSULE_ENTRY_BYTES + limits::IN_CAPSULE_BYTES) / 16);
        id.iorcsz = U32::new(1);
        id.msdbd = 1;
        id.ofcs = U16::new(OFCS_DISCONNECT);
    }
}

fn identify_discovery(id: &mut IdentifyController) {
    id.sn = ascii_field(DISCOVERY_SERIAL);
    id.mn = ascii_field(DISCOVERY_MODEL);
    id.cntrltype = ControllerType::Discovery.code();
    id.dctype = DCTYPE_DIRECT;
}

/// Limits of NVM commands. Dataset Management and Verify have none of their own (NVME N10).
pub(super) fn identify_nvm_controller() -> IdentifyNvmController {
    let mut id = IdentifyNvmController::zeroed();
    id.wzsl = limits::WZSL;
    id
}
