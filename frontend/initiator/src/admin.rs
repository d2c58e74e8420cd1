//! Admin commands of a connected controller.

use ashlar_nvme::admin::{
    AbortCommand, GetFeaturesCommand, GetLogPageCommand, IdentifyCommand, RetainEvent, SetFeaturesCommand,
};
use ashlar_nvme::fabrics::{PropertyCommand, PropertySize};
use ashlar_nvme::feature::{FeatureId, Select};
use ashlar_nvme::identify::{Cns, IDENTIFY_SIZE, IdentifyController, IdentifyNamespace, NamespaceList};
use ashlar_nvme::registers::Property;
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::wire::Wire;
use ashlar_nvme::{CommandId, Nsid, Qid, Sqe};
use ashlar_reactor::IoBuf;

use crate::controller::{Aborted, Controller, Namespace};
use crate::data::{Data, Payload};
use crate::error::{HostError, ProtocolError};

/// Most bytes of a log that one command reads. Every controller's MDTS is at least that of one page; where it
/// is larger, this is enough for the entries of 63 subsystems.
const LOG_PIECE_MAX: u32 = 64 * 1024;

/// The command identifier is filled in when the command gets its slot.
const CID: CommandId = CommandId(0);

impl Controller {
    /// An admin command that reads `len` bytes.
    async fn read_bytes(&self, sqe: Sqe, len: u32) -> Result<(u64, Vec<u8>), HostError> {
        let data = if len == 0 { Data::None } else { Data::into_buffer(IoBuf::heap(len as usize)) };
        let done = self.admin_command(sqe, data).await?;
        Ok((done.result, done.buffer.map_or_else(Vec::new, |buffer| buffer.to_vec())))
    }

    /// Identify: the 4096 bytes of any structure.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn identify(&self, command: IdentifyCommand, nsid: Nsid) -> Result<Vec<u8>, HostError> {
        Ok(self.read_bytes(command.to_sqe(CID, nsid), IDENTIFY_SIZE as u32).await?.1)
    }

    async fn identify_as<T: Wire>(&self, cns: Cns, nsid: Nsid) -> Result<Box<T>, HostError> {
        let bytes = self.identify(IdentifyCommand::new(cns), nsid).await?;
        <T as Wire>::read_from(&bytes).map(Box::new).map_err(|_| {
            ProtocolError::Content { what: "length of an Identify structure", value: bytes.len() as u64 }
                .into()
        })
    }

    /// Identify Controller, afresh.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn identify_controller(&self) -> Result<Box<IdentifyController>, HostError> {
        self.identify_as(Cns::Controller, Nsid::NONE).await
    }

    /// Size and format of a namespace.
    ///
    /// # Errors
    /// [`HostError::NoNamespace`] if it is not active; as for [`Controller::admin_command`].
    pub async fn namespace(&self, nsid: Nsid) -> Result<Namespace, HostError> {
        let identify: Box<IdentifyNamespace> = self.identify_as(Cns::Namespace, nsid).await?;
        let blocks = identify.nsze.get();
        if blocks == 0 {
            return Err(HostError::NoNamespace(nsid));
        }
        let block_bytes = identify.block_size().and_then(|bytes| u32::try_from(bytes).ok());
        let Some(block_bytes) = block_bytes else {
            let value = u64::from(identify.format().lbads());
            return Err(ProtocolError::Content { what: "LBADS of the format in use", value }.into());
        };
        Ok(Namespace { nsid, blocks, block_bytes, identify })
    }

    /// All active namespaces, ascending.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn active_namespaces(&self) -> Result<Vec<Nsid>, HostError> {
        let mut all = Vec::new();
        let mut last = Nsid(0);
        loop {
            let list: Box<NamespaceList> = self.identify_as(Cns::ActiveNamespaces, last).await?;
            let before = all.len();
            for nsid in list.iter() {
                if nsid <= last {
                    let value = u64::from(nsid.0);
                    return Err(ProtocolError::Content { what: "a namespace list's order, at", value }.into());
                }
                last = nsid;
                all.push(nsid);
            }
            // No list starts after FFFFFFFDh.
            if all.len() - before < NamespaceList::MAX || !Nsid(last.0.saturating_add(1)).is_valid() {
                return Ok(all);
            }
        }
    }

    /// Get Log Page. Logs longer than a transfer are read in pieces; events are then cleared with the last
    /// one. The length is rounded up to a multiple of 4.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn log_page(&self, command: GetLogPageCommand, nsid: Nsid) -> Result<Vec<u8>, HostError> {
        let most = u64::from(LOG_PIECE_MAX.min(self.info().transfer_max));
        let total = command.len.div_ceil(4).max(1) * 4;
        let mut log = Vec::new();
        while (log.len() as u64) < total {
            let done = log.len() as u64;
            let len = (total - done).min(most);
            let rae = if done + len < total { RetainEvent::Retain } else { command.rae };
            let piece = GetLogPageCommand { len, lpo: command.lpo + done, rae, ..command };
            log.extend(self.read_bytes(piece.to_sqe(CID, nsid), len as u32).await?.1);
        }
        Ok(log)
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
        let sqe = GetFeaturesCommand::build(CID, nsid, feature, select, DataPointer::None);
        let (result, data) = self.read_bytes(sqe, data_len).await?;
        Ok((result as u32, data))
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
        let sqe = SetFeaturesCommand::build(CID, nsid, feature, cdw11, DataPointer::None);
        let data = data.map_or(Data::None, |bytes| Data::Out(Payload::copy_of(bytes)));
        Ok(self.admin_command(sqe, data).await?.result as u32)
    }

    /// Aborts a command; says whether it was aborted.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn abort(&self, queue: Qid, command: CommandId) -> Result<Aborted, HostError> {
        let sqe = AbortCommand { sqid: queue, cid: command }.to_sqe(CID);
        let done = self.admin_command(sqe, Data::None).await?;
        let not = done.result as u32 & AbortCommand::DW0_NOT_ABORTED != 0;
        Ok(if not { Aborted::No } else { Aborted::Yes })
    }

    /// Sends a Keep Alive now.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn keep_alive(&self) -> Result<(), HostError> {
        self.admin_command(ashlar_nvme::admin::keep_alive(CID), Data::None).await.map(drop)
    }

    /// Property Get.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn property(&self, property: Property) -> Result<u64, HostError> {
        let command = PropertyCommand::get(CID, property.code(), property.size());
        let value = self.admin_command(*command.as_sqe(), Data::None).await?.result;
        Ok(match property.size() {
            PropertySize::Four => value & u64::from(u32::MAX),
            PropertySize::Eight => value,
        })
    }

    /// Property Set.
    ///
    /// # Errors
    /// As for [`Controller::admin_command`].
    pub async fn set_property(&self, property: Property, value: u64) -> Result<(), HostError> {
        let command = PropertyCommand::set(CID, property.code(), property.size(), value);
        self.admin_command(*command.as_sqe(), Data::None).await.map(drop)
    }
}
