//! `ashlar nvme`: looking at targets. Everything is decoded by the specification's names.
//!
//! - [`discover`]: the discovery log and how to connect
//! - [`list`]: the namespaces of subsystems
//! - [`identify`], [`controller`], [`namespace`]: Identify, decoded
//! - [`log`]: log pages, decoded
//! - [`fields`]: how a decoded structure is shown

mod controller;
mod discover;
mod fields;
mod identify;
mod list;
mod log;
mod namespace;

use std::future::Future;
use std::rc::Rc;

use ashlar_initiator::{Controller, HostConfig};
use ashlar_nvme::Nqn;
use clap::Subcommand;

use crate::connect::{self, Doing, Host, HostArgs};
use crate::exit::Outcome;
use crate::output::Format;

/// Look at targets: discovery, identification, logs
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NvmeCommand {
    /// Show the subsystems that a target offers this host, and how to connect to them from Linux
    Discover(discover::DiscoverArgs),
    /// List the namespaces of one subsystem, or of all that this host is offered
    List(list::ListArgs),
    /// Decode what a controller or a namespace says of itself
    #[command(subcommand)]
    Identify(identify::IdentifyCommand),
    /// Read and decode a log page
    Log(log::LogArgs),
}

/// Runs `ashlar nvme`.
pub(crate) fn run(command: &NvmeCommand, format: Format) -> Outcome {
    match command {
        NvmeCommand::Discover(args) => discover::run(args, format),
        NvmeCommand::List(args) => list::run(args, format),
        NvmeCommand::Identify(command) => identify::run(command, format),
        NvmeCommand::Log(args) => log::run(args, format),
    }
}

/// The NQN of `--subsystem`, where `discovery` stands for the discovery subsystem.
fn subsystem(text: &str) -> Outcome<Nqn> {
    if text == "discovery" { Ok(Nqn::discovery()) } else { connect::subsystem(text) }
}

/// A config for admin commands only.
fn admin_config(args: &HostArgs) -> Outcome<HostConfig> {
    let mut config = args.config()?;
    config.io_queues = 0;
    Ok(config)
}

/// Connects to a controller, asks it something, and disconnects.
fn ask<T, F, Fut>(args: &HostArgs, subsystem: &Nqn, question: F) -> Outcome<T>
where
    T: Send + 'static,
    F: FnOnce(Rc<Controller>) -> Fut + Send + 'static,
    Fut: Future<Output = Outcome<T>> + 'static,
{
    let address = connect::resolve(&args.address)?;
    let config = admin_config(args)?;
    let subsystem = subsystem.clone();
    let host = Host::start(vec![None])?;
    let answer = host.run(move || async move {
        let doing = Doing::new(format!("connecting to {subsystem} at {address}"));
        let controller = Controller::connect(address, &subsystem, &config).await;
        let controller = Rc::new(controller.map_err(|error| doing.failed(&error))?);
        let answer = question(Rc::clone(&controller)).await;
        if let Some(controller) = Rc::into_inner(controller) {
            // The answer is there; an untidy end of the association does not spoil it.
            let _ = controller.shut_down().await;
        }
        answer
    });
    host.stop();
    answer
}
