//! Identify: which structure answers which CNS (NVMe Base 2.0 §5.17).

mod controller;
mod namespace;

use ashlar_nvme::admin::IdentifyCommand;
use ashlar_nvme::identify::{Cns, CommandSetList, IDENTIFY_SIZE, NamespaceList};
use ashlar_nvme::ids::{Cntlid, Nsid};
use ashlar_nvme::opcode::Csi;
use ashlar_nvme::{Sqe, Status, Wire};

use super::Controller;
use super::execute::{Answer, expect_length};
use crate::limits;

pub(super) use controller::firmware_revision;

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe) -> Result<Answer, Status> {
        let command = IdentifyCommand::from_sqe(sqe);
        let cns = Cns::try_from(command.cns).map_err(|_| Status::INVALID_FIELD)?;
        // A discovery controller has no namespaces and no command set.
        if self.is_discovery() && cns != Cns::Controller {
            return Err(Status::INVALID_FIELD);
        }
        let data = self.structure(cns, &command, sqe.namespace())?;
        expect_length(sqe, IDENTIFY_SIZE as u64)?;
        Ok(Answer::data(data))
    }

    fn structure(&self, cns: Cns, command: &IdentifyCommand, nsid: Nsid) -> Result<Vec<u8>, Status> {
        match cns {
            Cns::Namespace | Cns::AllocatedNamespace => self.identify_namespace(nsid),
            Cns::Controller => Ok(self.identify_controller().bytes().to_vec()),
            // Every namespace that exists is attached: allocated and active are the same.
            Cns::ActiveNamespaces | Cns::AllocatedNamespaces => self.namespaces_after(nsid),
            Cns::NamespaceDescriptors => self.identify_descriptors(nsid),
            Cns::CsiNamespace | Cns::CsiAllocatedNamespace => {
                nvm_only(command)?;
                self.identify_nvm_namespace(nsid)
            }
            Cns::CsiController => {
                nvm_only(command)?;
                Ok(controller::identify_nvm_controller().bytes().to_vec())
            }
            Cns::CsiActiveNamespaces | Cns::CsiAllocatedNamespaces => {
                nvm_only(command)?;
                self.namespaces_after(nsid)
            }
            Cns::IndependentNamespace => self.identify_independent(nsid),
            Cns::CommandSets => match command.cntid {
                cntid if cntid == self.shared.cntlid || cntid == Cntlid::DYNAMIC => {
                    Ok(CommandSetList::nvm_only().bytes().to_vec())
                }
                _ => Err(Status::INVALID_FIELD),
            },
            // No NVM sets, endurance groups, domains, virtualization, namespace management, extended formats,
            // or UUIDs of vendors.
            Cns::NvmSets
            | Cns::NamespaceFormat
            | Cns::CsiNamespaceFormat
            | Cns::NamespaceControllers
            | Cns::Controllers
            | Cns::PrimaryController
            | Cns::SecondaryControllers
            | Cns::NamespaceGranularity
            | Cns::Uuids
            | Cns::Domains
            | Cns::EnduranceGroups => Err(Status::INVALID_FIELD),
        }
    }

    /// The first 1024 namespaces with a larger id than `nsid`.
    fn namespaces_after(&self, nsid: Nsid) -> Result<Vec<u8>, Status> {
        if nsid.0 >= 0xFFFF_FFFE {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        let subsystem = self.subsystem();
        let after =
            subsystem.iter().flat_map(|s| s.namespaces.range(Nsid(nsid.0 + 1)..)).map(|(nsid, _)| *nsid);
        Ok(NamespaceList::from_ids(after).bytes().to_vec())
    }
}

fn nvm_only(command: &IdentifyCommand) -> Result<(), Status> {
    if command.csi == Csi::Nvm.code() { Ok(()) } else { Err(Status::INVALID_IO_COMMAND_SET) }
}

/// An NSID that some namespace could have: 1 to NN.
fn is_within_nn(nsid: Nsid) -> bool {
    nsid.is_valid() && nsid.0 <= limits::NAMESPACES_MAX
}
