//! Limits that the system puts on this process, and those that the node puts on itself.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::CoreSettings;

/// How long hosts' commands may take to end when the node stops. Hosts give up after 30 s by default
/// (nvme_core.io_timeout), and service supervisors after 90 s.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Descriptors that a node may need: connections, files, rings.
const DESCRIPTORS: u64 = 65_536;

/// Raises the limit on open descriptors as far as the system lets it, and warns of limits that are too low.
pub fn raise(cores: &CoreSettings) {
    let before = getrlimit(Resource::Nofile);
    let unlimited = |value: Option<u64>| value.unwrap_or(u64::MAX);
    if unlimited(before.current) < DESCRIPTORS {
        let wanted = unlimited(before.maximum).min(DESCRIPTORS);
        match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: before.maximum }) {
            Ok(()) if wanted < DESCRIPTORS => tracing::warn!(
                limit = wanted,
                wanted = DESCRIPTORS,
                "few descriptors are allowed, so few hosts can connect; raise LimitNOFILE"
            ),
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, "the limit on descriptors cannot be raised"),
        }
    }
    let locked = unlimited(getrlimit(Resource::Memlock).current);
    let needed = buffer_bytes(cores);
    if locked < needed && !may_lock_anything() {
        tracing::warn!(
            limit_bytes = locked,
            needed_bytes = needed,
            "less memory may be locked than the I/O buffers take, so they may work unregistered and a little \
             slower; raise LimitMEMLOCK"
        );
    }
}

/// Whether the process has CAP_IPC_LOCK, which lifts the limit on locked memory.
fn may_lock_anything() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or_default();
    bits & (1 << CAP_IPC_LOCK) != 0
}

/// Bytes of all cores' I/O buffers.
fn buffer_bytes(cores: &CoreSettings) -> u64 {
    let [block, capsule, slice] = ashlar_reactor::buffer::CLASS_BYTES.map(|bytes| bytes as u64);
    let counts = cores.buffers;
    let per_core = u64::from(counts.blocks) * block
        + u64::from(counts.capsules) * capsule
        + u64::from(counts.slices) * slice;
    per_core * cores.cpus.len() as u64
}
