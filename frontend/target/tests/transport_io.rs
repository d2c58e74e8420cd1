//! Reads and writes through real sockets: in capsules, by R2T, cut anywhere, with and without digests.

mod rig;

use std::collections::BTreeMap;

use rig::backend::pattern;
use rig::wire::{Sgl, Wire, flush, read, rw};
use rig::{Digests, Host, Rig, eventually};

fn expected(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|at| pattern(at as u64)).collect()
}

#[test]
fn a_read_brings_the_disks_bytes_with_a_response() {
    let (rig, host, mut io) = Rig::with_io(1);
    for (lba, blocks) in [(0, 1), (8, 8), (16, 2048)] {
        let cid = io.cid();
        let capsule = io.capsule(&read(cid, lba, blocks), &[]);
        io.send(&capsule);
        let (data, response) = io.collect(cid);
        assert!(data == expected(lba as usize * 512, blocks as usize * 512), "{blocks} blocks");
        assert_eq!(response.expect("flow control is on, so a response").status(), 0);
    }
    drop((io, host));
    rig.stop();
}

#[test]
fn the_success_flag_answers_only_without_flow_control() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut io = host.io(1, 31, 4);
    let capsule = io.capsule(&read(5, 0, 8), &[]);
    io.send(&capsule);
    let (data, response) = io.collect(5);
    assert_eq!((data.len(), response), (4096, None));
    let response = io.command(&flush(6), &[]);
    assert_eq!(response.sqhd(), 0xFFFF);
    // A failing read has no data and so a response.
    let response = io.command(&read(7, 1 << 40, 8), &[]);
    assert_eq!(response.status(), 0x080, "LBA Out of Range");
    drop((io, host));
    rig.stop();
}

#[test]
fn sqhd_counts_modulo_the_queues_entries() {
    let rig = Rig::start(1);
    let host = rig.host();
    // Connect itself was the first of four entries.
    let mut io = host.io(1, 3, 0);
    let heads: Vec<u16> = (0..6).map(|cid| io.command(&flush(cid), &[]).sqhd()).collect();
    assert_eq!(heads, [2, 3, 0, 1, 2, 3]);
    drop((io, host));
    rig.stop();
}

#[test]
fn a_write_in_the_capsule_is_read_back() {
    for digests in [Digests::OFF, Digests::ON] {
        let rig = Rig::start(1);
        let host = Host::new(rig.address, digests);
        let mut io = host.io(1, 31, 0);
        let data: Vec<u8> = (0..16384u32).map(|i| (i * 31) as u8).collect();
        let cid = io.cid();
        let response = io.command(&rw(1, cid, 8, 32, Sgl::Capsule(16384)), &data);
        assert_eq!(response.status(), 0);
        assert!(rig.disk.read(4096, 16384) == data);
        let cid = io.cid();
        let capsule = io.capsule(&read(cid, 8, 32), &[]);
        io.send(&capsule);
        assert!(io.collect(cid).0 == data);
        drop((io, host));
        rig.stop();
    }
}

/// Answers R2Ts with PDUs of at most `piece` bytes until the write is answered; returns what was asked for.
fn feed(io: &mut Wire, cid: u16, data: &[u8], piece: usize) -> (Vec<(u32, u32)>, u16) {
    let mut asked = Vec::new();
    loop {
        let pdu = io.pdu();
        if pdu.kind == 5 {
            assert_eq!(pdu.response_cid(), cid);
            return (asked, pdu.status());
        }
        assert_eq!((pdu.kind, pdu.cccid()), (9, cid), "R2T");
        asked.push((pdu.offset(), pdu.length()));
        let (from, len) = (pdu.offset() as usize, pdu.length() as usize);
        let mut bytes = Vec::new();
        for at in (from..from + len).step_by(piece) {
            let end = (at + piece).min(from + len);
            bytes.extend(io.h2c_data(cid, pdu.ttag(), at as u32, &data[at..end], end == from + len));
        }
        io.send(&bytes);
    }
}

