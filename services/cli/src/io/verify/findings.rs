//! What a check found: how many blocks of each kind, and which ones are wrong and how.

use serde::Serialize;

use super::pattern::{BLOCK_BYTES, Verdict, Wrong};
use crate::output::{self, Column};
use crate::units::{show_bytes, show_count};

/// Ranges of wrong blocks that are kept. More would only say again that the data is gone.
const RANGES_MAX: usize = 10_000;

/// Ranges that the table shows.
const RANGES_SHOWN: usize = 20;

/// Neighbouring blocks that are wrong in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Range {
    /// First byte in the namespace.
    offset: u64,
    /// Blocks.
    blocks: u64,
    /// Kind.
    kind: &'static str,
    /// What is there and what should be.
    detail: String,
}

/// Number of blocks of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Counts {
    good: u64,
    unacknowledged: u64,
    untouched: u64,
    stale: u64,
    lost: u64,
    misplaced: u64,
    torn: u64,
    corrupt: u64,
    foreign: u64,
    unreadable: u64,
}

/// What a check found. This is the JSON document of `ashlar io verify --phase check`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    counts: Counts,
    /// In the order in which they were found.
    wrong: Vec<(u64, Wrong)>,
    not_kept: u64,
}

fn kind(wrong: Wrong) -> &'static str {
    match wrong {
        Wrong::Stale { .. } => "stale",
        Wrong::Lost => "lost",
        Wrong::Misplaced { .. } => "misplaced",
        Wrong::Torn => "torn",
        Wrong::Corrupt => "corrupt",
        Wrong::Foreign => "foreign",
        Wrong::Unreadable => "unreadable",
    }
}

fn detail(wrong: Wrong) -> String {
    match wrong {
        Wrong::Stale { found, acknowledged } => {
            format!("generation {} is there, {} was acknowledged", found.0, acknowledged.0)
        }
        Wrong::Lost => "zeroes are there, a write was acknowledged".to_owned(),
        Wrong::Misplaced { belongs } => format!("what is there belongs to offset {belongs}"),
        Wrong::Torn => "parts of different writes are there".to_owned(),
        Wrong::Corrupt => "its checksum is wrong".to_owned(),
        Wrong::Foreign => "what is there was never written by this run".to_owned(),
        Wrong::Unreadable => "the target failed to read it".to_owned(),
    }
}

impl Findings {
    /// Notes the verdict on the block at `offset`.
    pub(crate) fn add(&mut self, offset: u64, verdict: Verdict) {
        let counts = &mut self.counts;
        let wrong = match verdict {
            Verdict::Good(_) => return counts.good += 1,
            Verdict::Unacknowledged(_) => return counts.unacknowledged += 1,
            Verdict::Untouched => return counts.untouched += 1,
            Verdict::Wrong(wrong) => wrong,
        };
        *match wrong {
            Wrong::Stale { .. } => &mut counts.stale,
            Wrong::Lost => &mut counts.lost,
            Wrong::Misplaced { .. } => &mut counts.misplaced,
            Wrong::Torn => &mut counts.torn,
            Wrong::Corrupt => &mut counts.corrupt,
            Wrong::Foreign => &mut counts.foreign,
            Wrong::Unreadable => &mut counts.unreadable,
        } += 1;
        if self.wrong.len() < RANGES_MAX {
            self.wrong.push((offset, wrong));
        } else {
            self.not_kept += 1;
        }
    }

    /// Number of wrong blocks.
    pub(crate) fn wrong(&self) -> u64 {
        let c = &self.counts;
        c.stale + c.lost + c.misplaced + c.torn + c.corrupt + c.foreign + c.unreadable
    }

    /// Blocks that hold what was acknowledged.
    pub(crate) fn good(&self) -> u64 {
        self.counts.good
    }

    fn ranges(&self) -> Vec<Range> {
        let mut wrong = self.wrong.clone();
        wrong.sort_unstable();
        let block = BLOCK_BYTES as u64;
        let mut ranges: Vec<Range> = Vec::new();
        for (offset, wrong) in wrong {
            let detail = detail(wrong);
            if let Some(last) = ranges.last_mut()
                && last.detail == detail
                && last.offset + last.blocks * block == offset
            {
                last.blocks += 1;
                continue;
            }
            ranges.push(Range { offset, blocks: 1, kind: kind(wrong), detail });
        }
        ranges
    }

