//! `ashlar nvme list`: namespaces with size, format and identity.

use std::rc::Rc;

use ashlar_initiator::Controller;
use ashlar_nvme::admin::IdentifyCommand;
use ashlar_nvme::identify::{Cns, NsIdDescriptor, NsIdDescriptors};
use ashlar_nvme::ids::{Eui64, Nguid};
use ashlar_nvme::{Nqn, Nsid};
use clap::Args;
use serde::Serialize;
use uuid::Uuid;

use super::fields::hex;
use super::{ask, discover, subsystem};
use crate::connect::{Doing, HostArgs};
use crate::exit::Outcome;
use crate::output::{self, Column, Format};
use crate::units::show_bytes;

/// Options of `ashlar nvme list`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    host: HostArgs,
    /// NQN of the subsystem; all subsystems that the target offers this host if not given
    #[arg(short = 'n', long, value_name = "NQN")]
    subsystem: Option<String>,
}

/// Identifiers of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Identifiers {
    /// UUID, if it has one.
    pub(crate) uuid: Option<String>,
    /// NGUID, if it has one.
    pub(crate) nguid: Option<String>,
    /// EUI64, if it has one.
    pub(crate) eui64: Option<String>,
    /// Command set, if it says.
    pub(crate) csi: Option<u8>,
}

impl Identifiers {
    /// From a descriptor list (CNS 03h).
    pub(crate) fn decode(list: &[u8]) -> Self {
        let mut found = Self::default();
        for descriptor in NsIdDescriptors::new(list) {
            match descriptor {
                NsIdDescriptor::Uuid(bytes) => found.uuid = Some(Uuid::from_bytes(bytes).to_string()),
                NsIdDescriptor::Nguid(Nguid(bytes)) => found.nguid = Some(hex(&bytes)),
                NsIdDescriptor::Eui64(Eui64(bytes)) => found.eui64 = Some(hex(&bytes)),
                NsIdDescriptor::Csi(csi) => found.csi = Some(csi),
            }
        }
        found
    }
}

/// One namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    subsystem: String,
    nsid: u32,
    bytes: u64,
    block_bytes: u32,
    ana_group: u32,
    #[serde(flatten)]
    identifiers: Identifiers,
}

async fn namespaces(controller: Rc<Controller>, subsystem: Nqn) -> Outcome<Vec<Row>> {
    let listing = Doing::new(format!("listing the namespaces of {subsystem}"));
    let nsids = controller.active_namespaces().await.map_err(|error| listing.failed(&error))?;
    let mut rows = Vec::with_capacity(nsids.len());
    for nsid in nsids {
        let looking = Doing::new(format!("looking at namespace {nsid} of {subsystem}"));
        let namespace = match controller.namespace(nsid).await {
            Ok(namespace) => namespace,
            // Removed between the two questions.
            Err(ashlar_initiator::HostError::NoNamespace(_)) => continue,
            Err(error) => return Err(looking.failed(&error)),
        };
        let list = controller
            .identify(IdentifyCommand::new(Cns::NamespaceDescriptors), nsid)
            .await
            .map_err(|error| looking.failed(&error))?;
        rows.push(Row {
            subsystem: subsystem.to_string(),
            nsid: nsid.0,
            bytes: namespace.blocks.saturating_mul(u64::from(namespace.block_bytes)),
            block_bytes: namespace.block_bytes,
            ana_group: namespace.identify.anagrpid.get(),
            identifiers: Identifiers::decode(&list),
        });
    }
    Ok(rows)
}

/// Runs `ashlar nvme list`.
pub(crate) fn run(args: &ListArgs, format: Format) -> Outcome {
    let subsystems = match &args.subsystem {
        Some(text) => vec![subsystem(text)?],
        None => {
            let mut names: Vec<_> = discover::read(&args.host)?
                .entries
                .iter()
                .filter(|entry| entry.is_nvm())
                .filter_map(|entry| Nqn::parse(&entry.subsystem).ok())
                .collect();
            names.sort();
            names.dedup();
            names
        }
    };
    let mut rows = Vec::new();
    for subsystem in subsystems {
        let asked = subsystem.clone();
        rows.extend(ask(&args.host, &subsystem, |controller| namespaces(controller, asked))?);
    }
    match format {
        Format::Table => output::print(&table(&rows)),
        Format::Json => output::print_json(&rows),
    }
}

/// One block of lines per subsystem: an NQN and a UUID do not fit on one line of 80 columns.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for group in rows.chunk_by(|a, b| a.subsystem == b.subsystem) {
        if !text.is_empty() {
            text.push('\n');
        }
        if let Some(first) = group.first() {
            text.push_str(&first.subsystem);
            text.push('\n');
        }
        let mut table = output::table(&[
            Column::Number("nsid"),
            Column::Number("size"),
            Column::Number("block"),
            Column::Number("ANA group"),
            Column::Text("UUID"),
        ]);
        for row in group {
            let identity = row.identifiers.uuid.clone().or_else(|| row.identifiers.nguid.clone());
            table.add_row([
                Nsid(row.nsid).to_string(),
                show_bytes(row.bytes),
                row.block_bytes.to_string(),
                row.ana_group.to_string(),
                identity.unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        text.push_str(&output::lines(&table));
    }
    if rows.is_empty() {
        text.push_str("no namespaces\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::identify::NsIdWriter;

    use super::*;

    fn row(subsystem: &str, nsid: u32) -> Row {
        let list = NsIdWriter::default()
            .with(NsIdDescriptor::Uuid([0x11; 16]))
            .with(NsIdDescriptor::Nguid(Nguid([0x22; 16])))
            .with(NsIdDescriptor::Csi(0))
            .finish();
        Row {
            subsystem: subsystem.to_owned(),
            nsid,
            bytes: 1 << 30,
            block_bytes: 4096,
            ana_group: 1,
            identifiers: Identifiers::decode(&*list),
        }
    }

    #[test]
    fn namespaces_are_listed_under_their_subsystem() {
        let rows = [
            row("nqn.2024-01.io.ashlar:a", 1),
            row("nqn.2024-01.io.ashlar:a", 4096),
            row("nqn.2024-01.io.ashlar:b", 1),
        ];
        let text = table(&rows);
        assert_eq!(text.matches("nqn.").count(), 2, "{text}");
        assert_eq!(text.matches("11111111-1111-1111-1111-111111111111").count(), 3, "{text}");
        assert!(text.contains("1 GiB") && text.contains("4096"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn identifiers_are_those_of_the_descriptor_list() {
        let row = row("nqn.2024-01.io.ashlar:a", 1);
        assert_eq!(row.identifiers.nguid.as_deref(), Some("22222222222222222222222222222222"));
        assert_eq!(row.identifiers.csi, Some(0));
        assert_eq!(row.identifiers.eui64, None);
        assert_eq!(Identifiers::decode(&[1, 2, 3]), Identifiers::default());
    }
}