#[test]
fn r2ts_ascend_without_gaps_at_every_size() {
    let rig = Rig::start(1);
    for digests in [Digests::OFF, Digests::ON] {
        let host = Host::new(rig.address, digests);
        let mut io = host.io(1, 31, 0);
        for blocks in [1, 8, 33, 255, 256, 257, 511, 512, 2048] {
            let len = blocks as usize * 512;
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + blocks as usize) as u8).collect();
            for piece in [512, 65536, 131_072] {
                let cid = io.cid();
                let capsule = io.capsule(&rw(1, cid, 0, blocks, Sgl::Transport(len as u32)), &[]);
                io.send(&capsule);
                let (asked, status) = feed(&mut io, cid, &data, piece);
                assert_eq!(status, 0);
                let mut next = 0;
                for (offset, len) in asked {
                    assert_eq!(offset, next);
                    assert!(len > 0 && len <= 131_072);
                    next += len;
                }
                assert_eq!(next as usize, len);
                assert!(rig.disk.read(0, len) == data, "{blocks} blocks in pieces of {piece}");
            }
        }
    }
    rig.stop();
}

/// A fixed sequence of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.0 >> 33) as usize % most
    }
}

/// A stream of commands of all kinds, as one string of bytes, and the identifiers in it.
fn script(io: &Wire) -> (Vec<u8>, Vec<u16>) {
    let mut bytes = Vec::new();
    let mut cids = Vec::new();
    for index in 0..12u16 {
        let cid = 0x4000 + index * 257;
        cids.push(cid);
        match index % 3 {
            0 => bytes.extend(io.capsule(&flush(cid), &[])),
            1 => {
                let data: Vec<u8> = (0..2048u32).map(|i| (i + u32::from(index)) as u8).collect();
                bytes.extend(io.capsule(&rw(1, cid, u64::from(index) * 8, 4, Sgl::Capsule(2048)), &data));
            }
            _ => bytes.extend(io.capsule(&read(cid, 4096, 1), &[])),
        }
    }
    (bytes, cids)
}

fn replay(digests: Digests, cut: &mut dyn FnMut() -> usize) {
    let rig = Rig::start(1);
    let host = Host::new(rig.address, digests);
    let mut io = host.io(1, 31, 0);
    let (bytes, mut cids) = script(&io);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cut().min(rest.len()));
        io.send(piece);
        rest = after;
    }
    while !cids.is_empty() {
        let pdu = io.pdu();
        if pdu.kind == 5 {
            assert_eq!(pdu.status(), 0);
            cids.retain(|cid| *cid != pdu.response_cid());
        }
    }
    for index in (1..12).step_by(3) {
        let data: Vec<u8> = (0..2048u32).map(|i| (i + index) as u8).collect();
        assert!(rig.disk.read(index as usize * 4096, 2048) == data);
    }
    drop((io, host));
    rig.stop();
}

#[test]
fn a_stream_cut_after_every_byte_means_the_same() {
    replay(Digests::OFF, &mut || 1);
    replay(Digests::ON, &mut || 1);
}

#[test]
fn a_stream_cut_anywhere_means_the_same() {
    for seed in 0..4 {
        let mut dice = Dice(seed);
        replay(Digests::ON, &mut || dice.roll(700));
    }
}

#[test]
fn host_data_alignment_is_kept() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut io = rig.connect();
    // HPDA 31: data starts at multiples of 128 bytes.
    io.initialize(Digests { header: true, data: false }, 31, 0);
    let response = io.fabrics_connect(1, 31, 0, host.cntlid, rig::SUBSYSTEM, rig::HOST);
    assert_eq!(response.status(), 0);
    let capsule = io.capsule(&read(9, 0, 8), &[]);
    io.send(&capsule);
    let pdu = io.pdu();
    assert_eq!((pdu.kind, pdu.header[3]), (7, 128), "PDO");
    assert!(pdu.data == expected(0, 4096));
    assert_eq!(io.pdu().status(), 0);
    drop((io, host));
    rig.stop();
}

