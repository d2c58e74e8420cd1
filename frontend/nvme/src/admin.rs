//! Admin commands as typed views of a submission entry, and builders for the host.

use crate::command::Sqe;
use crate::feature::{FeatureId, Select};
use crate::identify::Cns;
use crate::ids::{Cntlid, CommandId, Nsid, Qid};
use crate::log::LogId;
use crate::opcode::AdminOpcode;
use crate::sgl::{DataPointer, SglDescriptor};
use zerocopy::little_endian::U32;

/// Identify (NVMe Base 2.0 §5.17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentifyCommand {
    /// CNS as received; [`Cns::try_from`] says whether it is defined.
    pub cns: u8,
    /// CNTID: controller the list starts at, or that is asked about.
    pub cntid: Cntlid,
    /// CNS specific identifier.
    pub cnssid: u16,
    /// Command set identifier.
    pub csi: u8,
    /// UUID index.
    pub uuid_index: u8,
}

impl IdentifyCommand {
    /// What `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> IdentifyCommand {
        let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
        IdentifyCommand {
            cns: cdw10 as u8,
            cntid: Cntlid((cdw10 >> 16) as u16),
            cnssid: cdw11 as u16,
            csi: (cdw11 >> 24) as u8,
            uuid_index: (sqe.cdw14.get() & 0x7F) as u8,
        }
    }

    /// An Identify of the NVM command set without further selectors.
    #[must_use]
    pub fn new(cns: Cns) -> IdentifyCommand {
        IdentifyCommand { cns: cns.code(), cntid: Cntlid(0), cnssid: 0, csi: 0, uuid_index: 0 }
    }

    /// Builds the entry; the answer is always 4096 bytes.
    #[must_use]
    pub fn to_sqe(&self, cid: CommandId, nsid: Nsid) -> Sqe {
        let mut sqe = Sqe::new(AdminOpcode::Identify.code(), cid, nsid);
        sqe.cdw10 = U32::new(u32::from(self.cns) | (u32::from(self.cntid.0) << 16));
        sqe.cdw11 = U32::new(u32::from(self.cnssid) | (u32::from(self.csi) << 24));
        sqe.cdw14 = U32::new(u32::from(self.uuid_index & 0x7F));
        sqe.dptr = SglDescriptor::transport(crate::identify::IDENTIFY_SIZE as u32);
        sqe
    }
}

/// Whether reading a log clears its events (RAE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetainEvent {
    /// RAE 0: the event is unmasked again (NVME N11).
    Clear,
    /// RAE 1: it stays masked.
    Retain,
}

/// What the log page offset counts (OT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OffsetType {
    /// Bytes.
    Bytes,
    /// Index of a list's entry.
    Index,
}

/// Get Log Page (NVMe Base 2.0 §5.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetLogPageCommand {
    /// LID as received; [`LogId::try_from`] says whether it is defined.
    pub lid: u8,
    /// Log specific field, 7 bits.
    pub lsp: u8,
    /// Retain asynchronous event.
    pub rae: RetainEvent,
    /// Length in bytes, 4–2^34 (the wire's NUMD is 0-based dwords).
    pub len: u64,
    /// Offset; bytes or index by `ot`.
    pub lpo: u64,
    /// Log specific identifier.
    pub lsi: u16,
    /// Unit of `lpo`.
    pub ot: OffsetType,
    /// Command set identifier.
    pub csi: u8,
    /// UUID index.
    pub uuid_index: u8,
}

impl GetLogPageCommand {
    /// `len` bytes of a log from `lpo` on, events cleared.
    #[must_use]
    pub fn new(lid: LogId, lpo: u64, len: u32) -> GetLogPageCommand {
        GetLogPageCommand {
            lid: lid.code(),
            lsp: 0,
            rae: RetainEvent::Clear,
            len: u64::from(len),
            lpo,
            lsi: 0,
            ot: OffsetType::Bytes,
            csi: 0,
            uuid_index: 0,
        }
    }

