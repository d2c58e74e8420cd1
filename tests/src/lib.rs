//! Whole-system tests: real Linux hosts, and the rules of the code base itself.

pub mod built;
pub mod dissect;
pub mod guest;
pub mod node;
pub mod nvmet;
pub mod relay;
pub mod tidy;

use std::path::PathBuf;

/// The folder in which cargo builds: logs and scratch files go there.
fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")),
    }
}
