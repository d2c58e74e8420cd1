//! What SPDK's user-space target reached on a machine of the same kind (2 cores, loopback, its own load generator,
//! best of three runs): IOPS by backend, direction, bytes, depth and digests. Not measured in the same run, because
//! it cannot be had everywhere: `docs/performance.md` says what that means for the ratios.

use crate::table::{Digests, Direction, Point};

/// One figure: backend, direction, bytes, depth, digests, IOPS.
type Figure = (&'static str, Direction, u32, u32, Digests, f64);

const SPDK: [Figure; 16] = [
    ("null", Direction::Read, 4096, 1, Digests::Off, 94_800.0),
    ("null", Direction::Read, 4096, 32, Digests::Off, 628_000.0),
    ("null", Direction::Read, 4096, 128, Digests::Off, 814_000.0),
    ("null", Direction::Write, 4096, 1, Digests::Off, 94_500.0),
    ("null", Direction::Write, 4096, 32, Digests::Off, 592_000.0),
    ("null", Direction::Write, 4096, 128, Digests::Off, 880_000.0),
    ("memory", Direction::Read, 4096, 1, Digests::Off, 85_300.0),
    ("memory", Direction::Read, 4096, 32, Digests::Off, 510_000.0),
    ("memory", Direction::Read, 4096, 128, Digests::Off, 566_000.0),
    ("memory", Direction::Write, 4096, 1, Digests::Off, 76_900.0),
    ("memory", Direction::Write, 4096, 32, Digests::Off, 349_000.0),
    ("memory", Direction::Write, 4096, 128, Digests::Off, 473_000.0),
    ("null", Direction::Read, 4096, 128, Digests::On, 968_000.0),
    ("null", Direction::Write, 4096, 128, Digests::On, 679_000.0),
    ("null", Direction::Read, 131_072, 32, Digests::Off, 40_000.0),
    ("null", Direction::Write, 131_072, 32, Digests::Off, 35_000.0),
];

/// SPDK's IOPS for a point, if they are known.
pub(crate) fn spdk(point: &Point) -> Option<f64> {
    SPDK.iter()
        .find(|(backend, direction, bytes, depth, digests, _)| {
            *backend == point.backend
                && *direction == point.direction
                && *bytes == point.bytes
                && *depth == point.depth
                && *digests == point.digests
        })
        .map(|figure| figure.5)
}
