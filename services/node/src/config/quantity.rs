//! Sizes as people write them: a whole number and its unit.

/// Units and their bytes.
const UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

/// Largest size: what a file offset can hold.
pub const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a whole number followed by a unit.
    #[error(
        "{0:?} is not a size: write a whole number and a unit (B, KiB, MiB, GiB, TiB, PiB, kB, MB, GB, TB, \
         PB), such as \"10 GiB\""
    )]
    Form(String),
    /// Larger than [`SIZE_BYTES_MAX`].
    #[error("{0:?} is too large: at most {SIZE_BYTES_MAX} B")]
    TooLarge(String),
}

/// Bytes of a size such as `10 GiB`.
///
/// # Errors
/// If it has another form or is too large.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let form = || SizeError::Form(text.to_owned());
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(form)?;
    let (digits, unit) = trimmed.split_at(digits_end);
    let (_, unit_bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(form)?;
    if digits.is_empty() {
        return Err(form());
    }
    // Only digits are left: what does not parse is too large.
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(*unit_bytes))
        .filter(|bytes| *bytes <= SIZE_BYTES_MAX)
        .ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_with_units_are_sizes() {
        assert_eq!(parse_size("10 GiB"), Ok(10 << 30));
        assert_eq!(parse_size("10GiB"), Ok(10 << 30));
        assert_eq!(parse_size(" 512 B "), Ok(512));
        assert_eq!(parse_size("2 TB"), Ok(2_000_000_000_000));
        assert_eq!(parse_size("0 B"), Ok(0));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "10", "GiB", "1.5 GiB", "-1 GiB", "10 gib", "10 G", "10 GiB x", "0x10 B", "٣ B"] {
            assert_eq!(parse_size(text), Err(SizeError::Form(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn sizes_beyond_a_file_offset_are_refused() {
        assert_eq!(parse_size("9223372036854775807 B"), Ok(SIZE_BYTES_MAX));
        for text in ["9223372036854775808 B", "8192 PiB", "99999999999999999999999 B"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.to_owned())), "{text:?}");
        }
    }
}
