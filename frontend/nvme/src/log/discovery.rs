//! Discovery log, 70h: header and entries of 1024 bytes (NVMe Base 2.0 §5.16.1.23).

use crate::ids::{NQN_FIELD, Nqn, NqnError};
use crate::wire::{DecodeError, coded, wire};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of the log, 1024 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation counter: changes with the entries that this host sees (NVME N13).
    pub genctr: U64,
    /// Entries that follow.
    pub numrec: U64,
    /// Record format, 0.
    pub recfmt: U16,
    _rsvd18: [u8; 1006],
}

coded! {
    /// TRTYPE.
    TransportType: u8, "TRTYPE" {
        /// RDMA.
        Rdma = 1,
        /// Fibre Channel.
        FibreChannel = 2,
        /// TCP.
        Tcp = 3,
        /// Within a host.
        Loop = 254,
    }
}

coded! {
    /// ADRFAM.
    AddressFamily: u8, "ADRFAM" {
        /// IPv4.
        Ipv4 = 1,
        /// IPv6.
        Ipv6 = 2,
        /// InfiniBand.
        InfiniBand = 3,
        /// Fibre Channel.
        FibreChannel = 4,
        /// Within a host.
        Loop = 254,
    }
}

coded! {
    /// SUBTYPE.
    SubsystemType: u8, "SUBTYPE" {
        /// Referral to another discovery subsystem.
        DiscoveryReferral = 1,
        /// NVM subsystem.
        Nvm = 2,
        /// The discovery subsystem that answers.
        CurrentDiscovery = 3,
    }
}

coded! {
    /// TREQ bits 1:0: secure channel.
    SecureChannel: u8, "TREQ" {
        /// Not specified.
        NotSpecified = 0,
        /// Required.
        Required = 1,
        /// Not required.
        NotRequired = 2,
    }
}

/// TREQ bit 2: the controller can disable submission queue flow control (NVME N1).
pub const TREQ_DISABLE_SQ_FLOW: u8 = 1 << 2;

/// Bits of EFLAGS.
pub mod eflags {
    /// Duplicate returned information: other entries lead to the same discovery information.
    pub const DUPRETINFO: u16 = 1 << 0;
    /// Explicit persistent connection support for discovery.
    pub const EPCSD: u16 = 1 << 1;
    /// No CDC connectivity.
    pub const NCC: u16 = 1 << 2;
}

coded! {
    /// SECTYPE of TCP, first byte of TSAS.
    TcpSecurity: u8, "SECTYPE" {
        /// None.
        None = 0,
        /// TLS 1.2.
        Tls12 = 1,
        /// TLS 1.3.
        Tls13 = 2,
    }
}

/// One entry, 1024 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport; see [`TransportType`].
    pub trtype: u8,
    /// Address family; see [`AddressFamily`].
    pub adrfam: u8,
    /// Subsystem type; see [`SubsystemType`].
    pub subtype: u8,
    /// Transport requirements; see [`SecureChannel`] and [`TREQ_DISABLE_SQ_FLOW`].
    pub treq: u8,
    /// Port identifier.
    pub portid: U16,
    /// Controller: FFFFh is the dynamic model.
    pub cntlid: U16,
    /// Largest admin submission queue, entries; at least 32.
    pub asqsz: U16,
    /// Flags; see [`eflags`].
    pub eflags: U16,
    _rsvd12: [u8; 20],
    /// Service: TCP port in decimal ASCII, space-padded.
    pub trsvcid: [u8; 32],
    _rsvd64: [u8; 192],
    /// Subsystem NQN, zero-terminated.
    pub subnqn: [u8; NQN_FIELD],
    /// Address in ASCII, space-padded.
    pub traddr: [u8; 256],
    /// Transport specific; byte 0 is SECTYPE for TCP.
    pub tsas: [u8; 256],
}

impl DiscoveryEntry {
    /// Subsystem NQN.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subnqn)
    }

    /// Address without padding, if it is text.
    pub fn address(&self) -> Result<&str, DecodeError> {
        trimmed(&self.traddr, "TRADDR")
    }

    /// Service without padding, if it is text.
    pub fn service(&self) -> Result<&str, DecodeError> {
        trimmed(&self.trsvcid, "TRSVCID")
    }
}

fn trimmed<'a>(field: &'a [u8], name: &'static str) -> Result<&'a str, DecodeError> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    std::str::from_utf8(field.get(..end).unwrap_or_default()).map(str::trim_end).map_err(|e| {
        let at = e.valid_up_to();
        let value = u64::from(field.get(at).copied().unwrap_or_default());
        DecodeError::Undefined { what: "discovery log entry", field: name, value }
    })
}

wire! {
    DiscoveryHeader = 1024, "discovery log header";
    DiscoveryEntry = 1024, "discovery log entry";
}
