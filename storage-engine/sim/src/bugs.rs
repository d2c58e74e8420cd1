//! Which rules a run leaves out on purpose.

use ashlar_io::Bug;

/// A set of deliberate bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bugs(u64);

const _: () = assert!(Bug::ALL.len() <= u64::BITS as usize, "a bug is a bit");

impl Bugs {
    /// Every rule is kept.
    pub const NONE: Self = Self(0);

    /// With `bug`.
    #[must_use]
    pub const fn with(self, bug: Bug) -> Self {
        Self(self.0 | 1 << bug as u64)
    }

    /// Whether `bug` is in it.
    pub const fn contains(self, bug: Bug) -> bool {
        self.0 >> bug as u64 & 1 == 1
    }

    /// The bugs, in the order of [`Bug::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Bug> {
        Bug::ALL.iter().copied().filter(move |bug| self.contains(*bug))
    }
}

impl FromIterator<Bug> for Bugs {
    fn from_iter<I: IntoIterator<Item = Bug>>(bugs: I) -> Self {
        bugs.into_iter().fold(Self::NONE, Self::with)
    }
}
