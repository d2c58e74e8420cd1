//! Features: identifiers, selectors and the layout of their values (NVMe Base 2.0 §5.27.1).

use crate::wire::{bits, coded, wire};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

coded! {
    /// FID: feature identifiers.
    FeatureId: u8, "FID" {
        /// Arbitration.
        Arbitration = 0x01,
        /// Power management.
        PowerManagement = 0x02,
        /// LBA range type.
        LbaRangeType = 0x03,
        /// Temperature threshold.
        TemperatureThreshold = 0x04,
        /// Error recovery.
        ErrorRecovery = 0x05,
        /// Volatile write cache.
        VolatileWriteCache = 0x06,
        /// Number of queues.
        NumberOfQueues = 0x07,
        /// Interrupt coalescing; not over Fabrics.
        InterruptCoalescing = 0x08,
        /// Interrupt vector configuration; not over Fabrics.
        InterruptVectorConfiguration = 0x09,
        /// Write atomicity normal.
        WriteAtomicity = 0x0A,
        /// Asynchronous event configuration.
        AsyncEventConfiguration = 0x0B,
        /// Autonomous power state transition.
        AutonomousPowerStateTransition = 0x0C,
        /// Host memory buffer; not over Fabrics.
        HostMemoryBuffer = 0x0D,
        /// Timestamp.
        Timestamp = 0x0E,
        /// Keep alive timer.
        KeepAliveTimer = 0x0F,
        /// Host controlled thermal management.
        HostControlledThermal = 0x10,
        /// Non-operational power state configuration.
        NonOperationalPowerState = 0x11,
        /// Read recovery level.
        ReadRecoveryLevel = 0x12,
        /// Predictable latency mode configuration.
        PredictableLatencyConfiguration = 0x13,
        /// Predictable latency mode window.
        PredictableLatencyWindow = 0x14,
        /// LBA status information report interval.
        LbaStatusInterval = 0x15,
        /// Host behavior support.
        HostBehaviorSupport = 0x16,
        /// Sanitize configuration.
        SanitizeConfiguration = 0x17,
        /// Endurance group event configuration.
        EnduranceGroupEvent = 0x18,
        /// I/O command set profile.
        IoCommandSetProfile = 0x19,
        /// Spinup control.
        SpinupControl = 0x1A,
        /// Software progress marker.
        SoftwareProgressMarker = 0x80,
        /// Host identifier.
        HostIdentifier = 0x81,
        /// Reservation notification mask.
        ReservationNotificationMask = 0x82,
        /// Reservation persistence.
        ReservationPersistence = 0x83,
        /// Namespace write protection configuration.
        NamespaceWriteProtection = 0x84,
    }
}

coded! {
    /// SEL: which value of a feature.
    Select: u8, "SEL" {
        /// Current.
        Current = 0,
        /// Default.
        Default = 1,
        /// Saved.
        Saved = 2,
        /// What can be done with it; DW0 is [`SupportedCapabilities`].
        SupportedCapabilities = 3,
    }
}

bits! {
    /// DW0 of Get Features with SEL 3.
    SupportedCapabilities: u32 {
        /// Saveable.
        saveable, with_saveable: 0..1 as bool;
        /// Namespace specific.
        namespace_specific, with_namespace_specific: 1..1 as bool;
        /// Changeable.
        changeable, with_changeable: 2..1 as bool;
    }
}

bits! {
    /// Arbitration (FID 01h).
    Arbitration: u32 {
        /// Arbitration burst, 2^n commands; 7 is no limit.
        ab, with_ab: 0..3 as u8;
        /// Low priority weight, 0-based.
        lpw, with_lpw: 8..8 as u8;
        /// Medium priority weight, 0-based.
        mpw, with_mpw: 16..8 as u8;
        /// High priority weight, 0-based.
        hpw, with_hpw: 24..8 as u8;
    }
}

bits! {
    /// Power management (FID 02h).
    PowerManagement: u32 {
        /// Power state.
        ps, with_ps: 0..5 as u8;
        /// Workload hint.
        wh, with_wh: 5..3 as u8;
    }
}

