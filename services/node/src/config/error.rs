//! What is wrong with a configuration file, so that the person who wrote it can mend it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A configuration file is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It could not be read.
    #[error("reading the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It breaks rules.
    #[error("{}", Listing { path, problems })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every rule that it breaks, by line. Not empty.
        problems: Vec<Problem>,
    },
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The key with the tables around it, such as `subsystem.namespace.nsid`; empty for the file as a whole.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return write!(f, "{}: {}", self.line, self.message);
        }
        write!(f, "{}: {}: {}", self.line, self.key, self.message)
    }
}

/// `FILE:LINE: KEY: MESSAGE`, one problem a line.
struct Listing<'a> {
    path: &'a PathBuf,
    problems: &'a [Problem],
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index > 0 { "\n" } else { "" };
            write!(f, "{newline}{}:{problem}", self.path.display())?;
        }
        Ok(())
    }
}
