//! Metrics of the namespaces: operations, bytes, errors and commands per core, latency per namespace.

use std::fmt;

use ashlar_nvme::Status;
use ashlar_target::inventory::Inventory;
use ashlar_target::target::{Counts, NamespaceMetrics, Operation};
use prometheus_client::encoding::DescriptorEncoder;

use super::labels::{Labels, Name, counters, gauges};
use super::latency;

const OPERATIONS: Name = Name::count("namespace_operations", "Commands that ended, well or not.");
const BYTES: Name = Name::bytes("namespace_data", "Data of commands that ended well.");
const ERRORS: Name =
    Name::count("namespace_errors", "Commands that failed, by the status that the host got.");
const COMMANDS: Name = Name::count("namespace_commands", "Commands that run now: the depth in use.");
const LATENCY: Name =
    Name::seconds("namespace_latency", "Time from a command's arrival to its end, all cores together.");
const SIZE: Name = Name::bytes("namespace_size", "Size of a namespace.");

/// A namespace's names, as labels have them.
struct Named<'a> {
    subsystem: &'a str,
    nsid: String,
    cores: Vec<(String, &'a Counts)>,
}

fn named(namespace: &NamespaceMetrics) -> Named<'_> {
    let cores = namespace.cores.iter().enumerate();
    Named {
        subsystem: namespace.subsystem.as_str(),
        nsid: namespace.nsid.to_string(),
        cores: cores.map(|(core, counts)| (core.to_string(), counts)).collect(),
    }
}

impl Named<'_> {
    /// What `each` makes of every core's counts, with all labels.
    fn per_core<'a, T: 'a>(
        &'a self,
        each: impl Fn(&'a Counts) -> T + 'a,
    ) -> impl Iterator<Item = ([(&'static str, &'a str); 3], T)> + 'a {
        self.cores.iter().map(move |(core, counts)| {
            ([("subsystem", self.subsystem), ("nsid", &self.nsid), ("core", core)], each(counts))
        })
    }
}

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    namespaces: &[NamespaceMetrics],
    inventory: &Inventory,
) -> Result<(), fmt::Error> {
    let named: Vec<Named<'_>> = namespaces.iter().map(named).collect();
    for (name, value) in
        [(&OPERATIONS, (|counts| counts.operations) as fn(&Counts) -> _), (&BYTES, |counts| counts.bytes)]
    {
        let values =
            named.iter().flat_map(|namespace| namespace.per_core(value)).flat_map(|(labels, values)| {
                let kinds = Operation::ALL.iter().zip(values);
                kinds.map(move |(kind, value)| (with(labels, ("operation", kind.name())), value))
            });
        counters(encoder, name, values)?;
    }
    encode_errors(encoder, &named)?;
    let in_flight = named.iter().flat_map(|namespace| namespace.per_core(|counts| counts.in_flight));
    gauges(encoder, &COMMANDS, in_flight.map(|(labels, value)| (Labels(labels), value)))?;
    let latencies = named.iter().flat_map(|namespace| {
        let sums = latency::sums(namespace.cores.iter().map(|(_, counts)| *counts));
        let names = [("subsystem", namespace.subsystem), ("nsid", namespace.nsid.as_str())];
        sums.map(|(operation, sum)| (Labels([names[0], names[1], ("operation", operation)]), sum))
    });
    latency::encode(encoder, &LATENCY, latencies)?;
    encode_sizes(encoder, inventory)
}

fn with<'a>(labels: [(&'static str, &'a str); 3], more: (&'static str, &'a str)) -> Labels<'a, 4> {
    let [a, b, c] = labels;
    Labels([a, b, c, more])
}

fn encode_errors(encoder: &mut DescriptorEncoder<'_>, namespaces: &[Named<'_>]) -> Result<(), fmt::Error> {
    let mut errors = Vec::new();
    for namespace in namespaces {
        for (labels, counted) in namespace.per_core(|counts| &counts.errors) {
            errors.extend(counted.iter().map(|(status, count)| (labels, name_of(*status), *count)));
        }
    }
    let labelled = errors.iter().map(|(labels, status, count)| (with(*labels, ("status", status)), *count));
    counters(encoder, &ERRORS, labelled)
}

/// A status as I/O commands mean it; Fabrics gives some codes another meaning.
fn name_of(status: Status) -> String {
    status.name().map_or_else(|| status.to_string(), str::to_owned)
}

fn encode_sizes(encoder: &mut DescriptorEncoder<'_>, inventory: &Inventory) -> Result<(), fmt::Error> {
    let served = inventory.subsystems.iter().flat_map(|(nqn, subsystem)| {
        subsystem.namespaces.values().map(move |namespace| {
            (nqn.as_str(), namespace.nsid.to_string(), namespace.blocks << namespace.lba.shift())
        })
    });
    let served: Vec<_> = served.collect();
    let labelled = served
        .iter()
        .map(|(nqn, nsid, bytes)| (Labels([("subsystem", *nqn), ("nsid", nsid.as_str())]), *bytes));
    gauges(encoder, &SIZE, labelled)
}
