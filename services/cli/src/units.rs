//! Sizes, counts and durations: as people type them and as they are shown.

use std::time::Duration;

const KIB: u64 = 1 << 10;

/// Bytes: `4096`, `4k`, `4KiB`, `1m`, `32G`, `1t`; suffixes are powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, suffix) = split(text);
    let factor = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => KIB,
        "m" | "mi" | "mib" => KIB.pow(2),
        "g" | "gi" | "gib" => KIB.pow(3),
        "t" | "ti" | "tib" => KIB.pow(4),
        _ => return Err(format!("{text:?} is no size; write bytes, or a number with k, m, g or t")),
    };
    scaled(digits, factor).ok_or_else(|| format!("{text:?} is no size that fits 64 bits"))
}

/// A number of operations: `1000`, `10k`, `1m`; suffixes are powers of 1000.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, suffix) = split(text);
    let factor = match suffix.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        _ => return Err(format!("{text:?} is no count; write a number, or one with k or m")),
    };
    scaled(digits, factor).ok_or_else(|| format!("{text:?} is no count that fits 64 bits"))
}

/// A time: `10` and `10s` are seconds, also `500ms`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (digits, suffix) = split(text);
    let ms = match suffix.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} is no time; write seconds, or a number with ms, s, m or h")),
    };
    scaled(digits, ms)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is no time that fits 64 bits"))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    (digits, suffix.trim_start())
}

fn scaled(digits: &str, factor: u64) -> Option<u64> {
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Bytes in the largest unit that keeps them at 1 or above: `4 KiB`, `1.5 GiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{text} {}", UNITS.get(unit).copied().unwrap_or("EiB"))
}

/// Nanoseconds with at least three digits that count: `8.31 µs`, `146 µs`, `1.21 ms`.
pub(crate) fn show_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 1e3 => return format!("{ns:.0} ns"),
        _ if ns < 999.5e3 => (ns / 1e3, "µs"),
        _ if ns < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    match value {
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A whole number with its thousands apart: `1,104,233`.
pub(crate) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate in short: `985`, `812k`, `1.10M`.
pub(crate) fn show_rate(rate: f64) -> String {
    match rate {
        _ if rate < 9_999.5 => format!("{rate:.0}"),
        _ if rate < 999_500.0 => format!("{:.0}k", rate / 1e3),
        _ => format!("{:.2}M", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512b", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4 KiB", 4096),
            ("1m", 1 << 20),
            ("32GiB", 32 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "k", "-1", "4x", "1.5g", "99999999999999999999", "17000000t", "4 k k"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_powers_of_1000() {
        assert_eq!(parse_count("128"), Ok(128));
        assert_eq!(parse_count("100k"), Ok(100_000));
        assert_eq!(parse_count("2M"), Ok(2_000_000));
        assert!(parse_count("1g").is_err());
    }

    #[test]
    fn bare_durations_are_seconds() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("").is_err());
    }

    #[test]
    fn numbers_are_shown_with_units_that_fit() {
        assert_eq!(show_bytes(0), "0 B");
        assert_eq!(show_bytes(4096), "4 KiB");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
        assert_eq!(show_ns(830.0), "830 ns");
        assert_eq!(show_ns(8_310.0), "8.31 µs");
        assert_eq!(show_ns(48_040.0), "48.0 µs");
        assert_eq!(show_ns(146_400.0), "146 µs");
        assert_eq!(show_ns(999_900.0), "1.00 ms");
        assert_eq!(show_ns(2.5e9), "2.50 s");
        assert_eq!(show_count(7), "7");
        assert_eq!(show_count(1_104_233), "1,104,233");
        assert_eq!(show_rate(985.0), "985");
        assert_eq!(show_rate(812_345.0), "812k");
        assert_eq!(show_rate(1_104_233.0), "1.10M");
    }

    proptest::proptest! {
        #[test]
        fn parsers_never_panic(text in ".*") {
            let _ = (parse_size(&text), parse_count(&text), parse_duration(&text));
        }
    }
}
