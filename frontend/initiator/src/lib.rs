//! NVMe/TCP host in user space, on the reactor.
//!
//! It connects to a controller, speaks all commands that the target serves, and believes nothing: every PDU
//! that comes is checked against what was asked, by code of its own.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | what a host asks for |
//! | [`controller`] | the association and its admin commands |
//! | [`queue`] | I/O queues: async commands |
//! | [`load`] | I/O queues: completions handed to a handler, for load generators |
//! | [`data`] | where a command's data comes from or goes to |
//! | [`discovery`] | the discovery log |
//! | [`session`] | reconnects and repeats |
//! | [`error`] | what goes wrong |

mod admin;
mod command;
pub mod config;
mod connection;
pub mod controller;
pub mod data;
pub mod discovery;
mod engine;
pub mod error;
mod handshake;
mod incoming;
pub mod load;
pub mod queue;
mod receive;
pub mod session;
mod slot;

pub use command::Pending;
pub use config::{FlowControl, HostConfig, ReconnectPolicy};
pub use controller::{Aborted, Controller, ControllerInfo, Event, Namespace, Ticket};
pub use data::{Data, Payload, Sink};
pub use discovery::{DiscoveryLog, discover};
pub use error::{CommandError, HostError, Loss, ProtocolError};
pub use load::{Done, Handler, Outcome, Refused, Submitter, Token};
pub use queue::{Completion, Deac, Fua, IoQueue};
pub use session::{Association, Reconnecting, Session};
