//! Opcodes of the admin and NVM command sets and of Fabrics, and the direction that their low bits give.

use crate::wire::coded;

/// Opcode of every Fabrics command; FCTYPE says which (NVMe Base 2.0 §6).
pub const FABRICS: u8 = 0x7F;

/// Which way data moves: bits 1:0 of an opcode, or of FCTYPE (NVMe Base 2.0 figure 91).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataDirection {
    /// No data.
    None,
    /// Host to controller.
    HostToController,
    /// Controller to host.
    ControllerToHost,
    /// Both ways; no command of ours does that.
    Bidirectional,
}

impl DataDirection {
    /// By the low two bits of an opcode or FCTYPE.
    #[must_use]
    pub const fn of(code: u8) -> DataDirection {
        match code & 0b11 {
            0 => DataDirection::None,
            1 => DataDirection::HostToController,
            2 => DataDirection::ControllerToHost,
            _ => DataDirection::Bidirectional,
        }
    }
}

coded! {
    /// Admin commands (NVMe Base 2.0 figure 138).
    AdminOpcode: u8, "opcode" {
        /// Delete I/O Submission Queue; not over Fabrics.
        DeleteSq = 0x00,
        /// Create I/O Submission Queue; not over Fabrics.
        CreateSq = 0x01,
        /// Get Log Page.
        GetLogPage = 0x02,
        /// Delete I/O Completion Queue; not over Fabrics.
        DeleteCq = 0x04,
        /// Create I/O Completion Queue; not over Fabrics.
        CreateCq = 0x05,
        /// Identify.
        Identify = 0x06,
        /// Abort.
        Abort = 0x08,
        /// Set Features.
        SetFeatures = 0x09,
        /// Get Features.
        GetFeatures = 0x0A,
        /// Asynchronous Event Request.
        AsyncEventRequest = 0x0C,
        /// Namespace Management.
        NamespaceManagement = 0x0D,
        /// Firmware Commit.
        FirmwareCommit = 0x10,
        /// Firmware Image Download.
        FirmwareDownload = 0x11,
        /// Device Self-test.
        DeviceSelfTest = 0x14,
        /// Namespace Attachment.
        NamespaceAttachment = 0x15,
        /// Keep Alive.
        KeepAlive = 0x18,
        /// Directive Send.
        DirectiveSend = 0x19,
        /// Directive Receive.
        DirectiveReceive = 0x1A,
        /// Virtualization Management.
        VirtualizationManagement = 0x1C,
        /// NVMe-MI Send.
        MiSend = 0x1D,
        /// NVMe-MI Receive.
        MiReceive = 0x1E,
        /// Capacity Management.
        CapacityManagement = 0x20,
        /// Discovery Information Management.
        DiscoveryInformationManagement = 0x21,
        /// Lockdown.
        Lockdown = 0x24,
        /// Doorbell Buffer Config; not over Fabrics.
        DoorbellBufferConfig = 0x7C,
        /// Fabrics command.
        Fabrics = 0x7F,
        /// Format NVM.
        FormatNvm = 0x80,
        /// Security Send.
        SecuritySend = 0x81,
        /// Security Receive.
        SecurityReceive = 0x82,
        /// Sanitize.
        Sanitize = 0x84,
        /// Get LBA Status.
        GetLbaStatus = 0x86,
    }
}

coded! {
    /// I/O commands of the NVM command set (NVM Command Set 1.0 figure 16).
    NvmOpcode: u8, "opcode" {
        /// Flush.
        Flush = 0x00,
        /// Write.
        Write = 0x01,
        /// Read.
        Read = 0x02,
        /// Write Uncorrectable.
        WriteUncorrectable = 0x04,
        /// Compare.
        Compare = 0x05,
        /// Write Zeroes.
        WriteZeroes = 0x08,
        /// Dataset Management.
        DatasetManagement = 0x09,
        /// Verify.
        Verify = 0x0C,
        /// Reservation Register.
        ReservationRegister = 0x0D,
        /// Reservation Report.
        ReservationReport = 0x0E,
        /// Reservation Acquire.
        ReservationAcquire = 0x11,
        /// I/O Management Receive.
        IoManagementReceive = 0x12,
        /// Reservation Release.
        ReservationRelease = 0x15,
        /// Copy.
        Copy = 0x19,
        /// I/O Management Send.
        IoManagementSend = 0x1D,
        /// Fabrics command.
        Fabrics = 0x7F,
    }
}

coded! {
    /// FCTYPE: Fabrics commands (NVMe Base 2.0 figure 376).
    FabricsType: u8, "FCTYPE" {
        /// Property Set.
        PropertySet = 0x00,
        /// Connect.
        Connect = 0x01,
        /// Property Get.
        PropertyGet = 0x04,
        /// Authentication Send.
        AuthenticationSend = 0x05,
        /// Authentication Receive.
        AuthenticationReceive = 0x06,
        /// Disconnect.
        Disconnect = 0x08,
    }
}

coded! {
    /// Command set identifier (NVMe Base 2.0 figure 274).
    Csi: u8, "CSI" {
        /// NVM command set.
        Nvm = 0x00,
        /// Key value command set.
        KeyValue = 0x01,
        /// Zoned namespace command set.
        Zoned = 0x02,
    }
}

impl AdminOpcode {
    /// Which way its data moves.
    #[must_use]
    pub const fn direction(self) -> DataDirection {
        DataDirection::of(self.code())
    }
}

impl NvmOpcode {
    /// Which way its data moves.
    #[must_use]
    pub const fn direction(self) -> DataDirection {
        DataDirection::of(self.code())
    }
}

impl FabricsType {
    /// Which way its data moves.
    #[must_use]
    pub const fn direction(self) -> DataDirection {
        DataDirection::of(self.code())
    }
}
