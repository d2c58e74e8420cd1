//! Commands supported and effects (NVMe Base 2.0 §5.16.1.6).

use ashlar_nvme::Wire;
use ashlar_nvme::log::{CommandEffects, CommandsEffectsLog};
use ashlar_nvme::opcode::{AdminOpcode, NvmOpcode};

use super::super::ControllerKind;

const ADMIN: &[AdminOpcode] = &[
    AdminOpcode::GetLogPage,
    AdminOpcode::Identify,
    AdminOpcode::Abort,
    AdminOpcode::SetFeatures,
    AdminOpcode::GetFeatures,
    AdminOpcode::AsyncEventRequest,
    AdminOpcode::KeepAlive,
    AdminOpcode::Fabrics,
];

const READING: &[NvmOpcode] = &[NvmOpcode::Flush, NvmOpcode::Read, NvmOpcode::Compare, NvmOpcode::Verify];

const WRITING: &[NvmOpcode] = &[NvmOpcode::Write, NvmOpcode::WriteZeroes, NvmOpcode::DatasetManagement];

pub(super) fn commands(kind: ControllerKind) -> CommandsEffectsLog {
    let supported = CommandEffects(0).with_csupp(true);
    let mut log = CommandsEffectsLog::zeroed();
    for opcode in ADMIN {
        log.set_admin(opcode.code(), supported);
    }
    if kind == ControllerKind::Io {
        for opcode in READING {
            log.set_io(opcode.code(), supported);
        }
        for opcode in WRITING {
            log.set_io(opcode.code(), supported.with_lbcc(true));
        }
    }
    log
}
