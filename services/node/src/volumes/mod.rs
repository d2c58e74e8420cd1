//! The volumes of this node: devices, the lanes on them, and what replication makes of those (design §5–§7).
//!
//! Lane *i* of every device belongs to core *i* modulo the number of cores, and the replicas of a shard live in lanes
//! of the same number: so all of a shard is on one core, however many cores there are.
//!
//! | file | what |
//! |---|---|
//! | `devices` | found, held, taken in |
//! | `engine` | opens and closes volumes; control threads call it |
//! | `placement` | which lane a shard lives in |
//! | `part` | what one core has of all this |
//! | `tending` | replicas that are away are brought back, what a crash left suspect is verified |
//! | `scrubbing` | when which volume is scrubbed, and where a pass is over restarts |
//! | `membership` | which replicas are in sync, decided by the state's keeper |
//! | `backend` | a volume behind a namespace |
//! | `status` | what can be seen from outside |

mod backend;
mod devices;
mod engine;
mod membership;
mod part;
mod placement;
mod scrubbing;
mod status;
mod tending;

pub use backend::VolumeBackend;
pub use devices::DeviceError;
pub use engine::{Engine, EngineError, OpenVolume};
pub use status::{DeviceStatus, Health, ReplicaStatus, ScrubProgress, ScrubStage, VolumeStatus};
