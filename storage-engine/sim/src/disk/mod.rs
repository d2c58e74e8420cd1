//! Disks of a run: devices that outlive processes, and what a process sees of one that it has open.
//!
//! A device takes operations, each with a latency from the seed, and does them in the order of their completions.
//! What it has completed stays, unless its cache is volatile and the power goes. What it has not completed when its
//! process dies lands whole, in part, late, or never; what it has not completed when the power goes lands in any
//! subset of its blocks (torn ones, if it tears).

mod contents;
mod device;
mod fault;
mod flight;
mod handle;
mod settings;
mod state;

pub use contents::Content;
pub use device::{Busy, Device, Zones};
pub use fault::{Faults, Injector};
pub use handle::SimDisk;
pub use settings::{Count, DeviceSettings, Latency};
