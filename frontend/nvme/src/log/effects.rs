//! Commands (05h) and features (12h) supported and their effects (NVMe Base 2.0 §5.16.1.6, §5.16.1.19).

use crate::wire::{bits, wire};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bits! {
    /// What a command does.
    CommandEffects: u32 {
        /// CSUPP: supported.
        csupp, with_csupp: 0..1 as bool;
        /// LBCC: may change logical blocks.
        lbcc, with_lbcc: 1..1 as bool;
        /// NCC: may change namespace capabilities.
        ncc, with_ncc: 2..1 as bool;
        /// NIC: may change the namespace inventory.
        nic, with_nic: 3..1 as bool;
        /// CCC: may change controller capabilities.
        ccc, with_ccc: 4..1 as bool;
        /// CSE: 0 none, 1 one at a time per namespace, 2 one at a time.
        cse, with_cse: 16..3 as u8;
        /// UUID selection supported.
        uuid, with_uuid: 19..1 as bool;
        /// CSP: scope.
        csp, with_csp: 20..12 as u16;
    }
}

/// Commands supported and effects, 4096 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CommandsEffectsLog {
    /// Admin commands by opcode.
    pub acs: [U32; 256],
    /// I/O commands of the selected command set by opcode.
    pub iocs: [U32; 256],
    _rsvd2048: [u8; 2048],
}

impl CommandsEffectsLog {
    /// Sets an admin command's effects.
    pub fn set_admin(&mut self, opcode: u8, effects: CommandEffects) {
        if let Some(e) = self.acs.get_mut(usize::from(opcode)) {
            *e = U32::new(effects.0);
        }
    }

    /// Sets an I/O command's effects.
    pub fn set_io(&mut self, opcode: u8, effects: CommandEffects) {
        if let Some(e) = self.iocs.get_mut(usize::from(opcode)) {
            *e = U32::new(effects.0);
        }
    }
}

bits! {
    /// What a feature does.
    FeatureEffects: u32 {
        /// FSUPP: supported.
        fsupp, with_fsupp: 0..1 as bool;
        /// UDCC: may change user data content.
        udcc, with_udcc: 1..1 as bool;
        /// NCC: may change namespace capabilities.
        ncc, with_ncc: 2..1 as bool;
        /// NIC: may change the namespace inventory.
        nic, with_nic: 3..1 as bool;
        /// CCC: may change controller capabilities.
        ccc, with_ccc: 4..1 as bool;
        /// UUID selection supported.
        uuid, with_uuid: 19..1 as bool;
        /// FSP: scope; bit 0 namespace, bit 1 controller.
        fsp, with_fsp: 20..12 as u16;
    }
}

/// Features supported and effects, 1024 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FeatureEffectsLog {
    /// Features by identifier.
    pub fis: [U32; 256],
}

impl FeatureEffectsLog {
    /// Sets a feature's effects.
    pub fn set(&mut self, fid: u8, effects: FeatureEffects) {
        if let Some(e) = self.fis.get_mut(usize::from(fid)) {
            *e = U32::new(effects.0);
        }
    }
}

wire! {
    CommandsEffectsLog = 4096, "commands supported and effects log";
    FeatureEffectsLog = 1024, "features supported and effects log";
}
