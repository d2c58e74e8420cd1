//! Fabrics commands: Connect, Property Get and Set, Disconnect (NVMe Base 2.0 §6).

use crate::command::{Cqe, Psdt, Sqe};
use crate::ids::{Cntlid, CommandId, HostId, NQN_FIELD, Nqn, NqnError, Qid};
use crate::opcode::{FABRICS, FabricsType};
use crate::sgl::{DataPointer, SglDescriptor};
use crate::status::{Retry, Status, StatusField};
use crate::wire::{DecodeError, Wire, bits, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// FCTYPE of a Fabrics command's entry.
pub fn fctype(sqe: &Sqe) -> Result<FabricsType, DecodeError> {
    FabricsType::try_from(sqe.nsid.get() as u8)
}

bits! {
    /// CATTR, attributes of a Connect (NVMe Base 2.0 §6.3).
    ConnectAttributes: u8 {
        /// Priority class; only with weighted round robin.
        prio, with_prio: 0..2 as u8;
        /// The host asks to disable submission queue flow control (NVME N1).
        disable_flow_control, with_disable_flow_control: 2..1 as bool;
        /// The host supports deletion of individual I/O queues.
        individual_queue_deletion, with_individual_queue_deletion: 3..1 as bool;
    }
}

/// Connect's submission entry, laid over the 64 bytes of [`Sqe`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConnectCommand {
    /// 7Fh.
    pub opcode: u8,
    /// PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// 01h.
    pub fctype: u8,
    _rsvd5: [u8; 19],
    /// Where the 1024 bytes of [`ConnectData`] are.
    pub sgl1: SglDescriptor,
    /// Record format, 0.
    pub recfmt: U16,
    /// The queue to create.
    pub qid: U16,
    /// Entries of the queue, 0-based.
    pub sqsize: U16,
    /// Attributes; see [`ConnectAttributes`].
    pub cattr: u8,
    _rsvd47: u8,
    /// Keep alive timeout in milliseconds; 0 is none. Admin queue only.
    pub kato: U32,
    _rsvd52: [u8; 12],
}

impl ConnectCommand {
    /// Builds the command for the host; the data goes in the capsule.
    #[must_use]
    pub fn new(
        cid: CommandId,
        qid: Qid,
        sqsize: u16,
        cattr: ConnectAttributes,
        kato_ms: u32,
    ) -> ConnectCommand {
        let mut c = ConnectCommand::zeroed();
        c.opcode = FABRICS;
        c.flags = Psdt::SglMptrAddress.code() << 6;
        c.cid = U16::new(cid.0);
        c.fctype = FabricsType::Connect.code();
        c.sgl1 = SglDescriptor::in_capsule(0, ConnectData::SIZE as u32);
        c.qid = U16::new(qid.0);
        c.sqsize = U16::new(sqsize);
        c.cattr = cattr.0;
        c.kato = U32::new(kato_ms);
        c
    }

    /// The attributes.
    #[must_use]
    pub fn attributes(&self) -> ConnectAttributes {
        ConnectAttributes(self.cattr)
    }
}

/// Data of a Connect, 1024 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Controller: FFFFh on the admin queue (dynamic model), else the controller's id.
    pub cntlid: U16,
    _rsvd18: [u8; 238],
    /// Subsystem NQN, zero-terminated.
    pub subnqn: [u8; NQN_FIELD],
    /// Host NQN, zero-terminated.
    pub hostnqn: [u8; NQN_FIELD],
    _rsvd768: [u8; 256],
}

impl ConnectData {
    /// Builds the data for the host.
    #[must_use]
    pub fn new(hostid: HostId, cntlid: Cntlid, subnqn: &Nqn, hostnqn: &Nqn) -> ConnectData {
        let mut d = ConnectData::zeroed();
        d.hostid = hostid.0;
        d.cntlid = U16::new(cntlid.0);
        d.subnqn = subnqn.to_field();
        d.hostnqn = hostnqn.to_field();
        d
    }

    /// Controller identifier.
    #[must_use]
    pub fn controller(&self) -> Cntlid {
        Cntlid(self.cntlid.get())
    }

    /// Host identifier.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        HostId(self.hostid)
    }

    /// Subsystem NQN.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subnqn)
    }

    /// Host NQN.
    pub fn host(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.hostnqn)
    }
}

/// Which field of a Connect was refused: DW0 of Connect Invalid Parameters (NVMe Base 2.0 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InvalidParameter {
    /// A field of the submission entry.
    Command {
        /// IPO: byte offset in the 64-byte entry.
        ipo: u16,
    },
    /// A field of the data (IATTR bit 0).
    Data {
        /// IPO: byte offset in the 1024 bytes.
        ipo: u16,
    },
}

impl InvalidParameter {
    /// RECFMT.
    pub const RECFMT: InvalidParameter = InvalidParameter::Command { ipo: 40 };
    /// QID.
    pub const QID: InvalidParameter = InvalidParameter::Command { ipo: 42 };
    /// SQSIZE.
    pub const SQSIZE: InvalidParameter = InvalidParameter::Command { ipo: 44 };
    /// CATTR.
    pub const CATTR: InvalidParameter = InvalidParameter::Command { ipo: 46 };
    /// KATO.
    pub const KATO: InvalidParameter = InvalidParameter::Command { ipo: 48 };
    /// HOSTID.
    pub const HOSTID: InvalidParameter = InvalidParameter::Data { ipo: 0 };
    /// CNTLID.
    pub const CNTLID: InvalidParameter = InvalidParameter::Data { ipo: 16 };
    /// SUBNQN.
    pub const SUBNQN: InvalidParameter = InvalidParameter::Data { ipo: 256 };
    /// HOSTNQN.
    pub const HOSTNQN: InvalidParameter = InvalidParameter::Data { ipo: 512 };

