//! The start of a connection: ICReq, ICResp and the Connect command, on the accepting core (NVMe-TCP 1.0
//! §3.4; NVME N4, N14). What a host may send is bounded in size here, and by its caller in time.

use std::time::Duration;

use ashlar_nvme::digest::{crc32c, matches};
use ashlar_nvme::fabrics::{self, ConnectCommand, ConnectData};
use ashlar_nvme::opcode::{FABRICS, FabricsType};
use ashlar_nvme::pdu::header::Framing;
use ashlar_nvme::pdu::{
    CapsuleCmd, CapsuleResp, CommonHeader, Direction, HeaderError, HeaderRules, IcReq, IcResp, Pda, PduKind,
    PduLayout, Phase, TermReq,
};
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::{CommandId, Cqe, Sqe, Status, Wire};
use ashlar_reactor::net::{Gather, Stream};
use ashlar_reactor::timeout;

use crate::limits::{ADMIN_IN_CAPSULE_BYTES, IN_CAPSULE_BYTES, R2TS_PER_COMMAND, SLICE_BYTES};
use crate::transport::queue::Terms;

/// How long a peer that was told why the connection ends may take to read it.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// The Connect that a host sent.
#[derive(Clone)]
pub(crate) struct Connect {
    pub(crate) cid: CommandId,
    pub(crate) command: ConnectCommand,
    pub(crate) data: Box<ConnectData>,
}

/// A host that has said who it is and what it wants.
pub(crate) struct Greeted {
    pub(crate) terms: Terms,
    pub(crate) connect: Connect,
    /// Received behind the Connect.
    pub(crate) surplus: Vec<u8>,
}

/// Why there will be no queue.
pub(crate) enum Unwelcome {
    /// The host has gone.
    Gone,
    /// It violates the transport protocol; the start of the PDU.
    Violation(HeaderError, Vec<u8>),
    /// The command is refused.
    Refused(Framing, Cqe),
}

/// Bytes received and not used.
struct Input<'a> {
    stream: &'a Stream,
    bytes: Vec<u8>,
}

impl Input<'_> {
    /// Makes sure that `len` bytes are there, at most a Connect with its data behind a header of any length.
    async fn have(&mut self, len: usize) -> Result<(), Unwelcome> {
        while self.bytes.len() < len {
            match self.stream.receive().await {
                Ok(Some(received)) => self.bytes.extend_from_slice(&received),
                Ok(None) | Err(_) => return Err(Unwelcome::Gone),
            }
        }
        Ok(())
    }

    fn violation(&self, error: HeaderError, layout: Option<&PduLayout>) -> Unwelcome {
        let echoed = layout.map_or(CommonHeader::SIZE, |layout| layout.hlen as usize);
        Unwelcome::Violation(error, self.bytes.get(..echoed).unwrap_or(&self.bytes).to_vec())
    }

    /// Waits for a whole PDU.
    async fn pdu(&mut self, rules: &HeaderRules) -> Result<PduLayout, Unwelcome> {
        self.have(CommonHeader::SIZE).await?;
        let layout = CommonHeader::ref_from(&self.bytes)
            .map_err(|_| HeaderError::invalid(0))
            .and_then(|header| rules.check(header))
            .map_err(|error| self.violation(error, None))?;
        self.have(layout.plen() as usize).await?;
        Ok(layout)
    }
}

/// Greets a host: exchanges ICReq and ICResp and waits for its Connect.
pub(crate) async fn greet(stream: &Stream) -> Result<Greeted, Unwelcome> {
    let mut input = Input { stream, bytes: Vec::new() };
    let layout = input.pdu(&HeaderRules::initialize(Direction::HostToController)).await?;
    if layout.kind != PduKind::IcReq {
        return Err(Unwelcome::Gone);
    }
    let params = IcReq::ref_from(&input.bytes)
        .map_err(|_| HeaderError::invalid(0))
        .and_then(IcReq::params)
        .map_err(|error| input.violation(error, Some(&layout)))?;
    input.bytes.drain(..layout.plen() as usize);
    // Digests as asked; no alignment of what the host sends (NVME N4).
    send(stream, IcResp::new(Pda::NONE, params.digests, SLICE_BYTES).bytes()).await?;
    let rules = HeaderRules {
        direction: Direction::HostToController,
        phase: Phase::Running,
        header_digest: params.digests.header,
        data_digest: params.digests.data,
        alignment: Pda::NONE,
        in_capsule_max: ADMIN_IN_CAPSULE_BYTES,
        data_max: SLICE_BYTES,
    };
    let framing = Framing {
        header_digest: params.digests.header,
        data_digest: params.digests.data,
        alignment: params.hpda,
    };
    let layout = input.pdu(&rules).await?;
    let connect = connect(&input, &layout, framing)?;
    input.bytes.drain(..layout.plen() as usize);
    let in_capsule_max = match connect.command.qid.get() {
        0 => ADMIN_IN_CAPSULE_BYTES,
        _ => IN_CAPSULE_BYTES,
    };
    let r2ts_max = usize::try_from(params.r2t_max).unwrap_or(usize::MAX).min(R2TS_PER_COMMAND);
    let terms = Terms { rules: HeaderRules { in_capsule_max, ..rules }, framing, r2ts_max };
    Ok(Greeted { terms, connect, surplus: input.bytes })
}