#[test]
fn a_small_read_passes_eight_large_ones() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut io = host.io(1, 31, 4);
    let mut bytes = Vec::new();
    for cid in 0..8 {
        bytes.extend(io.capsule(&read(cid, 0, 2048), &[]));
    }
    bytes.extend(io.capsule(&read(100, 0, 8), &[]));
    io.send(&bytes);
    let mut before = 0;
    let mut left = 9;
    let mut small_seen = false;
    while left > 0 {
        let pdu = io.pdu();
        left -= i32::from(pdu.flags & 8 != 0);
        if pdu.cccid() == 100 {
            small_seen = true;
        } else if !small_seen {
            before += pdu.data.len();
        }
    }
    // Eight megabytes were asked for before it.
    assert!(before <= 2 * 131_072, "{before} bytes came first");
    drop((io, host));
    rig.stop();
}

#[test]
fn metrics_count_what_was_done() {
    let (rig, host, mut io) = Rig::with_io(2);
    for cid in 0..5 {
        assert_eq!(io.command(&flush(cid), &[]).status(), 0);
    }
    assert_eq!(io.command(&read(9, 1 << 40, 1), &[]).status(), 0x080);
    let metrics = rig.target.metrics();
    assert_eq!(metrics.namespaces.len(), 1);
    let flushes: u64 = metrics.namespaces[0].cores.iter().map(|counts| counts.operations[2]).sum();
    assert_eq!(flushes, 5);
    assert_eq!(metrics.connections, 2);
    drop((io, host));
    eventually("both connections are gone", || rig.target.metrics().connections == 0);
    rig.stop();
}

/// Failures that were counted for a namespace, by status.
fn errors(rig: &Rig) -> BTreeMap<u16, u64> {
    let mut errors = BTreeMap::new();
    for counts in &rig.target.metrics().namespaces[0].cores {
        for (status, count) in &counts.errors {
            *errors.entry(status.code()).or_default() += count;
        }
    }
    errors
}

#[test]
fn commands_that_are_refused_count_as_errors_of_their_namespace_and_as_no_operation() {
    const LBA_OUT_OF_RANGE: u16 = 0x080;
    const INVALID_OPCODE: u16 = 0x001;
    const INVALID_FIELD: u16 = 0x002;
    const ID_CONFLICT: u16 = 0x003;
    const FAILED_FUSED: u16 = 0x009;
    const MISSING_FUSED: u16 = 0x00A;
    const LENGTH_INVALID: u16 = 0x00F;
    const TRANSIENT_TRANSPORT_ERROR: u16 = 0x022;
    let rig = Rig::start(2);
    let host = Host::new(rig.address, Digests::ON);
    let mut io = host.io(1, 31, 0);
    let sgl = Sgl::Transport(512);
    assert_eq!(io.command(&read(1, 1 << 40, 1), &[]).status(), LBA_OUT_OF_RANGE);
    assert_eq!(io.command(&read(1, 1 << 41, 1), &[]).status(), LBA_OUT_OF_RANGE);
    assert_eq!(io.command(&rw(0x7D, 1, 0, 1, sgl), &[]).status(), INVALID_OPCODE);
    assert_eq!(io.command(&rw(2, 1, 0, 2, sgl), &[]).status(), LENGTH_INVALID);
    assert_eq!(io.command(&half(read(1, 0, 1), 3), &[]).status(), INVALID_FIELD, "a reserved FUSE");
    assert_eq!(io.command(&half(rw(1, 1, 0, 1, sgl), 2), &[]).status(), MISSING_FUSED);
    let mut capsule = io.capsule(&rw(1, 1, 0, 1, Sgl::Capsule(512)), &[1; 512]);
    *capsule.last_mut().expect("the digest") ^= 1;
    io.send(&capsule);
    assert_eq!(io.pdu().status(), TRANSIENT_TRANSPORT_ERROR);
    // The halves of a pair are in different places; and one that waits for its second gets another command.
    for bytes in [
        [half(rw(5, 1, 0, 1, sgl), 1), half(rw(1, 2, 8, 1, sgl), 2)],
        [half(rw(5, 1, 0, 1, sgl), 1), half(rw(1, 2, 1 << 40, 1, sgl), 2)],
        [half(rw(5, 1, 0, 1, sgl), 1), rw(2, 2, 1 << 40, 1, sgl)],
    ] {
        let bytes = bytes.map(|sqe| io.capsule(&sqe, &[])).concat();
        io.send(&bytes);
        let answers = [io.pdu().status(), io.pdu().status()];
        assert!(answers.iter().all(|status| *status != 0), "{answers:x?}");
    }
    let mut elsewhere = read(1, 1 << 40, 1);
    elsewhere[4] = 9;
    assert_eq!(io.command(&elsewhere, &[]).status(), INVALID_FIELD, "no such namespace, so nobody's error");
    let expected = [
        (LBA_OUT_OF_RANGE, 4),
        (INVALID_OPCODE, 1),
        (LENGTH_INVALID, 1),
        (INVALID_FIELD, 3),
        (MISSING_FUSED, 2),
        (TRANSIENT_TRANSPORT_ERROR, 1),
        (FAILED_FUSED, 1),
    ];
    assert_eq!(errors(&rig), BTreeMap::from(expected));
    let operations = |rig: &Rig| -> u64 {
        rig.target.metrics().namespaces[0].cores.iter().flat_map(|counts| counts.operations).sum()
    };
    assert_eq!(operations(&rig), 0, "nothing was carried out");
    // An identifier that lives.
    rig.disk.hold(true);
    let capsules = [io.capsule(&flush(5), &[]), io.capsule(&flush(5), &[])].concat();
    io.send(&capsules);
    assert_eq!(io.pdu().status(), ID_CONFLICT);
    assert_eq!(errors(&rig).get(&ID_CONFLICT), Some(&1));
    rig.disk.hold(false);
    assert_eq!(io.pdu().status(), 0);
    assert_eq!(operations(&rig), 1, "the one that lived");
    drop((io, host));
    rig.stop();
}

