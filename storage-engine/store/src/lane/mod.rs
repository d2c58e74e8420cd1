//! A lane: the part of a device that one core owns, with its own journal, tables and extents (design §6).

mod types;

pub use types::{
    Change, ExtentReport, LaneError, Order, Origin, ReadData, ShardReport, ShardSlot, Space, TailKind,
    TailRecord, Verdict, Write,
};
