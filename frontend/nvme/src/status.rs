//! Status codes with their names, the Do-Not-Retry rule for each, and the status field of a completion.

use crate::wire::coded;
use std::fmt;

coded! {
    /// Status code type (NVMe Base 2.0 §3.3.3.2.1).
    StatusCodeType: u8, "SCT" {
        /// Generic command status.
        Generic = 0,
        /// Command specific status.
        CommandSpecific = 1,
        /// Media and data integrity errors.
        Media = 2,
        /// Path related status; multipath hosts fail over on it (NVME N12).
        Path = 3,
        /// Vendor specific.
        Vendor = 7,
    }
}

/// A status: code type and code, without the modifiers that a completion adds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u16);

/// Whether a host may send the same command again (NVMe Base 2.0 §3.3.3.2.1, DNR).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// DNR clear: the same command may succeed later or elsewhere.
    MaySucceed,
    /// DNR set: the same command fails again.
    Futile,
}

macro_rules! statuses {
    ($($(#[$meta:meta])* $name:ident = $sct:literal, $sc:literal, $text:literal, $retry:ident;)+) => {
        impl Status {
            $(
                #[doc = concat!("", $text, ".")]
                $(#[$meta])*
                pub const $name: Status = Status(($sct << 8) | $sc);
            )+

            /// Every status that has a name here.
            pub const ALL: &'static [Status] = &[$(Status::$name,)+];

            /// The specification's name, if the status has one here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.0 >> 8, self.0 & 0xFF) {
                    $(($sct, $sc) => Some($text),)+
                    _ => None,
                }
            }

            /// The Do-Not-Retry rule (NVME N12): set for what the host did wrong and for denied Connects;
            /// clear for what passes (starting, draining, moved, busy) and for everything path-related.
            #[must_use]
            pub const fn retry(self) -> Retry {
                match (self.0 >> 8, self.0 & 0xFF) {
                    $(($sct, $sc) => Retry::$retry,)+
                    (3, _) => Retry::MaySucceed,
                    _ => Retry::Futile,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion", MaySucceed;
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode", Futile;
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command", Futile;
    COMMAND_ID_CONFLICT = 0, 0x03, "Command ID Conflict", Futile;
    /// A transfer on the transport failed; the data may arrive at the next try.
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error", MaySucceed;
    ABORTED_POWER_LOSS = 0, 0x05, "Commands Aborted due to Power Loss Notification", MaySucceed;
    INTERNAL_ERROR = 0, 0x06, "Internal Error", MaySucceed;
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested", MaySucceed;
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion", MaySucceed;
    /// The pair fails together: the other half's own status says whether a retry helps.
    ABORTED_FAILED_FUSED = 0, 0x09, "Command Aborted due to Failed Fused Command", MaySucceed;
    ABORTED_MISSING_FUSED = 0, 0x0A, "Command Aborted due to Missing Fused Command", Futile;
    INVALID_NAMESPACE_OR_FORMAT = 0, 0x0B, "Invalid Namespace or Format", Futile;
    COMMAND_SEQUENCE_ERROR = 0, 0x0C, "Command Sequence Error", Futile;
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0, 0x0D, "Invalid SGL Segment Descriptor", Futile;
    INVALID_SGL_DESCRIPTOR_COUNT = 0, 0x0E, "Invalid Number of SGL Descriptors", Futile;
    DATA_SGL_LENGTH_INVALID = 0, 0x0F, "Data SGL Length Invalid", Futile;
    METADATA_SGL_LENGTH_INVALID = 0, 0x10, "Metadata SGL Length Invalid", Futile;
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid", Futile;
    INVALID_CMB_USE = 0, 0x12, "Invalid Use of Controller Memory Buffer", Futile;
    PRP_OFFSET_INVALID = 0, 0x13, "PRP Offset Invalid", Futile;
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, "Atomic Write Unit Exceeded", Futile;
    OPERATION_DENIED = 0, 0x15, "Operation Denied", Futile;
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid", Futile;
    HOST_ID_INCONSISTENT_FORMAT = 0, 0x18, "Host Identifier Inconsistent Format", Futile;
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired", MaySucceed;
    KEEP_ALIVE_INVALID = 0, 0x1A, "Keep Alive Timeout Invalid", Futile;
    ABORTED_PREEMPT = 0, 0x1B, "Command Aborted due to Preempt and Abort", Futile;
    SANITIZE_FAILED = 0, 0x1C, "Sanitize Failed", Futile;
    SANITIZE_IN_PROGRESS = 0, 0x1D, "Sanitize In Progress", MaySucceed;
    SGL_GRANULARITY_INVALID = 0, 0x1E, "SGL Data Block Granularity Invalid", Futile;
    NOT_SUPPORTED_IN_CMB = 0, 0x1F, "Command Not Supported for Queue in CMB", Futile;
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected", Futile;
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted", MaySucceed;
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error", MaySucceed;
    PROHIBITED_BY_LOCKDOWN = 0, 0x23, "Command Prohibited by Command and Feature Lockdown", Futile;
    ADMIN_MEDIA_NOT_READY = 0, 0x24, "Admin Command Media Not Ready", MaySucceed;
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range", Futile;
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded", Futile;
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready", MaySucceed;
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict", Futile;
    FORMAT_IN_PROGRESS = 0, 0x84, "Format In Progress", MaySucceed;
    COMPLETION_QUEUE_INVALID = 1, 0x00, "Completion Queue Invalid", Futile;
    INVALID_QUEUE_IDENTIFIER = 1, 0x01, "Invalid Queue Identifier", Futile;
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size", Futile;
    ABORT_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded", MaySucceed;
    ASYNC_EVENT_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded", Futile;
    INVALID_FIRMWARE_SLOT = 1, 0x06, "Invalid Firmware Slot", Futile;
    INVALID_FIRMWARE_IMAGE = 1, 0x07, "Invalid Firmware Image", Futile;
    INVALID_INTERRUPT_VECTOR = 1, 0x08, "Invalid Interrupt Vector", Futile;
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page", Futile;
    INVALID_FORMAT = 1, 0x0A, "Invalid Format", Futile;
    INVALID_QUEUE_DELETION = 1, 0x0C, "Invalid Queue Deletion", Futile;
    FEATURE_NOT_SAVEABLE = 1, 0x0D, "Feature Identifier Not Saveable", Futile;
    FEATURE_NOT_CHANGEABLE = 1, 0x0E, "Feature Not Changeable", Futile;
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0F, "Feature Not Namespace Specific", Futile;
    OVERLAPPING_RANGE = 1, 0x14, "Overlapping Range", Futile;
    NAMESPACE_INSUFFICIENT_CAPACITY = 1, 0x15, "Namespace Insufficient Capacity", Futile;
    NAMESPACE_ID_UNAVAILABLE = 1, 0x16, "Namespace Identifier Unavailable", Futile;
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, "Namespace Already Attached", Futile;
    NAMESPACE_IS_PRIVATE = 1, 0x19, "Namespace Is Private", Futile;
    NAMESPACE_NOT_ATTACHED = 1, 0x1A, "Namespace Not Attached", Futile;
    CONTROLLER_LIST_INVALID = 1, 0x1C, "Controller List Invalid", Futile;
    INVALID_CONTROLLER_ID = 1, 0x1F, "Invalid Controller Identifier", Futile;
    ANA_GROUP_ID_INVALID = 1, 0x24, "ANA Group Identifier Invalid", Futile;
    IO_COMMAND_SET_NOT_SUPPORTED = 1, 0x29, "I/O Command Set Not Supported", Futile;
    IO_COMMAND_SET_NOT_ENABLED = 1, 0x2A, "I/O Command Set Not Enabled", Futile;
    IO_COMMAND_SET_COMBINATION_REJECTED = 1, 0x2B, "I/O Command Set Combination Rejected", Futile;
    INVALID_IO_COMMAND_SET = 1, 0x2C, "Invalid I/O Command Set", Futile;
    IDENTIFIER_UNAVAILABLE = 1, 0x2D, "Identifier Unavailable", Futile;
    INVALID_DISCOVERY_INFORMATION = 1, 0x2F, "Invalid Discovery Information", Futile;
    INSUFFICIENT_DISCOVERY_RESOURCES = 1, 0x32, "Insufficient Discovery Resources", MaySucceed;
    /// Of a Dataset Management, Read, Write or Compare command in the NVM command set.
    CONFLICTING_ATTRIBUTES = 1, 0x80, "Conflicting Attributes", Futile;
    /// The number is also Controller Busy of Connect, whose rule stands here: no namespace of ours has
    /// protection information.
    INVALID_PROTECTION_INFORMATION = 1, 0x81, "Invalid Protection Information", MaySucceed;
    WRITE_TO_READ_ONLY_RANGE = 1, 0x82, "Attempted Write to Read Only Range", Futile;
    COMMAND_SIZE_LIMIT_EXCEEDED = 1, 0x83, "Command Size Limit Exceeded", Futile;
    /// The discovery log changed while it was read.
    DISCOVERY_RESTART = 1, 0x90, "Discover Restart", MaySucceed;
    AUTHENTICATION_REQUIRED = 1, 0x91, "Authentication Required", Futile;
    UNRECOVERED_WRITE = 2, 0x80, "Write Fault", Futile;
    UNRECOVERED_READ = 2, 0x81, "Unrecovered Read Error", Futile;
    GUARD_CHECK = 2, 0x82, "End-to-end Guard Check Error", Futile;
    APPLICATION_TAG_CHECK = 2, 0x83, "End-to-end Application Tag Check Error", Futile;
    REFERENCE_TAG_CHECK = 2, 0x84, "End-to-end Reference Tag Check Error", Futile;
    COMPARE_FAILURE = 2, 0x85, "Compare Failure", Futile;
    ACCESS_DENIED = 2, 0x86, "Access Denied", Futile;
    DEALLOCATED_OR_UNWRITTEN = 2, 0x87, "Deallocated or Unwritten Logical Block", Futile;
    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error", MaySucceed;
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss", MaySucceed;
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible", MaySucceed;
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition", MaySucceed;
    CONTROLLER_PATHING_ERROR = 3, 0x60, "Controller Pathing Error", MaySucceed;
    HOST_PATHING_ERROR = 3, 0x70, "Host Pathing Error", MaySucceed;
    ABORTED_BY_HOST = 3, 0x71, "Command Aborted By Host", MaySucceed;
}

/// Codes of Fabrics commands. They share numbers with the NVM command set: which applies, the opcode says.
/// The retry rule of a shared number suits both.
impl Status {
    /// Incompatible Format: a RECFMT that is not supported. Connect, Disconnect.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = Status(0x180);
    /// Controller Busy: the controller already has an association.
    pub const CONNECT_CONTROLLER_BUSY: Status = Status(0x181);
    /// Connect Invalid Parameters; DW0 says which (see `fabrics::InvalidParameter`).
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(0x182);
    /// Connect Restart Discovery: the subsystem is no longer here.
    pub const CONNECT_RESTART_DISCOVERY: Status = Status(0x183);
    /// Connect Invalid Host: the host may not use this subsystem.
    pub const CONNECT_INVALID_HOST: Status = Status(0x184);
    /// Invalid Queue Type: Disconnect on the admin queue.
    pub const DISCONNECT_INVALID_QUEUE_TYPE: Status = Status(0x185);

    /// Names of the Fabrics codes (NVMe Base 2.0 figure 98).
    #[must_use]
    pub const fn fabrics_name(self) -> Option<&'static str> {
        match self.0 {
            0x180 => Some("Incompatible Format"),
            0x181 => Some("Controller Busy"),
            0x182 => Some("Connect Invalid Parameters"),
            0x183 => Some("Connect Restart Discovery"),
            0x184 => Some("Connect Invalid Host"),
            0x185 => Some("Invalid Queue Type"),
            _ => self.name(),
        }
    }

    /// From a code type and a code. Bits of `sct` above 2 are dropped.
    #[must_use]
    pub const fn from_parts(sct: u8, sc: u8) -> Status {
        Status((((sct & 7) as u16) << 8) | sc as u16)
    }

    /// Status code type, 0–7.
    #[must_use]
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Status code.
    #[must_use]
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether it is Successful Completion.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Whether multipath hosts send the command over another path (NVME N12).
    #[must_use]
    pub const fn is_path_related(self) -> bool {
        self.sct() == StatusCodeType::Path.code()
    }

    /// Whether the Do Not Retry bit belongs to it; see [`Status::retry`].
    #[must_use]
    pub const fn dnr(self) -> bool {
        matches!(self.retry(), Retry::Futile)
    }

    /// The 11-bit number: SCT in bits 10:8, SC in bits 7:0.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.fabrics_name()) {
            // The number alone does not say which command set's it is.
            (Some(name), Some(fabrics)) if name != fabrics => write!(f, "{name} (of Fabrics: {fabrics})"),
            (Some(name), _) | (None, Some(name)) => f.write_str(name),
            (None, None) => write!(f, "status {:x}h/{:02x}h", self.sct(), self.sc()),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:#05x} {self})", self.0)
    }
}

/// Bits 31:16 of a completion's dword 3: phase, status, retry delay, more, do not retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StatusField(pub u16);

impl StatusField {
    /// Success with every bit clear.
    pub const SUCCESS: StatusField = StatusField(0);
    const DNR: u16 = 1 << 15;
    const MORE: u16 = 1 << 14;

    /// A status with an explicit retry rule; phase, CRD and M are 0.
    #[must_use]
    pub const fn new(status: Status, retry: Retry) -> StatusField {
        let dnr = match retry {
            Retry::Futile => StatusField::DNR,
            Retry::MaySucceed => 0,
        };
        StatusField((status.0 << 1) | dnr)
    }

    /// The status without modifiers.
    #[must_use]
    pub const fn status(self) -> Status {
        Status((self.0 >> 1) & 0x7FF)
    }

    /// Do Not Retry.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & StatusField::DNR != 0
    }

    /// More: the error log has more about this command.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & StatusField::MORE != 0
    }

    /// With the More bit set.
    #[must_use]
    pub const fn with_more(self) -> StatusField {
        StatusField(self.0 | StatusField::MORE)
    }

    /// Command retry delay: 0 none, else the index of CRDT1–CRDT3.
    #[must_use]
    pub const fn crd(self) -> u8 {
        ((self.0 >> 12) & 3) as u8
    }

    /// With a command retry delay index (two bits).
    #[must_use]
    pub const fn with_crd(self, crd: u8) -> StatusField {
        StatusField((self.0 & !(3 << 12)) | (((crd & 3) as u16) << 12))
    }

    /// Phase tag; reserved over Fabrics.
    #[must_use]
    pub const fn phase(self) -> bool {
        self.0 & 1 == 1
    }
}

impl From<Status> for StatusField {
    fn from(status: Status) -> StatusField {
        StatusField::new(status, status.retry())
    }
}
