//! `ashlar io`: data in and out of namespaces.
//!
//! - [`copy`]: from and to files, standard input and output
//! - [`verify`]: a pattern that says of itself where it belongs, and its check
//! - [`session`]: the namespace on its core, reached from the main thread
//! - [`progress`]: the bar on a terminal

mod copy;
mod progress;
mod session;
mod verify;

use clap::Subcommand;

use crate::exit::Outcome;
use crate::output::Format;

/// Move data in and out of namespaces, and verify it
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum IoCommand {
    /// Copy from a namespace to a file or standard output
    Read(copy::ReadArgs),
    /// Copy from a file or standard input to a namespace, and flush it
    Write(copy::WriteArgs),
    /// Write a self-describing pattern and check it later, across restarts of the target
    Verify(verify::VerifyArgs),
}

/// Runs `ashlar io`.
pub(crate) fn run(command: &IoCommand, format: Format) -> Outcome {
    match command {
        IoCommand::Read(args) => copy::read(args, format),
        IoCommand::Write(args) => copy::write(args, format),
        IoCommand::Verify(args) => verify::run(args, format),
    }
}
