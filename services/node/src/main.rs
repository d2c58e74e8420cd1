//! The Ashlar daemon: serves what its configuration names.

use std::path::PathBuf;
use std::process::ExitCode;

use ashlar_node::config::{Config, EXAMPLE, LogFormat};
use clap::Parser;

/// Serves namespaces to hosts over NVMe/TCP.
///
/// SIGHUP reads the configuration again and applies what changed; SIGTERM and SIGINT end it.
#[derive(Parser)]
#[command(version, name = "ashlard")]
struct Arguments {
    /// The configuration file (TOML; see docs/configuration.md)
    #[arg(long, value_name = "FILE", required_unless_present = "print_example_config")]
    config: Option<PathBuf>,
    /// Only say whether the configuration is valid
    #[arg(long, requires = "config")]
    check: bool,
    /// Print a configuration to start from
    #[arg(long, conflicts_with_all = ["config", "check"])]
    print_example_config: bool,
    /// How to write logs, whatever the configuration says
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    output: Option<LogFormat>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(path) = arguments.config else {
        print!("{EXAMPLE}");
        return ExitCode::SUCCESS;
    };
    match Config::load(&path) {
        Ok(_) => {
            println!("{} is valid", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
