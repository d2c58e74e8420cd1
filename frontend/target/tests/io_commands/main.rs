//! I/O commands against a model, on one and two cores, through a port without a network.

mod fused;
mod model;
mod raw;
mod statuses;
mod world;
