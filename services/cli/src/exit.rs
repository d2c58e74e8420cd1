//! How a command ends: exit codes and the one line that says why.

use std::fmt;
use std::process::ExitCode;

/// Exit codes of every command (CONTROL C14); `docs/cli.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The work was tried and failed.
    Failed = 1,
    /// The command line makes no sense; clap uses the same number.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// It exists already, or somebody else has it.
    Conflict = 4,
    /// It exists, but its state or an access rule forbids this.
    Precondition = 5,
    /// Nobody answered, or not in time.
    Unavailable = 6,
}

/// Why a command failed: what was being done and to what, the cause, and what to try next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    exit: Exit,
    doing: String,
    why: String,
    next: Option<String>,
}

/// What every command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// `doing` begins with a gerund and names the object: "connecting to 127.0.0.1:4420".
    pub(crate) fn new(exit: Exit, doing: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { exit, doing: doing.into(), why: why.to_string(), next: None }
    }

    /// Adds what to try next, as an imperative.
    pub(crate) fn next(mut self, step: impl Into<String>) -> Self {
        self.next = Some(step.into());
        self
    }

    /// A command line that parses but makes no sense.
    pub(crate) fn usage(doing: impl Into<String>, why: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, doing, why)
    }

    /// A local file that could not be used.
    pub(crate) fn file(doing: impl Into<String>, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            std::io::ErrorKind::AlreadyExists => Exit::Conflict,
            std::io::ErrorKind::PermissionDenied => Exit::Precondition,
            _ => Exit::Failed,
        };
        Self::new(exit, doing, error)
    }

    #[cfg(test)]
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// For the end of `main`.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.why)?;
        if let Some(next) = &self.next {
            write!(f, "; {next}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_action_cause_and_next_step() {
        let failure = Failure::new(Exit::Unavailable, "connecting to 127.0.0.1:4420", "connection refused")
            .next("check that ashlard runs there");
        let text = failure.to_string();
        assert_eq!(text, "connecting to 127.0.0.1:4420: connection refused; check that ashlard runs there");
        assert_eq!(failure.exit(), Exit::Unavailable);
    }

    #[test]
    fn file_errors_keep_their_kind() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(Failure::file("opening /nowhere", &missing).exit(), Exit::NotFound);
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert_eq!(Failure::file("opening /secret", &denied).exit(), Exit::Precondition);
    }
}
