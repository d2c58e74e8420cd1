//! `ashlar device format`: makes a device of a disk or file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ashlar_reactor::world::ReactorWorld;
use ashlar_store::device::{Existing, FormatError, FormatOptions, TornBlocks, format};
use ashlar_store::format::{DeviceId, Label};
use clap::Args;
use uuid::Uuid;

use super::{DeviceFacts, with_disk};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Format};
use crate::units::parse_size;

/// Options of `ashlar device format`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FormatArgs {
    /// The block device or file
    path: PathBuf,
    /// Lanes: parts with a core and a journal each
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    lanes: u32,
    /// What people call it: at most 64 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Make a file of this size first; it must not exist
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    create: Option<u64>,
    /// Lose what the disk carries: a file system, a partition table, another device
    #[arg(long)]
    force: bool,
    /// Take a disk that may tear blocks of 4 KiB when power fails, for logged writes (not served yet)
    #[arg(long)]
    torn_prone: bool,
}

/// Makes a file for a device.
fn create(path: &Path, bytes: u64) -> Outcome {
    let made = fs::OpenOptions::new().write(true).create_new(true).open(path);
    made.and_then(|file| file.set_len(bytes))
        .map_err(|error| Failure::file(format!("making {}", path.display()), &error))
}

/// Runs `ashlar device format`.
pub(crate) fn run(args: &FormatArgs, output: Format) -> Outcome {
    let doing = format!("formatting {}", args.path.display());
    let label = Label::new(args.label.clone())
        .ok_or_else(|| Failure::usage(&*doing, "a label has at most 64 bytes and no control characters"))?;
    if let Some(bytes) = args.create {
        create(&args.path, bytes)?;
    }
    let options = FormatOptions {
        device: DeviceId(Uuid::new_v4()),
        cluster: None,
        // The node that first uses it takes it in.
        node: Uuid::nil(),
        pool: Uuid::nil(),
        lanes: args.lanes,
        label,
        formatted_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        torn: if args.torn_prone { TornBlocks::Log } else { TornBlocks::Refuse },
        existing: if args.force { Existing::Overwrite } else { Existing::Refuse },
    };
    let superblock = with_disk(&args.path, "formatting", move |disk| async move {
        format(&ReactorWorld, &disk, &options).await.map_err(|error| {
            let exit = match error {
                FormatError::Carries { .. } => Exit::Conflict,
                FormatError::Tears | FormatError::Layout(_) => Exit::Precondition,
                _ => Exit::Failed,
            };
            Failure::new(exit, doing, error)
        })
    });
    if superblock.is_err() && args.create.is_some() {
        // It was made a moment ago, and is of no use.
        let _ = fs::remove_file(&args.path);
    }
    let facts = DeviceFacts::of(&superblock?);
    match output {
        Format::Table => output::print(&facts.text()),
        Format::Json => output::print_json(&facts),
    }
}
