//! What can go wrong around a guest, told so that the reader knows where to look next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A guest could not be prepared or started, or did not do what its script promised.
#[derive(thiserror::Error)]
pub enum GuestError {
    /// A program that the guest needs is not on this machine.
    #[error("{program} is not installed; `ops/setup test` installs what the guests need")]
    MissingProgram {
        /// The program's name, as looked for in PATH and the sbin folders.
        program: String,
    },
    /// A file or process operation of the harness failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, to what.
        doing: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A program that the harness runs reported a failure.
    #[error("{program} failed: {message}")]
    Program {
        /// What was run.
        program: String,
        /// What it said.
        message: String,
    },
    /// The kernel package does not hold a module that the guests load.
    #[error("the kernel in {kernel} has no module {module}")]
    MissingModule {
        /// The folder of the unpacked kernel.
        kernel: PathBuf,
        /// The module's name.
        module: String,
    },
    /// The guest said nothing that was waited for within the limit.
    #[error("guest {name} was not done after {limit:?}; its output ends with\n{tail}\n({log:?})")]
    TimedOut {
        /// The guest's name.
        name: String,
        /// The limit, counted from its start.
        limit: Duration,
        /// The last lines that it printed.
        tail: String,
        /// Where everything is that it printed; the kernel's own log lies beside it.
        log: PathBuf,
    },
    /// The guest's script failed, or the guest ended without a word.
    #[error("guest {name}: {what}; its output ends with\n{tail}\n({log:?})")]
    Failed {
        /// The guest's name.
        name: String,
        /// What happened.
        what: String,
        /// The last lines that it printed.
        tail: String,
        /// Where everything is that it printed; the kernel's own log lies beside it.
        log: PathBuf,
    },
}

/// A test that returns an error shows it by `Debug`: people are to read the same text there.
impl fmt::Debug for GuestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl GuestError {
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
