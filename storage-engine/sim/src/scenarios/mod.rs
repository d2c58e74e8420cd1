//! What is run.

mod lane;
mod mirror;
mod small;
mod toy;

use crate::scenario::Scenario;

/// Every scenario.
pub const ALL: &[&dyn Scenario] = &[&toy::Toy, &lane::Lanes, &mirror::Mirror];