    /// The counts in words, then the wrong blocks.
    pub(crate) fn table(&self) -> String {
        let c = &self.counts;
        let mut text = String::new();
        for (count, what) in [
            (c.good, "hold what was acknowledged"),
            (c.unacknowledged, "hold a write that was sent but never acknowledged"),
            (c.untouched, "were never acknowledged, and hold nothing of this run"),
            (c.stale, "are STALE: an older write than the acknowledged one"),
            (c.lost, "are LOST: zeroes where a write was acknowledged"),
            (c.misplaced, "are MISPLACED: they hold a block that belongs elsewhere"),
            (c.torn, "are TORN: parts of different writes"),
            (c.corrupt, "are CORRUPT: the pattern with a wrong checksum"),
            (c.foreign, "are FOREIGN: something that this run never wrote"),
            (c.unreadable, "are UNREADABLE: the target failed to read them"),
        ] {
            if count > 0 {
                text.push_str(&format!("{:>12} blocks {what}\n", show_count(count)));
            }
        }
        let ranges = self.ranges();
        if ranges.is_empty() {
            return text;
        }
        let mut table = output::table(&[
            Column::Number("offset"),
            Column::Number("bytes"),
            Column::Text("wrong"),
            Column::Text("how"),
        ]);
        for range in ranges.iter().take(RANGES_SHOWN) {
            let bytes = range.blocks * BLOCK_BYTES as u64;
            table.add_row([
                range.offset.to_string(),
                show_bytes(bytes),
                range.kind.to_owned(),
                range.detail.clone(),
            ]);
        }
        text.push('\n');
        text.push_str(&output::lines(&table));
        if ranges.len() > RANGES_SHOWN {
            text.push_str(&format!("and {} more ranges; -o json lists them\n", ranges.len() - RANGES_SHOWN));
        }
        text
    }
}

impl Serialize for Findings {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            block_bytes: usize,
            blocks: &'a Counts,
            wrong_blocks: u64,
            wrong: Vec<Range>,
            wrong_not_listed: u64,
        }
        let document = Document {
            block_bytes: BLOCK_BYTES,
            blocks: &self.counts,
            wrong_blocks: self.wrong(),
            wrong: self.ranges(),
            wrong_not_listed: self.not_kept,
        };
        document.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Generation;
    use super::*;

    fn stale(found: u32) -> Verdict {
        Verdict::Wrong(Wrong::Stale { found: Generation(found), acknowledged: Generation(5) })
    }

    #[test]
    fn neighbours_that_are_wrong_in_the_same_way_are_one_range() {
        let mut findings = Findings::default();
        // Found in any order.
        for (offset, verdict) in [
            (8192, stale(4)),
            (0, Verdict::Good(Generation(5))),
            (4096, stale(4)),
            (12288, stale(3)),
            (40960, stale(4)),
            (45056, Verdict::Wrong(Wrong::Lost)),
        ] {
            findings.add(offset, verdict);
        }
        let json = serde_json::to_value(&findings).expect("serializes");
        let ranges: Vec<_> = json["wrong"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|range| (range["offset"].as_u64(), range["blocks"].as_u64()))
            .collect();
        assert_eq!(
            ranges,
            [(Some(4096), Some(2)), (Some(12288), Some(1)), (Some(40960), Some(1)), (Some(45056), Some(1))]
        );
        assert_eq!(json["wrong"][0]["detail"], "generation 4 is there, 5 was acknowledged");
        assert_eq!(json["blocks"]["stale"], 4);
        assert_eq!(json["wrong_blocks"], 5);
    }

    #[test]
    fn the_table_says_how_each_block_is_wrong_and_fits() {
        let mut findings = Findings::default();
        for block in 0..100_u64 {
            findings.add(block * 8192, Verdict::Wrong(Wrong::Misplaced { belongs: u64::MAX }));
        }
        let text = findings.table();
        assert!(text.contains("100 blocks are MISPLACED") && text.contains("and 80 more ranges"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_wholly_wrong_namespace_does_not_fill_the_memory() {
        let mut findings = Findings::default();
        for block in 0..RANGES_MAX as u64 + 5 {
            findings.add(block * 8192, Verdict::Wrong(Wrong::Foreign));
        }
        assert_eq!((findings.wrong.len(), findings.not_kept), (RANGES_MAX, 5));
        assert_eq!(findings.wrong(), RANGES_MAX as u64 + 5);
    }
}
