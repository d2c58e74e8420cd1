//! Asynchronous events: DW0 of the completion that reports one (NVMe Base 2.0 §5.2).

use crate::log::LogId;
use crate::wire::{DecodeError, bits, coded};

coded! {
    /// Type of an event; all events of a type are masked together until its log is read (NVME N11).
    EventType: u8, "event type" {
        /// Error status.
        Error = 0,
        /// SMART / health status.
        Smart = 1,
        /// Notice.
        Notice = 2,
        /// Immediate; no log to read.
        Immediate = 3,
        /// I/O command specific status.
        IoCommand = 6,
        /// Vendor specific.
        Vendor = 7,
    }
}

bits! {
    /// DW0 of the completion of an Asynchronous Event Request.
    EventDw0: u32 {
        /// Event type; see [`EventType`].
        event_type, with_event_type: 0..3 as u8;
        /// Event information.
        info, with_info: 8..8 as u8;
        /// Log page to read.
        lid, with_lid: 16..8 as u8;
    }
}

macro_rules! events {
    ($($(#[$meta:meta])* $name:ident = $ty:ident, $info:literal, $lid:ident;)+) => {
        /// The events that a target of ours can raise, or a host of ours meet.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AsyncEvent { $($(#[$meta])* $name,)+ }

        impl AsyncEvent {
            /// All of them.
            pub const ALL: &'static [AsyncEvent] = &[$(AsyncEvent::$name,)+];

            /// Its type.
            #[must_use]
            pub const fn event_type(self) -> EventType {
                match self { $(AsyncEvent::$name => EventType::$ty,)+ }
            }

            /// Its information code.
            #[must_use]
            pub const fn info(self) -> u8 {
                match self { $(AsyncEvent::$name => $info,)+ }
            }

            /// The log page that clears it.
            #[must_use]
            pub const fn log(self) -> LogId {
                match self { $(AsyncEvent::$name => LogId::$lid,)+ }
            }

            /// Reads DW0; the log identifier in it is not judged.
            pub fn from_dw0(dw0: u32) -> Result<AsyncEvent, DecodeError> {
                let d = EventDw0(dw0);
                match (EventType::try_from(d.event_type())?, d.info()) {
                    $((EventType::$ty, $info) => Ok(AsyncEvent::$name),)+
                    _ => Err(DecodeError::Undefined {
                        what: "asynchronous event",
                        field: "DW0",
                        value: u64::from(dw0),
                    }),
                }
            }
        }
    };
}

events! {
    /// Diagnostic failure.
    DiagnosticFailure = Error, 0x02, ErrorInformation;
    /// Persistent internal error.
    PersistentInternalError = Error, 0x03, ErrorInformation;
    /// Transient internal error.
    TransientInternalError = Error, 0x04, ErrorInformation;
    /// NVM subsystem reliability.
    SubsystemReliability = Smart, 0x00, Smart;
    /// Temperature threshold passed.
    TemperatureThreshold = Smart, 0x01, Smart;
    /// Spare below threshold.
    SpareBelowThreshold = Smart, 0x02, Smart;
    /// Namespace attribute changed: read the changed namespace list.
    NamespaceAttributeChanged = Notice, 0x00, ChangedNamespaces;
    /// Firmware activation starting.
    FirmwareActivationStarting = Notice, 0x01, FirmwareSlot;
    /// Asymmetric namespace access change: read the ANA log.
    AnaChange = Notice, 0x03, Ana;
    /// Discovery log page change.
    DiscoveryLogChange = Notice, 0xF0, Discovery;
    /// Normal NVM subsystem shutdown.
    SubsystemNormalShutdown = Immediate, 0x00, SupportedLogPages;
}

impl AsyncEvent {
    /// DW0 that reports it.
    #[must_use]
    pub const fn dw0(self) -> u32 {
        EventDw0(0)
            .with_event_type(self.event_type().code())
            .with_info(self.info())
            .with_lid(self.log().code())
            .0
    }
}
