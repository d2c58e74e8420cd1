//! Commands of the NVM command set: typed views of a submission entry, and builders for the host.

use crate::command::Sqe;
use crate::ids::{CommandId, Lba, Nsid};
use crate::opcode::NvmOpcode;
use crate::sgl::DataPointer;
use crate::wire::{Wire, bits, wire};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bits! {
    /// Dword 12 of Read, Write, Compare, Verify and Write Zeroes (NVM Command Set 1.0 §3.2).
    RwControl: u32 {
        /// NLB, 0-based number of logical blocks.
        nlb, with_nlb: 0..16 as u16;
        /// STC: check the storage tag.
        stc, with_stc: 24..1 as bool;
        /// DEAC: deallocate; Write Zeroes only.
        deac, with_deac: 25..1 as bool;
        /// PRINFO: protection information action and checks.
        prinfo, with_prinfo: 26..4 as u8;
        /// FUA: force unit access.
        fua, with_fua: 30..1 as bool;
        /// LR: limited retry.
        lr, with_lr: 31..1 as bool;
    }
}

/// A range of logical blocks that a Read, Write, Compare, Verify or Write Zeroes names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwCommand {
    /// First logical block.
    pub slba: Lba,
    /// Number of blocks, 1–65536 (the wire's NLB is one less).
    pub nlb: u32,
    /// The rest of dword 12.
    pub control: RwControl,
}

impl RwCommand {
    /// The range and flags that `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> RwCommand {
        let control = RwControl(sqe.cdw12.get());
        RwCommand { slba: Lba(sqe.cdw10_11()), nlb: u32::from(control.nlb()) + 1, control }
    }

    /// The block after the last, or nothing if the range wraps.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.slba.0.checked_add(u64::from(self.nlb))
    }

    /// Whether the range is inside a namespace of `nsze` blocks; else LBA Out of Range.
    #[must_use]
    pub fn fits(&self, nsze: u64) -> bool {
        self.end().is_some_and(|end| end <= nsze)
    }

    /// Bytes of data at `1 << lbads` bytes per block.
    #[must_use]
    pub fn bytes(&self, lbads: u8) -> u64 {
        u64::from(self.nlb).checked_shl(u32::from(lbads)).unwrap_or(u64::MAX)
    }

    /// Force unit access.
    #[must_use]
    pub fn fua(&self) -> bool {
        self.control.fua()
    }

    /// Deallocate (Write Zeroes).
    #[must_use]
    pub fn deac(&self) -> bool {
        self.control.deac()
    }

    /// Builds the entry for `opcode`. `nlb` 0 and above 65536 are taken as the nearest limit.
    #[must_use]
    pub fn to_sqe(&self, opcode: NvmOpcode, cid: CommandId, nsid: Nsid, data: DataPointer) -> Sqe {
        let mut sqe = Sqe::new(opcode.code(), cid, nsid);
        sqe.set_cdw10_11(self.slba.0);
        let nlb0 = self.nlb.clamp(1, 65536) - 1;
        sqe.cdw12 = U32::new(self.control.with_nlb(nlb0 as u16).0);
        sqe.dptr = data.descriptor();
        sqe
    }
}

/// Most ranges of one Dataset Management command (NVM Command Set 1.0 §3.2.3).
pub const DSM_RANGES_MAX: usize = 256;

bits! {
    /// Dword 11 of Dataset Management: what the ranges are for.
    DsmAttributes: u32 {
        /// IDR: integral dataset for read.
        idr, with_idr: 0..1 as bool;
        /// IDW: integral dataset for write.
        idw, with_idw: 1..1 as bool;
        /// AD: deallocate.
        ad, with_ad: 2..1 as bool;
    }
}

/// Dataset Management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DsmCommand {
    /// Number of ranges, 1–256 (the wire's NR is one less).
    pub nr: u16,
    /// What they are for.
    pub attributes: DsmAttributes,
}

impl DsmCommand {
    /// What `sqe` carries.
    #[must_use]
    pub fn from_sqe(sqe: &Sqe) -> DsmCommand {
        let nr = u16::from(sqe.cdw10.get() as u8) + 1;
        DsmCommand { nr, attributes: DsmAttributes(sqe.cdw11.get()) }
    }

    /// Bytes of the range list.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        u32::from(self.nr) * DsmRange::SIZE as u32
    }

    /// Builds the entry. `nr` 0 and above 256 are taken as the nearest limit.
    #[must_use]
    pub fn to_sqe(&self, cid: CommandId, nsid: Nsid, data: DataPointer) -> Sqe {
        let mut sqe = Sqe::new(NvmOpcode::DatasetManagement.code(), cid, nsid);
        sqe.cdw10 = U32::new(u32::from(self.nr.clamp(1, 256) - 1));
        sqe.cdw11 = U32::new(self.attributes.0);
        sqe.dptr = data.descriptor();
        sqe
    }
}

/// One range of Dataset Management, 16 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes (hints).
    pub cattr: U32,
    /// Number of logical blocks; not 0-based, 0 is an empty range.
    pub nlb: U32,
    /// First logical block.
    pub slba: U64,
}

impl DsmRange {
    /// A range without hints.
    #[must_use]
    pub fn new(slba: Lba, nlb: u32) -> DsmRange {
        DsmRange { cattr: U32::new(0), nlb: U32::new(nlb), slba: U64::new(slba.0) }
    }

    /// Whether the range is inside a namespace of `nsze` blocks.
    #[must_use]
    pub fn fits(&self, nsze: u64) -> bool {
        self.slba.get().checked_add(u64::from(self.nlb.get())).is_some_and(|end| end <= nsze)
    }

    /// The whole ranges in `bytes`, in place; a broken rest is left out.
    #[must_use]
    pub fn slice_from(bytes: &[u8]) -> &[DsmRange] {
        let whole = bytes.len() / DsmRange::SIZE;
        <[DsmRange]>::ref_from_prefix_with_elems(bytes, whole).map(|(r, _)| r).unwrap_or(&[])
    }
}

/// Builds Flush.
#[must_use]
pub fn flush(cid: CommandId, nsid: Nsid) -> Sqe {
    Sqe::new(NvmOpcode::Flush.code(), cid, nsid)
}

wire! { DsmRange = 16, "Dataset Management range"; }
