//! Execution of I/O commands on one core: what is checked before data moves, and what is done with it.
//!
//! The transport takes a command through three steps. [`addressee`] says which namespace it is for. [`check`]
//! turns it into a [`Request`], whose [`Request::transfer`] says how much data moves which way, or says the
//! status that it fails with before any data moves. [`execute`] carries it out, with the data going through a
//! [`DataPort`]. Fused pairs go through [`Pairing`], [`check_fused`] and [`execute_fused`] instead.
//!
//! | file | what |
//! |---|---|
//! | `check` | a submission entry against its namespace: every status that needs no data |
//! | `namespace` | a namespace on all cores and on one |
//! | `execute` | Read, Write, Flush, and the way to the rarer ones |
//! | `compare` | Compare and Verify |
//! | `clear` | Write Zeroes, Dataset Management |
//! | `fused` | Compare-and-Write, and finding pairs |
//! | `gate` | how a fused pair keeps other writes out, on all cores |

use std::future::Future;

use ashlar_nvme::Status;

use crate::backend::{ReadData, WriteData};

mod check;
mod clear;
mod compare;
mod execute;
mod fused;
mod gate;
mod namespace;

pub use check::{Addressee, Request, Transfer, absent_namespace, addressee, check};
pub use execute::execute;
pub use fused::{ATOMIC_BYTES, Arrival, FusedRequest, Pairing, check_fused, execute_fused};
pub use namespace::{NamespaceCore, SharedNamespace};

/// Where a command's data comes from and goes to: the transport's side of one command.
///
/// Offsets are bytes of this command's transfer. They ascend without gaps, in parts of
/// [`crate::limits::SLICE_BYTES`] of which the last may be shorter, so that the next part is known before it is
/// wanted; only one call is under way at a time. Once a call has failed no other follows.
pub trait DataPort {
    /// The host's data, `len` bytes from `offset` on.
    fn fetch(&self, offset: u32, len: u32) -> impl Future<Output = Result<WriteData, Status>>;

    /// Waits for something that the command needs before it goes on. Fails when the host takes the command back
    /// meanwhile (Abort).
    fn wait<T>(&self, place: impl Future<Output = T>) -> impl Future<Output = Result<T, Status>> {
        async { Ok(place.await) }
    }

    /// Hands `len` bytes from `offset` on over to be sent. Done when the next part may follow, not when it is
    /// sent.
    fn deliver(&self, offset: u32, len: u32, data: ReadData) -> impl Future<Output = Result<(), Status>>;
}
