//! Identify Controller, CNS 01h, 4096 bytes (NVMe Base 2.0 figure 276).

use crate::ids::{Cntlid, NQN_FIELD};
use crate::wire::{coded, wire};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identify Controller. Field names are the specification's.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor id.
    pub vid: U16,
    /// PCI subsystem vendor id.
    pub ssvid: U16,
    /// Serial number, ASCII, space-padded.
    pub sn: [u8; 20],
    /// Model number, ASCII, space-padded.
    pub mn: [u8; 40],
    /// Firmware revision, ASCII, space-padded.
    pub fr: [u8; 8],
    /// Recommended arbitration burst, 2^n commands.
    pub rab: u8,
    /// IEEE OUI, little-endian.
    pub ieee: [u8; 3],
    /// Multi-path: see [`cmic`].
    pub cmic: u8,
    /// Maximum data transfer size, 2^n × CAP.MPSMIN bytes; 0 is no limit.
    pub mdts: u8,
    /// Controller identifier.
    pub cntlid: U16,
    /// Version, as VS.
    pub ver: U32,
    /// RTD3 resume latency in µs.
    pub rtd3r: U32,
    /// RTD3 entry latency in µs.
    pub rtd3e: U32,
    /// Optional asynchronous events supported: bits of [`crate::feature::AsyncEventConfig`].
    pub oaes: U32,
    /// Attributes: see [`ctratt`].
    pub ctratt: U32,
    /// Read recovery levels supported.
    pub rrls: U16,
    _rsvd102: [u8; 9],
    /// Controller type: see [`ControllerType`].
    pub cntrltype: u8,
    /// FRU GUID.
    pub fguid: [u8; 16],
    /// Command retry delay 1, in units of 100 ms.
    pub crdt1: U16,
    /// Command retry delay 2, in units of 100 ms.
    pub crdt2: U16,
    /// Command retry delay 3, in units of 100 ms.
    pub crdt3: U16,
    _rsvd134: [u8; 119],
    /// NVM subsystem report (NVMe-MI).
    pub nvmsr: u8,
    /// VPD write cycle information.
    pub vwci: u8,
    /// Management endpoint capabilities.
    pub mec: u8,
    /// Optional admin commands: see [`oacs`].
    pub oacs: U16,
    /// Abort command limit, 0-based.
    pub acl: u8,
    /// Asynchronous event request limit, 0-based.
    pub aerl: u8,
    /// Firmware updates.
    pub frmw: u8,
    /// Log page attributes: see [`lpa`].
    pub lpa: u8,
    /// Error log entries, 0-based.
    pub elpe: u8,
    /// Number of power states, 0-based.
    pub npss: u8,
    /// Admin vendor specific command configuration.
    pub avscc: u8,
    /// Autonomous power state transition attributes.
    pub apsta: u8,
    /// Warning composite temperature, kelvin.
    pub wctemp: U16,
    /// Critical composite temperature, kelvin.
    pub cctemp: U16,
    /// Maximum time for firmware activation, in units of 100 ms.
    pub mtfa: U16,
    /// Host memory buffer preferred size, 4 KiB units.
    pub hmpre: U32,
    /// Host memory buffer minimum size, 4 KiB units.
    pub hmmin: U32,
    /// Total NVM capacity in bytes, 128 bits.
    pub tnvmcap: [u8; 16],
    /// Unallocated NVM capacity in bytes, 128 bits.
    pub unvmcap: [u8; 16],
    /// Replay protected memory block support.
    pub rpmbs: U32,
    /// Extended device self-test time, minutes.
    pub edstt: U16,
    /// Device self-test options.
    pub dsto: u8,
    /// Firmware update granularity, 4 KiB units.
    pub fwug: u8,
    /// Keep alive granularity, in units of 100 ms; 0 is no keep alive (NVME N7).
    pub kas: U16,
    /// Host controlled thermal management attributes.
    pub hctma: U16,
    /// Minimum thermal management temperature, kelvin.
    pub mntmt: U16,
    /// Maximum thermal management temperature, kelvin.
    pub mxtmt: U16,
    /// Sanitize capabilities.
    pub sanicap: U32,
    /// Host memory buffer minimum descriptor entry size, 4 KiB units.
    pub hmminds: U32,
    /// Host memory maximum descriptor entries.
    pub hmmaxd: U16,
    /// Largest NVM set identifier.
    pub nsetidmax: U16,
    /// Largest endurance group identifier.
    pub endgidmax: U16,
    /// ANA transition time in seconds, at least 1 (NVME N11).
    pub anatt: u8,
    /// ANA capabilities: see [`anacap`].
    pub anacap: u8,
    /// Largest ANA group identifier.
    pub anagrpmax: U32,
    /// Number of ANA group identifiers.
    pub nanagrpid: U32,
    /// Persistent event log size, 64 KiB units.
    pub pels: U32,
    /// Domain identifier.
    pub domainid: U16,
    _rsvd358: [u8; 10],
    /// Maximum endurance group capacity in bytes, 128 bits.
    pub megcap: [u8; 16],
    _rsvd384: [u8; 128],
    /// Submission entry size: minimum in bits 3:0, maximum in 7:4, 2^n bytes; 66h.
    pub sqes: u8,
    /// Completion entry size, likewise; 44h.
    pub cqes: u8,
    /// Maximum outstanding commands of a queue (NVME N2).
    pub maxcmd: U16,
    /// Number of namespaces: the largest NSID.
    pub nn: U32,
    /// Optional NVM commands: see [`oncs`].
    pub oncs: U16,
    /// Fused operations: bit 0 Compare and Write.
    pub fuses: U16,
    /// Format NVM attributes.
    pub fna: u8,
    /// Volatile write cache: see [`vwc`].
    pub vwc: u8,
    /// Atomic write unit normal, 0-based blocks.
    pub awun: U16,
    /// Atomic write unit power fail, 0-based blocks.
    pub awupf: U16,
    /// I/O command set vendor specific command configuration.
    pub icsvscc: u8,
    /// Namespace write protection capabilities.
    pub nwpc: u8,
    /// Atomic compare and write unit, 0-based blocks.
    pub acwu: U16,
    /// Copy descriptor formats supported.
    pub cdfs: U16,
    /// SGL support: see [`sgls`].
    pub sgls: U32,
    /// Maximum number of allowed namespaces, at most NN (NVME N2).
    pub mnan: U32,
    /// Maximum domain namespace attachments, 128 bits.
    pub maxdna: [u8; 16],
    /// Maximum I/O controller namespace attachments.
    pub maxcna: U32,
    _rsvd564: [u8; 204],
    /// Subsystem NQN, zero-terminated.
    pub subnqn: [u8; NQN_FIELD],
    _rsvd1024: [u8; 768],
    /// I/O queue command capsule size, 16-byte units: 4 without in-capsule data.
    pub ioccsz: U32,
    /// I/O queue response capsule size, 16-byte units: 1.
    pub iorcsz: U32,
    /// In-capsule data offset, 16-byte units; 0 for TCP.
    pub icdoff: U16,
    /// Fabrics controller attributes: bit 0 set is the static model.
    pub fcatt: u8,
    /// Maximum SGL data block descriptors: 1.
    pub msdbd: u8,
    /// Optional Fabrics commands: bit 0 Disconnect.
    pub ofcs: U16,
    /// Discovery controller type.
    pub dctype: u8,
    _rsvd1807: [u8; 241],
    /// Power states.
    pub psd: [PowerStateDescriptor; 32],
    /// Vendor specific.
    pub vs: [u8; 1024],
}