    /// DW0: IPO in bits 15:0, IATTR in bits 23:16.
    #[must_use]
    pub const fn dw0(self) -> u32 {
        match self {
            InvalidParameter::Command { ipo } => ipo as u32,
            InvalidParameter::Data { ipo } => ipo as u32 | (1 << 16),
        }
    }

    /// Reads DW0.
    #[must_use]
    pub const fn from_dw0(dw0: u32) -> InvalidParameter {
        let ipo = dw0 as u16;
        if dw0 & (1 << 16) == 0 { InvalidParameter::Command { ipo } } else { InvalidParameter::Data { ipo } }
    }

    /// The completion that says so.
    #[must_use]
    pub fn completion(self, cid: CommandId, sqhd: u16) -> Cqe {
        let status = StatusField::new(Status::CONNECT_INVALID_PARAMETERS, Retry::Futile);
        Cqe::with_field(cid, sqhd, status).with_dw0(self.dw0())
    }
}

bits! {
    /// DW0 of a successful Connect (NVMe Base 2.0 figure 388).
    ConnectResponse: u32 {
        /// The controller.
        cntlid, with_cntlid: 0..16 as u16;
        /// ATR: the host must authenticate on this queue.
        atr, with_atr: 17..1 as bool;
        /// ASCR: authentication and a secure channel are required.
        ascr, with_ascr: 18..1 as bool;
    }
}

/// Size of a property (NVMe Base 2.0 §6.5, ATTRIB bits 2:0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PropertySize {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

/// Property Get or Property Set, laid over the 64 bytes of [`Sqe`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PropertyCommand {
    /// 7Fh.
    pub opcode: u8,
    /// Flags.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// 04h Get, 00h Set.
    pub fctype: u8,
    _rsvd5: [u8; 35],
    /// Size in bits 2:0: 0 is 4 bytes, 1 is 8 bytes.
    pub attrib: u8,
    _rsvd41: [u8; 3],
    /// Offset of the property; see `registers::Property`.
    pub ofst: U32,
    /// Property Set: the value. Low 4 bytes for a 4-byte property.
    pub value: U64,
    _rsvd56: [u8; 8],
}

impl PropertyCommand {
    fn base(cid: CommandId, fctype: FabricsType, ofst: u32, size: PropertySize) -> PropertyCommand {
        let mut c = PropertyCommand::zeroed();
        c.opcode = FABRICS;
        c.flags = Psdt::SglMptrAddress.code() << 6;
        c.cid = U16::new(cid.0);
        c.fctype = fctype.code();
        c.attrib = match size {
            PropertySize::Four => 0,
            PropertySize::Eight => 1,
        };
        c.ofst = U32::new(ofst);
        c
    }

    /// Builds Property Get.
    #[must_use]
    pub fn get(cid: CommandId, ofst: u32, size: PropertySize) -> PropertyCommand {
        PropertyCommand::base(cid, FabricsType::PropertyGet, ofst, size)
    }

    /// Builds Property Set.
    #[must_use]
    pub fn set(cid: CommandId, ofst: u32, size: PropertySize, value: u64) -> PropertyCommand {
        let mut c = PropertyCommand::base(cid, FabricsType::PropertySet, ofst, size);
        c.value = U64::new(value);
        c
    }

    /// The size asked for; reserved values are Invalid Field.
    pub fn size(&self) -> Result<PropertySize, Status> {
        match self.attrib & 0b111 {
            0 => Ok(PropertySize::Four),
            1 => Ok(PropertySize::Eight),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

/// Disconnect, laid over the 64 bytes of [`Sqe`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DisconnectCommand {
    /// 7Fh.
    pub opcode: u8,
    /// Flags.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// 08h.
    pub fctype: u8,
    _rsvd5: [u8; 35],
    /// Record format, 0.
    pub recfmt: U16,
    _rsvd42: [u8; 22],
}

impl DisconnectCommand {
    /// Builds the command.
    #[must_use]
    pub fn new(cid: CommandId) -> DisconnectCommand {
        let mut c = DisconnectCommand::zeroed();
        c.opcode = FABRICS;
        c.flags = Psdt::SglMptrAddress.code() << 6;
        c.cid = U16::new(cid.0);
        c.fctype = FabricsType::Disconnect.code();
        c
    }
}

macro_rules! over_sqe {
    ($($ty:ty),+) => {
        $(
            impl $ty {
                /// The same 64 bytes as a Fabrics command.
                #[must_use]
                pub fn of(sqe: &Sqe) -> &$ty {
                    zerocopy::transmute_ref!(sqe)
                }

                /// The same 64 bytes as a submission entry.
                #[must_use]
                pub fn as_sqe(&self) -> &Sqe {
                    zerocopy::transmute_ref!(self)
                }
            }
        )+
    };
}
over_sqe!(ConnectCommand, PropertyCommand, DisconnectCommand);

/// Where Connect's data is: 1024 bytes, in the capsule or by transport. Another length is Data SGL Length
/// Invalid.
pub fn connect_data_pointer(sqe: &Sqe, capsule_data: u32) -> Result<DataPointer, Status> {
    let data = DataPointer::parse(sqe, capsule_data)?;
    if data.len() as usize == ConnectData::SIZE { Ok(data) } else { Err(Status::DATA_SGL_LENGTH_INVALID) }
}

wire! {
    ConnectCommand = 64, "Connect command";
    ConnectData = 1024, "Connect data";
    PropertyCommand = 64, "Property command";
    DisconnectCommand = 64, "Disconnect command";
}