    /// What `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> GetLogPageCommand {
        let (cdw10, cdw11, cdw14) = (sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw14.get());
        let numd = u64::from(cdw10 >> 16) | (u64::from(cdw11 & 0xFFFF) << 16);
        GetLogPageCommand {
            lid: cdw10 as u8,
            lsp: ((cdw10 >> 8) & 0x7F) as u8,
            rae: if cdw10 & (1 << 15) == 0 { RetainEvent::Clear } else { RetainEvent::Retain },
            len: (numd + 1) * 4,
            lpo: u64::from(sqe.cdw12.get()) | (u64::from(sqe.cdw13.get()) << 32),
            lsi: (cdw11 >> 16) as u16,
            ot: if cdw14 & (1 << 23) == 0 { OffsetType::Bytes } else { OffsetType::Index },
            csi: (cdw14 >> 24) as u8,
            uuid_index: (cdw14 & 0x7F) as u8,
        }
    }

    /// Builds the entry. A length that is no multiple of 4 is rounded up; 0 is taken as 4.
    #[must_use]
    pub fn to_sqe(&self, cid: CommandId, nsid: Nsid) -> Sqe {
        let mut sqe = Sqe::new(AdminOpcode::GetLogPage.code(), cid, nsid);
        let numd = u32::try_from(self.len.div_ceil(4).max(1) - 1).unwrap_or(u32::MAX);
        let rae = match self.rae {
            RetainEvent::Clear => 0,
            RetainEvent::Retain => 1 << 15,
        };
        let ot = match self.ot {
            OffsetType::Bytes => 0,
            OffsetType::Index => 1 << 23,
        };
        let lsp = u32::from(self.lsp & 0x7F) << 8;
        sqe.cdw10 = U32::new(u32::from(self.lid) | lsp | rae | (numd << 16));
        sqe.cdw11 = U32::new((numd >> 16) | (u32::from(self.lsi) << 16));
        sqe.cdw12 = U32::new(self.lpo as u32);
        sqe.cdw13 = U32::new((self.lpo >> 32) as u32);
        sqe.cdw14 = U32::new(u32::from(self.uuid_index & 0x7F) | ot | (u32::from(self.csi) << 24));
        sqe.dptr = SglDescriptor::transport(u32::try_from(self.len).unwrap_or(u32::MAX));
        sqe
    }
}

/// Get Features (NVMe Base 2.0 §5.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetFeaturesCommand {
    /// FID as received.
    pub fid: u8,
    /// SEL as received, 3 bits; see [`Select`].
    pub sel: u8,
    /// Dword 11, feature specific.
    pub cdw11: u32,
}

impl GetFeaturesCommand {
    /// What `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> GetFeaturesCommand {
        let cdw10 = sqe.cdw10.get();
        GetFeaturesCommand { fid: cdw10 as u8, sel: ((cdw10 >> 8) & 7) as u8, cdw11: sqe.cdw11.get() }
    }

    /// Builds the entry. `data` is where the feature's data goes, if it has any.
    #[must_use]
    pub fn build(cid: CommandId, nsid: Nsid, fid: FeatureId, sel: Select, data: DataPointer) -> Sqe {
        let mut sqe = Sqe::new(AdminOpcode::GetFeatures.code(), cid, nsid);
        sqe.cdw10 = U32::new(u32::from(fid.code()) | (u32::from(sel.code()) << 8));
        sqe.dptr = data.descriptor();
        sqe
    }
}

/// Set Features (NVMe Base 2.0 §5.27).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetFeaturesCommand {
    /// FID as received.
    pub fid: u8,
    /// SV: save over power cycles.
    pub sv: bool,
    /// Dword 11, feature specific.
    pub cdw11: u32,
    /// Dword 12, feature specific.
    pub cdw12: u32,
}

impl SetFeaturesCommand {
    /// What `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> SetFeaturesCommand {
        let cdw10 = sqe.cdw10.get();
        SetFeaturesCommand {
            fid: cdw10 as u8,
            sv: cdw10 >> 31 == 1,
            cdw11: sqe.cdw11.get(),
            cdw12: sqe.cdw12.get(),
        }
    }

    /// Builds the entry without SV. `data` is where the feature's data is, if it has any.
    #[must_use]
    pub fn build(cid: CommandId, nsid: Nsid, fid: FeatureId, cdw11: u32, data: DataPointer) -> Sqe {
        let mut sqe = Sqe::new(AdminOpcode::SetFeatures.code(), cid, nsid);
        sqe.cdw10 = U32::new(u32::from(fid.code()));
        sqe.cdw11 = U32::new(cdw11);
        sqe.dptr = data.descriptor();
        sqe
    }
}

/// Abort (NVMe Base 2.0 §5.1): which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortCommand {
    /// Queue of the command.
    pub sqid: Qid,
    /// The command.
    pub cid: CommandId,
}

impl AbortCommand {
    /// DW0 of the completion when the command was not aborted (bit 0).
    pub const DW0_NOT_ABORTED: u32 = 1;
    /// DW0 when it was aborted.
    pub const DW0_ABORTED: u32 = 0;

    /// What `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> AbortCommand {
        let cdw10 = sqe.cdw10.get();
        AbortCommand { sqid: Qid(cdw10 as u16), cid: CommandId((cdw10 >> 16) as u16) }
    }

    /// Builds the entry.
    #[must_use]
    pub fn to_sqe(&self, cid: CommandId) -> Sqe {
        let mut sqe = Sqe::new(AdminOpcode::Abort.code(), cid, Nsid::NONE);
        sqe.cdw10 = U32::new(u32::from(self.sqid.0) | (u32::from(self.cid.0) << 16));
        sqe
    }
}

/// Builds Keep Alive.
#[must_use]
pub fn keep_alive(cid: CommandId) -> Sqe {
    Sqe::new(AdminOpcode::KeepAlive.code(), cid, Nsid::NONE)
}

/// Builds Asynchronous Event Request.
#[must_use]
pub fn async_event_request(cid: CommandId) -> Sqe {
    Sqe::new(AdminOpcode::AsyncEventRequest.code(), cid, Nsid::NONE)
}
