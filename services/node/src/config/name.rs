//! What people call pools and volumes.

use std::fmt;

/// Bytes of the longest name.
const NAME_BYTES_MAX: usize = 63;

/// A name: 1 to 63 lower-case letters, digits, `-`, `_` and `.`, beginning with a letter or digit. It goes into NQNs
/// and metrics as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name; allowed are 1 to {NAME_BYTES_MAX} lower-case letters, digits, \"-\", \"_\" and \".\", \
     beginning with a letter or digit"
)]
pub struct NameError(String);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// If it has another form.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        let first =
            text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let rest = text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte));
        if first && rest && text.len() <= NAME_BYTES_MAX {
            return Ok(Name(text.to_owned()));
        }
        Err(NameError(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "0", "db-1", "pool_a.b", &"a".repeat(63)] {
            assert!(Name::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".", "A", "a b", "a/b", "ä", &"a".repeat(64)] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }
}
