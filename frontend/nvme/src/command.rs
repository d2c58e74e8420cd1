//! Submission and completion queue entries (NVMe Base 2.0 §3.3.3).

use crate::ids::{CommandId, Nsid, Qid};
use crate::sgl::SglDescriptor;
use crate::status::{Status, StatusField};
use crate::wire::{Wire, coded, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

coded! {
    /// FUSE: whether the command is half of a fused pair (NVMe Base 2.0 §3.4.2).
    FusedOperation: u8, "FUSE" {
        /// Not fused.
        Normal = 0,
        /// First of two.
        First = 1,
        /// Second of two.
        Second = 2,
    }
}

coded! {
    /// PSDT: what the data pointer holds (NVMe Base 2.0 figure 91).
    Psdt: u8, "PSDT" {
        /// Physical region pages; never over Fabrics.
        Prp = 0,
        /// One SGL descriptor; metadata pointer is an address.
        SglMptrAddress = 1,
        /// One SGL descriptor; metadata pointer is an SGL segment.
        SglMptrSegment = 2,
    }
}

/// Submission queue entry, 64 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sqe {
    /// Opcode; bits 1:0 say the data direction.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// Namespace identifier; in a Fabrics command byte 0 is FCTYPE.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer: over Fabrics one SGL descriptor.
    pub dptr: SglDescriptor,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

impl Sqe {
    /// A command with SGL use as Fabrics asks (PSDT 01b), all else zero.
    #[must_use]
    pub fn new(opcode: u8, cid: CommandId, nsid: Nsid) -> Sqe {
        let mut sqe = Sqe::zeroed();
        sqe.opcode = opcode;
        sqe.flags = Psdt::SglMptrAddress.code() << 6;
        sqe.cid = U16::new(cid.0);
        sqe.nsid = U32::new(nsid.0);
        sqe
    }

    /// Command identifier.
    #[must_use]
    pub fn command_id(&self) -> CommandId {
        CommandId(self.cid.get())
    }

    /// Namespace identifier.
    #[must_use]
    pub fn namespace(&self) -> Nsid {
        Nsid(self.nsid.get())
    }

    /// FUSE; the reserved value 11b is an error.
    pub fn fused(&self) -> Result<FusedOperation, Status> {
        FusedOperation::try_from(self.flags & 0b11).map_err(|_| Status::INVALID_FIELD)
    }

    /// PSDT; the reserved value 11b is an error.
    pub fn psdt(&self) -> Result<Psdt, Status> {
        Psdt::try_from(self.flags >> 6).map_err(|_| Status::INVALID_FIELD)
    }

    /// Sets FUSE.
    pub fn set_fused(&mut self, fused: FusedOperation) {
        self.flags = (self.flags & !0b11) | fused.code();
    }

    /// Sets PSDT.
    pub fn set_psdt(&mut self, psdt: Psdt) {
        self.flags = (self.flags & 0b0011_1111) | (psdt.code() << 6);
    }

    /// Dwords 10 (low) and 11 (high) as one number, as for SLBA.
    #[must_use]
    pub fn cdw10_11(&self) -> u64 {
        u64::from(self.cdw10.get()) | (u64::from(self.cdw11.get()) << 32)
    }

    /// Sets dwords 10 (low) and 11 (high).
    pub fn set_cdw10_11(&mut self, value: u64) {
        self.cdw10 = U32::new(value as u32);
        self.cdw11 = U32::new((value >> 32) as u32);
    }
}

/// Completion queue entry, 16 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cqe {
    /// Command specific result, low half.
    pub dw0: U32,
    /// Command specific result, high half (Property Get).
    pub dw1: U32,
    /// Submission queue head pointer; FFFFh when flow control is disabled (NVME N1).
    pub sqhd: U16,
    /// Submission queue identifier; reserved (0) over Fabrics (NVMe Base 2.0 §3.3.3.2.2).
    pub sqid: U16,
    /// Identifier of the command that completed.
    pub cid: U16,
    /// Phase tag in bit 0 (reserved over Fabrics), status above.
    pub status: U16,
}

impl Cqe {
    /// SQHD of a queue without flow control.
    pub const SQHD_DISABLED: u16 = 0xFFFF;

    /// A completion; DNR follows the status' rule.
    #[must_use]
    pub fn new(cid: CommandId, sqhd: u16, status: Status) -> Cqe {
        Cqe::with_field(cid, sqhd, StatusField::from(status))
    }

    /// A completion with an explicit status field.
    #[must_use]
    pub fn with_field(cid: CommandId, sqhd: u16, status: StatusField) -> Cqe {
        let mut cqe = Cqe::zeroed();
        cqe.sqhd = U16::new(sqhd);
        cqe.cid = U16::new(cid.0);
        cqe.status = U16::new(status.0);
        cqe
    }

    /// Sets the 32-bit result.
    #[must_use]
    pub fn with_dw0(mut self, dw0: u32) -> Cqe {
        self.dw0 = U32::new(dw0);
        self
    }

    /// Sets the 64-bit result.
    #[must_use]
    pub fn with_result(mut self, result: u64) -> Cqe {
        self.dw0 = U32::new(result as u32);
        self.dw1 = U32::new((result >> 32) as u32);
        self
    }

    /// The 64-bit result.
    #[must_use]
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | (u64::from(self.dw1.get()) << 32)
    }

    /// The identifier of the command.
    #[must_use]
    pub fn command_id(&self) -> CommandId {
        CommandId(self.cid.get())
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> Qid {
        Qid(self.sqid.get())
    }

    /// The whole status field.
    #[must_use]
    pub fn status_field(&self) -> StatusField {
        StatusField(self.status.get())
    }
}

wire! {
    Sqe = 64, "submission queue entry";
    Cqe = 16, "completion queue entry";
}
