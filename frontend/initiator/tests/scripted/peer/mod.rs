//! A controller made of hand-written bytes: it answers as a good one would, except where a test's script says
//! otherwise. It shares no code with the codec of the product; digests alone come from the checksum crate's
//! wrapper.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use ashlar_nvme::digest::crc32c;

/// Nothing here takes longer than this unless it hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// A command capsule as it came.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    /// The 64 bytes of the submission entry.
    pub(crate) sqe: [u8; 64],
    /// In-capsule data.
    pub(crate) data: Vec<u8>,
}

impl Command {
    pub(crate) fn cid(&self) -> u16 {
        u16::from_le_bytes([self.sqe[2], self.sqe[3]])
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.sqe[0]
    }

    pub(crate) fn dword(&self, number: usize) -> u32 {
        let at = number * 4;
        u32::from_le_bytes([self.sqe[at], self.sqe[at + 1], self.sqe[at + 2], self.sqe[at + 3]])
    }

    /// Length and identifier of the data pointer.
    pub(crate) fn sgl(&self) -> (u32, u8) {
        (u32::from_le_bytes([self.sqe[32], self.sqe[33], self.sqe[34], self.sqe[35]]), self.sqe[39])
    }
}

/// H2CData as it came.
#[derive(Debug)]
pub(crate) struct HostData {
    pub(crate) cid: u16,
    pub(crate) ttag: u16,
    pub(crate) offset: u32,
    pub(crate) last: bool,
    pub(crate) data: Vec<u8>,
}

/// What the controller grants and how it frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// CPDA.
    pub(crate) alignment: u8,
    /// Padding before C2HData's data, in bytes.
    pub(crate) padding: u8,
    /// Grants that flow control is disabled.
    pub(crate) disable_flow_control: bool,
    /// MAXH2CDATA.
    pub(crate) data_max: u32,
    /// In-capsule data of I/O queues, in bytes.
    pub(crate) in_capsule: u32,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            alignment: 0,
            padding: 0,
            disable_flow_control: false,
            data_max: 8192,
            in_capsule: 8192,
        }
    }
}

/// One connection of a host.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) manners: Manners,
}

