//! One connection of the host, in bytes (NVMe-TCP 1.0 §3.6, NVMe Base 2.0 §6).

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{SockFilter, SockRef};

use super::{Digests, PATIENCE};

/// What one byte does to a CRC-32C, worked out bit by bit.
static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-32C, nobody else's.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xFF) as usize])
}

/// A PDU that was received, its digests checked and taken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pdu {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// With the common header.
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Pdu {
    // Response capsule: the completion entry starts at 8.
    pub(crate) fn dw0(&self) -> u32 {
        u32_at(&self.header, 8)
    }

    pub(crate) fn sqhd(&self) -> u16 {
        u16_at(&self.header, 16)
    }

    pub(crate) fn response_cid(&self) -> u16 {
        assert_eq!(self.kind, 5, "a response: {self:?}");
        u16_at(&self.header, 20)
    }

    /// SCT and SC as in the table: 0x282 is type 2, code 82h.
    pub(crate) fn status(&self) -> u16 {
        assert_eq!(self.kind, 5, "a response: {self:?}");
        (u16_at(&self.header, 22) >> 1) & 0x7FF
    }

    // R2T and data: CCCID at 8, TTAG at 10, offset at 12, length at 16.
    pub(crate) fn cccid(&self) -> u16 {
        u16_at(&self.header, 8)
    }

    pub(crate) fn ttag(&self) -> u16 {
        u16_at(&self.header, 10)
    }

    pub(crate) fn offset(&self) -> u32 {
        u32_at(&self.header, 12)
    }

    pub(crate) fn length(&self) -> u32 {
        u32_at(&self.header, 16)
    }

    // Termination request: FES at 8, FEI at 10.
    pub(crate) fn fatal(&self) -> (u16, u32) {
        assert_eq!(self.kind, 3, "a termination request: {self:?}");
        (u16_at(&self.header, 8), u32_at(&self.header, 10))
    }
}

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) digests: Digests,
    next_cid: u16,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("option");
        stream.set_write_timeout(Some(PATIENCE)).expect("option");
        stream.set_nodelay(true).expect("option");
        Wire { stream, digests: Digests::OFF, next_cid: 0x100 }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sends");
    }

    /// From now on everything that comes for this end is lost before it is acknowledged, as if the host had lost its
    /// power.
    pub(crate) fn vanish(&self) {
        // BPF: return 0, which keeps no byte of any packet.
        let nothing = SockFilter::new(0x06, 0, 0, 0);
        SockRef::from(&self.stream).attach_filter(&[nothing]).expect("attached");
    }

    pub(crate) fn cid(&mut self) -> u16 {
        self.next_cid += 1;
        self.next_cid
    }

    /// The next PDU, or nothing if the connection has ended.
    pub(crate) fn try_pdu(&mut self) -> Option<Pdu> {
        let mut header = vec![0; 8];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return None;
            }
            Err(error) => panic!("waiting for a PDU: {error}"),
        }
        let (kind, flags, hlen, pdo) = (header[0], header[1], header[2] as usize, header[3] as usize);
        let plen = u32_at(&header, 4) as usize;
        header.resize(plen, 0);
        self.stream.read_exact(&mut header[8..]).expect("the rest of the PDU");
        let mut pdu = header;
        let mut end = pdu.len();
        if flags & 1 != 0 {
            assert_eq!(u32_at(&pdu, hlen), crc32c(&pdu[..hlen]), "header digest");
        }
        if flags & 2 != 0 {
            end -= 4;
            assert_eq!(u32_at(&pdu, end), crc32c(&pdu[pdo..end]), "data digest");
        }
        let from = if pdo > 0 {
            pdo
        } else if kind == 3 {
            hlen
        } else {
            end
        };
        let data = pdu[from.min(end)..end].to_vec();
        pdu.truncate(hlen);
        Some(Pdu { kind, flags, header: pdu, data })
    }

    pub(crate) fn pdu(&mut self) -> Pdu {
        self.try_pdu().expect("a PDU, but the connection has ended")
    }

    /// The connection ends without another PDU.
    pub(crate) fn expect_end(&mut self) {
        let next = self.try_pdu();
        assert!(next.is_none(), "the connection should end, but brings {next:?}");
    }

    /// The connection ends, whatever still comes.
    pub(crate) fn drain(&mut self) {
        while self.try_pdu().is_some() {}
    }

    /// ICReq as bytes.
    pub(crate) fn icreq(digests: Digests, hpda: u8, maxr2t: u32) -> Vec<u8> {
        let mut pdu = vec![0; 128];
        pdu[2] = 128;
        pdu[4] = 128;
        pdu[10] = hpda;
        pdu[11] = u8::from(digests.header) | (u8::from(digests.data) << 1);
        pdu[12..16].copy_from_slice(&maxr2t.to_le_bytes());
        pdu
    }

    pub(crate) fn initialize(&mut self, digests: Digests, hpda: u8, maxr2t: u32) -> Pdu {
        self.send(&Wire::icreq(digests, hpda, maxr2t));
        let response = self.pdu();
        assert_eq!((response.kind, response.header.len()), (1, 128), "ICResp");
        assert_eq!(response.header[8..10], [0, 0], "PFV");
        assert_eq!(response.header[10], 0, "CPDA");
        assert_eq!(response.header[11] & 1 != 0, digests.header);
        assert_eq!(response.header[11] & 2 != 0, digests.data);
        let most = u32_at(&response.header, 12);
        assert!(most >= 4096 && most.is_multiple_of(4), "MAXH2CDATA {most}");
        self.digests = digests;
        response
    }

    /// A PDU of `kind` from a header that begins behind the common one, and data.
    pub(crate) fn make(&self, kind: u8, extra: u8, rest: &[u8], data: &[u8]) -> Vec<u8> {
        let hlen = 8 + rest.len();
        let head = hlen + if self.digests.header { 4 } else { 0 };
        let mut flags = extra | u8::from(self.digests.header);
        let mut plen = head;
        let mut pdo = 0;
        if !data.is_empty() {
            pdo = head;
            plen += data.len();
            if self.digests.data {
                flags |= 2;
                plen += 4;
            }
        }
        let mut pdu = vec![kind, flags, hlen as u8, pdo as u8];
        pdu.extend((plen as u32).to_le_bytes());
        pdu.extend(rest);
        if self.digests.header {
            pdu.extend(crc32c(&pdu).to_le_bytes());
        }
        pdu.extend(data);
        if !data.is_empty() && self.digests.data {
            pdu.extend(crc32c(data).to_le_bytes());
        }
        pdu
    }

    pub(crate) fn capsule(&self, sqe: &[u8; 64], data: &[u8]) -> Vec<u8> {
        self.make(4, 0, sqe, data)
    }

    pub(crate) fn h2c_data(&self, cid: u16, ttag: u16, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend(cid.to_le_bytes());
        rest.extend(ttag.to_le_bytes());
        rest.extend(offset.to_le_bytes());
        rest.extend((data.len() as u32).to_le_bytes());
        rest.extend([0; 4]);
        self.make(6, if last { 4 } else { 0 }, &rest, data)
    }

    /// Sends a command and waits for its response.
    pub(crate) fn command(&mut self, sqe: &[u8; 64], data: &[u8]) -> Pdu {
        let capsule = self.capsule(sqe, data);
        self.send(&capsule);
        let response = self.pdu();
        assert_eq!(response.response_cid(), u16_at(sqe, 2), "the response is this command's");
        response
    }

    pub(crate) fn connect_capsule(
        &mut self,
        qid: u16,
        sqsize: u16,
        cattr: u8,
        cntlid: u16,
        subsystem: &str,
        host: &str,
    ) -> Vec<u8> {
        let mut sqe = [0; 64];
        sqe[0] = 0x7F;
        sqe[1] = 0x40;
        let cid = self.cid();
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        sqe[4] = 1;
        sqe[32..36].copy_from_slice(&1024u32.to_le_bytes());
        sqe[39] = 1;
        sqe[42..44].copy_from_slice(&qid.to_le_bytes());
        sqe[44..46].copy_from_slice(&sqsize.to_le_bytes());
        sqe[46] = cattr;
        let mut data = vec![0; 1024];
        data[..16].fill(7);
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
        data[512..512 + host.len()].copy_from_slice(host.as_bytes());
        self.capsule(&sqe, &data)
    }

    pub(crate) fn fabrics_connect(
        &mut self,
        qid: u16,
        sqsize: u16,
        cattr: u8,
        cntlid: u16,
        subsystem: &str,
        host: &str,
    ) -> Pdu {
        let capsule = self.connect_capsule(qid, sqsize, cattr, cntlid, subsystem, host);
        self.send(&capsule);
        self.pdu()
    }

    pub(crate) fn property_set(&mut self, offset: u32, value: u32) -> Pdu {
        let mut sqe = [0; 64];
        sqe[0] = 0x7F;
        sqe[1] = 0x40;
        let cid = self.cid();
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        sqe[44..48].copy_from_slice(&offset.to_le_bytes());
        sqe[48..52].copy_from_slice(&value.to_le_bytes());
        self.command(&sqe, &[])
    }

    pub(crate) fn property_get(&mut self, offset: u32, eight: bool) -> Pdu {
        let mut sqe = [0; 64];
        sqe[0] = 0x7F;
        sqe[1] = 0x40;
        let cid = self.cid();
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        sqe[4] = 4;
        sqe[40] = u8::from(eight);
        sqe[44..48].copy_from_slice(&offset.to_le_bytes());
        self.command(&sqe, &[])
    }

    /// All data of a read, until it is answered; the response if there is one.
    pub(crate) fn collect(&mut self, cid: u16) -> (Vec<u8>, Option<Pdu>) {
        let mut data = Vec::new();
        loop {
            let pdu = self.pdu();
            if pdu.kind == 5 {
                assert_eq!(pdu.response_cid(), cid);
                return (data, Some(pdu));
            }
            assert_eq!((pdu.kind, pdu.cccid()), (7, cid), "C2HData");
            assert_eq!(pdu.offset() as usize, data.len(), "in order");
            assert_eq!(pdu.length() as usize, pdu.data.len(), "DATAL");
            data.extend(pdu.data);
            if pdu.flags & 8 != 0 {
                assert_ne!(pdu.flags & 4, 0, "SUCCESS without LAST");
                return (data, None);
            }
        }
    }
}

/// Where a command's data is.
#[derive(Clone, Copy)]
pub(crate) enum Sgl {
    Capsule(u32),
    Transport(u32),
}

/// An I/O command: read (2), write (1), … of `blocks` blocks of 512 bytes from `lba` on.
pub(crate) fn rw(opcode: u8, cid: u16, lba: u64, blocks: u32, sgl: Sgl) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4] = 1;
    let (len, kind) = match sgl {
        Sgl::Capsule(len) => (len, 0x01),
        Sgl::Transport(len) => (len, 0x5A),
    };
    sqe[32..36].copy_from_slice(&len.to_le_bytes());
    sqe[39] = kind;
    sqe[40..48].copy_from_slice(&lba.to_le_bytes());
    sqe[48..50].copy_from_slice(&((blocks - 1) as u16).to_le_bytes());
    sqe
}

pub(crate) fn read(cid: u16, lba: u64, blocks: u32) -> [u8; 64] {
    rw(2, cid, lba, blocks, Sgl::Transport(blocks * 512))
}

/// Flush of namespace 1.
pub(crate) fn flush(cid: u16) -> [u8; 64] {
    let mut sqe = rw(0, cid, 0, 1, Sgl::Transport(0));
    sqe[40..].fill(0);
    sqe
}
