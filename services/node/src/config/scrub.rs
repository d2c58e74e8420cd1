//! `[scrub]`: how often and how fast all copies are verified.

use std::time::Duration;

use super::ScrubSettings;
use super::check::Check;
use super::document::ScrubTable;
use super::quantity::parse_size;

/// Bytes per second, of all copies of all volumes together, unless the file says otherwise: little beside what a device
/// reads, and 36 TiB per week.
const RATE: u64 = 64 << 20;

/// Slowest rate, in bytes per second: at less, a pass takes longer than devices live.
const RATE_MIN: u64 = 1 << 20;

/// Hours from the begin of a pass to that of the next, unless the file says otherwise: a week.
const INTERVAL_H: u32 = 7 * 24;

/// Longest interval, in hours: a year.
const INTERVAL_H_MAX: u32 = 365 * 24;

pub(super) fn settings(check: &mut Check<'_>, table: &ScrubTable) -> Option<ScrubSettings> {
    let enabled = table.enabled.as_ref().is_none_or(|enabled| *enabled.get_ref());
    let mut bytes_per_s = RATE;
    if let Some(rate) = &table.rate
        && let Some(bytes) = check.accept(rate.span(), parse_size(rate.get_ref()))
    {
        if bytes < RATE_MIN {
            let message = format!("{:?} is not allowed; allowed is at least 1 MiB", rate.get_ref());
            check.refuse(rate.span(), message);
        }
        bytes_per_s = bytes;
    }
    let hours = check.integer(table.interval_h.as_ref(), 0..=INTERVAL_H_MAX, INTERVAL_H);
    let interval = Duration::from_secs(u64::from(hours) * 3600);
    enabled.then_some(ScrubSettings { bytes_per_s, interval })
}
