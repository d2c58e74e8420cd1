//! `ashlar nvme log`: log pages, read whole and decoded.

use std::rc::Rc;

use ashlar_initiator::{Controller, HostError};
use ashlar_nvme::admin::GetLogPageCommand;
use ashlar_nvme::identify::IdentifyController;
use ashlar_nvme::identify::NamespaceList;
use ashlar_nvme::log::ana::{AnaGroups, AnaLogHeader};
use ashlar_nvme::log::effects::CommandEffects;
use ashlar_nvme::log::smart::critical_warning;
use ashlar_nvme::log::supported::LogSupport;
use ashlar_nvme::log::{CommandsEffectsLog, ErrorEntry, FirmwareSlotLog, LogId, SmartLog, SupportedLogPages};
use ashlar_nvme::opcode::{AdminOpcode, NvmOpcode};
use ashlar_nvme::status::StatusField;
use ashlar_nvme::{Nsid, Wire};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use serde_json::{Value, json};

use super::fields::{Fields, ascii};
use super::identify::decoded;
use super::{ask, discover, subsystem};
use crate::connect::{Doing, HostArgs};
use crate::exit::{Failure, Outcome};
use crate::output::{self, Column, Format};

/// Largest ANA log that is read: one group for each of 65536 namespaces and more.
const ANA_BYTES_MAX: usize = 4 << 20;

/// The ANA log is read in pieces of this size: how long it is only its content says, and an offset beyond its
/// end is an error (NVMe Base 2.0 §5.16). A multiple of a dword.
const ANA_PIECE_BYTES: u64 = 32 << 10;

/// How often an ANA log that changed while it was read in pieces is read again.
const ANA_ATTEMPTS: u32 = 5;

/// The pages that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Page {
    /// Error information (01h)
    Error,
    /// SMART / health information (02h)
    Smart,
    /// Firmware slots (03h)
    Firmware,
    /// Changed namespaces (04h); reading it clears it
    ChangedNs,
    /// Commands supported and effects (05h)
    Effects,
    /// Asymmetric namespace access (0Ch)
    Ana,
    /// Supported log pages (00h)
    Supported,
    /// Discovery (70h), of the discovery controller
    Discovery,
}

/// Options of `ashlar nvme log`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogArgs {
    /// The page
    #[arg(value_enum)]
    page: Page,
    #[command(flatten)]
    host: HostArgs,
    /// NQN of the subsystem, or discovery; not needed for the discovery page
    #[arg(short = 'n', long, value_name = "NQN", env = "ASHLAR_SUBSYSTEM")]
    subsystem: Option<String>,
    /// Namespace, for the pages that differ by namespace; the whole controller if not given
    #[arg(long)]
    nsid: Option<u32>,
}

/// A page for people and for programs.
struct Shown {
    table: String,
    json: Value,
}

impl Page {
    fn id(self) -> LogId {
        match self {
            Page::Error => LogId::ErrorInformation,
            Page::Smart => LogId::Smart,
            Page::Firmware => LogId::FirmwareSlot,
            Page::ChangedNs => LogId::ChangedNamespaces,
            Page::Effects => LogId::CommandsEffects,
            Page::Ana => LogId::Ana,
            Page::Supported => LogId::SupportedLogPages,
            Page::Discovery => LogId::Discovery,
        }
    }

    /// Bytes of the page at this controller.
    fn bytes(self, controller: &IdentifyController) -> u32 {
        let bytes = match self {
            Page::Error => (u64::from(controller.elpe) + 1) * ErrorEntry::SIZE as u64,
            Page::Smart => SmartLog::SIZE as u64,
            Page::Firmware => FirmwareSlotLog::SIZE as u64,
            Page::ChangedNs => NamespaceList::SIZE as u64,
            Page::Effects => CommandsEffectsLog::SIZE as u64,
            Page::Ana => ANA_PIECE_BYTES,
            Page::Supported | Page::Discovery => SupportedLogPages::SIZE as u64,
        };
        // At most 16 KiB of error entries; Get Log Page counts dwords.
        (bytes as u32).next_multiple_of(4)
    }
}

