//! Running programs and reading the figures that they print.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{BenchError, io};

/// Runs a program to its end and parses what it prints as JSON.
pub(crate) fn json(program: &'static str, path: &Path, arguments: &[String]) -> Result<Value, BenchError> {
    let output = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(io("running a load generator"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BenchError::Failed { program, said });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| BenchError::Output { program, what: format!("JSON ({error})") })
}

/// A number somewhere in a document.
pub(crate) fn number(program: &'static str, document: &Value, pointer: &str) -> Result<f64, BenchError> {
    document
        .pointer(pointer)
        .and_then(Value::as_f64)
        .ok_or_else(|| BenchError::Output { program, what: pointer.to_owned() })
}

/// Arguments from literals and values.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The value in the middle; of an even number of values the lower one of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Thousands with one digit, like `812.4k`.
pub(crate) fn thousands(value: f64) -> String {
    format!("{:.1}k", value / 1000.0)
}
