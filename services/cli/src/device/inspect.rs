//! `ashlar device inspect`: what is on a device, or what it knows about one block.

use std::path::PathBuf;

use ashlar_reactor::world::ReactorWorld;
use ashlar_store::device::inspect::{BlockHistory, EventKind, LaneReport};
use ashlar_store::device::{DeviceReport, history, inspect};
use ashlar_store::{EXTENT_BLOCKS, ExtentId, SegmentId, Stored};
use clap::Args;
use serde::Serialize;
use uuid::Uuid;

use super::{DeviceFacts, cannot_open, with_disk};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Column, Format, lines, table};

/// Options of `ashlar device inspect`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InspectArgs {
    /// The block device or file
    path: PathBuf,
    /// List every extent that holds something
    #[arg(long, conflicts_with = "volume")]
    extents: bool,
    /// Show what the device knows about a block of this volume
    #[arg(long, value_name = "UUID", requires = "block")]
    volume: Option<Uuid>,
    /// Segment of the volume that the block is in
    #[arg(long, value_name = "N", default_value_t = 0)]
    segment: u32,
    /// Block of 4 KiB, counted from the segment's beginning
    #[arg(long, value_name = "N", requires = "volume")]
    block: Option<u32>,
}

/// Runs `ashlar device inspect`.
pub(crate) fn run(args: &InspectArgs, format: Format) -> Outcome {
    let doing = format!("inspecting {}", args.path.display());
    if let (Some(volume), Some(block)) = (args.volume, args.block) {
        let segment = SegmentId { volume, index: args.segment };
        let extent = ExtentId { segment, index: block / EXTENT_BLOCKS };
        let found = {
            let doing = doing.clone();
            with_disk(&args.path, "inspecting", move |disk| async move {
                history(&ReactorWorld, &disk, extent, block % EXTENT_BLOCKS)
                    .await
                    .map_err(|error| cannot_open(&doing, &error))
            })?
        };
        if found.is_empty() {
            let why = format!("extent {extent} is not on this device");
            return Err(Failure::new(Exit::NotFound, doing, why));
        }
        let histories: Vec<History> = found.iter().map(History::of).collect();
        return match format {
            Format::Table => output::print(&histories.iter().map(History::text).collect::<String>()),
            Format::Json => output::print_json(&histories),
        };
    }
    let report = with_disk(&args.path, "inspecting", move |disk| async move {
        inspect(&ReactorWorld, &disk).await.map_err(|error| cannot_open(&doing, &error))
    })?;
    let shown = Inspection::of(&report, args.extents);
    match format {
        Format::Table => output::print(&shown.text()),
        Format::Json => output::print_json(&shown),
    }
}

/// A copy of the superblock.
#[derive(Debug, Clone, Serialize)]
struct Copy {
    block: u64,
    generation: Option<u64>,
    trouble: Option<String>,
}

/// A lane.
#[derive(Debug, Clone, Serialize)]
struct Lane {
    lane: u32,
    /// Generation of the newest good root; `None` if both are bad.
    root: Option<u64>,
    trouble: Vec<String>,
    incarnation: Option<u32>,
    journal_tail: Option<u64>,
    journal_end: Option<u64>,
    journal_gap: Option<u64>,
    shards: usize,
    slabs: usize,
    used_extents: u32,
    free_extents: u32,
    open_extents: usize,
    suspect_extents: usize,
}

impl Lane {
    fn of(lane: &LaneReport) -> Self {
        let roots = || lane.roots.iter().filter_map(|root| root.as_ref().ok());
        let journal = lane.journal.as_ref();
        let trouble = lane.roots.iter().filter_map(|root| root.as_ref().err());
        Self {
            lane: lane.lane,
            root: roots().map(|root| root.generation).max(),
            trouble: trouble.map(|bad| format!("a root slot is bad: {bad}")).collect(),
            incarnation: journal.map(|journal| journal.incarnation),
            journal_tail: journal.map(|journal| journal.tail),
            journal_end: journal.map(|journal| journal.end),
            journal_gap: journal.and_then(|journal| journal.gap),
            shards: lane.shards.len(),
            slabs: lane.slabs.len(),
            used_extents: lane.slabs.iter().map(|slab| slab.used).sum(),
            free_extents: lane.slabs.iter().map(|slab| slab.free).sum(),
            open_extents: lane.extents.iter().filter(|extent| extent.open).count(),
            suspect_extents: lane.extents.iter().filter(|extent| extent.suspect).count(),
        }
    }
}

/// An extent that holds something.
#[derive(Debug, Clone, Serialize)]
struct Extent {
    extent: u32,
    lane: u32,
    holds: String,
    version: String,
    open: bool,
    suspect: bool,
}

/// What is shown of a device.
#[derive(Debug, Clone, Serialize)]
struct Inspection {
    #[serde(flatten)]
    facts: DeviceFacts,
    superblocks: Vec<Copy>,
    grown_by_blocks: u64,
    catalog_bytes: Option<u64>,
    slabs_unowned: u32,
    lane_list: Vec<Lane>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extent_list: Option<Vec<Extent>>,
}