/// A half of a fused pair: FUSE in bits 1:0 of byte 1.
fn half(mut sqe: [u8; 64], fuse: u8) -> [u8; 64] {
    sqe[1] |= fuse;
    sqe
}

#[test]
fn fused_halves_are_found_in_the_stream_and_answered_in_order() {
    const COMPARE_FAILURE: u16 = 0x285;
    const FAILED_FUSED: u16 = 0x009;
    const MISSING_FUSED: u16 = 0x00A;
    let (rig, host, mut io) = Rig::with_io(1);
    let answers = |io: &mut Wire, count: usize| -> Vec<(u16, u16)> {
        (0..count).map(|_| io.pdu()).map(|pdu| (pdu.response_cid(), pdu.status())).collect()
    };
    let pair = |io: &Wire, old: &[u8], new: &[u8]| {
        let mut bytes = io.capsule(&half(rw(5, 1, 8, 1, Sgl::Capsule(512)), 1), old);
        bytes.extend(io.capsule(&half(rw(1, 2, 8, 1, Sgl::Capsule(512)), 2), new));
        bytes
    };
    let bytes = pair(&io, &expected(4096, 512), &[8; 512]);
    io.send(&bytes);
    assert_eq!(answers(&mut io, 2), [(1, 0), (2, 0)]);
    assert!(rig.disk.read(4096, 512) == [8; 512]);
    let bytes = pair(&io, &expected(4096, 512), &[9; 512]);
    io.send(&bytes);
    assert_eq!(answers(&mut io, 2), [(1, COMPARE_FAILURE), (2, FAILED_FUSED)]);
    assert!(rig.disk.read(4096, 512) == [8; 512]);
    // A first half without its second, then a second without its first.
    let mut bytes = io.capsule(&half(rw(5, 1, 8, 1, Sgl::Capsule(512)), 1), &[8; 512]);
    bytes.extend(io.capsule(&flush(3), &[]));
    bytes.extend(io.capsule(&half(rw(1, 2, 8, 1, Sgl::Capsule(512)), 2), &[9; 512]));
    io.send(&bytes);
    assert_eq!(answers(&mut io, 3), [(1, MISSING_FUSED), (3, 0), (2, MISSING_FUSED)]);
    drop((io, host));
    rig.stop();
}
