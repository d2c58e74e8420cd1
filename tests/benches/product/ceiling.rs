//! What the runtime alone reaches with the same messages: the ceiling of this machine for reads.

use std::process::Command;

use crate::Settings;
use crate::error::{BenchError, io};

/// Runs the runtime's own example and shows what it prints.
pub(crate) fn run(settings: &Settings) -> Result<(), BenchError> {
    println!("The runtime alone, 72-byte requests and 4120-byte answers over the loopback:\n\n```");
    for depth in ["1", "32", "128"] {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["run", "--quiet", "--release", "-p", "ashlar-reactor", "--example", "pingpong", "--"])
            .args([depth, &settings.seconds.to_string()])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()
            .map_err(io("running the runtime's example"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(BenchError::Failed { program: "pingpong", said });
        }
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
    println!("```\n");
    Ok(())
}
