//! `ashlar nvme discover`: the discovery log, and the commands that connect a Linux host.

use ashlar_initiator::{DiscoveryLog, HostConfig, discover};
use ashlar_nvme::ids::HostId;
use ashlar_nvme::log::DiscoveryEntry;
use ashlar_nvme::log::discovery::{
    AddressFamily, SecureChannel, SubsystemType, TREQ_DISABLE_SQ_FLOW, TransportType, eflags,
};
use clap::Args;
use serde::Serialize;
use uuid::Uuid;

use super::fields::ascii;
use crate::connect::{self, Doing, Host, HostArgs};
use crate::exit::Outcome;
use crate::output::{self, Column, Format};

/// Options of `ashlar nvme discover`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiscoverArgs {
    #[command(flatten)]
    host: HostArgs,
}

/// One entry, decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// NQN of the subsystem.
    pub(crate) subsystem: String,
    /// SUBTYPE by name.
    pub(crate) kind: String,
    /// TRTYPE by name.
    pub(crate) transport: String,
    /// ADRFAM by name.
    pub(crate) family: String,
    /// TRADDR.
    pub(crate) address: String,
    /// TRSVCID.
    pub(crate) service: String,
    /// PORTID.
    pub(crate) port_id: u16,
    /// TREQ: secure channel by name.
    pub(crate) secure_channel: String,
    /// TREQ: submission queue flow control can be disabled.
    pub(crate) can_disable_sq_flow_control: bool,
    /// EFLAGS: a persistent connection is supported.
    pub(crate) persistent_discovery: bool,
    /// The command that connects a Linux host to it.
    pub(crate) command: String,
}

/// A discovery log, decoded. This is the JSON document of `ashlar nvme discover -o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Discovered {
    /// GENCTR.
    pub(crate) generation: u64,
    /// Entries in the log's order.
    pub(crate) entries: Vec<Entry>,
}

/// The name of a code, or its number if it has none.
fn named<T: std::fmt::Debug>(code: u8, known: Result<T, impl Sized>) -> String {
    known.map_or_else(|_| format!("{code:#04x}"), |name| format!("{name:?}"))
}

impl Entry {
    fn decode(entry: &DiscoveryEntry, config: &HostConfig) -> Self {
        let subtype = SubsystemType::try_from(entry.subtype);
        let subsystem = ascii(&entry.subnqn);
        let (address, service) = (ascii(&entry.traddr), ascii(&entry.trsvcid));
        let transport = TransportType::try_from(entry.trtype);
        let verb = match subtype {
            Ok(SubsystemType::Nvm) => "connect",
            _ => "discover",
        };
        let command = match transport {
            Ok(TransportType::Tcp) => command(verb, &subsystem, &address, &service, config),
            _ => String::new(),
        };
        Self {
            kind: named(entry.subtype, subtype),
            transport: named(entry.trtype, transport),
            family: named(entry.adrfam, AddressFamily::try_from(entry.adrfam)),
            port_id: entry.portid.get(),
            secure_channel: named(entry.treq & 3, SecureChannel::try_from(entry.treq & 3)),
            can_disable_sq_flow_control: entry.treq & TREQ_DISABLE_SQ_FLOW != 0,
            persistent_discovery: entry.eflags.get() & eflags::EPCSD != 0,
            subsystem,
            address,
            service,
            command,
        }
    }

    /// SUBTYPE in one word of the specification.
    fn short_kind(&self) -> &str {
        match self.kind.as_str() {
            "CurrentDiscovery" => "current",
            "DiscoveryReferral" => "referral",
            "Nvm" => "NVM",
            other => other,
        }
    }

    /// Address and port; with the transport if it is not TCP.
    fn place(&self) -> String {
        let address = match self.address.contains(':') {
            true => format!("[{}]:{}", self.address, self.service),
            false => format!("{}:{}", self.address, self.service),
        };
        if self.transport == "Tcp" { address } else { format!("{address} {}", self.transport) }
    }

    /// Whether it is a subsystem with namespaces.
    pub(crate) fn is_nvm(&self) -> bool {
        self.kind == "Nvm"
    }
}

/// A line for a Linux shell. The host's names are in it, because targets allow hosts by name.
fn command(verb: &str, subsystem: &str, address: &str, service: &str, config: &HostConfig) -> String {
    let HostId(id) = config.host_id;
    let nqn = if verb == "connect" { format!(" -n {}", quoted(subsystem)) } else { String::new() };
    let digests = match (config.header_digest, config.data_digest) {
        (ashlar_nvme::pdu::DigestUse::Off, ashlar_nvme::pdu::DigestUse::Off) => "",
        (ashlar_nvme::pdu::DigestUse::On, ashlar_nvme::pdu::DigestUse::Off) => " --hdr-digest",
        (ashlar_nvme::pdu::DigestUse::Off, ashlar_nvme::pdu::DigestUse::On) => " --data-digest",
        (ashlar_nvme::pdu::DigestUse::On, ashlar_nvme::pdu::DigestUse::On) => " --hdr-digest --data-digest",
    };
    format!(
        "nvme {verb} -t tcp -a {} -s {}{nqn} --hostnqn={} --hostid={}{digests}",
        quoted(address),
        quoted(service),
        quoted(config.host_nqn.as_str()),
        Uuid::from_bytes(id)
    )
}

