//! Lists that Identify returns, 4096 bytes each: namespaces, controllers, UUIDs, command set combinations.

use crate::ids::{Cntlid, Nsid};
use crate::wire::{Wire, wire};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Namespace ID list: ascending, zero-filled (NVMe Base 2.0 §4.4.2). Also the changed namespace list log.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NamespaceList {
    /// Identifiers; 0 ends the list.
    pub nsid: [U32; NamespaceList::MAX],
}

impl NamespaceList {
    /// Entries of a list.
    pub const MAX: usize = 1024;

    /// The first entries of `nsids`, which must ascend.
    #[must_use]
    pub fn from_ids(nsids: impl IntoIterator<Item = Nsid>) -> NamespaceList {
        let mut list = NamespaceList::zeroed();
        for (to, nsid) in list.nsid.iter_mut().zip(nsids) {
            *to = U32::new(nsid.0);
        }
        list
    }

    /// The list that says "more than fit": FFFFFFFFh and zeroes (NVME N11).
    #[must_use]
    pub fn overflow() -> NamespaceList {
        NamespaceList::from_ids([Nsid::BROADCAST])
    }

    /// Whether it says "more than fit".
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        self.nsid.first().is_some_and(|n| n.get() == Nsid::BROADCAST.0)
    }

    /// The identifiers.
    pub fn iter(&self) -> impl Iterator<Item = Nsid> + '_ {
        self.nsid.iter().map(|n| Nsid(n.get())).take_while(|n| n.0 != 0)
    }
}

/// Controller list: a count, then ascending identifiers (NVMe Base 2.0 §4.4.1).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ControllerList {
    /// Identifiers in the list.
    pub num: U16,
    /// Identifiers.
    pub cntlid: [U16; ControllerList::MAX],
}

impl ControllerList {
    /// Entries of a list.
    pub const MAX: usize = 2047;

    /// The first entries of `ids`, which must ascend.
    #[must_use]
    pub fn from_ids(ids: impl IntoIterator<Item = Cntlid>) -> ControllerList {
        let mut list = ControllerList::zeroed();
        let mut num = 0;
        for (to, id) in list.cntlid.iter_mut().zip(ids) {
            *to = U16::new(id.0);
            num += 1;
        }
        list.num = U16::new(num);
        list
    }

    /// The identifiers.
    pub fn iter(&self) -> impl Iterator<Item = Cntlid> + '_ {
        self.cntlid.iter().take(usize::from(self.num.get())).map(|c| Cntlid(c.get()))
    }
}

/// I/O command set combinations, CNS 1Ch: bit n of an entry is CSI n (NVMe Base 2.0 figure 291).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CommandSetList {
    /// Combinations; 0 ends the list.
    pub iocsc: [U64; 512],
}

impl CommandSetList {
    /// The one combination that holds only the NVM command set.
    #[must_use]
    pub fn nvm_only() -> CommandSetList {
        let mut list = CommandSetList::zeroed();
        if let Some(first) = list.iocsc.first_mut() {
            *first = U64::new(1);
        }
        list
    }
}

/// One entry of the UUID list.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UuidListEntry {
    /// Bits 1:0 association.
    pub header: u8,
    _rsvd1: [u8; 15],
    /// UUID in printed order; zero ends the list.
    pub uuid: [u8; 16],
}

/// UUID list, CNS 17h. Entry 0 is reserved.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UuidList {
    /// Entries.
    pub entry: [UuidListEntry; 128],
}

/// Secondary controller list, CNS 15h. We have none: only the count matters.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SecondaryControllerList {
    /// Entries in the list.
    pub num: u8,
    _rsvd1: [u8; 31],
    /// Entries of 32 bytes.
    pub entries: [[u8; 32]; 127],
}

wire! {
    NamespaceList = 4096, "namespace list";
    ControllerList = 4096, "controller list";
    CommandSetList = 4096, "I/O command set combinations";
    UuidListEntry = 32, "UUID list entry";
    UuidList = 4096, "UUID list";
    SecondaryControllerList = 4096, "secondary controller list";
}
