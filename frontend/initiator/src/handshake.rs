//! The first exchange on a connection: ICReq, ICResp (NVMe-TCP 1.0 §3.6.2.2, §3.6.2.3).

use ashlar_nvme::Qid;
use ashlar_nvme::pdu::header::Framing;
use ashlar_nvme::pdu::{DigestGrant, FatalErrorStatus, IcReq, Pda};
use ashlar_nvme::wire::Wire;
use ashlar_reactor::net::{Gather, Stream};

use crate::config::HostConfig;
use crate::engine::Agreed;
use crate::error::{HostError, Loss, ProtocolError};
use crate::incoming::C2H_TERM_REQ;

/// Bytes of ICResp.
const IC_RESP: usize = 128;
const IC_RESP_TYPE: u8 = 0x01;
/// Smallest MAXH2CDATA that a controller may name.
const DATA_MAX_LEAST: u32 = 4096;

/// Exchanges ICReq and ICResp. Also returns bytes that came after it, which a controller should not send yet.
pub(crate) async fn shake_hands(
    stream: &Stream,
    qid: Qid,
    config: &HostConfig,
) -> Result<(Agreed, Vec<u8>), HostError> {
    let lost = |cause| HostError::ConnectionLost { qid, cause };
    let digests = DigestGrant { header: config.header_digest, data: config.data_digest };
    let request = IcReq::new(Pda::NONE, digests, config.r2t_max);
    let mut gather = Box::<Gather>::default();
    if let Some(space) = gather.header(IcReq::SIZE) {
        space.copy_from_slice(request.bytes());
    }
    while !gather.is_empty() {
        let (result, rest) = stream.send(gather).await;
        result.map_err(|error| lost(Loss::Io(error.kind())))?;
        gather = rest;
    }
    let mut bytes = Vec::with_capacity(IC_RESP);
    while bytes.len() < needed(&bytes) {
        match stream.receive().await {
            Ok(Some(received)) => bytes.extend_from_slice(&received),
            Ok(None) => return Err(lost(Loss::ClosedByPeer)),
            Err(error) => return Err(lost(Loss::Io(error.kind()))),
        }
    }
    let agreed = judge(&bytes, config).map_err(lost)?;
    Ok((agreed, bytes.split_off(IC_RESP)))
}

fn needed(bytes: &[u8]) -> usize {
    match bytes.first() {
        // A termination request may be shorter; its header says enough.
        Some(&C2H_TERM_REQ) => 24,
        _ => IC_RESP,
    }
}

fn judge(bytes: &[u8], config: &HostConfig) -> Result<Agreed, Loss> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let number = |at: usize, len: usize| (0..len).fold(0, |sum, i| sum | u32::from(byte(at + i)) << (8 * i));
    if byte(0) == C2H_TERM_REQ {
        let reason = FatalErrorStatus::try_from(number(8, 2) as u16).ok();
        return Err(Loss::Terminated { reason, information: number(10, 4) });
    }
    let wrong = |what, value, expected| Err(Loss::Protocol(ProtocolError::IcResp { what, value, expected }));
    if byte(0) != IC_RESP_TYPE {
        return wrong("PDU-Type", byte(0).into(), "01h");
    }
    if byte(2) as usize != IC_RESP || number(4, 4) as usize != IC_RESP {
        return wrong("PLEN", number(4, 4), "128, with HLEN 128");
    }
    if number(8, 2) != 0 {
        return wrong("PFV", number(8, 2), "0");
    }
    let Some(alignment) = Pda::new(byte(10)) else { return wrong("CPDA", byte(10).into(), "0 to 31") };
    let asked = u32::from(config.header_digest.is_on()) | u32::from(config.data_digest.is_on()) << 1;
    if number(11, 1) != asked {
        return wrong("DGST", number(11, 1), "what was asked for");
    }
    let data_max = number(12, 4);
    if data_max < DATA_MAX_LEAST || !data_max.is_multiple_of(4) {
        return wrong("MAXH2CDATA", data_max, "at least 4096 and a multiple of 4");
    }
    let framing = Framing { header_digest: config.header_digest, data_digest: config.data_digest, alignment };
    Ok(Agreed { framing, data_max, r2t_max: config.r2t_max.max(1) })
}
