//! Changes of what is served: what each needs, and every reason to refuse one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use ashlar_reactor::Error as ReactorError;
use uuid::Uuid;

use crate::backend::{BackendError, BackendInfo};
use crate::inventory::{AnaState, HostAccess, Inventory, LbaSize, Namespace, Subsystem};
use crate::limits::NAMESPACES_MAX;

/// Longest serial number and model number, in ASCII characters (NVMe Base 2.0 §5.17.2.1).
const SERIAL_MAX: usize = 20;
const MODEL_MAX: usize = 40;

/// A subsystem that shall be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSubsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, at most 20 printable ASCII characters.
    pub serial: String,
    /// Model number, at most 40 printable ASCII characters.
    pub model: String,
    /// Who may connect.
    pub hosts: HostAccess,
}

/// A namespace that shall be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNamespace {
    /// Its id in its subsystem, from 1 to [`NAMESPACES_MAX`].
    pub nsid: Nsid,
    /// Stable wherever it is served, unique in the target, not nil.
    pub uuid: Uuid,
    /// Stable wherever it is served, unique in the target, not zero.
    pub nguid: Nguid,
    /// Logical block size.
    pub lba: LbaSize,
    /// Size in logical blocks; `None`: all that the backend has.
    pub blocks: Option<u64>,
    /// ANA state here.
    pub ana_state: AnaState,
}

/// Why a change was refused; nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// A subsystem has that name.
    #[error("subsystem {0} exists already")]
    SubsystemExists(Nqn),
    /// No subsystem has that name.
    #[error("there is no subsystem {0}")]
    NoSubsystem(Nqn),
    /// The name belongs to discovery.
    #[error("{0} is the name of discovery and cannot be a subsystem's")]
    ReservedName(Nqn),
    /// Serial or model number.
    #[error("the {what} of subsystem {subsystem} must be 1 to {most} printable ASCII characters")]
    Text {
        /// Which.
        what: &'static str,
        /// The subsystem.
        subsystem: Nqn,
        /// Longest.
        most: usize,
    },
    /// The id is taken.
    #[error("subsystem {subsystem} has a namespace {nsid} already")]
    NamespaceExists {
        /// The subsystem.
        subsystem: Nqn,
        /// The id.
        nsid: Nsid,
    },
    /// No namespace has that id.
    #[error("subsystem {subsystem} has no namespace {nsid}")]
    NoNamespace {
        /// The subsystem.
        subsystem: Nqn,
        /// The id.
        nsid: Nsid,
    },
    /// The id is out of range.
    #[error("namespace id {0} is not within 1 to {NAMESPACES_MAX}")]
    BadNsid(Nsid),
    /// Another namespace has that UUID or NGUID: hosts would take both for one.
    #[error("the {what} {value} belongs to namespace {nsid} of subsystem {subsystem} already")]
    IdentityTaken {
        /// UUID or NGUID.
        what: &'static str,
        /// Its value.
        value: Uuid,
        /// Whose it is.
        subsystem: Nqn,
        /// Whose it is.
        nsid: Nsid,
    },
    /// A nil UUID or zero NGUID.
    #[error("namespace {nsid} needs a {what} that is not zero")]
    NoIdentity {
        /// UUID or NGUID.
        what: &'static str,
        /// The namespace.
        nsid: Nsid,
    },
    /// The size does not fit.
    #[error(
        "namespace {nsid} of {blocks} blocks of {lba} bytes is empty or does not fit into its {backend} bytes"
    )]
    BadSize {
        /// The namespace.
        nsid: Nsid,
        /// Blocks asked for.
        blocks: u64,
        /// Bytes of a block.
        lba: u32,
        /// Bytes that the backend has.
        backend: u64,
    },
    /// The backend reads and writes larger units only.
    #[error("namespace {nsid} cannot have blocks of {lba} bytes: its backend moves {access} bytes at least")]
    BadBlock {
        /// The namespace.
        nsid: Nsid,
        /// Bytes of a block.
        lba: u32,
        /// Smallest unit of the backend.
        access: u32,
    },
    /// The backend could not be opened.
    #[error("could not open the backend of namespace {nsid}: {source}")]
    Open {
        /// The namespace.
        nsid: Nsid,
        /// Why.
        #[source]
        source: BackendError,
    },
    /// The portal's address could not be bound.
    #[error("could not listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        #[source]
        source: std::io::Error,
    },
    /// The address is listened on.
    #[error("a portal listens on {0} already")]
    PortalExists(SocketAddr),
    /// Nothing listens there.
    #[error("no portal listens on {0}")]
    NoPortal(SocketAddr),
    /// A core could not be reached.
    #[error("a data core could not be reached: {0}")]
    Core(#[from] ReactorError),
    /// The target has been stopped.
    #[error("the target has been stopped")]
    Stopped,
}

