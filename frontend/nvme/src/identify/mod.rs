//! Identify: selectors and the 4096-byte data structures (NVMe Base 2.0 §5.17).

pub mod controller;
pub mod independent;
pub mod lists;
pub mod namespace;
pub mod ns_id_desc;
pub mod nvm_ctrl;

pub use controller::{IdentifyController, PowerStateDescriptor};
pub use independent::IdentifyIndependentNamespace;
pub use lists::{CommandSetList, ControllerList, NamespaceList, SecondaryControllerList, UuidList};
pub use namespace::{IdentifyNamespace, IdentifyNvmNamespace, LbaFormat};
pub use ns_id_desc::{NsIdDescriptor, NsIdDescriptors, NsIdWriter};
pub use nvm_ctrl::{IdentifyNvmController, PrimaryControllerCapabilities};

use crate::wire::coded;

/// Every Identify answer has this many bytes.
pub const IDENTIFY_SIZE: usize = 4096;

coded! {
    /// CNS: controller or namespace structure (NVMe Base 2.0 figure 274).
    Cns: u8, "CNS" {
        /// Identify Namespace of the NVM command set.
        Namespace = 0x00,
        /// Identify Controller.
        Controller = 0x01,
        /// Active namespace ID list.
        ActiveNamespaces = 0x02,
        /// Namespace identification descriptor list.
        NamespaceDescriptors = 0x03,
        /// NVM set list.
        NvmSets = 0x04,
        /// Identify Namespace of a command set.
        CsiNamespace = 0x05,
        /// Identify Controller of a command set.
        CsiController = 0x06,
        /// Active namespace ID list of a command set.
        CsiActiveNamespaces = 0x07,
        /// I/O command set independent Identify Namespace.
        IndependentNamespace = 0x08,
        /// Identify Namespace for a user data format.
        NamespaceFormat = 0x09,
        /// Identify Namespace of a command set for a user data format.
        CsiNamespaceFormat = 0x0A,
        /// Allocated namespace ID list.
        AllocatedNamespaces = 0x10,
        /// Identify Namespace of an allocated namespace.
        AllocatedNamespace = 0x11,
        /// Controllers attached to a namespace.
        NamespaceControllers = 0x12,
        /// Controllers of the subsystem.
        Controllers = 0x13,
        /// Primary controller capabilities.
        PrimaryController = 0x14,
        /// Secondary controller list.
        SecondaryControllers = 0x15,
        /// Namespace granularity list.
        NamespaceGranularity = 0x16,
        /// UUID list.
        Uuids = 0x17,
        /// Domain list.
        Domains = 0x18,
        /// Endurance group list.
        EnduranceGroups = 0x19,
        /// Allocated namespace ID list of a command set.
        CsiAllocatedNamespaces = 0x1A,
        /// Identify Namespace of a command set for an allocated namespace.
        CsiAllocatedNamespace = 0x1B,
        /// Combinations of I/O command sets.
        CommandSets = 0x1C,
    }
}

/// Fills a fixed field with `text`, padded with spaces; longer text is cut.
#[must_use]
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}
