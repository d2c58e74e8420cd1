//! A device as a whole: making one, opening it, growing it, and looking at it offline.
//!
//! | module | what |
//! |---|---|
//! | [`signature`] | what a device carries that is not to be overwritten |
//! | [`mod@format`] | makes a device of a disk |
//! | [`open`] | finds the superblock, whatever is left of it |
//! | [`grow`] | takes in what a disk has grown by |
//! | [`catalog`] | reads and writes what replication keeps here |

mod blocks;
pub mod catalog;
pub mod format;
pub mod grow;
pub mod open;
pub mod signature;

pub use catalog::{Catalog, CatalogError, read_catalog, write_catalog};
pub use format::{Existing, FormatError, FormatOptions, TornBlocks, format};
pub use grow::{GrowError, grow, restore};
pub use open::{CopyState, OpenDevice, OpenError, open};
pub use signature::{Found, Signature};
