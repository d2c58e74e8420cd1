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
    let mut found = executables(&["build", "--bins"], name, &what)?;
    found.pop().ok_or(BuildError::Missing { what })
}

/// The test programs of a crate: that of its units and those in its `tests` folder.
///
/// # Errors
/// If they do not build, or the crate has none.
pub fn test_programs(package: &str) -> Result<Vec<PathBuf>, BuildError> {
    let what = format!("tests of {package}");
    let found = executables(&["test", "--no-run"], package, &what)?;
    if found.is_empty() {
        return Err(BuildError::Missing { what });
    }
    Ok(found)
}

/// Runs cargo for the whole workspace, as `make test` does, so that nothing is compiled a second time with
/// other features; picks the executables whose target or package has this name.
fn executables(arguments: &[&str], name: &str, what: &str) -> Result<Vec<PathBuf>, BuildError> {
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
            found.extend(executable(&line.map_err(run_error)?, name));
        }
    }
    if !cargo.wait().map_err(run_error)?.success() {
        return Err(BuildError::Failed { what: what.to_owned() });
    }
    Ok(found)
}

/// The executable that a message of cargo's tells of, if it is one of `name`.
fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let executable = message.get("executable")?.as_str()?;
    let target = message.get("target")?.get("name")?.as_str()?;
    // The id ends with …/folder#version or …/folder#name@version; the manifest lies in the package's folder.
    let package = message.get("package_id")?.as_str()?;
    let of_package = package.contains(&format!("#{name}@"));
    (target == name || of_package).then(|| PathBuf::from(executable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executables_of_the_name_are_picked() {
        let message = r#"{"reason":"compiler-artifact",
            "package_id":"path+file:///x/reactor#ashlar-reactor@0.1.0","target":{"name":"stress"},"executable":"/x/stress-1"}"#;
        assert_eq!(executable(message, "stress"), Some(PathBuf::from("/x/stress-1")));
        assert_eq!(executable(message, "ashlar-reactor"), Some(PathBuf::from("/x/stress-1")));
        assert_eq!(executable(message, "ashlar"), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#, "stress"), None);
    }
}
