//! `ashlar device check`: verifies a device, changing nothing.

use std::path::PathBuf;

use ashlar_reactor::world::ReactorWorld;
use ashlar_store::device::{CheckReport, Depth, Severity, check};
use clap::Args;
use serde::Serialize;

use super::{DeviceFacts, cannot_open, with_disk};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Format};

/// Options of `ashlar device check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// The block device or file
    path: PathBuf,
    /// Read all data that is in use and compare it with its checksums, too
    #[arg(long)]
    data: bool,
}

/// Something that was found.
#[derive(Debug, Clone, Serialize)]
struct Found {
    severity: String,
    part: String,
    block: Option<u64>,
    what: String,
}

/// What is shown of a check.
#[derive(Debug, Clone, Serialize)]
struct Checked {
    #[serde(flatten)]
    facts: DeviceFacts,
    journal_blocks: u64,
    extents_checked: u64,
    checksum_pages: u64,
    data_blocks: u64,
    errors: usize,
    warnings: usize,
    findings: Vec<Found>,
}

impl Checked {
    fn of(report: &CheckReport) -> Self {
        let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
        let findings = report.findings.iter().map(|finding| Found {
            severity: finding.severity.to_string(),
            part: finding.part.to_string(),
            block: finding.address,
            what: finding.what.clone(),
        });
        Self {
            facts: DeviceFacts::of(&report.device.superblock),
            journal_blocks: report.counts.journal_blocks,
            extents_checked: report.counts.extents,
            checksum_pages: report.counts.checksum_pages,
            data_blocks: report.counts.data_blocks,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            findings: findings.collect(),
        }
    }

    fn text(&self, report: &CheckReport) -> String {
        let mut text: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        text += &format!(
            "device {}: {} errors, {} warnings; {} journal blocks, {} extents, {} checksum pages and {} blocks of data \
             were verified\n",
            self.facts.device,
            self.errors,
            self.warnings,
            self.journal_blocks,
            self.extents_checked,
            self.checksum_pages,
            self.data_blocks,
        );
        text
    }
}

/// Runs `ashlar device check`.
pub(crate) fn run(args: &CheckArgs, format: Format) -> Outcome {
    let doing = format!("checking {}", args.path.display());
    let depth = if args.data { Depth::Data } else { Depth::Structures };
    let opening = doing.clone();
    let report = with_disk(&args.path, "checking", move |disk| async move {
        check(&ReactorWorld, &disk, depth, |_| {}).await.map_err(|error| cannot_open(&opening, &error))
    })?;
    let checked = Checked::of(&report);
    match format {
        Format::Table => output::print(&checked.text(&report))?,
        Format::Json => output::print_json(&checked)?,
    }
    match checked.errors {
        0 => Ok(()),
        errors => Err(Failure::new(Exit::Failed, doing, format!("{errors} errors were found"))
            .next("what is lost here must come from another replica")),
    }
}
