//! The Ashlar command line.

mod connect;
mod device;
mod exit;
mod identity;
mod io;
mod nvme;
mod output;
mod perf;
mod random;
mod shell;
mod units;
mod volume;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Outcome;
use crate::output::Format;

/// Exit codes and environment, at the end of `--help` and of the man page.
const AFTER_HELP: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict, 5 precondition, \
                          6 unavailable or timed out.";

/// Block storage over NVMe/TCP: measure, move and verify data, look at targets, devices and volumes
#[derive(Debug, Parser)]
#[command(name = "ashlar", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Cli {
    /// Form of the output
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what a namespace can do
    Perf(Box<perf::PerfArgs>),
    /// Look at targets: discovery, identification, logs
    #[command(subcommand)]
    Nvme(nvme::NvmeCommand),
    /// Move data in and out of namespaces, and verify it
    #[command(subcommand)]
    Io(io::IoCommand),
    /// Devices of a node that is not running: make, look at, verify
    #[command(subcommand)]
    Device(device::DeviceCommand),
    /// Volumes of a running node
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Print the completion script of a shell
    Completion(shell::CompletionArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man(shell::ManArgs),
}

fn run(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Perf(args) => perf::run(args, cli.output),
        Command::Nvme(command) => nvme::run(command, cli.output),
        Command::Io(command) => io::run(command, cli.output),
        Command::Device(command) => device::run(command, cli.output),
        Command::Volume(command) => volume::run(command, cli.output),
        Command::Completion(args) => shell::completion::<Cli>(args),
        Command::Man(args) => shell::man::<Cli>(args),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ashlar: {failure}");
            failure.code()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
