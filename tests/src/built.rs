//! The programs of this workspace, built as the tests are, for tests that run them from outside.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program of the workspace could not be built or found.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Cargo could not be run.
    #[error("running cargo to build {what}: {source}")]
    Run {
        /// What was to be built.
        what: String,
        /// Why it could not be run.
        #[source]
        source: io::Error,
    },
    /// Cargo failed; it has said why on the standard error stream.
    #[error("cargo failed to build {what}")]
    Failed {
        /// What was to be built.
        what: String,
    },
    /// Cargo built no such program.
    #[error("the workspace has no {what}")]
    Missing {
        /// What was looked for.
        what: String,
    },
}

/// A program that people run: `ashlard`, `ashlar`.
///
/// # Errors
/// If it does not build, or there is none of this name.
pub fn program(name: &str) -> Result<PathBuf, BuildError> {
    let what = format!("program {name}");
    let mut found = executables(&["build", "--bins"], &what, |artifact| artifact.target == name)?;
    found.pop().ok_or(BuildError::Missing { what })
}

/// The test programs of a crate: that of its units and those in its `tests` folder.
///
/// # Errors
/// If they do not build, or the crate has none.
pub fn test_programs(package: &str) -> Result<Vec<PathBuf>, BuildError> {
    let what = format!("tests of {package}");
    let found = executables(&["test", "--no-run"], &what, |artifact| artifact.is_test_of(package))?;
    if found.is_empty() {
        return Err(BuildError::Missing { what });
    }
    Ok(found)
}

/// Runs cargo for the whole workspace, as `make test` does, so that nothing is compiled a second time with
/// other features; picks executables.
fn executables(
    arguments: &[&str],
    what: &str,
    is_wanted: impl Fn(&Artifact) -> bool,
) -> Result<Vec<PathBuf>, BuildError> {
    let run_error = |source| BuildError::Run { what: what.to_owned(), source };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).args(["--quiet", "--locked", "--workspace", "--message-format=json"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let mut cargo = command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(run_error)?;
    let mut found = Vec::new();
    if let Some(stdout) = cargo.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let artifact = Artifact::of_message(&line.map_err(run_error)?);
            found.extend(artifact.filter(|artifact| is_wanted(artifact)).map(|artifact| artifact.executable));
        }
    }
    if !cargo.wait().map_err(run_error)?.success() {
        return Err(BuildError::Failed { what: what.to_owned() });
    }
    Ok(found)
}

/// An executable that cargo has built, as it tells of it.
#[derive(Debug, PartialEq, Eq)]
struct Artifact {
    package: String,
    target: String,
    is_test: bool,
    executable: PathBuf,
}

impl Artifact {
    fn of_message(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        Some(Self {
            package: message.get("package_id")?.as_str()?.to_owned(),
            target: message.get("target")?.get("name")?.as_str()?.to_owned(),
            is_test: message.get("profile")?.get("test")?.as_bool()?,
            executable: PathBuf::from(message.get("executable")?.as_str()?),
        })
    }

    /// The id ends with the package's name and version: `…/folder#name@version`.
    fn is_test_of(&self, package: &str) -> bool {
        self.is_test && self.package.contains(&format!("#{package}@"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{
        "reason": "compiler-artifact",
        "package_id": "path+file:///x/reactor#ashlar-reactor@0.1.0",
        "target": { "name": "stress" },
        "profile": { "test": true },
        "executable": "/x/stress-1"
    }"#;

    #[test]
    fn only_tests_of_the_package_are_picked() {
        let artifact = Artifact::of_message(MESSAGE).expect("an executable");
        assert!(artifact.is_test_of("ashlar-reactor"));
        assert!(!artifact.is_test_of("ashlar"));
        let example = Artifact::of_message(&MESSAGE.replace("true", "false")).expect("an executable");
        assert!(!example.is_test_of("ashlar-reactor"));
    }

    #[test]
    fn messages_without_an_executable_are_passed_over() {
        assert_eq!(Artifact::of_message(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(Artifact::of_message(&MESSAGE.replace("\"/x/stress-1\"", "null")), None);
    }
}
