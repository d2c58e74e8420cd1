//! Data that is asked for by R2T: several at a time, in every order, from commands that fail before it has all come.

mod rig;

use rig::wire::{Pdu, Sgl, Wire, flush, rw};
use rig::{Digests, Host, Rig, eventually};

const SLICE: usize = 128 * 1024;
const WRITE_FAULT: u16 = 0x280;
const COMPARE_FAILURE: u16 = 0x285;
const TRANSIENT_TRANSPORT_ERROR: u16 = 0x022;
const ABORT_REQUESTED: u16 = 0x007;

/// Most R2Ts that the target has outstanding for a command, however many the host takes.
const TARGETS_LIMIT: usize = 4;

fn data(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16) ^ seed) as u8).collect()
}

/// The bytes that a part of `all` takes on its way, in PDUs of at most `piece` bytes.
fn part(io: &Wire, r2t: &Pdu, all: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let (from, end) = (r2t.offset() as usize, (r2t.offset() + r2t.length()) as usize);
    let pieces = (from..end).step_by(piece).map(|at| {
        let to = (at + piece).min(end);
        io.h2c_data(r2t.cccid(), r2t.ttag(), at as u32, &all[at..to], to == end)
    });
    pieces.collect()
}

fn answer(io: &mut Wire, r2t: &Pdu, all: &[u8]) {
    let bytes = part(io, r2t, all, SLICE).concat();
    io.send(&bytes);
}

/// Begins a command whose data is asked for.
fn begin(io: &mut Wire, opcode: u8, cid: u16, len: usize) {
    let sqe = rw(opcode, cid, 0, (len / 512) as u32, Sgl::Transport(len as u32));
    let capsule = io.capsule(&sqe, &[]);
    io.send(&capsule);
}

/// The R2Ts that have been sent: everything that comes before the answer to a Flush.
fn sent_so_far(io: &mut Wire, flush_cid: u16) -> Vec<Pdu> {
    let capsule = io.capsule(&flush(flush_cid), &[]);
    io.send(&capsule);
    let mut r2ts = Vec::new();
    loop {
        let pdu = io.pdu();
        if pdu.kind == 5 {
            assert_eq!(pdu.response_cid(), flush_cid, "the command is not answered");
            return r2ts;
        }
        assert_eq!(pdu.kind, 9, "an R2T");
        r2ts.push(pdu);
    }
}

#[test]
fn as_many_r2ts_are_outstanding_as_the_host_takes() {
    let rig = Rig::start(1);
    let host = rig.host();
    for (qid, maxr2t) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 100), (6, u32::MAX)] {
        let most = (maxr2t as usize).saturating_add(1).min(TARGETS_LIMIT);
        let all = data(8 * SLICE, maxr2t as usize);
        let mut io = host.io_with_r2ts(qid, 31, 0, maxr2t);
        rig.disk.hold(true);
        begin(&mut io, 1, 7, all.len());
        let mut r2ts: Vec<Pdu> = (0..most).map(|_| io.pdu()).collect();
        rig.disk.hold(false);
        assert_eq!(sent_so_far(&mut io, 100), [], "no more than {most}");
        rig.disk.hold(true);
        let offsets: Vec<usize> = r2ts.iter().map(|r2t| r2t.offset() as usize / SLICE).collect();
        assert_eq!(offsets, (0..most).collect::<Vec<_>>());
        // The next is asked for while the first part is being written.
        let first = r2ts.remove(0);
        answer(&mut io, &first, &all);
        eventually("the first part is written", || rig.disk.waiting() == 1);
        r2ts.push(io.pdu());
        rig.disk.hold(false);
        let mut asked = most + 1;
        while !r2ts.is_empty() {
            let r2t = r2ts.remove(0);
            answer(&mut io, &r2t, &all);
            while asked < 8 && r2ts.len() < most {
                r2ts.push(io.pdu());
                assert_eq!(r2ts[r2ts.len() - 1].offset() as usize, asked * SLICE, "in order");
                asked += 1;
            }
        }
        assert_eq!(io.pdu().status(), 0);
        assert!(rig.disk.read(0, all.len()) == all);
    }
    drop(host);
    rig.stop();
}

/// In which order a host sends the data of the R2Ts that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    OldestFirst,
    NewestFirst,
    /// A piece of each in turn.
    Mixed,
}