/// Runs `ashlar nvme log`.
pub(crate) fn run(args: &LogArgs, format: Format) -> Outcome {
    if args.page == Page::Discovery {
        return discover::print(&discover::read(&args.host)?, format);
    }
    let Some(name) = &args.subsystem else {
        return Err(Failure::usage("choosing the controller to ask", "--subsystem is missing")
            .next("`ashlar nvme discover` shows the subsystems of this host"));
    };
    let subsystem = subsystem(name)?;
    let page = args.page;
    let nsid = args.nsid.map_or(Nsid::BROADCAST, Nsid);
    let doing = Doing::new(format!("reading log page {:02x}h of {subsystem}", page.id().code()));
    let log = ask(&args.host, &subsystem, move |controller: Rc<Controller>| async move {
        let fail = |error: HostError| doing.failed(&error);
        if page == Page::Ana {
            return read_ana(&controller, nsid).await.map_err(fail);
        }
        let identify = controller.identify_controller().await.map_err(fail)?;
        let command = GetLogPageCommand::new(page.id(), 0, page.bytes(&identify));
        controller.log_page(command, nsid).await.map_err(fail)
    })?;
    let shown = show(page, &log)?;
    match format {
        Format::Table => output::print(&shown.table),
        Format::Json => output::print_json(&shown.json),
    }
}

/// Reads the ANA log until all groups that its header counts are there.
async fn read_ana(controller: &Controller, nsid: Nsid) -> Result<Vec<u8>, HostError> {
    let piece = async |offset: u64| {
        let command = GetLogPageCommand::new(LogId::Ana, offset, ANA_PIECE_BYTES as u32);
        controller.log_page(command, nsid).await
    };
    let mut log = Vec::new();
    for _ in 0..ANA_ATTEMPTS {
        log.clear();
        while !ana_is_whole(&log) && log.len() < ANA_BYTES_MAX {
            log.extend(piece(log.len() as u64).await?);
        }
        if log.len() as u64 == ANA_PIECE_BYTES || change_count(&piece(0).await?) == change_count(&log) {
            break;
        }
    }
    Ok(log)
}

fn change_count(log: &[u8]) -> Option<u64> {
    AnaLogHeader::ref_from(log).ok().map(|header| header.chgcnt.get())
}

fn ana_is_whole(log: &[u8]) -> bool {
    let Ok(header) = AnaLogHeader::ref_from(log) else { return false };
    AnaGroups::new(log).is_ok_and(|groups| groups.count() == usize::from(header.ngrps.get()))
}

fn show(page: Page, log: &[u8]) -> Outcome<Shown> {
    Ok(match page {
        Page::Error => errors(log),
        Page::Smart => fields(smart(&decoded::<SmartLog>(log)?)),
        Page::Firmware => fields(firmware(&decoded::<FirmwareSlotLog>(log)?)),
        Page::ChangedNs => changed(&decoded::<NamespaceList>(log)?),
        Page::Effects => effects(&decoded::<CommandsEffectsLog>(log)?),
        Page::Ana => ana(log)?,
        Page::Supported | Page::Discovery => supported(&decoded::<SupportedLogPages>(log)?),
    })
}

fn fields(fields: Fields) -> Shown {
    // Fields serialize without fail: their keys are text.
    Shown { table: fields.table(), json: serde_json::to_value(&fields).unwrap_or_default() }
}

fn lines_or(table: &Table, nothing: &str) -> String {
    if table.row_count() == 0 { format!("{nothing}\n") } else { output::lines(table) }
}

fn errors(log: &[u8]) -> Shown {
    let mut table = output::table(&[
        Column::Number("count"),
        Column::Number("queue"),
        Column::Number("command"),
        Column::Number("nsid"),
        Column::Number("LBA"),
        Column::Text("status"),
    ]);
    let mut json = Vec::new();
    for chunk in log.chunks_exact(ErrorEntry::SIZE) {
        let Ok(entry) = ErrorEntry::ref_from(chunk) else { continue };
        let count = entry.error_count.get();
        // A count of zero is no entry (NVMe Base 2.0 §5.16.1.2).
        if count == 0 {
            continue;
        }
        let status = StatusField(entry.status.get());
        table.add_row([
            count.to_string(),
            entry.sqid.get().to_string(),
            format!("{:#06x}", entry.cid.get()),
            Nsid(entry.nsid.get()).to_string(),
            entry.lba.get().to_string(),
            status.status().to_string(),
        ]);
        json.push(json!({
            "error_count": count,
            "sqid": entry.sqid.get(),
            "cid": entry.cid.get(),
            "nsid": entry.nsid.get(),
            "lba": entry.lba.get(),
            "location": entry.location.get(),
            "status": status.status().to_string(),
            "status_code": status.status().code(),
            "dnr": status.dnr(),
        }));
    }
    Shown { table: lines_or(&table, "no errors"), json: Value::Array(json) }
}

