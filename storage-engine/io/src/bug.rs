//! Deliberate bugs: each breaks one rule of PROTOCOL.md, so that the simulator can show that it would notice.

use std::fmt;
use std::str::FromStr;

macro_rules! bugs {
    ($($(#[$doc:meta])+ $name:ident = $rule:literal,)+) => {
        /// A rule that code leaves out where [`crate::World::bug`] says so. Only the simulator's world ever does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug {
            $($(#[$doc])+ $name,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name, as [`FromStr`] reads it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// The rule of PROTOCOL.md that it breaks.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$name => $rule,)+
                }
            }
        }
    };
}

bugs! {
    /// A write counts as complete before every in-sync replica has accepted it.
    AcknowledgeBeforeAll = "S1",
    /// The landed mark covers records whose data is still on its way.
    MarkLandedEarly = "S1",
    /// Recovery compares a block with its newest record only, not with the chain down to the floor.
    JudgeRecordsSingly = "S1",
    /// The journal's tail passes an uncommitted record without a copy of it at the head.
    TailPassesUncommitted = "S1",
    /// Recovery reports only records whose data is valid.
    HideInvalidTail = "S1",
    /// Extents that were open at a crash are not marked suspect.
    ForgetSuspect = "S2",
    /// Suspect marks do not survive a second crash.
    SuspectInMemoryOnly = "S2",
    /// With a single in-sync replica, data does not wait for its record.
    RecordAfterDataWhenSingle = "S2",
    /// Copies and repairs are applied without a version of the shard.
    AdoptWithoutVersion = "S3",
    /// A sequence that was given and not used leaves a hole.
    LeaveSequenceUnfilled = "S3",
    /// Metadata pages are written over their only valid copy.
    OneSlotPages = "S4",
    /// A checksum page is taken as it is, whatever generation and CRC its table entry names.
    AcceptStaleChecksumPage = "S4",
    /// The root is written before the pages that it names are durable.
    RootBeforePages = "S4",
    /// Real checksums with the value of a code are stored as they are.
    ChecksumCodeNotRemapped = "S4",
    /// Page images contain entries whose data has not landed.
    CheckpointUnlanded = "S4",
    /// The journal's incarnation is not raised at open.
    KeepOldIncarnation = "S5",
    /// A record is acknowledged although an earlier journal block is not durable yet.
    AcknowledgeOutOfOrder = "S5",
    /// A gap at or below *acked-through* counts as the journal's end.
    IgnoreGapBelowAcked = "S5",
    /// Replay takes a journal block that does not continue its predecessor's CRC.
    IgnoreBrokenChain = "S5",
    /// FUA does not flush a volatile cache.
    FuaWithoutFlush = "S6",
    /// An extent is closed, or the tail moves, before the data is flushed.
    CloseBeforeDataDurable = "S6",
    /// Data goes out while its open record is still volatile.
    OpenNotFlushed = "S6",
    /// An extent is reused before its free record is durable.
    ReuseBeforeFreeDurable = "S7",
    /// An extent is reused while I/O or discards on it are in flight.
    ReuseWhileBusy = "S7",
    /// Allocation keeps the checksum page of the extent's former life.
    KeepChecksumsAtAllocation = "S7",
    /// A slab is taken before its release by the former lane is durable.
    TakeSlabBeforeReleaseDurable = "S7",
    /// Replay applies records of a slab's older owner.
    ReplayOldOwner = "S7",
    /// Stored checksums do not contain the identity of the block.
    IdentityNotMixed = "S7",
    /// The visible checksum changes when a write starts.
    ShowChecksumEarly = "S8",
    /// Repair and scrub rewrite after one mismatch, without a confirming read.
    RepairWithoutReread = "S8",
    /// A device that tears blocks is written in place, without logging the data first.
    PlaceTornProne = "S9",
    /// An overwrite reads its checksum page.
    ReadPageOnOverwrite = "S10",
    /// Each record has a journal block of its own.
    JournalRecordsSingly = "S10",
    /// A cold read waits for the checksum page before it reads data.
    ColdReadInTurn = "S11",
    /// An extent with old data is written without an open record.
    SkipOpenRecord = "S12",
    /// A block that read as zeroes until a write that may not have landed is overwritten without waiting for
    /// the record.
    OverwriteFreshUnrecorded = "S12",
    /// Blocks that catch-up skipped as equal are not compared by hash.
    SkipHashProof = "S13",
    /// A freed extent with a parent leaves no tombstone.
    ForgetDeallocations = "S14",
    /// Ordinary records use the journal's reserve.
    FillJournalReserve = "S15",
    /// An open extent is not marked in the table when the tail passes its record.
    DropOpenWithTail = "S15",
    /// Capacity Exceeded is said while another lane has free extents.
    CapacityBeforeHandover = "S16",
    /// Growing writes the front copies of the superblock first.
    GrowFrontFirst = "S17",
    /// A device is opened while I/O of a predecessor may be in flight.
    OpenBusyDevice = "S18",
    /// A new instance of a replica counts as in sync.
    TrustReturnedInstance = "R3",
    /// A replica with an absent device answers for the shards concerned.
    ServeIncomplete = "R4",
    /// The base passes sequences that were not applied.
    HoleInBase = "R5",
    /// The base advances before catch-up has finished.
    BaseDuringCatchUp = "R5",
    /// Only extents that changed on the target's side are compared.
    CompareOneSide = "R5",
    /// Extents that the target no longer has stay on a returning replica.
    KeepFreedExtents = "R5",
    /// A copy is applied over blocks that were written since the comparison.
    CopyOvertakesWrite = "R7",
    /// Catch-up frees an extent that was written since the comparison.
    FreeRacingWrite = "R7",
    /// A takeover equalises doubtful writes only, not zeroed or deallocated blocks.
    EqualiseWritesOnly = "R8",
    /// A shard opens before its doubtful blocks are equal.
    OpenBeforeEqual = "R8",
    /// A read does not wait for an overlapping write in flight.
    ReadInFlight = "R11",
    /// A replica that is not in sync answers reads.
    ReadStaleReplica = "R11",
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no deliberate bug of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no deliberate bug is called {0}")]
pub struct UnknownBug(pub String);

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|bug| bug.name() == name);
        found.copied().ok_or_else(|| UnknownBug(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_bugs() {
        for &bug in Bug::ALL {
            assert_eq!(bug.name().parse(), Ok(bug));
        }
        assert_eq!("Unheard".parse::<Bug>(), Err(UnknownBug("Unheard".to_owned())));
    }

    #[test]
    fn every_rule_of_the_store_has_a_bug() {
        for number in 1..=18 {
            let rule = format!("S{number}");
            assert!(Bug::ALL.iter().any(|bug| bug.rule() == rule), "{rule} has none");
        }
    }
}
