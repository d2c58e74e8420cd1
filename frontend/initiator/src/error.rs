//! What can go wrong between a host and a controller: refused commands, lost connections, broken rules.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ashlar_nvme::pdu::FatalErrorStatus;
use ashlar_nvme::status::StatusField;
use ashlar_nvme::{Nsid, Qid, Status};

/// A command that the controller completed with a status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandError {
    /// The whole status field: status, DNR, More, CRD.
    pub field: StatusField,
    /// Dwords 0 and 1 of the completion: what was wrong with a Connect, for example.
    pub result: u64,
    /// The command's opcode.
    pub opcode: u8,
}

impl CommandError {
    /// The status.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.field.status()
    }

    /// Do Not Retry.
    #[must_use]
    pub const fn dnr(&self) -> bool {
        self.field.dnr()
    }

    /// The error log has more about it.
    #[must_use]
    pub const fn more(&self) -> bool {
        self.field.more()
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status = self.status();
        let retry = if self.dnr() { ", do not retry" } else { "" };
        let (opcode, sct, sc) = (self.opcode, status.sct(), status.sc());
        write!(f, "command {opcode:02x}h failed: ")?;
        // Codes of Fabrics commands have other names than those of the NVM command set.
        match status.fabrics_name() {
            Some(name) if opcode == ashlar_nvme::opcode::FABRICS => f.write_str(name)?,
            _ => write!(f, "{status}")?,
        }
        write!(f, " (status {sct:x}h/{sc:02x}h{retry})")
    }
}

impl std::error::Error for CommandError {}

/// A rule of NVMe/TCP or NVMe that the controller broke. The connection ends, with a termination request
/// where the specification has one for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A PDU type that a controller does not send, or not now.
    #[error("PDU of type {kind:02x}h may not come now")]
    UnexpectedPdu {
        /// PDU-Type.
        kind: u8,
    },
    /// A header field with a value that it may not have.
    #[error("PDU of type {kind:02x}h: {field} is {value:#x}, which is not allowed")]
    Field {
        /// PDU-Type.
        kind: u8,
        /// The field's name in the specification.
        field: &'static str,
        /// Its byte offset in the PDU.
        offset: u8,
        /// Its value.
        value: u32,
    },
    /// The header does not match its digest.
    #[error("PDU of type {kind:02x}h: header digest {received:#010x} came, {computed:#010x} was computed")]
    HeaderDigest {
        /// PDU-Type.
        kind: u8,
        /// What came.
        received: u32,
        /// What the header's bytes give.
        computed: u32,
    },
    /// A command identifier that no outstanding command has.
    #[error("PDU of type {kind:02x}h names command {cid:#06x}, which is not outstanding")]
    UnknownCommand {
        /// PDU-Type.
        kind: u8,
        /// The identifier.
        cid: u16,
    },
    /// Data for a command that reads none, or an R2T for one that has none to send.
    #[error("PDU of type {kind:02x}h for command {cid:#06x}, whose data does not move that way")]
    WrongDirection {
        /// PDU-Type.
        kind: u8,
        /// The command.
        cid: u16,
    },
    /// Data or R2T that does not continue where the one before ended, or reaches beyond the command's length.
    #[error(
        "PDU of type {kind:02x}h for command {cid:#06x}: {offset}+{len}, but {expected} of {total} is next"
    )]
    OutOfRange {
        /// PDU-Type.
        kind: u8,
        /// The command.
        cid: u16,
        /// Offset named.
        offset: u32,
        /// Length named.
        len: u32,
        /// Offset expected.
        expected: u32,
        /// The command's length.
        total: u32,
    },
    /// LAST_PDU set before the end or missing at it.
    #[error("C2HData for command {cid:#06x}: LAST does not mark the end of its data")]
    Last {
        /// The command.
        cid: u16,
    },
    /// The success flag although flow control is on (NVME N1).
    #[error("C2HData for command {cid:#06x} has the success flag, but flow control is enabled")]
    SuccessFlag {
        /// The command.
        cid: u16,
    },
    /// Success although not all data was moved.
    #[error("command {cid:#06x} succeeded with {moved} of {total} bytes moved")]
    Short {
        /// The command.
        cid: u16,
        /// Bytes moved, or asked for by R2T.
        moved: u32,
        /// The command's length.
        total: u32,
    },
    /// More R2Ts outstanding than granted.
    #[error("command {cid:#06x} has more than {most} R2Ts outstanding")]
    TooManyR2ts {
        /// The command.
        cid: u16,
        /// MAXR2T + 1.
        most: u32,
    },
    /// SQHD outside the queue.
    #[error("completion of command {cid:#06x}: SQHD {sqhd} in a queue of {entries} entries")]
    Sqhd {
        /// The command.
        cid: u16,
        /// What came.
        sqhd: u16,
        /// Entries of the queue.
        entries: u16,
    },
    /// ICResp did not grant what it must.
    #[error("ICResp: {what} is {value}, {expected} was expected")]
    IcResp {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u32,
        /// What would have been right.
        expected: &'static str,
    },
    /// A structure in a command's data that contradicts itself or the specification.
    #[error("{what} is {value}, which cannot be")]
    Content {
        /// The structure and field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}

/// Why something asked of a controller did not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The TCP connection could not be made.
    #[error("connecting to {address}: {kind}")]
    Connect {
        /// Whom.
        address: SocketAddr,
        /// The kernel's reason.
        kind: io::ErrorKind,
    },
    /// Nothing came within the limit.
    #[error("{what} took longer than {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The connection ended; whether the command was executed is unknown.
    #[error("queue {qid}: the connection was lost: {cause}")]
    ConnectionLost {
        /// The queue.
        qid: Qid,
        /// Why.
        cause: Loss,
    },
    /// The controller completed the command with an error.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The data of this command does not match its digest. The connection goes on.
    #[error("the data received does not match its digest")]
    DataDigest,
    /// The controller's answer to an admin command makes no sense.
    #[error("the controller broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The controller says that it is broken (CSTS.CFS).
    #[error("the controller reports a fatal status")]
    ControllerFatal,
    /// What was asked for cannot be asked of this controller.
    #[error("{what}: {value} is not possible, at most {most}")]
    Limit {
        /// What.
        what: &'static str,
        /// Asked for.
        value: u64,
        /// Possible.
        most: u64,
    },
    /// The namespace is not there or not active.
    #[error("namespace {0} is not active")]
    NoNamespace(Nsid),
    /// The controller wants in-band authentication, which this host does not have.
    #[error("the controller asks for authentication, which is not supported")]
    AuthenticationRequired,
    /// The discovery log kept changing while it was read.
    #[error("the discovery log changed {0} times while it was read")]
    DiscoveryUnstable(u32),
}

