//! `ashlar nvme identify`: Identify Controller and Identify Namespace, decoded.

use std::rc::Rc;

use ashlar_initiator::{Controller, HostError};
use ashlar_nvme::admin;
use ashlar_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use ashlar_nvme::{Nsid, Wire};
use clap::{Args, Subcommand};

use super::list::Identifiers;
use super::{ask, controller, namespace, subsystem};
use crate::connect::{Doing, HostArgs, NamespaceArgs};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Format};

/// What is to be identified.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum IdentifyCommand {
    /// Identify Controller (CNS 01h); --subsystem discovery is the discovery controller
    Controller(ControllerArgs),
    /// Identify Namespace (CNS 00h) and its identifiers (CNS 03h)
    Namespace(NamespaceIdentifyArgs),
}

/// Options of `ashlar nvme identify controller`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    host: HostArgs,
    /// NQN of the subsystem, or discovery
    #[arg(short = 'n', long, value_name = "NQN", env = "ASHLAR_SUBSYSTEM")]
    subsystem: String,
}

/// Options of `ashlar nvme identify namespace`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NamespaceIdentifyArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    namespace: NamespaceArgs,
}

/// Runs `ashlar nvme identify`.
pub(crate) fn run(command: &IdentifyCommand, format: Format) -> Outcome {
    let fields = match command {
        IdentifyCommand::Controller(args) => {
            let subsystem = subsystem(&args.subsystem)?;
            let doing = Doing::new(format!("identifying the controller of {subsystem}"));
            let bytes = ask(&args.host, &subsystem, move |asked: Rc<Controller>| async move {
                let command = admin::IdentifyCommand::new(Cns::Controller);
                asked.identify(command, Nsid::NONE).await.map_err(|error| doing.failed(&error))
            })?;
            controller::decode(&decoded::<IdentifyController>(&bytes)?)
        }
        IdentifyCommand::Namespace(args) => {
            let subsystem = subsystem(&args.namespace.subsystem)?;
            let nsid = Nsid(args.namespace.nsid);
            let doing = Doing::new(format!("identifying namespace {nsid} of {subsystem}"));
            let (bytes, list) = ask(&args.host, &subsystem, move |asked: Rc<Controller>| async move {
                let fail = |error: HostError| doing.failed(&error);
                // An inactive namespace would identify as zeroes (NVMe Base 2.0 §5.17.2.1).
                asked.namespace(nsid).await.map_err(fail)?;
                let command = admin::IdentifyCommand::new(Cns::Namespace);
                let bytes = asked.identify(command, nsid).await.map_err(fail)?;
                let command = admin::IdentifyCommand::new(Cns::NamespaceDescriptors);
                let list = asked.identify(command, nsid).await.map_err(fail)?;
                Ok((bytes, list))
            })?;
            namespace::decode(&decoded::<IdentifyNamespace>(&bytes)?, &Identifiers::decode(&list))
        }
    };
    match format {
        Format::Table => output::print(&fields.table()),
        Format::Json => output::print_json(&fields),
    }
}

/// A structure from the bytes that a target sent.
pub(super) fn decoded<T: Wire>(bytes: &[u8]) -> Outcome<T> {
    <T as Wire>::read_from(bytes)
        .map_err(|error| Failure::new(Exit::Failed, format!("decoding the {}", T::NAME), error))
}
