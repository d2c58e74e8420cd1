//! Headers of the PDUs that a controller sends, decoded byte by byte.
//!
//! This shares no code with the target's codec on purpose: a misreading of the specification that both ends
//! had in common would otherwise go unnoticed. Field positions are those of NVMe-TCP 1.0 §3.6.2.

use ashlar_nvme::digest::crc32c;

use crate::error::ProtocolError;

/// Header bytes of every PDU that comes after ICResp.
pub(crate) const HEAD: usize = 24;
/// Bytes of a digest.
pub(crate) const DIGEST: usize = 4;

pub(crate) const C2H_TERM_REQ: u8 = 0x03;
pub(crate) const CAPSULE_RESP: u8 = 0x05;
pub(crate) const C2H_DATA: u8 = 0x07;
pub(crate) const R2T: u8 = 0x09;

const FLAG_HEADER_DIGEST: u8 = 0x01;
const FLAG_DATA_DIGEST: u8 = 0x02;
const FLAG_LAST: u8 = 0x04;
const FLAG_SUCCESS: u8 = 0x08;

/// What was negotiated about what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// How a C2HData ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    More,
    Last,
    LastWithSuccess,
}

/// A PDU's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    Response { cid: u16, result: u64, sqhd: u16, status: u16 },
    Data { cid: u16, offset: u32, len: u32, padding: u32, ending: Ending },
    Request { cid: u16, ttag: u16, offset: u32, len: u32 },
    Terminate { reason: u16, information: u32 },
}

fn u16_at(head: &[u8; HEAD], at: usize) -> u16 {
    u16::from_le_bytes([head[at], head[at + 1]])
}