/// Sends a write's data as `order` says; returns its status.
fn feed(io: &mut Wire, cid: u16, all: &[u8], (piece, order): (usize, Order), most: usize) -> u16 {
    let mut next = 0;
    let mut waiting: Vec<Vec<Vec<u8>>> = Vec::new();
    loop {
        // Everything that the target asks for by itself, then data.
        let wanted = most.min((all.len() - next).div_ceil(SLICE) + waiting.len());
        if waiting.len() < wanted || waiting.is_empty() {
            let pdu = io.pdu();
            if pdu.kind == 5 {
                assert_eq!((pdu.response_cid(), waiting.len()), (cid, 0), "answered when nothing is owed");
                assert_eq!(next, all.len(), "everything was asked for");
                return pdu.status();
            }
            assert_eq!((pdu.kind, pdu.cccid(), pdu.offset() as usize), (9, cid, next), "without gaps");
            next += pdu.length() as usize;
            waiting.push(part(io, &pdu, all, piece));
            continue;
        }
        let sent = match order {
            Order::OldestFirst => waiting.remove(0).concat(),
            Order::NewestFirst => waiting.pop().expect("one is there").concat(),
            Order::Mixed => {
                let sent = waiting.iter_mut().map(|pieces| pieces.remove(0)).collect::<Vec<_>>().concat();
                waiting.retain(|pieces| !pieces.is_empty());
                sent
            }
        };
        io.send(&sent);
        // A later part frees no place before the first is written: then everything that is owed is sent.
        if order != Order::OldestFirst {
            for pieces in waiting.drain(..) {
                io.send(&pieces.concat());
            }
        }
    }
}

#[test]
fn writes_of_every_length_are_whole_in_every_order_of_their_data() {
    let rig = Rig::start(1);
    for (digests, maxr2t) in [(Digests::OFF, 0), (Digests::OFF, 1), (Digests::ON, 3), (Digests::OFF, 9)] {
        let host = Host::new(rig.address, digests);
        let mut io = host.io_with_r2ts(1, 31, 0, maxr2t);
        let most = (maxr2t as usize + 1).min(TARGETS_LIMIT);
        // Around every boundary between slices.
        let blocks = (1..=8).flat_map(|slice| [slice * 256 - 1, slice * 256, slice * 256 + 1]);
        for blocks in [1, 2].into_iter().chain(blocks).filter(|blocks| *blocks <= 2048) {
            for order in [Order::OldestFirst, Order::NewestFirst, Order::Mixed] {
                let all = data(blocks * 512, blocks);
                let piece = if order == Order::Mixed { 50 * 1024 } else { SLICE };
                let cid = io.cid();
                begin(&mut io, 1, cid, all.len());
                assert_eq!(feed(&mut io, cid, &all, (piece, order), most), 0);
                assert!(rig.disk.read(0, all.len()) == all, "{blocks} blocks, {order:?}, MAXR2T {maxr2t}");
            }
        }
        drop((io, host));
    }
    rig.stop();
}

#[test]
fn a_write_cut_at_any_byte_with_several_r2ts_is_whole() {
    let rig = Rig::start(1);
    let host = Host::new(rig.address, Digests::ON);
    let mut io = host.io_with_r2ts(1, 31, 0, 3);
    let all = data(4 * SLICE, 5);
    for cut in [1, 7, 23, 24, 25, 131, 4099, 131_101] {
        let cid = io.cid();
        begin(&mut io, 1, cid, all.len());
        let r2ts: Vec<Pdu> = (0..4).map(|_| io.pdu()).collect();
        let bytes: Vec<u8> = r2ts.iter().flat_map(|r2t| part(&io, r2t, &all, 60_000).concat()).collect();
        // The first bytes one piece at a time: headers, data and digests are all cut.
        let (head, tail) = bytes.split_at((cut * 300).min(bytes.len()));
        head.chunks(cut).for_each(|piece| io.send(piece));
        io.send(tail);
        assert_eq!(io.pdu().status(), 0);
        assert!(rig.disk.read(0, all.len()) == all, "cut every {cut} bytes");
    }
    drop((io, host));
    rig.stop();
}

#[test]
fn a_failed_write_is_answered_only_when_the_host_owes_no_data() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut io = host.io_with_r2ts(1, 31, 0, 3);
    for bad in 0..8 {
        let all = data(8 * SLICE, bad + 1);
        rig.disk.fail_at(bad * SLICE + 5);
        let (failures, cid) = (rig.disk.failed(), io.cid());
        begin(&mut io, 1, cid, all.len());
        let mut owed: Vec<Pdu> = Vec::new();
        for _ in 0..=bad {
            if owed.is_empty() {
                owed.push(io.pdu());
            }
            let first = owed.remove(0);
            answer(&mut io, &first, &all);
        }
        eventually("it has failed", || rig.disk.failed() > failures);
        if bad < 7 {
            owed.extend(sent_so_far(&mut io, 0x8000));
            assert_eq!(owed.len(), TARGETS_LIMIT.min(7 - bad));
        }
        for r2t in owed {
            assert_eq!(sent_so_far(&mut io, 0x8000), [], "nothing more is asked for");
            answer(&mut io, &r2t, &all);
        }
        let response = io.pdu();
        assert_eq!((response.response_cid(), response.status()), (cid, WRITE_FAULT), "part {bad}");
        assert!(rig.disk.read(0, bad * SLICE) == all[..bad * SLICE], "what came before was written");
        assert!(rig.disk.read((bad + 1) * SLICE, (7 - bad) * SLICE) != all[(bad + 1) * SLICE..] || bad == 7);
        rig.disk.fail_at(usize::MAX);
        // The queue goes on as before.
        begin(&mut io, 1, cid, all.len());
        assert_eq!(feed(&mut io, cid, &all, (SLICE, Order::OldestFirst), TARGETS_LIMIT), 0);
        assert!(rig.disk.read(0, all.len()) == all);
    }
    drop((io, host));
    rig.stop();
}

