//! Controller properties: offsets and bit fields (NVMe Base 2.0 §3.1.3).

use crate::fabrics::PropertySize;
use crate::wire::{bits, coded};

coded! {
    /// Properties that exist over Fabrics, by offset (NVMe Base 2.0 figure 33).
    Property: u32, "OFST" {
        /// Controller capabilities.
        Cap = 0x00,
        /// Version.
        Vs = 0x08,
        /// Controller configuration.
        Cc = 0x14,
        /// Controller status.
        Csts = 0x1C,
        /// NVM subsystem reset.
        Nssr = 0x20,
        /// Controller ready timeouts.
        Crto = 0x68,
    }
}

impl Property {
    /// Its size.
    #[must_use]
    pub const fn size(self) -> PropertySize {
        match self {
            Property::Cap => PropertySize::Eight,
            _ => PropertySize::Four,
        }
    }
}

bits! {
    /// CAP: controller capabilities.
    Cap: u64 {
        /// Maximum queue entries supported, 0-based.
        mqes, with_mqes: 0..16 as u16;
        /// Contiguous queues required; 1 over Fabrics.
        cqr, with_cqr: 16..1 as bool;
        /// Arbitration mechanisms supported.
        ams, with_ams: 17..2 as u8;
        /// Worst time to become ready, in units of 500 ms.
        to, with_to: 24..8 as u8;
        /// Doorbell stride; 0 over Fabrics.
        dstrd, with_dstrd: 32..4 as u8;
        /// NVM subsystem reset supported.
        nssrs, with_nssrs: 36..1 as bool;
        /// Command sets supported: bit 0 NVM, bit 6 by CC.CSS, bit 7 no I/O command set.
        css, with_css: 37..8 as u8;
        /// Boot partition support.
        bps, with_bps: 45..1 as bool;
        /// Controller power scope.
        cps, with_cps: 46..2 as u8;
        /// Smallest memory page, 2^(12 + n) bytes.
        mpsmin, with_mpsmin: 48..4 as u8;
        /// Largest memory page, 2^(12 + n) bytes.
        mpsmax, with_mpsmax: 52..4 as u8;
        /// Persistent memory region supported.
        pmrs, with_pmrs: 56..1 as bool;
        /// Controller memory buffer supported.
        cmbs, with_cmbs: 57..1 as bool;
        /// NVM subsystem shutdown supported.
        nsss, with_nsss: 58..1 as bool;
        /// Controller ready with media support; CRTO is then readable.
        crwms, with_crwms: 59..1 as bool;
        /// Controller ready independent of media support.
        crims, with_crims: 60..1 as bool;
    }
}

/// CAP.CSS bit: NVM command set.
pub const CSS_NVM: u8 = 1 << 0;
/// CAP.CSS bit: I/O command sets by Identify.
pub const CSS_IOCS: u8 = 1 << 6;
/// CAP.CSS bit: no I/O command set.
pub const CSS_NONE: u8 = 1 << 7;

bits! {
    /// VS: version of the specification.
    Vs: u32 {
        /// Tertiary.
        ter, with_ter: 0..8 as u8;
        /// Minor.
        mnr, with_mnr: 8..8 as u8;
        /// Major.
        mjr, with_mjr: 16..16 as u16;
    }
}

impl Vs {
    /// 1.4.
    pub const V1_4: Vs = Vs(0x0001_0400);
    /// 2.0.
    pub const V2_0: Vs = Vs(0x0002_0000);
}

coded! {
    /// CC.SHN: shutdown notification.
    Shn: u8, "SHN" {
        /// None.
        None = 0,
        /// Normal shutdown.
        Normal = 1,
        /// Abrupt shutdown.
        Abrupt = 2,
    }
}

coded! {
    /// CSTS.SHST: shutdown status.
    Shst: u8, "SHST" {
        /// Normal operation.
        Normal = 0,
        /// Shutdown is being processed.
        Occurring = 1,
        /// Shutdown is complete.
        Complete = 2,
    }
}

bits! {
    /// CC: controller configuration.
    Cc: u32 {
        /// Enable.
        en, with_en: 0..1 as bool;
        /// I/O command set selected.
        css, with_css: 4..3 as u8;
        /// Memory page size, 2^(12 + n) bytes.
        mps, with_mps: 7..4 as u8;
        /// Arbitration mechanism selected.
        ams, with_ams: 11..3 as u8;
        /// Shutdown notification; see [`Shn`].
        shn, with_shn: 14..2 as u8;
        /// I/O submission queue entry size, 2^n bytes: 6.
        iosqes, with_iosqes: 16..4 as u8;
        /// I/O completion queue entry size, 2^n bytes: 4.
        iocqes, with_iocqes: 20..4 as u8;
        /// Controller ready independent of media enable.
        crime, with_crime: 24..1 as bool;
    }
}

bits! {
    /// CSTS: controller status.
    Csts: u32 {
        /// Ready.
        rdy, with_rdy: 0..1 as bool;
        /// Controller fatal status.
        cfs, with_cfs: 1..1 as bool;
        /// Shutdown status; see [`Shst`].
        shst, with_shst: 2..2 as u8;
        /// NVM subsystem reset occurred.
        nssro, with_nssro: 4..1 as bool;
        /// Processing paused.
        pp, with_pp: 5..1 as bool;
        /// Shutdown type.
        st, with_st: 6..1 as bool;
    }
}

bits! {
    /// CRTO: controller ready timeouts, in units of 500 ms.
    Crto: u32 {
        /// With media.
        crwmt, with_crwmt: 0..16 as u16;
        /// Independent of media.
        crimt, with_crimt: 16..16 as u16;
    }
}

/// The value that NSSR takes to reset the subsystem: "NVMe".
pub const NSSR_RESET: u32 = 0x4E56_4D65;
