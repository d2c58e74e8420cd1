//! `ashlar device`: devices of a node that is not running. Nothing here goes over a network.
//!
//! - [`format`]: makes a device of a disk
//! - [`inspect`]: what is on a device, down to the history of a block
//! - [`check`]: verifies it, changing nothing

mod check;
mod format;
mod inspect;

use std::future::Future;
use std::path::Path;

use ashlar_reactor::world::{AnyDevice, AnyDisk, FileDevice, HoldError};
use ashlar_store::device::OpenError;
use ashlar_store::format::Superblock;
use clap::Subcommand;
use serde::Serialize;

use crate::connect::Host;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Column, Format, lines, table};
use crate::units::show_bytes;

/// Devices of a node that is not running: make, look at, verify
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DeviceCommand {
    /// Make a device of a disk or file; what it carries is lost only with --force
    Format(format::FormatArgs),
    /// Show what is on a device, or what it knows about one block
    Inspect(inspect::InspectArgs),
    /// Verify every structure, and with --data every block, changing nothing
    Check(check::CheckArgs),
}

/// Runs `ashlar device`.
pub(crate) fn run(command: &DeviceCommand, format: Format) -> Outcome {
    match command {
        DeviceCommand::Format(args) => format::run(args, format),
        DeviceCommand::Inspect(args) => inspect::run(args, format),
        DeviceCommand::Check(args) => check::run(args, format),
    }
}

/// Holds a device and does something with it on a data core.
fn with_disk<T, F, Fut>(path: &Path, doing: &str, work: F) -> Outcome<T>
where
    T: Send + 'static,
    F: FnOnce(AnyDisk) -> Fut + Send + 'static,
    Fut: Future<Output = Outcome<T>> + 'static,
{
    let doing = format!("{doing} {}", path.display());
    let held = FileDevice::hold(path).map_err(|error| cannot_hold(&doing, &error))?;
    let device = AnyDevice::File(held);
    let host = Host::start(vec![None])?;
    let result = host.run(move || async move {
        let disk = device.open().map_err(|error| Failure::file(doing, &error))?;
        work(disk).await
    });
    host.stop();
    result
}

fn cannot_hold(doing: &str, error: &HoldError) -> Failure {
    match error {
        HoldError::System { source, .. } => Failure::file(doing, source),
        HoldError::InUse { .. } => {
            Failure::new(Exit::Conflict, doing, error).next("unmount it, or stop the ashlard that serves it")
        }
        _ => Failure::new(Exit::Precondition, doing, error),
    }
}

/// A device that cannot be opened.
fn cannot_open(doing: &str, error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::NotADevice { .. } => Exit::NotFound,
        OpenError::Newer(_) | OpenError::Shrunk { .. } => Exit::Precondition,
        _ => Exit::Failed,
    };
    Failure::new(exit, doing, error)
}

/// What a superblock says, as it is shown.
#[derive(Debug, Clone, Serialize)]
struct DeviceFacts {
    device: String,
    label: String,
    node: Option<String>,
    pool: Option<String>,
    cluster: Option<String>,
    bytes: u64,
    lanes: u32,
    slabs: u32,
    extents: u32,
    journal_bytes: u64,
    formatted_at_s: u64,
    torn_prone: bool,
}

impl DeviceFacts {
    fn of(superblock: &Superblock) -> Self {
        let layout = &superblock.layout;
        let known = |id: uuid::Uuid| (!id.is_nil()).then(|| id.to_string());
        let journal_blocks: u64 = (0..layout.lanes()).map(|lane| layout.journal(lane).blocks).sum();
        Self {
            device: superblock.device.to_string(),
            label: superblock.label.to_string(),
            node: known(superblock.node),
            pool: known(superblock.pool),
            cluster: superblock.cluster.map(|id| id.to_string()),
            bytes: layout.device_blocks() * BLOCK_BYTES,
            lanes: layout.lanes(),
            slabs: layout.slabs(),
            extents: layout.extents(),
            journal_bytes: journal_blocks * BLOCK_BYTES,
            formatted_at_s: superblock.formatted_at,
            torn_prone: superblock.torn_prone,
        }
    }

    fn text(&self) -> String {
        let mut facts = table(&[Column::Text("field"), Column::Text("value")]);
        let none = || "none yet".to_owned();
        facts.add_row(["device", &self.device]);
        if !self.label.is_empty() {
            facts.add_row(["label", &self.label]);
        }
        facts.add_row(["node", &self.node.clone().unwrap_or_else(none)]);
        facts.add_row(["pool", &self.pool.clone().unwrap_or_else(none)]);
        if let Some(cluster) = &self.cluster {
            facts.add_row(["cluster", cluster]);
        }
        facts.add_row(["size", &show_bytes(self.bytes)]);
        facts.add_row(["lanes", &self.lanes.to_string()]);
        facts.add_row(["slabs", &self.slabs.to_string()]);
        facts.add_row(["extents", &self.extents.to_string()]);
        facts.add_row(["journals", &show_bytes(self.journal_bytes)]);
        if self.torn_prone {
            facts.add_row(["writes", "logged: the device may tear blocks"]);
        }
        lines(&facts)
    }
}

/// Bytes of a block, as sizes are counted.
const BLOCK_BYTES: u64 = ashlar_io::BLOCK_BYTES as u64;
