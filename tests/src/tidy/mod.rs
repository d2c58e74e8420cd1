//! The rules of the code base that neither rustc, clippy nor rustfmt keeps (`docs/style.md`).
//!
//! What is mechanical is checked here on every test run, so that reviews can be about meaning. Each rule has
//! a test that shows a bad piece of code being caught.

mod crates;
mod file;
mod reach;
mod source;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use source::Source;

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The file, relative to the repository.
    pub path: String,
    /// The line, from 1; 0 if the file as a whole is meant.
    pub line: usize,
    /// What is wrong and what to do instead.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {} ({:?})", self.path, self.line, self.message, self.rule)
    }
}

/// What can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Lines fit side by side on a screen.
    LongLine,
    /// A file holds one idea.
    LongFile,
    /// A function fits on a screen or two.
    LongFunction,
    /// A file says in its first line which idea it holds.
    NoHeadline,
    /// Unfinished work is an issue, not a mark in the code.
    Marker,
    /// A test is run, or says why not.
    SilentIgnore,
    /// Unsafe code lives in one crate.
    Unsafe,
    /// Nothing outside tests panics on what it did not expect.
    Unwrap,
    /// Names say what a thing is.
    EmptyName,
    /// The code runs on any machine.
    MachinePath,
    /// The engine touches the world only through `io`.
    HiddenInput,
    /// Every file is part of a crate.
    DeadFile,
    /// Crates know only whom the design lets them know.
    Layering,
    /// Every crate keeps the workspace's lints.
    Lints,
    /// The entry page names the commands that everybody needs.
    Readme,
}

/// The repository could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TidyError {
    /// Git could not be asked for the list of files.
    #[error("listing the files of {root} with git: {message}", root = root.display())]
    Git {
        /// The repository.
        root: PathBuf,
        /// Git's answer.
        message: String,
    },
    /// A listed file could not be read.
    #[error("reading {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// All text files of the repository: those that git tracks or would add.
///
/// # Errors
/// If git or a file cannot be read.
pub fn sources(root: &Path) -> Result<Vec<Source>, TidyError> {
    let git_error = |message: String| TidyError::Git { root: root.to_owned(), message };
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .map_err(|error| git_error(error.to_string()))?;
    if !output.status.success() {
        return Err(git_error(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let mut sources = Vec::new();
    for path in String::from_utf8_lossy(&output.stdout).split_terminator('\0') {
        let full = root.join(path);
        match fs::read(&full) {
            // What is not text (a picture, a fuzzer's input) has no lines to judge.
            Ok(bytes) => sources.extend(String::from_utf8(bytes).ok().map(|text| Source::new(path, text))),
            // Deleted in the working tree and still in git's index.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(TidyError::Read { path: full, source }),
        }
    }
    Ok(sources)
}

/// Everything in these files that breaks a rule.
#[must_use]
pub fn findings(sources: &[Source]) -> Vec<Finding> {
    let mut findings: Vec<_> = sources.iter().flat_map(file::findings).collect();
    findings.extend(reach::findings(sources));
    findings.extend(crates::findings(sources));
    findings
}
