//! The fault atlas: which fault may strike which zone of a device, and what must then come of it.
//!
//! A simulator that injects what nobody promised to survive finds failures that are none. So the injector draws only
//! from this table: with one replica and with two it says, zone by zone, what the engine owes, and why.

use std::fmt;

/// What lies where on a device (docs/on-disk-format.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zone {
    /// The copies of the superblock.
    Superblock,
    /// Which shards a lane knows and which slabs it owns.
    Catalog,
    /// The roots of checkpoints.
    Root,
    /// The ring of journal blocks.
    Journal,
    /// Headers of slabs.
    SlabHeader,
    /// Pages of the extent table.
    TablePage,
    /// Pages of block checksums.
    ChecksumPage,
    /// Extents.
    Data,
}

impl Zone {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Superblock,
        Self::Catalog,
        Self::Root,
        Self::Journal,
        Self::SlabHeader,
        Self::TablePage,
        Self::ChecksumPage,
        Self::Data,
    ];
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Zone::Superblock => "superblock",
            Zone::Catalog => "catalog",
            Zone::Root => "root",
            Zone::Journal => "journal",
            Zone::SlabHeader => "slab header",
            Zone::TablePage => "table page",
            Zone::ChecksumPage => "checksum page",
            Zone::Data => "data",
        })
    }
}

/// What a device can do to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A read fails once.
    ReadErrorOnce,
    /// A block cannot be read until it is written again.
    ReadErrorUntilWritten,
    /// A write fails once; its blocks are old or new.
    WriteErrorOnce,
    /// Bits changed on the medium.
    Rot,
    /// A write is acknowledged and lands elsewhere in the same zone.
    MisdirectedWrite,
    /// A write is acknowledged and never lands.
    LostWrite,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ReadErrorOnce,
        Self::ReadErrorUntilWritten,
        Self::WriteErrorOnce,
        Self::Rot,
        Self::MisdirectedWrite,
        Self::LostWrite,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::ReadErrorOnce => "read error",
            Fault::ReadErrorUntilWritten => "read error until written",
            Fault::WriteErrorOnce => "write error",
            Fault::Rot => "rot",
            Fault::MisdirectedWrite => "misdirected write",
            Fault::LostWrite => "lost write",
        })
    }
}

/// What must come of a fault. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owed {
    /// Nothing is noticed but in counters.
    Served,
    /// A request that needs the block fails with a typed error; nothing wrong is served, the rest goes on.
    Reported,
    /// The lane stops or does not open, and says why; nothing wrong is served.
    Stopped,
    /// Nothing is promised: never injected.
    Nothing,
}

/// How many replicas there are, the injected faults all being on one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// The faulty one alone.
    One,
    /// Another that is in sync and free of faults.
    Two,
}

/// A row of the atlas.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Which zones.
    pub zones: &'static [Zone],
    /// Which faults.
    pub faults: &'static [Fault],
    /// What is owed with one replica.
    pub one: Owed,
    /// What is owed with two.
    pub two: Owed,
    /// Why.
    pub reason: &'static str,
}

use Fault::{LostWrite, MisdirectedWrite, ReadErrorOnce, ReadErrorUntilWritten, Rot, WriteErrorOnce};
use Owed::{Nothing, Reported, Served, Stopped};
use Zone::{Catalog, ChecksumPage, Data, Journal, Root, SlabHeader, Superblock, TablePage};

/// Faults that leave a block unreadable, or readable and wrong in a way that its own CRC shows.
const UNREADABLE: &[Fault] = &[ReadErrorUntilWritten, Rot];

/// The table. Each pair of zone and fault stands in one row.
pub const ATLAS: &[Entry] = &[
    Entry {
        zones: &[Superblock],
        faults: &[ReadErrorOnce, ReadErrorUntilWritten, WriteErrorOnce, Rot, MisdirectedWrite, LostWrite],
        one: Served,
        two: Served,
        reason: "four copies, written one after the other; the highest valid generation wins (S17)",
    },
    Entry {
        zones: &[Catalog, Root, SlabHeader, TablePage, ChecksumPage],
        faults: &[WriteErrorOnce],
        one: Served,
        two: Served,
        reason: "the other slot is still valid (S4): the checkpoint starts again, the journal keeps its tail",
    },
    Entry {
        zones: &[Catalog, Root, SlabHeader, Journal],
        faults: &[ReadErrorOnce],
        one: Stopped,
        two: Served,
        reason: "read at open alone: an open that failed is tried again; with a peer the replica is absent until then",
    },
    Entry {
        zones: &[Catalog, Root, SlabHeader],
        faults: UNREADABLE,
        one: Stopped,
        two: Served,
        reason: "what it says cannot be guessed: the lane does not open, the peer holds everything (R4)",
    },
    Entry {
        zones: &[Catalog, Root, SlabHeader],
        faults: &[MisdirectedWrite, LostWrite],
        one: Nothing,
        two: Nothing,
        reason: "an older slot is valid in itself, and what followed it in the journal may be overwritten: only a \
                 read after each write would show it",
    },
    Entry {
        zones: &[TablePage, ChecksumPage],
        faults: &[ReadErrorOnce, ReadErrorUntilWritten, Rot, MisdirectedWrite, LostWrite],
        one: Reported,
        two: Served,
        reason: "CRC, address and generation are checked against the entry or root that names the page (S4); a bad one \
                 is fetched from a peer",
    },
    Entry {
        zones: &[Journal],
        faults: &[WriteErrorOnce],
        one: Stopped,
        two: Served,
        reason: "nothing after it can be acknowledged (S5): the lane stops, the peer goes on",
    },
    Entry {
        zones: &[Journal],
        faults: &[ReadErrorUntilWritten, Rot, MisdirectedWrite, LostWrite],
        one: Stopped,
        two: Served,
        reason: "a gap at or below a later acked-through makes the replica stale (S5); above it nothing was acknowledged",
    },
    Entry {
        zones: &[Data],
        faults: &[ReadErrorOnce, WriteErrorOnce],
        one: Reported,
        two: Served,
        reason: "the request fails where there is no other copy (D4)",
    },
    Entry {
        zones: &[Data],
        faults: &[ReadErrorUntilWritten, Rot],
        one: Reported,
        two: Served,
        reason: "the checksum shows it; repaired from the peer (D4)",
    },
    Entry {
        zones: &[Data],
        faults: &[MisdirectedWrite, LostWrite],
        one: Nothing,
        two: Served,
        reason: "after a crash an acknowledged record whose data did not land is like one that was in flight (S1): \
                 alone, the old bytes are all there is; with a peer the newest valid data wins",
    },
];

/// What is owed when `fault` strikes `zone`.
pub fn owed(zone: Zone, fault: Fault, replicas: Replicas) -> Owed {
    let row = ATLAS.iter().find(|row| row.zones.contains(&zone) && row.faults.contains(&fault));
    match (row, replicas) {
        (Some(row), Replicas::One) => row.one,
        (Some(row), Replicas::Two) => row.two,
        (None, _) => Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_in_every_zone_stands_in_one_row() {
        for zone in Zone::ALL {
            for fault in Fault::ALL {
                let rows =
                    ATLAS.iter().filter(|row| row.zones.contains(&zone) && row.faults.contains(&fault));
                assert_eq!(rows.count(), 1, "{fault} in the {zone}");
            }
        }
    }

    #[test]
    fn second_replica_never_makes_it_worse() {
        for row in ATLAS {
            assert!(row.two <= row.one, "{}", row.reason);
        }
    }
}
