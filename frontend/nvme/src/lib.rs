//! NVMe, NVMe over Fabrics and NVMe/TCP structures and constants; no I/O.
//!
//! - [`wire`]: checked access to bytes, shared by all structures
//! - [`ids`]: namespace, controller, queue and command ids, LBAs, NQNs
//! - [`status`]: status codes, Do-Not-Retry, the completion's status field
//! - [`command`], [`opcode`], [`sgl`]: entries, opcodes, data pointers
//! - [`nvm`]: the NVM command set; [`admin`]: Identify, Get Log Page, Features, Abort, Keep Alive as commands
//! - [`fabrics`], [`registers`]: Connect, properties, Disconnect
//! - [`identify`], [`log`], [`feature`], [`event`]: what the admin queue reads and sets
//! - [`pdu`], [`digest`]: NVMe/TCP
//!
//! Any bytes may be decoded: nothing here panics.

pub mod admin;
pub mod command;
pub mod digest;
pub mod event;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod ids;
pub mod log;
pub mod nvm;
pub mod opcode;
pub mod pdu;
pub mod registers;
pub mod sgl;
pub mod status;
pub mod wire;

pub use command::{Cqe, Sqe};
pub use ids::{Cntlid, CommandId, HostId, Lba, Nqn, Nsid, Qid};
pub use status::Status;
pub use wire::{DecodeError, Wire};