#[test]
fn a_failed_digest_or_comparison_waits_for_the_data_behind_it() {
    let rig = Rig::start(1);
    let host = Host::new(rig.address, Digests::ON);
    let mut io = host.io_with_r2ts(1, 31, 0, 3);
    let disk = rig.disk.read(0, 4 * SLICE);
    for (opcode, expected) in [(1, TRANSIENT_TRANSPORT_ERROR), (5, COMPARE_FAILURE)] {
        let mut all = if opcode == 1 { data(4 * SLICE, 77) } else { disk.clone() };
        all[9] ^= 1;
        let cid = io.cid();
        begin(&mut io, opcode, cid, all.len());
        let r2ts: Vec<Pdu> = (0..4).map(|_| io.pdu()).collect();
        let mut first = part(&io, &r2ts[0], &all, SLICE).concat();
        if opcode == 1 {
            *first.last_mut().expect("the digest") ^= 1;
        }
        io.send(&first);
        for r2t in &r2ts[1..] {
            assert_eq!(sent_so_far(&mut io, 0x8000), []);
            answer(&mut io, r2t, &all);
        }
        let response = io.pdu();
        assert_eq!((response.response_cid(), response.status()), (cid, expected));
    }
    assert!(rig.disk.read(0, 4 * SLICE) == disk, "nothing was written");
    drop((io, host));
    rig.stop();
}

/// Aborts a command of I/O queue 1; ends when its core knows, before Abort is answered.
fn abort(rig: &Rig, host: &mut Host, cid: u16) {
    let mut sqe = [0; 64];
    sqe[0] = 8;
    sqe[1] = 0x40;
    sqe[2] = 3;
    sqe[40] = 1;
    sqe[42..44].copy_from_slice(&cid.to_le_bytes());
    let capsule = host.admin.capsule(&sqe, &[]);
    host.admin.send(&capsule);
    rig.settled(host);
}

#[test]
fn an_aborted_write_is_answered_when_the_data_that_was_asked_for_has_come() {
    let rig = Rig::start(2);
    let mut host = rig.host();
    let mut io = host.io_with_r2ts(1, 31, 0, 1);
    let all = data(4 * SLICE, 3);
    begin(&mut io, 1, 77, all.len());
    let r2ts = [io.pdu(), io.pdu()];
    abort(&rig, &mut host, 77);
    assert_eq!(sent_so_far(&mut io, 0x8000), []);
    let half = part(&io, &r2ts[1], &all, SLICE / 2);
    io.send(&half[0]);
    assert_eq!(sent_so_far(&mut io, 0x8000), [], "half of the second is owed, and the first");
    answer(&mut io, &r2ts[0], &all);
    io.send(&half[1]);
    let aborted = io.pdu();
    assert_eq!((aborted.response_cid(), aborted.status()), (77, ABORT_REQUESTED));
    let response = host.admin.pdu();
    assert_eq!((response.status(), response.dw0() & 1), (0, 0), "aborted");
    // The identifier is used again at once.
    begin(&mut io, 1, 77, 1024);
    let again = io.pdu();
    answer(&mut io, &again, &[2; 1024]);
    assert_eq!(io.pdu().status(), 0);
    assert!(rig.disk.read(0, 1024) == [2; 1024]);
    drop((host, io));
    rig.stop();
}

#[test]
fn a_host_that_goes_with_several_r2ts_open_leaves_nothing_behind() {
    let rig = Rig::start(1);
    let host = rig.host();
    for round in 0..8 {
        let mut io = host.io_with_r2ts(1, 127, 0, 3);
        for cid in 0..20 {
            begin(&mut io, 1, cid, 8 * SLICE);
        }
        let r2ts: Vec<Pdu> = (0..4 + round).map(|_| io.pdu()).collect();
        let all = vec![1; 8 * SLICE];
        let bytes = part(&io, &r2ts[round % 4], &all, SLICE).concat();
        io.send(&bytes[..bytes.len() * round / 8]);
        drop(io);
        eventually("it is gone", || rig.target.metrics().connections == 1);
    }
    drop(host);
    rig.stop();
}
