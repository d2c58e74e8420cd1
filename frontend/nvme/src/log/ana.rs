//! Asymmetric namespace access log, 0Ch (NVMe Base 2.0 §5.16.1.13).

use crate::ids::Nsid;
use crate::wire::{DecodeError, Wire, coded, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

coded! {
    /// State of an ANA group as one controller sees it.
    AnaState: u8, "ANA state" {
        /// Optimized.
        Optimized = 0x1,
        /// Non-optimized.
        NonOptimized = 0x2,
        /// Inaccessible.
        Inaccessible = 0x3,
        /// Persistent loss.
        PersistentLoss = 0x4,
        /// Change.
        Change = 0xF,
    }
}

/// Header of the log, 16 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AnaLogHeader {
    /// Change count of the log.
    pub chgcnt: U64,
    /// Group descriptors that follow.
    pub ngrps: U16,
    _rsvd10: [u8; 6],
}

impl AnaLogHeader {
    /// A header.
    #[must_use]
    pub fn new(chgcnt: u64, ngrps: u16) -> AnaLogHeader {
        AnaLogHeader { chgcnt: U64::new(chgcnt), ngrps: U16::new(ngrps), _rsvd10: [0; 6] }
    }
}

/// Header of a group, 32 bytes; `nnsids` identifiers of 4 bytes follow, unless the host asked for groups
/// only.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AnaGroupDescriptor {
    /// Group identifier, ascending in the log.
    pub anagrpid: U32,
    /// Identifiers that follow.
    pub nnsids: U32,
    /// Change count of the group.
    pub chgcnt: U64,
    /// State in bits 3:0.
    pub state: u8,
    _rsvd17: [u8; 15],
}

impl AnaGroupDescriptor {
    /// A descriptor.
    #[must_use]
    pub fn new(anagrpid: u32, nnsids: u32, chgcnt: u64, state: AnaState) -> AnaGroupDescriptor {
        let mut d = AnaGroupDescriptor::zeroed();
        d.anagrpid = U32::new(anagrpid);
        d.nnsids = U32::new(nnsids);
        d.chgcnt = U64::new(chgcnt);
        d.state = state.code();
        d
    }

    /// The state.
    pub fn state(&self) -> Result<AnaState, DecodeError> {
        AnaState::try_from(self.state & 0xF)
    }
}

/// LSP bit RGO: return groups only, no namespace identifiers.
pub const LSP_GROUPS_ONLY: u8 = 1 << 0;

/// Reads the groups of a log; ends at the header's count or where the bytes end.
#[derive(Debug, Clone)]
pub struct AnaGroups<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> AnaGroups<'a> {
    /// Over the bytes of a log, header included.
    pub fn new(log: &'a [u8]) -> Result<AnaGroups<'a>, DecodeError> {
        let (header, rest) = AnaLogHeader::split_from(log)?;
        Ok(AnaGroups { rest, left: header.ngrps.get() })
    }
}

impl<'a> Iterator for AnaGroups<'a> {
    type Item = (&'a AnaGroupDescriptor, &'a [U32]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (group, rest) = AnaGroupDescriptor::split_from(self.rest).ok()?;
        let count = usize::try_from(group.nnsids.get()).ok()?;
        let (nsids, rest) = <[U32]>::ref_from_prefix_with_elems(rest, count).ok()?;
        self.rest = rest;
        Some((group, nsids))
    }
}

/// Bytes of a log with `groups` groups that hold `namespaces` namespaces together.
#[must_use]
pub const fn ana_log_bytes(groups: u64, namespaces: u64) -> u64 {
    (AnaLogHeader::SIZE as u64)
        .saturating_add(groups.saturating_mul(AnaGroupDescriptor::SIZE as u64))
        .saturating_add(namespaces.saturating_mul(size_of::<Nsid>() as u64))
}

wire! {
    AnaLogHeader = 16, "ANA log header";
    AnaGroupDescriptor = 32, "ANA group descriptor";
}