impl HostError {
    /// Whether the association is gone and only a new one helps.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::ConnectionLost { .. } | Self::Connect { .. } | Self::TimedOut { .. })
    }

    /// The status, if the controller completed the command with an error.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Command(error) => Some(error.status()),
            _ => None,
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// We closed it.
    #[error("closed by this host")]
    Closed,
    /// The controller closed it.
    #[error("closed by the controller")]
    ClosedByPeer,
    /// The controller sent a termination request.
    #[error("terminated by the controller: {reason:?}, information {information:#x}")]
    Terminated {
        /// FES, if it is a defined one.
        reason: Option<FatalErrorStatus>,
        /// FEI.
        information: u32,
    },
    /// The controller broke the protocol and we terminated.
    #[error("the controller broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// The kernel reported an error.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// A command was not completed within the limit.
    #[error("a command was outstanding for longer than {0:?}")]
    CommandTimeout(Duration),
    /// Keep Alive was not answered.
    #[error("Keep Alive was not answered within {0:?}")]
    KeepAlive(Duration),
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::opcode::FABRICS;
    use ashlar_nvme::status::Retry;

    use super::*;

    #[test]
    fn statuses_are_named_after_the_command_that_they_answer() {
        let field = StatusField::new(Status::CONNECT_INVALID_PARAMETERS, Retry::Futile);
        let told = |opcode| CommandError { field, result: 0, opcode }.to_string();
        let (connect, write) = (told(FABRICS), told(1));
        assert!(
            connect.starts_with("command 7fh failed: Connect Invalid Parameters (status 1h/82h"),
            "{connect}"
        );
        assert!(write.starts_with("command 01h failed: Attempted Write to Read Only Range"), "{write}");
    }
}