impl Wire {
    pub(crate) fn read_exact(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).expect("the host sends on");
        bytes
    }

    /// Reads until the host closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is an end, too.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the host takes bytes");
    }

    /// Sends byte by byte, each in a packet of its own as far as the kernel does it.
    pub(crate) fn send_slowly(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send(std::slice::from_ref(byte));
        }
    }

    fn pdu(&mut self) -> (Vec<u8>, Vec<u8>) {
        let common = self.read_exact(8);
        let plen = u32::from_le_bytes([common[4], common[5], common[6], common[7]]) as usize;
        let rest = self.read_exact(plen - 8);
        let whole = [common, rest].concat();
        let (hlen, pdo) = (usize::from(whole[2]), usize::from(whole[3]));
        let (digests, kind) = (whole[1], whole[0]);
        if kind != 0 && kind != 2 {
            assert_eq!(digests & 1 != 0, self.manners.header_digest, "header digest flag");
        }
        let mut data = Vec::new();
        if digests & 1 != 0 {
            let sum = crc32c(&whole[..hlen]).to_le_bytes();
            assert_eq!(whole[hlen..hlen + 4], sum, "header digest");
        }
        if pdo > 0 {
            let step = (usize::from(self.manners.alignment) + 1) * 4;
            assert_eq!(pdo % step, 0, "PDO follows CPDA");
            let end = if digests & 2 != 0 { plen - 4 } else { plen };
            assert_eq!(digests & 2 != 0, self.manners.data_digest, "data digest flag");
            data = whole[pdo..end].to_vec();
            if digests & 2 != 0 {
                assert_eq!(whole[end..], crc32c(&data).to_le_bytes(), "data digest");
            }
        }
        (whole[..hlen].to_vec(), data)
    }

    /// The next PDU must be a command.
    pub(crate) fn command(&mut self) -> Command {
        let (head, data) = self.pdu();
        assert_eq!((head[0], head[2]), (4, 72), "a command capsule");
        let sqe: [u8; 64] = head[8..72].try_into().expect("64 bytes");
        assert_eq!(sqe[1] >> 6, 1, "PSDT is SGL");
        Command { sqe, data }
    }

    /// The next PDU must be H2CData.
    pub(crate) fn host_data(&mut self) -> HostData {
        let (head, data) = self.pdu();
        assert_eq!((head[0], head[2]), (6, 24), "H2CData");
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        assert_eq!(number(16) as usize, data.len(), "DATAL");
        HostData {
            cid: u16::from_le_bytes([head[8], head[9]]),
            ttag: u16::from_le_bytes([head[10], head[11]]),
            offset: number(12),
            last: head[1] & 4 != 0,
            data,
        }
    }

    fn head(&self, kind: u8, flags: u8, fields: &[u8], data: Option<&[u8]>) -> Vec<u8> {
        let digest = if self.manners.header_digest { 4 } else { 0 };
        let mut head = vec![kind, flags, 24, 0, 0, 0, 0, 0];
        head.extend_from_slice(fields);
        head.resize(24, 0);
        let mut plen = 24 + digest;
        if digest > 0 {
            head[1] |= 1;
        }
        if let Some(data) = data {
            head[3] = (plen + u32::from(self.manners.padding)) as u8;
            plen = u32::from(head[3]) + data.len() as u32;
            if self.manners.data_digest {
                head[1] |= 2;
                plen += 4;
            }
        }
        head[4..8].copy_from_slice(&plen.to_le_bytes());
        if digest > 0 {
            let sum = crc32c(&head);
            head.extend_from_slice(&sum.to_le_bytes());
        }
        head
    }

    /// CapsuleResp.
    pub(crate) fn response(&self, cid: u16, result: u64, sqhd: u16, status: u16) -> Vec<u8> {
        let mut fields = result.to_le_bytes().to_vec();
        for word in [sqhd, 0, cid, status << 1] {
            fields.extend_from_slice(&word.to_le_bytes());
        }
        self.head(5, 0, &fields, None)
    }

    /// C2HData; flags are 4 for LAST and 8 for SUCCESS.
    pub(crate) fn data(&self, cid: u16, offset: u32, data: &[u8], flags: u8) -> Vec<u8> {
        let mut fields = cid.to_le_bytes().to_vec();
        fields.extend_from_slice(&[0, 0]);
        fields.extend_from_slice(&offset.to_le_bytes());
        fields.extend_from_slice(&(data.len() as u32).to_le_bytes());
        let mut pdu = self.head(7, flags, &fields, Some(data));
        pdu.resize(pdu.len() + usize::from(self.manners.padding), 0);
        pdu.extend_from_slice(data);
        if self.manners.data_digest {
            pdu.extend_from_slice(&crc32c(data).to_le_bytes());
        }
        pdu
    }

    /// R2T.
    pub(crate) fn request(&self, cid: u16, ttag: u16, offset: u32, len: u32) -> Vec<u8> {
        let mut fields = cid.to_le_bytes().to_vec();
        fields.extend_from_slice(&ttag.to_le_bytes());
        fields.extend_from_slice(&offset.to_le_bytes());
        fields.extend_from_slice(&len.to_le_bytes());
        self.head(9, 0, &fields, None)
    }

    /// C2HTermReq without the offending header.
    pub(crate) fn termination(&self, reason: u16, information: u32) -> Vec<u8> {
        let mut pdu = vec![3, 0, 24, 0, 24, 0, 0, 0];
        pdu.extend_from_slice(&reason.to_le_bytes());
        pdu.extend_from_slice(&information.to_le_bytes());
        pdu.resize(24, 0);
        pdu
    }

    pub(crate) fn succeed(&mut self, command: &Command, result: u64) {
        let response = self.response(command.cid(), result, 1, 0);
        self.send(&response);
    }

    /// Takes ICReq in and answers; checks what the host asks for.
    fn shake_hands(&mut self) {
        let request = self.read_exact(128);
        assert_eq!(request[..8], [0, 0, 128, 0, 128, 0, 0, 0], "ICReq");
        let asked = u8::from(self.manners.header_digest) | u8::from(self.manners.data_digest) << 1;
        assert_eq!(request[11], asked, "digests asked for");
        let response = self.ic_resp(asked);
        self.send(&response);
    }

    pub(crate) fn ic_resp(&self, digests: u8) -> Vec<u8> {
        let mut response = vec![1, 0, 128, 0, 128, 0, 0, 0, 0, 0, self.manners.alignment, digests];
        response.extend_from_slice(&self.manners.data_max.to_le_bytes());
        response.resize(128, 0);
        response
    }

    /// Handshake and Connect; says which queue it is.
    pub(crate) fn accept_queue(&mut self) -> u16 {
        self.shake_hands();
        let command = self.command();
        assert_eq!((command.opcode(), command.sqe[4]), (0x7f, 1), "Connect");
        assert_eq!(command.data.len(), 1024, "Connect's data is in the capsule");
        let sqhd = if self.manners.disable_flow_control { 0xffff } else { 1 };
        let response = self.response(command.cid(), 7, sqhd, 0);
        self.send(&response);
        u16::from_le_bytes([command.sqe[42], command.sqe[43]])
    }

    /// Answers the admin commands with which a host sets a controller up, up to the number of queues.
    pub(crate) fn be_a_controller(&mut self) {
        loop {
            let command = self.command();
            match (command.opcode(), command.sqe[4]) {
                (0x7f, 4) => {
                    let value = match command.dword(11) {
                        // CAP: MQES 127, CQR, NVM command set; no ready timeouts.
                        0 => 127 | 1 << 16 | 1 << 24 | 1 << 37,
                        8 => 0x0001_0400,
                        0x1c => 1,
                        _ => 0,
                    };
                    self.succeed(&command, value);
                }
                (0x06, _) => {
                    let data = self.identify_controller();
                    let pdu = self.data(command.cid(), 0, &data, 4);
                    self.send(&pdu);
                    self.succeed(&command, 0);
                }
                (0x09, _) if command.dword(10) == 7 => {
                    self.succeed(&command, u64::from(command.dword(11)));
                    return;
                }
                _ => self.succeed(&command, 0),
            }
        }
    }

    /// Controller 7, MDTS 1 MiB, no keep alive, no events.
    fn identify_controller(&self) -> Vec<u8> {
        let mut data = vec![0; 4096];
        data[77] = 8;
        data[78] = 7;
        data[111] = 1;
        let capsule = (64 + self.manners.in_capsule) / 16;
        data[1792..1796].copy_from_slice(&capsule.to_le_bytes());
        data
    }
}

/// A listening peer. `io` is run for the I/O queue's connection once the admin queue is set up.
pub(crate) fn listen(
    manners: Manners,
    io: impl FnOnce(&mut Wire) + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let peer = thread::spawn(move || {
        let mut admin = accept(&listener, manners);
        assert_eq!(admin.accept_queue(), 0);
        admin.be_a_controller();
        let mut queue = accept(&listener, manners);
        assert_eq!(queue.accept_queue(), 1);
        io(&mut queue);
        // The script's end is the connection's.
        drop(queue);
        admin.rest();
    });
    (address, peer)
}

/// A peer that is given the first connection at once.
pub(crate) fn listen_raw(
    manners: Manners,
    serve: impl FnOnce(&mut Wire) + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let peer = thread::spawn(move || serve(&mut accept(&listener, manners)));
    (address, peer)
}

fn accept(listener: &TcpListener, manners: Manners) -> Wire {
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("an option");
    stream.set_nodelay(true).expect("an option");
    Wire { stream, manners }
}
