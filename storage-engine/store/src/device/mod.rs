//! A device as a whole: making one, opening it, growing it, and looking at it offline.
//!
//! | module | what |
//! |---|---|
//! | [`signature`] | what a device carries that is not to be overwritten |
//! | [`mod@format`] | makes a device of a disk |
//! | [`open`] | finds the superblock, whatever is left of it |
//! | [`grow`] | takes in what a disk has grown by |
//! | [`catalog`] | reads and writes what replication keeps here |
//! | [`mod@inspect`] | what is on a device, for people |
//! | [`mod@check`] | verifies every structure and checksum |

mod blocks;
pub mod catalog;
pub mod check;
pub mod format;
pub mod grow;
pub mod inspect;
mod journal_scan;
mod lane_view;
pub mod open;
pub mod signature;

pub use catalog::{Catalog, CatalogError, read_catalog, write_catalog};
pub use check::{CheckReport, Depth, Finding, Part, Severity, check};
pub use format::{Existing, FormatError, FormatOptions, TornBlocks, format};
pub use grow::{GrowError, grow, restore};
pub use inspect::{DeviceReport, history, inspect};
pub use open::{CopyState, OpenDevice, OpenError, open};
pub use signature::{Found, Signature};