fn smart(log: &SmartLog) -> Fields {
    let mut f = Fields::default();
    f.bits(
        "critical_warning",
        log.critical_warning,
        &[
            (critical_warning::SPARE as u64, "spare below threshold"),
            (critical_warning::TEMPERATURE as u64, "temperature"),
            (critical_warning::RELIABILITY as u64, "reliability degraded"),
            (critical_warning::READ_ONLY as u64, "read-only"),
            (critical_warning::BACKUP_FAILED as u64, "volatile memory backup failed"),
        ],
    );
    let kelvin = log.composite_temperature.get();
    let celsius = if kelvin == 0 { String::new() } else { format!("{} °C", i32::from(kelvin) - 273) };
    f.number("composite_temperature", kelvin, celsius);
    f.number("avail_spare", log.avail_spare, "%");
    f.number("spare_thresh", log.spare_thresh, "%");
    f.number("percent_used", log.percent_used, "%");
    // Thousands of 512 bytes (NVMe Base 2.0 §5.16.1.3).
    let data = |units: u128| format!("about {:.1} GB", units as f64 * 512_000.0 / 1e9);
    f.number("data_units_read", log.data_units_read.get(), data(log.data_units_read.get()));
    f.number("data_units_written", log.data_units_written.get(), data(log.data_units_written.get()));
    f.number("host_reads", log.host_reads.get(), "commands");
    f.number("host_writes", log.host_writes.get(), "commands");
    f.number("ctrl_busy_time", log.ctrl_busy_time.get(), "minutes");
    f.number("power_cycles", log.power_cycles.get(), "");
    f.number("power_on_hours", log.power_on_hours.get(), "hours");
    f.number("unsafe_shutdowns", log.unsafe_shutdowns.get(), "");
    f.number("media_errors", log.media_errors.get(), "");
    f.number("num_err_log_entries", log.num_err_log_entries.get(), "");
    f.number("warning_temp_time", log.warning_temp_time.get(), "");
    f.number("critical_comp_time", log.critical_comp_time.get(), "");
    f
}

fn firmware(log: &FirmwareSlotLog) -> Fields {
    let mut f = Fields::default();
    f.number("afi", log.afi, format!("slot {} active", log.afi & 7));
    for (index, revision) in log.frs.iter().enumerate() {
        f.text(&format!("frs{}", index + 1), ascii(revision), "");
    }
    f
}

fn changed(log: &NamespaceList) -> Shown {
    if log.is_overflow() {
        let table = "more namespaces changed than the list holds\n".to_owned();
        return Shown { table, json: json!({"overflow": true, "nsids": []}) };
    }
    let nsids: Vec<u32> = log.iter().map(|nsid| nsid.0).collect();
    let text: Vec<_> = nsids.iter().map(ToString::to_string).collect();
    let table = if text.is_empty() { "no changes\n".to_owned() } else { text.join("\n") + "\n" };
    Shown { table, json: json!({"overflow": false, "nsids": nsids}) }
}

fn effects(log: &CommandsEffectsLog) -> Shown {
    let mut table = output::table(&[
        Column::Text("set"),
        Column::Number("opcode"),
        Column::Text("command"),
        Column::Text("effects"),
    ]);
    let mut json = Vec::new();
    let admin = |code| AdminOpcode::try_from(code).map(|opcode| format!("{opcode:?}"));
    let nvm = |code| NvmOpcode::try_from(code).map(|opcode| format!("{opcode:?}"));
    let named = |set: &str, code: u8| {
        let name = if set == "admin" { admin(code) } else { nvm(code) };
        name.unwrap_or_else(|_| "unknown".to_owned())
    };
    for (set, list) in [("admin", &log.acs), ("io", &log.iocs)] {
        // Opcodes have 8 bits, so the list has 256 entries.
        for (code, raw) in (0..=u8::MAX).zip(list) {
            let effects = CommandEffects(raw.get());
            if !effects.csupp() {
                continue;
            }
            let name = named(set, code);
            let changes = changes(effects);
            json.push(json!({"set": set, "opcode": code, "command": name, "effects": raw.get()}));
            table.add_row([set, &format!("{code:02x}h"), &name, &changes]);
        }
    }
    Shown { table: lines_or(&table, "no commands"), json: Value::Array(json) }
}

fn changes(effects: CommandEffects) -> String {
    let mut changes = Vec::new();
    for (set, text) in [
        (effects.lbcc(), "changes blocks"),
        (effects.ncc(), "changes namespace"),
        (effects.nic(), "changes inventory"),
        (effects.ccc(), "changes controller"),
    ] {
        if set {
            changes.push(text);
        }
    }
    match effects.cse() {
        0 => {}
        1 => changes.push("one at a time per namespace"),
        _ => changes.push("one at a time"),
    }
    changes.join(", ")
}

