//! A controller: the association, its admin queue, and what it said about itself.

use std::net::SocketAddr;

use ashlar_nvme::admin::{GetLogPageCommand, IdentifyCommand};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::feature::{FeatureId, Select};
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace};
use ashlar_nvme::registers::{Cap, Property, Vs};
use ashlar_nvme::{Cntlid, CommandId, Nqn, Nsid, Qid, Sqe};

use crate::config::HostConfig;
use crate::data::Data;
use crate::error::HostError;
use crate::queue::{Completion, IoQueue};

/// What a controller said about itself when it was connected.
#[derive(Debug, Clone)]
pub struct ControllerInfo {
    /// Controller identifier.
    pub cntlid: Cntlid,
    /// Capabilities.
    pub cap: Cap,
    /// Version.
    pub vs: Vs,
    /// Identify Controller.
    pub identify: Box<IdentifyController>,
    /// Most data of a command in bytes (MDTS); `u32::MAX` without a limit.
    pub transfer_max: u32,
    /// Most data in an I/O capsule in bytes.
    pub in_capsule_max: u32,
    /// Entries of each I/O queue.
    pub queue_entries: u16,
    /// I/O queues granted: queues 1 to this can be connected.
    pub io_queues: u16,
}

/// A namespace as a host sees it.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: Nsid,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The whole structure.
    pub identify: Box<IdentifyNamespace>,
}

/// What it takes to connect an I/O queue of a controller, also on another core.
#[derive(Debug, Clone)]
pub struct Ticket {}

/// An association with a controller, on one core. Dropping it closes the admin queue, and with it the
/// controller.
#[derive(Debug)]
pub struct Controller {}

impl Controller {
    /// Connects to `subsystem` at `address`: admin queue, enable, identify, number of queues. Keep Alive runs
    /// from then on. I/O queues are connected by [`IoQueue::connect`].
    ///
    /// # Errors
    /// If there is no connection, the controller refuses, or does not become ready in the time that it names.
    pub async fn connect(
        address: SocketAddr,
        subsystem: &Nqn,
        config: &HostConfig,
    ) -> Result<Self, HostError> {
        unimplemented!()
    }

    /// What it said about itself.
    #[must_use]
    pub fn info(&self) -> &ControllerInfo {
        unimplemented!()
    }

    /// For [`IoQueue::connect`].
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        unimplemented!()
    }

    /// Connects all granted I/O queues on this core.
    ///
    /// # Errors
    /// As for [`IoQueue::connect`].
    pub async fn connect_queues(&self) -> Result<Vec<IoQueue>, HostError> {
        unimplemented!()
    }

    /// Identify: the 4096 bytes of any structure.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn identify(&self, command: IdentifyCommand, nsid: Nsid) -> Result<Vec<u8>, HostError> {
        unimplemented!()
    }

    /// Identify Controller, afresh.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn identify_controller(&self) -> Result<Box<IdentifyController>, HostError> {
        unimplemented!()
    }

    /// Size and format of a namespace.
    ///
    /// # Errors
    /// [`HostError::NoNamespace`] if it is not active; as for [`Controller::admin_command`].
    pub async fn namespace(&self, nsid: Nsid) -> Result<Namespace, HostError> {
        unimplemented!()
    }

    /// All active namespaces, ascending.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn active_namespaces(&self) -> Result<Vec<Nsid>, HostError> {
        unimplemented!()
    }

    /// Get Log Page. Logs longer than a transfer are read in pieces; events are then cleared with the last
    /// one.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn log_page(&self, command: GetLogPageCommand, nsid: Nsid) -> Result<Vec<u8>, HostError> {
        unimplemented!()
    }

    /// Get Features: DW0, and `data_len` bytes of data for features that have some.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn get_feature(
        &self,
        feature: FeatureId,
        select: Select,
        nsid: Nsid,
        data_len: u32,
    ) -> Result<(u32, Vec<u8>), HostError> {
        unimplemented!()
    }

    /// Set Features: DW0.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn set_feature(
        &self,
        feature: FeatureId,
        nsid: Nsid,
        cdw11: u32,
        data: Option<&[u8]>,
    ) -> Result<u32, HostError> {
        unimplemented!()
    }

    /// Aborts a command; says whether it was aborted.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn abort(&self, queue: Qid, command: CommandId) -> Result<Aborted, HostError> {
        unimplemented!()
    }

    /// Sends a Keep Alive now.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn keep_alive(&self) -> Result<(), HostError> {
        unimplemented!()
    }

    /// The next asynchronous event. It stays masked until its log is read.
    ///
    /// # Errors
    /// If the connection is lost, or the controller takes no Asynchronous Event Requests.
    pub async fn next_event(&self) -> Result<Event, HostError> {
        unimplemented!()
    }

    /// Property Get.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn property(&self, property: Property) -> Result<u64, HostError> {
        unimplemented!()
    }

    /// Property Set.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn set_property(&self, property: Property, value: u64) -> Result<(), HostError> {
        unimplemented!()
    }

    /// Any admin command; its command identifier and data pointer are filled in.
    ///
    /// # Errors
    /// If the controller completed it with an error, did not answer in time, or the connection is lost.
    pub async fn admin_command(&self, sqe: Sqe, data: Data) -> Result<Completion, HostError> {
        unimplemented!()
    }

    /// Ends when the admin connection is lost, with the reason.
    pub async fn lost(&self) -> HostError {
        unimplemented!()
    }

    /// Orderly end: shutdown notification, wait for the controller to be done, close.
    ///
    /// # Errors
    /// If the controller does not report the shutdown as complete; it is closed all the same.
    pub async fn shut_down(self) -> Result<(), HostError> {
        unimplemented!()
    }
}

/// What Abort says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aborted {
    /// The command was aborted.
    Yes,
    /// It was not found, or was too far.
    No,
}

/// An asynchronous event as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// DW0 of the completion.
    pub dw0: u32,
    /// What it means, if it is one of those that are known.
    pub known: Option<AsyncEvent>,
}
