//! What the node must remember about its volumes: their ids and epochs, where their replicas are, which are in sync.
//!
//! On a node without a control plane this takes the place of its Raft state machine (design §7, PROTOCOL R15).
//!
//! | file | what |
//! |---|---|
//! | `document` | what is remembered |
//! | `file` | one file, replaced as a whole and durably |
//! | `keeper` | the control thread that changes it |

mod document;
mod file;
mod keeper;

pub use document::{InSync, ReplicaState, ScrubState, SegmentState, State, VolumeState};
pub use file::{Folder, StateError};
pub use keeper::Keeper;
