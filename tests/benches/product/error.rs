//! What can go wrong while measuring.

use std::io;

use ashlar_tests::built::BuildError;
use ashlar_tests::node::NodeError;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The command line was wrong.
    #[error("{0}")]
    Usage(String),
    /// A program could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The daemon did not start or stop.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A program or file could not be reached.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {said}")]
    Failed {
        /// Which.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// A program's output was not as expected.
    #[error("{program} printed no {what}")]
    Output {
        /// Which.
        program: &'static str,
        /// What was looked for.
        what: String,
    },
}

/// Names what was being done when an I/O error came.
pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> BenchError {
    move |source| BenchError::Io { doing, source }
}