fn connect(input: &Input<'_>, layout: &PduLayout, framing: Framing) -> Result<Connect, Unwelcome> {
    let bytes = &input.bytes;
    let hlen = layout.hlen as usize;
    if layout.header_digest.is_on() {
        let received = digest_at(bytes, hlen);
        if crc32c(&bytes[..hlen]) != received {
            return Err(input.violation(HeaderError::header_digest(received), Some(layout)));
        }
    }
    match layout.kind {
        PduKind::CapsuleCmd => {}
        PduKind::H2cTermReq => return Err(Unwelcome::Gone),
        // There is no command that data could belong to.
        _ => return Err(input.violation(HeaderError::sequence(), Some(layout))),
    }
    let capsule = CapsuleCmd::ref_from(bytes).map_err(|_| input.violation(HeaderError::invalid(0), None))?;
    let sqe: Sqe = capsule.sqe;
    let cid = sqe.command_id();
    let refuse = |status| Unwelcome::Refused(framing, Cqe::new(cid, 0, status));
    // The first command of a queue is Connect (NVMe Base 2.0 §6.3).
    if sqe.opcode != FABRICS || fabrics::fctype(&sqe) != Ok(FabricsType::Connect) {
        return Err(refuse(Status::COMMAND_SEQUENCE_ERROR));
    }
    let (from, len) = (layout.data_offset as usize, layout.data_len as usize);
    let data = &bytes[from..from + len];
    if layout.data_digest.is_on() && !matches(data, digest_at(bytes, from + len).to_le_bytes()) {
        return Err(refuse(Status::TRANSIENT_TRANSPORT_ERROR));
    }
    // Connect's data comes in the capsule (NVMe-TCP 1.0 §3.5).
    let offset = match fabrics::connect_data_pointer(&sqe, layout.data_len).map_err(refuse)? {
        DataPointer::InCapsule { offset, .. } => offset as usize,
        DataPointer::None | DataPointer::Transport { .. } => {
            return Err(refuse(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        }
    };
    let data = ConnectData::read_from(data.get(offset..).unwrap_or_default())
        .map_err(|_| refuse(Status::DATA_SGL_LENGTH_INVALID))?;
    Ok(Connect { cid, command: *ConnectCommand::of(&sqe), data: Box::new(data) })
}

fn digest_at(bytes: &[u8], at: usize) -> u32 {
    let digest = bytes.get(at..at + 4).and_then(|digest| digest.try_into().ok());
    u32::from_le_bytes(digest.unwrap_or_default())
}

async fn send(stream: &Stream, bytes: &[u8]) -> Result<(), Unwelcome> {
    let mut gather = Box::new(Gather::new());
    match gather.header(bytes.len()) {
        Some(space) => space.copy_from_slice(bytes),
        None => return Err(Unwelcome::Gone),
    }
    while !gather.is_empty() {
        let (result, rest) = stream.send(gather).await;
        gather = rest;
        if result.is_err() {
            return Err(Unwelcome::Gone);
        }
    }
    Ok(())
}

/// Tells a host why there is no queue, and lets it go.
pub(crate) async fn part(stream: &Stream, unwelcome: Unwelcome) {
    let mut pdu = [0; TermReq::PLEN_MAX];
    let len = match unwelcome {
        Unwelcome::Gone => 0,
        Unwelcome::Violation(error, offending) => {
            tracing::debug!(%error, "connection violates the protocol before Connect");
            TermReq::put_with(Direction::ControllerToHost, error, &offending, &mut pdu).unwrap_or(0)
        }
        Unwelcome::Refused(framing, cqe) => {
            let response = CapsuleResp::new(framing, cqe);
            let mut len = response.put(&mut pdu).unwrap_or(0);
            if framing.header_digest.is_on() {
                let digest = crc32c(&pdu[..len]).to_le_bytes();
                pdu[len..len + digest.len()].copy_from_slice(&digest);
                len += digest.len();
            }
            len
        }
    };
    let farewell = async {
        if len == 0 || send(stream, &pdu[..len]).await.is_err() {
            return;
        }
        linger(stream).await;
    };
    // Whoever does not read it in time has lost it.
    let _ = timeout(LINGER, farewell).await;
    stream.shut_down();
}

/// Lets the peer read to the end and throws its input away until it has closed, too: closing with input
/// unread would take what was sent from the peer.
pub(crate) async fn linger(stream: &Stream) {
    stream.finish_sending();
    while let Ok(Some(received)) = stream.receive().await {
        drop(received);
    }
}
