//! NVMe/TCP target: subsystems and controllers over TCP, on the data cores, in front of any [`Backend`].
//!
//! | module | what | runs on |
//! |---|---|---|
//! | [`backend`] | the trait behind every namespace, with its data types | data core |
//! | [`inventory`] | what is served, to whom | everywhere, immutable |
//! | [`controller`] | a controller's state machine and all admin commands; no sockets | owner core |
//! | [`io`] | execution of I/O commands against a backend | data core |
//! | [`backends`] | what can stand behind a namespace: null, memory, raw | data core |
//! | [`target`] | start, change, look at, stop; what each core keeps | control threads, data cores |
//! | `transport` | connections: PDUs, queues, placement | data core |
//! | `write_cache` | a feature that controllers keep and writes obey | everywhere |
//! | [`limits`] | named limits | |

pub mod backend;
pub mod backends;
pub mod controller;
pub mod inventory;
pub mod io;
pub mod limits;
pub mod target;
mod transport;
mod write_cache;

pub use target::Target;
pub use write_cache::WriteCache;
