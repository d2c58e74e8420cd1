//! The Ashlar daemon: serves what its configuration names.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ashlar_node::config::{Config, EXAMPLE, LogFormat};
use ashlar_node::node::{Addresses, Node, NodeError};
use ashlar_node::notify::{self, State};
use ashlar_node::signals::{Request, Signals};
use ashlar_node::{limits, log};
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
    let Some(path) = arguments.config else { return say(EXAMPLE) };
    let config = match Config::load(&path) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.check {
        return say(&format!("{} is valid\n", path.display()));
    }
    let level = log::start(config.log, arguments.output);
    limits::raise(&config.cores);
    // The control side has little to do; the data cores need the CPUs.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the control thread could not be started");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&path, &config, level)) {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard output. Whoever reads it may have gone, and its disk may be full.
fn say(text: &str) -> ExitCode {
    let mut output = std::io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("writing to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until it is asked to stop.
async fn run(path: &Path, config: &Config, level: log::LevelSwitch) -> Result<(), NodeError> {
    // Before anything is started, so that no signal ends the process half-way.
    let mut signals = Signals::listen().map_err(NodeError::Signals)?;
    let (mut node, addresses) = Node::start(path, config, level).await?;
    tell_ready(&addresses, config);
    loop {
        match signals.next().await {
            Request::Stop => break,
            Request::Reload => {
                // A change waits for commands on storage, which may hang: the node must end all the same.
                tokio::select! {
                    () = node.reload() => {}
                    () = signals.stop() => break,
                }
            }
        }
    }
    tracing::info!("stopping; a second signal ends it at once");
    notify::tell(State::Stopping);
    tokio::select! {
        result = node.stop() => result,
        () = signals.stop() => {
            tracing::warn!("ended at once");
            std::process::exit(1);
        }
    }
}

fn tell_ready(addresses: &Addresses, config: &Config) {
    let portals = addresses.portals.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let metrics = addresses.metrics.map_or_else(|| "off".to_owned(), |address| address.to_string());
    let namespaces: usize = config.subsystems.values().map(|subsystem| subsystem.namespaces.len()).sum();
    let (cores, subsystems) = (config.cores.cpus.len(), config.subsystems.len());
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(portals, metrics, cores, subsystems, namespaces, version, "ready");
    notify::tell(State::Ready);
}
