//! A namespace that outlives its association: reconnects with growing delays, and repeats reads and writes
//! that were lost.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ashlar_nvme::{Lba, Nqn, Nsid};
use ashlar_reactor::IoBuf;

use crate::config::HostConfig;
use crate::controller::{Controller, Namespace};
use crate::data::Payload;
use crate::error::HostError;
use crate::queue::{Fua, IoQueue};

/// An association that is set up again when it is lost. It repeats nothing by itself: commands in flight end
/// with [`HostError::ConnectionLost`].
#[derive(Debug)]
pub struct Reconnecting {}

/// One association: the controller and its connected queues.
#[derive(Debug)]
pub struct Association {
    /// The controller.
    pub controller: Controller,
    /// Its I/O queues, all on this core.
    pub queues: Vec<IoQueue>,
}

impl Reconnecting {
    /// Nothing is connected before [`Reconnecting::association`].
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: Nqn, config: HostConfig) -> Self {
        unimplemented!()
    }

    /// The association that lives, set up again if the last one was lost, by the policy of the host's config.
    ///
    /// # Errors
    /// The last attempt's, when the policy gives up or the controller refuses for good (Do Not Retry).
    pub async fn association(&self) -> Result<Rc<Association>, HostError> {
        unimplemented!()
    }
}

/// Reads and writes of one namespace that are repeated over new associations until a deadline. Only for data
/// that nobody else writes at the same time: a repeated write may follow another's.
#[derive(Debug)]
pub struct Session {}

impl Session {
    /// Connects and looks at the namespace.
    ///
    /// # Errors
    /// As for [`Reconnecting::association`] and [`Controller::namespace`].
    pub async fn open(
        address: SocketAddr,
        subsystem: Nqn,
        nsid: Nsid,
        config: HostConfig,
        deadline: Duration,
    ) -> Result<Self, HostError> {
        unimplemented!()
    }

    /// The namespace, as it was when the session was opened.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        unimplemented!()
    }

    /// Most data of one read or write, in bytes; a multiple of the block size.
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        unimplemented!()
    }

    /// Commands that can be outstanding at the same time over all queues.
    #[must_use]
    pub fn depth(&self) -> usize {
        unimplemented!()
    }

    /// Associations set up after the first.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        unimplemented!()
    }

    /// Reads `len` bytes from block `slba` on, repeated until the deadline. `len` is a multiple of the block
    /// size.
    ///
    /// # Errors
    /// What no repetition helps against, or the last loss when the deadline has passed.
    pub async fn read(&self, slba: Lba, len: u32) -> Result<IoBuf, HostError> {
        unimplemented!()
    }

    /// Writes `payload` from block `slba` on, repeated until the deadline.
    ///
    /// # Errors
    /// As for [`Session::read`].
    pub async fn write(&self, slba: Lba, payload: Payload, fua: Fua) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Flushes the namespace. If the association was lost since the writes that it is for, those are not
    /// repeated.
    ///
    /// # Errors
    /// As for [`Session::read`].
    pub async fn flush(&self) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Orderly end.
    ///
    /// # Errors
    /// As for [`Controller::shut_down`].
    pub async fn close(self) -> Result<(), HostError> {
        unimplemented!()
    }
}
