//! The simulator (design §10): one seed, one run, to the byte.
//!
//! The engine sees [`ashlar_io::World`]; here it is a model. Everything runs on one thread in virtual time; tasks,
//! latencies, faults and crashes come from the seed; what the engine promised is checked by a model.
//!
//! | module | what |
//! |---|---|
//! | [`executor`] | tasks, processes, virtual time |
//! | [`world`] | what a process sees |
//! | [`disk`] | devices: sparse, slow, volatile, torn, faulty |
//! | [`atlas`] | which fault may strike what, and what is then owed |
//! | [`model`] | what must hold (D1–D4) |
//! | [`trace`] | what happened |
//! | [`scenario`], [`scenarios`] | what is run |
//! | [`run`] | many seeds |

pub mod atlas;
pub mod buffer;
pub mod bugs;
pub mod disk;
pub mod executor;
pub mod model;
pub mod process;
pub mod random;
pub mod run;
pub mod scenario;
pub mod scenarios;
pub mod trace;
pub mod value;
pub mod world;

pub use bugs::Bugs;
pub use executor::{Simulation, Stop};
pub use process::{ProcessId, ProcessSettings};
pub use random::Random;
pub use world::SimWorld;
