//! The store: lanes of a device, with journal, extents, checksums and recovery (design §6, PROTOCOL S1–S18).
//!
//! | module | what |
//! |---|---|
//! | [`ids`] | segments, shards, extents, blocks, versions |
//! | [`checksum`] | stored checksums |
//! | [`device`] | making, opening, growing and checking a device |
//! | [`format`] | what stands on the device, byte by byte (`docs/on-disk-format.md`) |
//! | [`lane`] | the part of a device that one core owns |

pub mod checksum;
pub mod device;
pub mod format;
pub mod ids;
pub mod lane;

pub use checksum::{Stored, Summer};
pub use ids::{Blocks, EXTENT_BLOCKS, ExtentId, SegmentId, ShardId, Version};
