//! Controllers: the state that the cores share of one.

mod shared;

pub use shared::{ControllerKind, ControllerShared, ControllerState, Traffic};
