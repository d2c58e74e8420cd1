//! Which blocks are in doubt when a shard opens, and whose bytes are the newest: decisions alone, no I/O.
//!
//! A member vouches for a version of each block: that of the newest record in its tail whose data is there, or, with
//! no such record, for everything up to its commit watermark. Whoever vouches for the newest has what all get
//! (PROTOCOL S1, R8). An acknowledged write is in the tail of every member or below its watermark, with its data, so
//! it is never passed over.

use std::collections::BTreeMap;

use ashlar_store::lane::{Origin, TailKind, Verdict};
use ashlar_store::{Blocks, EXTENT_BLOCKS, Version};

use crate::peer::Report;

/// The blocks of an extent that are in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt(Box<[bool; EXTENT_BLOCKS as usize]>);

impl Doubt {
    fn new() -> Self {
        Self(Box::new([false; EXTENT_BLOCKS as usize]))
    }

    fn add(&mut self, blocks: Blocks) {
        self.0[blocks.indices()].fill(true);
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        self.0.get(block as usize).copied().unwrap_or(false)
    }

    pub(crate) fn is_all(&self) -> bool {
        self.0.iter().all(|&doubtful| doubtful)
    }
}

/// What counts as doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything in anybody's tail.
    All,
    /// Written blocks only: a deliberate bug.
    WritesOnly,
}

/// The doubtful blocks of a shard, by extent.
pub(crate) fn doubts<'a>(
    reports: impl IntoIterator<Item = &'a Report>,
    scope: Scope,
) -> BTreeMap<u32, Doubt> {
    let mut doubts = BTreeMap::new();
    for record in reports.into_iter().flat_map(|report| &report.tail) {
        let blocks = match &record.kind {
            TailKind::Write { blocks, .. } => *blocks,
            TailKind::Zero { blocks } if scope == Scope::All => *blocks,
            TailKind::Free if scope == Scope::All => Blocks::ALL,
            _ => continue,
        };
        doubts.entry(record.extent).or_insert_with(Doubt::new).add(blocks);
    }
    doubts
}

/// For each block of an extent, the version that a member vouches for.
pub(crate) type Vouched = Vec<Option<Version>>;

/// What `report` vouches for in `extent`.
pub(crate) fn vouched(report: &Report, extent: u32) -> Vouched {
    let mut vouched = vec![Some(report.committed); EXTENT_BLOCKS as usize];
    for record in report.tail.iter().filter(|record| record.extent == extent) {
        match &record.kind {
            TailKind::Write { blocks, sums } => {
                for (block, (_, verdict)) in vouched[blocks.indices()].iter_mut().zip(sums) {
                    match verdict {
                        Verdict::Valid => *block = Some(record.version),
                        Verdict::NotLanded => {}
                        Verdict::Bad => *block = None,
                    }
                }
            }
            TailKind::Zero { blocks } => vouched[blocks.indices()].fill(Some(record.version)),
            TailKind::Free => vouched.fill(Some(record.version)),
            TailKind::Empty => {}
        }
    }
    vouched
}

/// The members that vouch for `block`, the newest first.
pub(crate) fn order(vouched: &[Vouched], block: u32) -> Vec<usize> {
    let of = |index: usize| vouched[index].get(block as usize).copied().flatten();
    let mut order: Vec<usize> = (0..vouched.len()).filter(|&index| of(index).is_some()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(of(index)), index));
    order
}

/// The last sequence number up to which a member has everything.
pub(crate) fn end(report: &Report) -> u64 {
    let mut numbers: Vec<u64> = report
        .tail
        .iter()
        .filter(|record| record.origin == Origin::Shard)
        .map(|record| record.version.sequence)
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .fold(report.committed.sequence, |end, number| if number == end + 1 { number } else { end })
}

/// The highest version that a member has seen in any place.
pub(crate) fn highest(report: &Report) -> Version {
    let tail = report.tail.iter().map(|record| record.version);
    let extents = report.extents.iter().map(|extent| extent.last);
    tail.chain(extents).chain(report.base).fold(report.committed, |highest, version| Version {
        epoch: highest.epoch.max(version.epoch),
        sequence: highest.sequence.max(version.sequence),
    })
}

#[cfg(test)]
mod tests {
    use ashlar_store::Stored;
    use ashlar_store::lane::TailRecord;

    use super::*;

    fn version(sequence: u64) -> Version {
        Version { epoch: 1, sequence }
    }

    fn write(sequence: u64, block: u32, verdict: Verdict) -> TailRecord {
        let blocks = Blocks::new(block, 1).expect("within an extent");
        let kind = TailKind::Write { blocks, sums: vec![(Stored(7), verdict)] };
        TailRecord { extent: 0, version: version(sequence), origin: Origin::Shard, kind }
    }

    fn report(committed: u64, tail: Vec<TailRecord>) -> Report {
        Report { committed: version(committed), tail, ..Report::blank() }
    }

    fn newest(reports: &[Report], block: u32) -> Option<usize> {
        let vouched: Vec<_> = reports.iter().map(|report| vouched(report, 0)).collect();
        order(&vouched, block).first().copied()
    }

    #[test]
    fn the_newest_version_with_valid_data_wins() {
        let behind = report(4, vec![write(5, 3, Verdict::Valid)]);
        let ahead = report(4, vec![write(5, 3, Verdict::NotLanded), write(6, 3, Verdict::Valid)]);
        assert_eq!(newest(&[behind.clone(), ahead], 3), Some(1));
        let torn = report(4, vec![write(5, 3, Verdict::Bad), write(6, 3, Verdict::Bad)]);
        assert_eq!(newest(&[torn, behind], 3), Some(1));
    }

    #[test]
    fn a_watermark_vouches_for_what_is_below_it() {
        let lost_it = report(4, vec![write(5, 3, Verdict::NotLanded)]);
        let committed = report(6, vec![]);
        assert_eq!(newest(&[lost_it, committed], 3), Some(1));
    }

    #[test]
    fn zeroes_count_like_writes() {
        let zero = TailRecord {
            extent: 0,
            version: version(6),
            origin: Origin::Shard,
            kind: TailKind::Zero { blocks: Blocks::ALL },
        };
        let zeroed = report(4, vec![zero, write(7, 0, Verdict::NotLanded)]);
        let older = report(4, vec![write(5, 0, Verdict::Valid)]);
        let reports = [older, zeroed];
        assert_eq!(newest(&reports, 0), Some(1));
        assert!(doubts(&reports, Scope::All)[&0].is_all());
        assert!(!doubts(&reports, Scope::WritesOnly)[&0].contains(1));
    }

    #[test]
    fn a_member_ends_before_its_first_hole() {
        let holed = report(4, vec![write(5, 0, Verdict::Valid), write(7, 0, Verdict::Valid)]);
        assert_eq!(end(&holed), 5);
        assert_eq!(highest(&holed).sequence, 7);
    }
}
