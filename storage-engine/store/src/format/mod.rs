//! What stands on a device, byte by byte: `docs/on-disk-format.md` in code. No I/O.
//!
//! Whatever is decoded here came from a disk and is not trusted: every function that opens a block checks all of it,
//! lengths and numbers against the [`Layout`], and answers with a [`BadBlock`] instead of a panic.
//!
//! | module | what |
//! |---|---|
//! | [`block`] | the header that metadata blocks share |
//! | [`layout`] | where things are |
//! | [`superblock`] | what a device is |
//! | [`catalog`] | bytes that replication keeps here |
//! | [`root`] | the root of a lane's checkpoint |
//! | [`slab_header`] | who owns a slab |
//! | [`table`] | what each extent holds |
//! | [`checksum_page`] | stored checksums of an extent |
//! | [`journal`] | blocks of a lane's journal |
//! | [`record`] | what they say |

pub mod block;
pub mod catalog;
pub mod checksum_page;
pub mod journal;
pub mod layout;
pub mod record;
pub mod root;
pub mod slab_header;
pub mod superblock;
pub mod table;

pub use block::{BadBlock, BlockKind, DeviceId, Header, PageRef, Place};
pub use catalog::{CatalogHeader, CatalogImage};
pub use journal::{JournalBlock, JournalBuilder, JournalHeader};
pub use layout::{Area, Extent, Layout, LayoutError, Slab, SlabLayout, Slot};
pub use record::{Record, Subject, Sums};
pub use root::{Root, RootHeader, RootImage, ShardEntry, SlabEntry};
pub use slab_header::SlabHeader;
pub use superblock::{BadSuperblock, Label, Superblock};
pub use table::{Entry, Held};