impl IdentifyController {
    /// The controller.
    #[must_use]
    pub fn controller(&self) -> Cntlid {
        Cntlid(self.cntlid.get())
    }

    /// Subsystem NQN; an error for bytes that are none.
    pub fn subsystem(&self) -> Result<crate::ids::Nqn, crate::ids::NqnError> {
        crate::ids::Nqn::from_field(&self.subnqn)
    }

    /// In-capsule data that an I/O queue takes, in bytes.
    #[must_use]
    pub fn in_capsule_bytes(&self) -> u64 {
        (u64::from(self.ioccsz.get()) * 16).saturating_sub(64)
    }
}

/// Power state descriptor, 32 bytes (NVMe Base 2.0 figure 277).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PowerStateDescriptor {
    /// Maximum power, 10 mW units (or 0.1 mW by MXPS).
    pub mp: U16,
    _rsvd2: u8,
    /// Bit 0 MXPS, bit 1 non-operational.
    pub flags: u8,
    /// Entry latency, µs.
    pub enlat: U32,
    /// Exit latency, µs.
    pub exlat: U32,
    /// Relative read throughput.
    pub rrt: u8,
    /// Relative read latency.
    pub rrl: u8,
    /// Relative write throughput.
    pub rwt: u8,
    /// Relative write latency.
    pub rwl: u8,
    /// Idle power.
    pub idlp: U16,
    /// Idle power scale in bits 7:6.
    pub ips: u8,
    _rsvd19: u8,
    /// Active power.
    pub actp: U16,
    /// Active power workload in bits 2:0 and scale in bits 7:6.
    pub apws: u8,
    _rsvd23: [u8; 9],
}

coded! {
    /// CNTRLTYPE.
    ControllerType: u8, "CNTRLTYPE" {
        /// Not reported (before 1.4).
        NotReported = 0,
        /// I/O controller.
        Io = 1,
        /// Discovery controller.
        Discovery = 2,
        /// Administrative controller.
        Administrative = 3,
    }
}