fn u32_at(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Bytes of header and header digest of a PDU of this type.
pub(crate) fn head_bytes(kind: u8, digests: Digests) -> usize {
    // Termination requests have no digest (NVMe-TCP 1.0 §3.6.2.5).
    if kind != C2H_TERM_REQ && digests.header { HEAD + DIGEST } else { HEAD }
}

/// Decodes a header; `digest` is the digest that came after it, if one was negotiated for its type.
pub(crate) fn decode(
    head: &[u8; HEAD],
    digest: Option<[u8; DIGEST]>,
    digests: Digests,
) -> Result<Incoming, ProtocolError> {
    let (kind, flags) = (head[0], head[1]);
    if !matches!(kind, C2H_TERM_REQ | CAPSULE_RESP | C2H_DATA | R2T) {
        return Err(ProtocolError::UnexpectedPdu { kind });
    }
    let field = |field, offset, value| ProtocolError::Field { kind, field, offset, value };
    if head[2] as usize != HEAD {
        return Err(field("HLEN", 2, head[2].into()));
    }
    let plen = u32_at(head, 4);
    if kind == C2H_TERM_REQ {
        return Ok(Incoming::Terminate { reason: u16_at(head, 8), information: u32_at(head, 10) });
    }
    if (flags & FLAG_HEADER_DIGEST != 0) != digests.header {
        return Err(field("FLAGS", 1, flags.into()));
    }
    if let Some(received) = digest {
        let (received, computed) = (u32::from_le_bytes(received), crc32c(head));
        if received != computed {
            return Err(ProtocolError::HeaderDigest { kind, received, computed });
        }
    }
    let ends = head_bytes(kind, digests) as u32;
    if kind == C2H_DATA {
        return data(head, ends, digests);
    }
    if flags & FLAG_DATA_DIGEST != 0 {
        return Err(field("FLAGS", 1, flags.into()));
    }
    if plen != ends {
        return Err(field("PLEN", 4, plen));
    }
    if kind == CAPSULE_RESP {
        let result = u64::from(u32_at(head, 8)) | u64::from(u32_at(head, 12)) << 32;
        let (sqhd, cid, status) = (u16_at(head, 16), u16_at(head, 20), u16_at(head, 22));
        return Ok(Incoming::Response { cid, result, sqhd, status });
    }
    let (offset, len) = (u32_at(head, 12), u32_at(head, 16));
    if len == 0 || !len.is_multiple_of(4) {
        return Err(field("R2TL", 16, len));
    }
    if !offset.is_multiple_of(4) {
        return Err(field("R2TO", 12, offset));
    }
    Ok(Incoming::Request { cid: u16_at(head, 8), ttag: u16_at(head, 10), offset, len })
}

fn data(head: &[u8; HEAD], ends: u32, digests: Digests) -> Result<Incoming, ProtocolError> {
    let field = |field, offset, value| ProtocolError::Field { kind: C2H_DATA, field, offset, value };
    let flags = head[1];
    if (flags & FLAG_DATA_DIGEST != 0) != digests.data {
        return Err(field("FLAGS", 1, flags.into()));
    }
    let ending = match (flags & FLAG_LAST != 0, flags & FLAG_SUCCESS != 0) {
        (false, false) => Ending::More,
        (true, false) => Ending::Last,
        (true, true) => Ending::LastWithSuccess,
        (false, true) => return Err(field("FLAGS", 1, flags.into())),
    };
    // We ask for no alignment beyond dwords (HPDA 0).
    let pdo = u32::from(head[3]);
    if pdo < ends || !pdo.is_multiple_of(4) {
        return Err(field("PDO", 3, pdo));
    }
    let (plen, offset, len) = (u32_at(head, 4), u32_at(head, 12), u32_at(head, 16));
    if len == 0 || !len.is_multiple_of(4) {
        return Err(field("DATAL", 16, len));
    }
    if !offset.is_multiple_of(4) {
        return Err(field("DATAO", 12, offset));
    }
    let trailer = if digests.data { DIGEST as u64 } else { 0 };
    if u64::from(plen) != u64::from(pdo) + u64::from(len) + trailer {
        return Err(field("PLEN", 4, plen));
    }
    Ok(Incoming::Data { cid: u16_at(head, 8), offset, len, padding: pdo - ends, ending })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Digests = Digests { header: false, data: false };

    fn head(bytes: &[u8]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..bytes.len()].copy_from_slice(bytes);
        head
    }

    #[test]
    fn response_fields_lie_where_the_specification_says() {
        let bytes = head(&[
            5, 0, 24, 0, 24, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x0b, 0, 0, 0x0c, 0x0d, 0x0e, 0x0f,
        ]);
        assert_eq!(
            decode(&bytes, None, PLAIN),
            Ok(Incoming::Response {
                cid: 0x0d0c,
                result: 0x0807_0605_0403_0201,
                sqhd: 0x0b0a,
                status: 0x0f0e
            })
        );
    }

    #[test]
    fn data_fields_lie_where_the_specification_says() {
        let bytes = head(&[7, 0x0c, 24, 28, 36, 0, 0, 0, 0x34, 0x12, 0, 0, 16, 0, 0, 0, 8, 0, 0, 0]);
        let expected =
            Incoming::Data { cid: 0x1234, offset: 16, len: 8, padding: 4, ending: Ending::LastWithSuccess };
        assert_eq!(decode(&bytes, None, PLAIN), Ok(expected));
    }

    #[test]
    fn request_fields_lie_where_the_specification_says() {
        let bytes = head(&[9, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0x22, 0x11, 0, 1, 0, 0, 0, 2, 0, 0]);
        let expected = Incoming::Request { cid: 1, ttag: 0x1122, offset: 256, len: 512 };
        assert_eq!(decode(&bytes, None, PLAIN), Ok(expected));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let good = head(&[7, 4, 24, 24, 32, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
        assert!(decode(&good, None, PLAIN).is_ok());
        for (at, value, name) in [
            (1, 0x05, "FLAGS"), // header digest flag that was not negotiated
            (1, 0x06, "FLAGS"), // data digest flag that was not negotiated
            (1, 0x08, "FLAGS"), // success without last
            (2, 23, "HLEN"),
            (3, 20, "PDO"),
            (3, 26, "PDO"),
            (4, 33, "PLEN"),
            (4, 31, "PLEN"),
            (12, 2, "DATAO"),
            (16, 0, "DATAL"),
            (16, 7, "DATAL"),
        ] {
            let mut bad = good;
            bad[at] = value;
            match decode(&bad, None, PLAIN) {
                Err(ProtocolError::Field { field, .. }) => assert_eq!(field, name),
                other => panic!("byte {at} = {value}: {other:?}"),
            }
        }
    }

    #[test]
    fn types_that_a_controller_does_not_send_are_refused() {
        for kind in (0..=255).filter(|kind| ![3, 5, 7, 9].contains(kind)) {
            let bytes = head(&[kind, 0, 24, 0, 24]);
            assert_eq!(decode(&bytes, None, PLAIN), Err(ProtocolError::UnexpectedPdu { kind }));
        }
    }

    #[test]
    fn a_flipped_bit_does_not_pass_the_header_digest() {
        let digests = Digests { header: true, data: false };
        let good = head(&[5, 1, 24, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let digest = crc32c(&good).to_le_bytes();
        assert!(decode(&good, Some(digest), digests).is_ok());
        let mut bad = good;
        bad[20] ^= 0x40;
        assert!(matches!(
            decode(&bad, Some(digest), digests),
            Err(ProtocolError::HeaderDigest { kind: 5, .. })
        ));
    }
}
