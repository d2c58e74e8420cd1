//! Log pages: identifiers and layouts (NVMe Base 2.0 §5.16.1).

pub mod ana;
pub mod discovery;
pub mod effects;
pub mod error;
pub mod firmware;
pub mod smart;
pub mod supported;

pub use ana::{AnaGroupDescriptor, AnaLogHeader, AnaState};
pub use discovery::{DiscoveryEntry, DiscoveryHeader};
pub use effects::{CommandEffects, CommandsEffectsLog, FeatureEffectsLog};
pub use error::ErrorEntry;
pub use firmware::FirmwareSlotLog;
pub use smart::SmartLog;
pub use supported::SupportedLogPages;

/// The changed namespace list log (04h) has the layout of a namespace list.
pub use crate::identify::NamespaceList as ChangedNamespaceList;

use crate::wire::coded;

coded! {
    /// LID: log page identifiers (NVMe Base 2.0 figure 202).
    LogId: u8, "LID" {
        /// Supported log pages.
        SupportedLogPages = 0x00,
        /// Error information.
        ErrorInformation = 0x01,
        /// SMART / health information.
        Smart = 0x02,
        /// Firmware slot information.
        FirmwareSlot = 0x03,
        /// Changed namespace list.
        ChangedNamespaces = 0x04,
        /// Commands supported and effects.
        CommandsEffects = 0x05,
        /// Device self-test.
        DeviceSelfTest = 0x06,
        /// Telemetry, host-initiated.
        TelemetryHost = 0x07,
        /// Telemetry, controller-initiated.
        TelemetryController = 0x08,
        /// Endurance group information.
        EnduranceGroup = 0x09,
        /// Predictable latency per NVM set.
        PredictableLatency = 0x0A,
        /// Predictable latency event aggregate.
        PredictableLatencyAggregate = 0x0B,
        /// Asymmetric namespace access.
        Ana = 0x0C,
        /// Persistent event.
        PersistentEvent = 0x0D,
        /// LBA status information.
        LbaStatus = 0x0E,
        /// Endurance group event aggregate.
        EnduranceGroupAggregate = 0x0F,
        /// Media unit status.
        MediaUnitStatus = 0x10,
        /// Supported capacity configuration list.
        CapacityConfigurations = 0x11,
        /// Feature identifiers supported and effects.
        FeatureEffects = 0x12,
        /// NVMe-MI commands supported and effects.
        MiEffects = 0x13,
        /// Command and feature lockdown.
        Lockdown = 0x14,
        /// Boot partition.
        BootPartition = 0x15,
        /// Rotational media information.
        RotationalMedia = 0x16,
        /// Discovery.
        Discovery = 0x70,
        /// Reservation notification.
        ReservationNotification = 0x80,
        /// Sanitize status.
        SanitizeStatus = 0x81,
    }
}