impl Inspection {
    fn of(report: &DeviceReport, with_extents: bool) -> Self {
        let copies = report.device.copies.iter().map(|copy| Copy {
            block: copy.address,
            generation: copy.state.as_ref().ok().copied(),
            trouble: copy.state.as_ref().err().map(ToString::to_string),
        });
        let extents = report.lanes.iter().flat_map(|lane| {
            lane.extents.iter().map(|extent| Extent {
                extent: extent.extent.0,
                lane: lane.lane,
                holds: extent.holds.to_string(),
                version: extent.last.to_string(),
                open: extent.open,
                suspect: extent.suspect,
            })
        });
        Self {
            facts: DeviceFacts::of(&report.device.superblock),
            superblocks: copies.collect(),
            grown_by_blocks: report.device.grown_by,
            catalog_bytes: report.catalog.map(|(_, bytes)| bytes),
            slabs_unowned: report.slabs_unowned,
            lane_list: report.lanes.iter().map(Lane::of).collect(),
            extent_list: with_extents.then(|| extents.collect()),
        }
    }

    fn text(&self) -> String {
        let mut text = self.facts.text();
        for copy in &self.superblocks {
            if let Some(trouble) = &copy.trouble {
                text += &format!("superblock at block {}: {trouble}\n", copy.block);
            }
        }
        if self.grown_by_blocks > 0 {
            text += &format!("the disk has {} blocks more than the device\n", self.grown_by_blocks);
        }
        if self.catalog_bytes.is_none() {
            text += "both slots of the catalog are bad\n";
        }
        let mut lanes = table(&[
            Column::Number("lane"),
            Column::Number("root"),
            Column::Number("tail"),
            Column::Number("end"),
            Column::Number("shards"),
            Column::Number("slabs"),
            Column::Number("used"),
            Column::Number("free"),
            Column::Number("open"),
            Column::Number("suspect"),
        ]);
        let or_bad =
            |number: Option<u64>| number.map_or_else(|| "bad".to_owned(), |number| number.to_string());
        for lane in &self.lane_list {
            lanes.add_row([
                lane.lane.to_string(),
                or_bad(lane.root),
                or_bad(lane.journal_tail),
                or_bad(lane.journal_end),
                lane.shards.to_string(),
                lane.slabs.to_string(),
                lane.used_extents.to_string(),
                lane.free_extents.to_string(),
                lane.open_extents.to_string(),
                lane.suspect_extents.to_string(),
            ]);
        }
        text.push('\n');
        text += &lines(&lanes);
        for lane in &self.lane_list {
            for trouble in &lane.trouble {
                text += &format!("lane {}: {trouble}\n", lane.lane);
            }
            if let Some(gap) = lane.journal_gap {
                text += &format!("lane {}: journal block {gap} is lost\n", lane.lane);
            }
        }
        if let Some(extents) = &self.extent_list {
            text.push('\n');
            text += &extent_table(extents);
        }
        text
    }
}

fn extent_table(extents: &[Extent]) -> String {
    let mut list = table(&[
        Column::Number("extent"),
        Column::Number("lane"),
        Column::Text("holds"),
        Column::Text("version"),
        Column::Text("state"),
    ]);
    for extent in extents {
        let state = match (extent.open, extent.suspect) {
            (_, true) => "suspect",
            (true, false) => "open",
            (false, false) => "",
        };
        let (number, lane) = (extent.extent.to_string(), extent.lane.to_string());
        list.add_row([number.as_str(), &lane, &extent.holds, &extent.version, state]);
    }
    lines(&list)
}

/// Something that the journal says about a block.
#[derive(Debug, Clone, Serialize)]
struct Event {
    journal_block: u64,
    record: u64,
    version: String,
    what: &'static str,
    checksum: Option<String>,
    landed: bool,
}

/// What a lane knows about a block.
#[derive(Debug, Clone, Serialize)]
struct History {
    lane: u32,
    extent: u32,
    device_block: u64,
    checksum_page: String,
    found_checksum: String,
    events: Vec<Event>,
}

fn checksum(stored: Stored) -> String {
    match stored {
        Stored::NEVER => "never written".to_owned(),
        Stored::ZERO => "zero".to_owned(),
        Stored(sum) => format!("{sum:08x}"),
    }
}

impl History {
    fn of(history: &BlockHistory) -> Self {
        let events = history.events.iter().map(|event| {
            let (what, sum) = match event.kind {
                EventKind::Written(sum) => ("written", Some(sum)),
                EventKind::Zeroed => ("zeroed", None),
                EventKind::Allocated => ("allocated", None),
                EventKind::Freed => ("freed", None),
            };
            Event {
                journal_block: event.sequence,
                record: event.record,
                version: event.version.to_string(),
                what,
                checksum: sum.map(checksum),
                landed: event.landed,
            }
        });
        Self {
            lane: history.lane,
            extent: history.extent.0,
            device_block: history.address,
            checksum_page: history.page.map_or_else(|bad| format!("bad: {bad}"), checksum),
            found_checksum: checksum(history.found),
            events: events.collect(),
        }
    }

    fn text(&self) -> String {
        let mut facts = table(&[Column::Text("field"), Column::Text("value")]);
        facts.add_row(["lane", &self.lane.to_string()]);
        facts.add_row(["extent", &self.extent.to_string()]);
        facts.add_row(["block of the device", &self.device_block.to_string()]);
        facts.add_row(["checksum page says", &self.checksum_page]);
        facts.add_row(["checksum of what is there", &self.found_checksum]);
        let mut events = table(&[
            Column::Number("journal block"),
            Column::Number("record"),
            Column::Text("version"),
            Column::Text("what"),
            Column::Text("checksum"),
            Column::Text("landed"),
        ]);
        for event in &self.events {
            events.add_row([
                event.journal_block.to_string(),
                event.record.to_string(),
                event.version.clone(),
                event.what.to_owned(),
                event.checksum.clone().unwrap_or_default(),
                if event.landed { "yes" } else { "no" }.to_owned(),
            ]);
        }
        format!("{}\n{}", lines(&facts), lines(&events))
    }
}