bits! {
    /// Temperature threshold (FID 04h).
    TemperatureThreshold: u32 {
        /// Threshold in kelvin.
        tmpth, with_tmpth: 0..16 as u16;
        /// Sensor: 0 composite, 1–8 sensors, Fh all (set only).
        tmpsel, with_tmpsel: 16..4 as u8;
        /// 0 over, 1 under temperature.
        thsel, with_thsel: 20..2 as u8;
    }
}

bits! {
    /// Error recovery (FID 05h).
    ErrorRecovery: u32 {
        /// Time limited error recovery, in units of 100 ms; 0 is no limit.
        tler, with_tler: 0..16 as u16;
        /// Deallocated or unwritten logical block error enable.
        dulbe, with_dulbe: 16..1 as bool;
    }
}

bits! {
    /// Volatile write cache (FID 06h).
    VolatileWriteCache: u32 {
        /// Enabled.
        wce, with_wce: 0..1 as bool;
    }
}

bits! {
    /// Number of queues (FID 07h), in dword 11 as asked and in DW0 as granted. FFFFh is an error when asked.
    NumberOfQueues: u32 {
        /// Submission queues, 0-based, without the admin queue.
        nsq, with_nsq: 0..16 as u16;
        /// Completion queues, 0-based, without the admin queue.
        ncq, with_ncq: 16..16 as u16;
    }
}

bits! {
    /// Write atomicity normal (FID 0Ah).
    WriteAtomicity: u32 {
        /// Disable normal: only the power-fail limits hold.
        dn, with_dn: 0..1 as bool;
    }
}

bits! {
    /// Asynchronous event configuration (FID 0Bh), with the same bits as OAES where both have them.
    AsyncEventConfig: u32 {
        /// SMART critical warnings that raise events.
        smart, with_smart: 0..8 as u8;
        /// Namespace attribute notices.
        namespace_attribute, with_namespace_attribute: 8..1 as bool;
        /// Firmware activation notices.
        firmware_activation, with_firmware_activation: 9..1 as bool;
        /// Telemetry log notices.
        telemetry, with_telemetry: 10..1 as bool;
        /// Asymmetric namespace access change notices.
        ana_change, with_ana_change: 11..1 as bool;
        /// Predictable latency event aggregate log notices.
        predictable_latency, with_predictable_latency: 12..1 as bool;
        /// LBA status information notices.
        lba_status, with_lba_status: 13..1 as bool;
        /// Endurance group event aggregate log notices.
        endurance_group, with_endurance_group: 14..1 as bool;
        /// Normal NVM subsystem shutdown notices.
        subsystem_shutdown, with_subsystem_shutdown: 15..1 as bool;
        /// Discovery log page change notices; discovery controllers (NVME N2).
        discovery_change, with_discovery_change: 31..1 as bool;
    }
}

bits! {
    /// I/O command set profile (FID 19h).
    IoCommandSetProfile: u32 {
        /// Index of the combination.
        iocsci, with_iocsci: 0..9 as u16;
    }
}

bits! {
    /// Host identifier (FID 81h), dword 11.
    HostIdentifierDw11: u32 {
        /// EXHID: 128-bit identifier; the only kind over Fabrics.
        exhid, with_exhid: 0..1 as bool;
    }
}

/// Data of Host Behavior Support (FID 16h), 512 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct HostBehaviorSupport {
    /// Advanced command retry enable, 0 or 1: the host honours CRD.
    pub acre: u8,
    /// Extended telemetry data area 4 supported, 0 or 1.
    pub etdas: u8,
    /// LBA format extension enable, 0 or 1.
    pub lbafee: u8,
    _rsvd3: [u8; 509],
}

/// Data of Timestamp (FID 0Eh), 8 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01, low 32 of 48 bits.
    pub ms_low: U32,
    /// High 16 bits.
    pub ms_high: U16,
    /// Bit 0 synch (may have stopped), bits 3:1 origin (0 reset, 1 set by a host).
    pub attributes: u8,
    _rsvd: u8,
}

wire! {
    HostBehaviorSupport = 512, "Host Behavior Support";
    Timestamp = 8, "Timestamp";
}