/// Bits of CMIC.
pub mod cmic {
    /// The subsystem may have several ports.
    pub const MULTI_PORT: u8 = 1 << 0;
    /// The subsystem may have several controllers.
    pub const MULTI_CONTROLLER: u8 = 1 << 1;
    /// The controller is an SR-IOV virtual function.
    pub const SRIOV: u8 = 1 << 2;
    /// ANA reporting is supported.
    pub const ANA: u8 = 1 << 3;
}

/// Bits of CTRATT.
pub mod ctratt {
    /// 128-bit host identifier.
    pub const HOST_ID_128: u32 = 1 << 0;
    /// Non-operational power state permissive mode.
    pub const NOPSPM: u32 = 1 << 1;
    /// NVM sets.
    pub const NVM_SETS: u32 = 1 << 2;
    /// Endurance groups.
    pub const ENDURANCE_GROUPS: u32 = 1 << 4;
    /// Traffic based keep alive.
    pub const TBKAS: u32 = 1 << 6;
    /// Namespace granularity.
    pub const NAMESPACE_GRANULARITY: u32 = 1 << 7;
    /// UUID list.
    pub const UUID_LIST: u32 = 1 << 9;
    /// Extended LBA formats.
    pub const ELBAS: u32 = 1 << 15;
}

/// Bits of OACS.
pub mod oacs {
    /// Security Send and Receive.
    pub const SECURITY: u16 = 1 << 0;
    /// Format NVM.
    pub const FORMAT: u16 = 1 << 1;
    /// Firmware download and commit.
    pub const FIRMWARE: u16 = 1 << 2;
    /// Namespace management.
    pub const NAMESPACE_MANAGEMENT: u16 = 1 << 3;
}

/// Bits of LPA.
pub mod lpa {
    /// SMART log per namespace.
    pub const SMART_PER_NAMESPACE: u8 = 1 << 0;
    /// Commands supported and effects log.
    pub const COMMANDS_EFFECTS: u8 = 1 << 1;
    /// Extended data: offset and 32-bit length.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// Telemetry logs.
    pub const TELEMETRY: u8 = 1 << 3;
    /// Persistent event log.
    pub const PERSISTENT_EVENT: u8 = 1 << 4;
    /// Supported log pages, feature effects and related logs of 2.0.
    pub const SUPPORTED_PAGES: u8 = 1 << 5;
}

/// Bits of ANACAP.
pub mod anacap {
    /// Reports Optimized.
    pub const OPTIMIZED: u8 = 1 << 0;
    /// Reports Non-Optimized.
    pub const NON_OPTIMIZED: u8 = 1 << 1;
    /// Reports Inaccessible.
    pub const INACCESSIBLE: u8 = 1 << 2;
    /// Reports Persistent Loss.
    pub const PERSISTENT_LOSS: u8 = 1 << 3;
    /// Reports Change.
    pub const CHANGE: u8 = 1 << 4;
    /// A namespace's ANAGRPID does not change while attached.
    pub const GROUP_ID_FIXED: u8 = 1 << 6;
    /// Namespace Management may set ANAGRPID.
    pub const GROUP_ID_SETTABLE: u8 = 1 << 7;
}

/// Bits of ONCS.
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save and Select of features.
    pub const SAVE_SELECT: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
}

/// FUSES bit: Compare and Write.
pub const FUSES_COMPARE_AND_WRITE: u16 = 1 << 0;

/// OFCS bit: Disconnect is supported.
pub const OFCS_DISCONNECT: u16 = 1 << 0;

/// Bits of VWC.
pub mod vwc {
    /// A volatile write cache is present.
    pub const PRESENT: u8 = 1 << 0;
    /// Flush to NSID FFFFFFFFh is not supported (bits 2:1 are 10b).
    pub const FLUSH_BROADCAST_UNSUPPORTED: u8 = 0b10 << 1;
    /// Flush to NSID FFFFFFFFh flushes all namespaces (bits 2:1 are 11b).
    pub const FLUSH_BROADCAST_SUPPORTED: u8 = 0b11 << 1;
}

/// Bits of SGLS.
pub mod sgls {
    /// SGLs are supported without alignment (bits 1:0 are 01b).
    pub const SUPPORTED: u32 = 0b01;
    /// SGLs with dword alignment (bits 1:0 are 10b).
    pub const SUPPORTED_DWORD_ALIGNED: u32 = 0b10;
    /// Keyed SGL data block.
    pub const KEYED: u32 = 1 << 2;
    /// Address field as offset is supported.
    pub const OFFSET: u32 = 1 << 20;
    /// Transport SGL data block is supported.
    pub const TRANSPORT: u32 = 1 << 21;
}

wire! {
    IdentifyController = 4096, "Identify Controller";
    PowerStateDescriptor = 32, "power state descriptor";
}
