//! Metrics of volumes, their replicas, and the devices that they are on.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::labels::{Labels, Name, counters, gauges};
use crate::volumes::{DeviceStatus, Health, ReplicaStatus, VolumeStatus};

const SIZE: Name = Name::bytes("volume_size", "Size of a volume as hosts see it: what is provisioned.");
const HEALTH: Name = Name::count("volume_health", "1 for how a volume is, 0 for how it is not.");
const SEGMENTS: Name =
    Name::count("volume_replica_segments", "Segments of a volume by the state of their replica in a pool.");
const CATCH_UP: Name = Name::bytes(
    "volume_catch_up",
    "Bytes that a catch-up compares: in all as far as known, and compared so far.",
);
const BLOCKS: Name = Name::count(
    "volume_blocks",
    "Copies of blocks that were corrupted, and repaired; reads of lost ones; copies chosen after a crash.",
);
const SCRUB: Name =
    Name::bytes("volume_scrub", "What a scrub goes through: all, and as far as the present pass has come.");
const SCRUB_VERIFIED: Name =
    Name::bytes("volume_scrub_verified", "Bytes of copies that scrubs read and verified.");
const SCRUB_BLOCKS: Name =
    Name::count("volume_scrub_blocks", "Blocks that scrubs found bad at first, lost, or could not read.");
const SCRUB_ENDED: Name =
    Name::seconds("volume_scrub_ended", "When a scrub ended last, since 1970-01-01 UTC; 0 if none did.");
const SPACE: Name =
    Name::bytes("device_space", "Space of a device in extents that hold data, and free ones.");
const METADATA: Name = Name::count("device_metadata_io", "Journal blocks written; other metadata I/O.");
const FAILED: Name = Name::count("device_failed", "1 if a lane of the device stopped.");

const HEALTHS: [(Health, &str); 4] = [
    (Health::Healthy, "healthy"),
    (Health::CatchingUp, "catching_up"),
    (Health::Degraded, "degraded"),
    (Health::Closed, "closed"),
];

/// What `each` makes of a volume's replicas, by a third label.
fn per_replica<'a, const N: usize>(
    volumes: &'a [VolumeStatus],
    third: &'static str,
    each: fn(&ReplicaStatus) -> [(&'static str, u64); N],
) -> impl Iterator<Item = (Labels<'a, 3>, u64)> {
    volumes.iter().flat_map(move |volume| {
        volume.replicas.iter().flat_map(move |replica| {
            let names = [("volume", volume.name.as_str()), ("pool", replica.pool.as_str())];
            each(replica).map(|(value, count)| (Labels([names[0], names[1], (third, value)]), count))
        })
    })
}

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    volumes: &[VolumeStatus],
) -> Result<(), fmt::Error> {
    let sizes = volumes.iter().map(|volume| (named(volume), volume.provisioned_bytes));
    gauges(encoder, &SIZE, sizes)?;
    let healths = volumes.iter().flat_map(|volume| {
        HEALTHS.map(|(health, name)| {
            let labels = Labels([("volume", volume.name.as_str()), ("health", name)]);
            (labels, u64::from(volume.health == health))
        })
    });
    gauges(encoder, &HEALTH, healths)?;
    let segments = per_replica(volumes, "state", |replica| {
        [("in_sync", replica.in_sync), ("catching_up", replica.catching_up), ("away", replica.away)]
    });
    gauges(encoder, &SEGMENTS, segments)?;
    let catch_up =
        per_replica(volumes, "part", |replica| [("all", replica.total_bytes), ("done", replica.done_bytes)]);
    gauges(encoder, &CATCH_UP, catch_up)?;
    let blocks = volumes.iter().flat_map(|volume| {
        [
            ("corrupted", volume.corrupted_blocks),
            ("repaired", volume.repaired_blocks),
            ("lost", volume.lost_blocks),
            ("chosen", volume.chosen_blocks),
        ]
        .map(|(event, count)| (Labels([("volume", volume.name.as_str()), ("event", event)]), count))
    });
    counters(encoder, &BLOCKS, blocks)?;
    encode_scrubs(encoder, volumes)
}

fn named(volume: &VolumeStatus) -> Labels<'_, 1> {
    Labels([("volume", volume.name.as_str())])
}

fn encode_scrubs(encoder: &mut DescriptorEncoder<'_>, volumes: &[VolumeStatus]) -> Result<(), fmt::Error> {
    let parts = volumes.iter().flat_map(|volume| {
        [("all", volume.provisioned_bytes), ("done", volume.scrub.done_bytes)]
            .map(|(part, bytes)| (Labels([("volume", volume.name.as_str()), ("part", part)]), bytes))
    });
    gauges(encoder, &SCRUB, parts)?;
    let verified = volumes.iter().map(|volume| (named(volume), volume.scrub.verified_bytes));
    counters(encoder, &SCRUB_VERIFIED, verified)?;
    let blocks = volumes.iter().flat_map(|volume| {
        let scrub = &volume.scrub;
        [("bad", scrub.bad_blocks), ("lost", scrub.lost_blocks), ("unread", scrub.unread_blocks)]
            .map(|(event, count)| (Labels([("volume", volume.name.as_str()), ("event", event)]), count))
    });
    counters(encoder, &SCRUB_BLOCKS, blocks)?;
    let ended = volumes.iter().map(|volume| (named(volume), volume.scrub.ended_s.unwrap_or(0)));
    gauges(encoder, &SCRUB_ENDED, ended)
}

/// Values of each device by a third label.
fn per_device<'a, const N: usize>(
    devices: &'a [DeviceStatus],
    third: &'static str,
    each: fn(&DeviceStatus) -> [(&'static str, u64); N],
) -> impl Iterator<Item = (Labels<'a, 3>, u64)> {
    devices.iter().flat_map(move |device| {
        let names = [("device", device.id.as_str()), ("pool", device.pool.as_str())];
        each(device).map(move |(value, count)| (Labels([names[0], names[1], (third, value)]), count))
    })
}

pub(super) fn encode_devices(
    encoder: &mut DescriptorEncoder<'_>,
    devices: &[DeviceStatus],
) -> Result<(), fmt::Error> {
    let space =
        per_device(devices, "state", |device| [("used", device.used_bytes), ("free", device.free_bytes)]);
    gauges(encoder, &SPACE, space)?;
    let metadata = per_device(devices, "kind", |device| {
        [("journal", device.journal_writes), ("other", device.metadata_writes)]
    });
    counters(encoder, &METADATA, metadata)?;
    let failed = devices.iter().map(|device| {
        let labels = Labels([("device", device.id.as_str()), ("pool", device.pool.as_str())]);
        (labels, u64::from(device.failure.is_some()))
    });
    gauges(encoder, &FAILED, failed)
}
