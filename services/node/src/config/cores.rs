//! `[cores]` and `[buffers]`: how many data cores there are, on which CPUs, with which memory.

use std::collections::BTreeSet;
use std::time::Duration;

use ashlar_reactor::BufferCounts;
use ashlar_reactor::limits::SPIN_MAX;

use super::check::Check;
use super::document::{BuffersTable, CoresTable};
use super::{CoreSettings, Machine};

/// Data cores of one process: what hosts' queues (128 per controller) can make use of.
const CORES_MAX: u32 = 128;

/// Buffers of one class per core: below 16 slices a few large transfers use them up, above a million there
/// is a slip of the pen.
const BUFFERS_MIN: u32 = 16;
const BUFFERS_MAX: u32 = 1 << 20;

pub(super) fn settings(
    check: &mut Check<'_>,
    cores: &CoresTable,
    buffers: &BuffersTable,
    machine: &Machine,
) -> CoreSettings {
    let spin_max = u32::try_from(SPIN_MAX.as_micros()).unwrap_or(u32::MAX);
    let spin_us = check.integer(cores.spin_us.as_ref(), 0..=spin_max, spin_max);
    let default = BufferCounts::default();
    let allowed = BUFFERS_MIN..=BUFFERS_MAX;
    let buffers = BufferCounts {
        blocks: check.integer(buffers.blocks.as_ref(), allowed.clone(), default.blocks),
        capsules: check.integer(buffers.capsules.as_ref(), allowed.clone(), default.capsules),
        slices: check.integer(buffers.slices.as_ref(), allowed, default.slices),
    };
    CoreSettings { cpus: cpus(check, cores, machine), spin: Duration::from_micros(spin_us.into()), buffers }
}

fn cpus(check: &mut Check<'_>, cores: &CoresTable, machine: &Machine) -> Vec<Option<usize>> {
    if let (Some(_), Some(count)) = (&cores.cpus, &cores.count) {
        check.refuse(count.span(), "give either count or cpus, not both");
    }
    let pin = cores.pin.as_ref().is_none_or(|pin| *pin.get_ref());
    if cores.cpus.is_some() {
        if let Some(place) = cores.pin.as_ref().filter(|_| !pin) {
            check.refuse(
                place.span(),
                "cpus names CPUs to pin to: leave out pin, or give count instead of cpus",
            );
        }
        return named(check, cores, machine).into_iter().map(Some).collect();
    }
    let available = machine.cpus.len();
    // There is at least one CPU, and far fewer than the type holds.
    let most = u32::try_from(available).unwrap_or(CORES_MAX).clamp(1, CORES_MAX);
    let count = match pin {
        true => check.integer(cores.count.as_ref(), 1..=most, most),
        false => check.integer(cores.count.as_ref(), 1..=CORES_MAX, most),
    };
    let cpu = |index: usize| machine.cpus.get(index).copied().filter(|_| pin);
    (0..count as usize).map(cpu).collect()
}

/// The CPUs that the file names.
fn named(check: &mut Check<'_>, cores: &CoresTable, machine: &Machine) -> Vec<usize> {
    let mut cpus = BTreeSet::new();
    let Some(list) = &cores.cpus else { return Vec::new() };
    if list.get_ref().is_empty() {
        check.refuse(list.span(), "no CPU is named; give at least one, or leave out cpus");
    }
    let mut named = Vec::new();
    for cpu in list.get_ref() {
        let number = *cpu.get_ref();
        let known = usize::try_from(number).ok().filter(|number| machine.cpus.contains(number));
        match known {
            None => {
                let allowed = machine.cpu_list();
                check.refuse(cpu.span(), format!("CPU {number} is not usable here; usable are {allowed}"));
            }
            Some(number) if cpus.insert(number) => named.push(number),
            Some(number) => check.refuse(cpu.span(), format!("CPU {number} is named twice")),
        }
    }
    if named.len() > CORES_MAX as usize {
        check.refuse(list.span(), format!("{} CPUs are named; at most {CORES_MAX} are allowed", named.len()));
    }
    named
}