/// Text that a shell takes as one word: what a target says is not to be trusted with a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/%@+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Decodes a log.
fn decode(log: &DiscoveryLog, config: &HostConfig) -> Discovered {
    Discovered {
        generation: log.generation,
        entries: log.entries.iter().map(|entry| Entry::decode(entry, config)).collect(),
    }
}

/// Reads the discovery log of the target.
pub(crate) fn read(args: &HostArgs) -> Outcome<Discovered> {
    let address = connect::resolve(&args.address)?;
    let config = super::admin_config(args)?;
    let host = Host::start(vec![None])?;
    let asked = config.clone();
    let log = host.run(move || async move {
        let doing = Doing::new(format!("reading the discovery log of {address}"));
        discover(address, &asked).await.map_err(|error| doing.failed(&error))
    });
    host.stop();
    Ok(decode(&log?, &config))
}

impl Discovered {
    fn table(&self) -> String {
        let mut table =
            output::table(&[Column::Text("subsystem"), Column::Text("type"), Column::Text("address")]);
        for entry in &self.entries {
            table.add_row([entry.subsystem.clone(), entry.short_kind().to_owned(), entry.place()]);
        }
        let mut text = format!("{} entries, generation {}\n\n", self.entries.len(), self.generation);
        text.push_str(&output::lines(&table));
        let commands: Vec<_> =
            self.entries.iter().filter(|entry| entry.is_nvm() && !entry.command.is_empty()).collect();
        if !commands.is_empty() {
            text.push_str("\nTo connect from Linux, as root:\n");
        }
        for entry in commands {
            text.push_str(&entry.command);
            text.push('\n');
        }
        text
    }
}

/// Prints a decoded log.
pub(crate) fn print(found: &Discovered, format: Format) -> Outcome {
    match format {
        Format::Table => output::print(&found.table()),
        Format::Json => output::print_json(found),
    }
}

/// Runs `ashlar nvme discover`.
pub(crate) fn run(args: &DiscoverArgs, format: Format) -> Outcome {
    print(&read(&args.host)?, format)
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::{Nqn, Wire};

    use super::*;

    fn config() -> HostConfig {
        let nqn = Nqn::parse("nqn.2024-01.example:host").expect("an NQN");
        HostConfig::new(nqn, HostId([7; 16]))
    }

    fn entry(subtype: SubsystemType, nqn: &str) -> DiscoveryEntry {
        let mut entry = DiscoveryEntry::zeroed();
        entry.trtype = TransportType::Tcp.code();
        entry.adrfam = AddressFamily::Ipv4.code();
        entry.subtype = subtype.code();
        entry.treq = TREQ_DISABLE_SQ_FLOW;
        entry.trsvcid = ashlar_nvme::identify::ascii_field("4420");
        entry.traddr = ashlar_nvme::identify::ascii_field("192.0.2.7");
        for (to, from) in entry.subnqn.iter_mut().zip(nqn.bytes()) {
            *to = from;
        }
        entry
    }

    #[test]
    fn each_subsystem_comes_with_its_connect_line() {
        let log = DiscoveryLog {
            generation: 3,
            entries: vec![
                entry(SubsystemType::CurrentDiscovery, "nqn.2014-08.org.nvmexpress.discovery"),
                entry(SubsystemType::Nvm, "nqn.2024-01.io.ashlar:demo"),
            ],
        };
        let text = decode(&log, &config()).table();
        let line = "nvme connect -t tcp -a 192.0.2.7 -s 4420 -n nqn.2024-01.io.ashlar:demo \
                    --hostnqn=nqn.2024-01.example:host --hostid=07070707-0707-0707-0707-070707070707\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.matches("nvme connect").count(), 1, "{text}");
        assert!(text.contains("2 entries, generation 3"), "{text}");
        // The longest name that every log has is not broken.
        assert!(text.contains(" nqn.2014-08.org.nvmexpress.discovery"), "{text}");
        assert!(text.contains("192.0.2.7:4420\n"), "{text}");
    }

    #[test]
    fn digests_asked_for_are_in_the_connect_line() {
        let mut config = config();
        config.data_digest = ashlar_nvme::pdu::DigestUse::On;
        let entry = Entry::decode(&entry(SubsystemType::Nvm, "nqn.2024-01.io.ashlar:demo"), &config);
        assert!(entry.command.ends_with(" --data-digest"), "{}", entry.command);
    }

    #[test]
    fn a_hostile_name_stays_one_word_of_the_shell() {
        let entry = Entry::decode(&entry(SubsystemType::Nvm, "nqn.2024-01.x:a;reboot $(id) 'q'"), &config());
        assert!(entry.command.contains(r"-n 'nqn.2024-01.x:a;reboot $(id) '\''q'\''' "), "{}", entry.command);
    }

    #[test]
    fn unknown_codes_are_shown_as_numbers() {
        let mut raw = entry(SubsystemType::Nvm, "nqn.2024-01.io.ashlar:demo");
        raw.trtype = 0x77;
        let entry = Entry::decode(&raw, &config());
        assert_eq!(entry.transport, "0x77");
        assert_eq!(entry.command, "");
    }
}