fn check_text(what: &'static str, text: &str, most: usize, subsystem: &Nqn) -> Result<(), ChangeError> {
    let printable = text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
    if text.is_empty() || text.len() > most || !printable {
        return Err(ChangeError::Text { what, subsystem: subsystem.clone(), most });
    }
    Ok(())
}

impl NewSubsystem {
    /// The subsystem, if it may be added.
    pub(super) fn check(self, inventory: &Inventory) -> Result<Subsystem, ChangeError> {
        if self.nqn.is_discovery() {
            return Err(ChangeError::ReservedName(self.nqn));
        }
        if inventory.subsystems.contains_key(&self.nqn) {
            return Err(ChangeError::SubsystemExists(self.nqn));
        }
        check_text("serial number", &self.serial, SERIAL_MAX, &self.nqn)?;
        check_text("model number", &self.model, MODEL_MAX, &self.nqn)?;
        let NewSubsystem { nqn, serial, model, hosts } = self;
        Ok(Subsystem { nqn, serial, model, hosts, namespaces: BTreeMap::new() })
    }
}

/// The number of blocks, if it fits.
pub(super) fn check_size(
    nsid: Nsid,
    lba: LbaSize,
    blocks: Option<u64>,
    backend: &BackendInfo,
) -> Result<u64, ChangeError> {
    let most = backend.bytes >> lba.shift();
    let blocks = blocks.unwrap_or(most);
    if blocks == 0 || blocks > most {
        return Err(ChangeError::BadSize { nsid, blocks, lba: lba.bytes(), backend: backend.bytes });
    }
    Ok(blocks)
}

impl NewNamespace {
    /// The namespace, if it may be added beside those of `taken`.
    pub(super) fn check<'a>(
        &self,
        subsystem: &Nqn,
        backend: BackendInfo,
        taken: impl Iterator<Item = (&'a Nqn, &'a Arc<Namespace>)>,
    ) -> Result<Namespace, ChangeError> {
        let nsid = self.nsid;
        if nsid.0 == 0 || nsid.0 > NAMESPACES_MAX {
            return Err(ChangeError::BadNsid(nsid));
        }
        if self.uuid.is_nil() {
            return Err(ChangeError::NoIdentity { what: "UUID", nsid });
        }
        if self.nguid == Nguid::default() {
            return Err(ChangeError::NoIdentity { what: "NGUID", nsid });
        }
        for (owner, other) in taken {
            if owner == subsystem && other.nsid == nsid {
                return Err(ChangeError::NamespaceExists { subsystem: owner.clone(), nsid });
            }
            let identity = if other.uuid == self.uuid {
                Some(("UUID", self.uuid))
            } else if other.nguid == self.nguid {
                Some(("NGUID", Uuid::from_bytes(self.nguid.0)))
            } else {
                None
            };
            if let Some((what, value)) = identity {
                let (subsystem, nsid) = (owner.clone(), other.nsid);
                return Err(ChangeError::IdentityTaken { what, value, subsystem, nsid });
            }
        }
        if self.lba.bytes() < backend.access_bytes {
            let (lba, access) = (self.lba.bytes(), backend.access_bytes);
            return Err(ChangeError::BadBlock { nsid, lba, access });
        }
        let blocks = check_size(nsid, self.lba, self.blocks, &backend)?;
        Ok(Namespace {
            nsid,
            uuid: self.uuid,
            nguid: self.nguid,
            lba: self.lba,
            blocks,
            backend,
            // One group per namespace, with its number.
            ana_group: nsid.0,
            ana_state: self.ana_state,
        })
    }
}