fn ana(log: &[u8]) -> Outcome<Shown> {
    let header = decoded::<AnaLogHeader>(log)?;
    let mut table = output::table(&[
        Column::Number("group"),
        Column::Text("state"),
        Column::Number("changes"),
        Column::Text("namespaces"),
    ]);
    let mut json = Vec::new();
    let groups = AnaGroups::new(log)
        .map_err(|error| Failure::new(crate::exit::Exit::Failed, "decoding the ANA log", error))?;
    for (group, nsids) in groups {
        let state =
            group.state().map_or_else(|_| format!("{:#x}", group.state), |state| format!("{state:?}"));
        let nsids: Vec<u32> = nsids.iter().map(|nsid| nsid.get()).collect();
        let text: Vec<_> = nsids.iter().map(ToString::to_string).collect();
        table.add_row([
            group.anagrpid.get().to_string(),
            state.clone(),
            group.chgcnt.get().to_string(),
            text.join(" "),
        ]);
        json.push(json!({
            "group": group.anagrpid.get(),
            "state": state,
            "change_count": group.chgcnt.get(),
            "nsids": nsids,
        }));
    }
    let json = json!({"change_count": header.chgcnt.get(), "groups": json});
    Ok(Shown { table: lines_or(&table, "no groups"), json })
}

fn supported(log: &SupportedLogPages) -> Shown {
    let mut table = output::table(&[Column::Number("page"), Column::Text("name")]);
    let mut json = Vec::new();
    for (code, raw) in (0..=u8::MAX).zip(&log.lid) {
        if !LogSupport(raw.get()).lsupp() {
            continue;
        }
        let name = LogId::try_from(code).map_or_else(|_| "unknown".to_owned(), |id| format!("{id:?}"));
        table.add_row([format!("{code:02x}h"), name.clone()]);
        json.push(json!({"lid": code, "name": name}));
    }
    Shown { table: lines_or(&table, "no pages"), json: Value::Array(json) }
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::Status;
    use ashlar_nvme::log::{AnaGroupDescriptor, AnaState};
    use ashlar_nvme::wire::{U16, U64};

    use super::*;

    fn shown(page: Page, log: &[u8]) -> Shown {
        show(page, log).expect("decodes")
    }

    #[test]
    fn errors_are_listed_with_their_status_in_words() {
        let mut entry = ErrorEntry::zeroed();
        entry.error_count = U64::new(7);
        entry.sqid = U16::new(2);
        entry.status = U16::new(StatusField::from(Status::LBA_OUT_OF_RANGE).0);
        let log = [entry.bytes(), ErrorEntry::zeroed().bytes()].concat();
        let shown = shown(Page::Error, &log);
        assert!(shown.table.contains("LBA Out of Range"), "{}", shown.table);
        assert_eq!(shown.json.as_array().map(Vec::len), Some(1));
        assert_eq!(shown.json[0]["dnr"], true);
    }

    #[test]
    fn an_empty_error_log_says_so() {
        assert_eq!(shown(Page::Error, &[0; 640]).table, "no errors\n");
    }

    #[test]
    fn ana_groups_show_state_and_namespaces() {
        let mut log = AnaLogHeader::new(5, 1).bytes().to_vec();
        log.extend(AnaGroupDescriptor::new(1, 2, 4, AnaState::Optimized).bytes());
        log.extend([3, 0, 0, 0, 9, 0, 0, 0]);
        let shown = shown(Page::Ana, &log);
        assert!(shown.table.contains("Optimized") && shown.table.contains("3 9"), "{}", shown.table);
        assert_eq!(shown.json["groups"][0]["nsids"], json!([3, 9]));
    }

    #[test]
    fn supported_commands_show_what_they_change() {
        let mut log = CommandsEffectsLog::zeroed();
        log.set_io(NvmOpcode::Write.code(), CommandEffects(0).with_csupp(true).with_lbcc(true));
        let shown = shown(Page::Effects, log.bytes());
        assert!(shown.table.contains("Write") && shown.table.contains("changes blocks"), "{}", shown.table);
    }

    #[test]
    fn changed_namespaces_tell_overflow_from_nothing() {
        assert_eq!(shown(Page::ChangedNs, NamespaceList::zeroed().bytes()).table, "no changes\n");
        assert_eq!(shown(Page::ChangedNs, NamespaceList::overflow().bytes()).json["overflow"], true);
        let some = NamespaceList::from_ids([Nsid(3), Nsid(4)]);
        assert_eq!(shown(Page::ChangedNs, some.bytes()).table, "3\n4\n");
    }

    #[test]
    fn a_short_log_is_an_error_not_a_guess() {
        assert!(show(Page::Smart, &[0; 100]).is_err());
        assert!(show(Page::Ana, &[0; 3]).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn any_bytes_of_a_target_decode_or_fail(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..8192)
        ) {
            for page in Page::value_variants() {
                let _ = show(*page, &bytes);
            }
        }
    }
}
