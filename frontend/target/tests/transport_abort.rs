//! Abort: what waits is ended, what is being carried out is not, and whoever asked is told which it was (NVMe Base 2.0
//! §5.1).

mod rig;

use rig::wire::{Pdu, Sgl, Wire, flush, read, rw};
use rig::{Host, Rig, eventually};

const ABORT_REQUESTED: u16 = 0x007;
const FAILED_FUSED: u16 = 0x009;
const MISSING_FUSED: u16 = 0x00A;

const SLICE: u32 = 128 * 1024;
/// Slices that a queue may have asked for, or may be reading, at a time.
const SLICES_PER_QUEUE: u16 = 32;

/// DW0 of an Abort: whether the command was aborted.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Aborted,
    NotAborted,
}

/// Sends an Abort of a command.
fn send_abort(host: &mut Host, qid: u8, cid: u16) {
    let mut sqe = [0; 64];
    sqe[0] = 8;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&host.admin.cid().to_le_bytes());
    sqe[40] = qid;
    sqe[42..44].copy_from_slice(&cid.to_le_bytes());
    let capsule = host.admin.capsule(&sqe, &[]);
    host.admin.send(&capsule);
}

fn answer_of(response: &Pdu) -> Answer {
    assert_eq!(response.status(), 0);
    if response.dw0() & 1 == 0 { Answer::Aborted } else { Answer::NotAborted }
}

fn abort(host: &mut Host, qid: u8, cid: u16) -> Answer {
    send_abort(host, qid, cid);
    answer_of(&host.admin.pdu())
}

fn send(io: &mut Wire, sqe: &[u8; 64], data: &[u8]) {
    let capsule = io.capsule(sqe, data);
    io.send(&capsule);
}

fn answered(io: &mut Wire) -> (u16, u16) {
    let pdu = io.pdu();
    (pdu.response_cid(), pdu.status())
}

fn half(mut sqe: [u8; 64], fuse: u8) -> [u8; 64] {
    sqe[1] |= fuse;
    sqe
}

#[test]
fn a_write_that_waits_for_its_turn_to_ask_for_data_is_aborted_at_once() {
    let rig = Rig::start(2);
    let mut host = rig.host();
    let mut io = host.io(1, 127, 0);
    let write = |cid| rw(1, cid, 0, SLICE / 512, Sgl::Transport(SLICE));
    for cid in 0..SLICES_PER_QUEUE + 2 {
        send(&mut io, &write(cid), &[]);
    }
    let r2ts: Vec<Pdu> = (0..SLICES_PER_QUEUE).map(|_| io.pdu()).collect();
    assert_eq!(abort(&mut host, 1, SLICES_PER_QUEUE), Answer::Aborted);
    assert_eq!(answered(&mut io), (SLICES_PER_QUEUE, ABORT_REQUESTED));
    assert_eq!(abort(&mut host, 1, SLICES_PER_QUEUE), Answer::NotAborted, "it is known no more");
    // Those around it go on, the one behind it included.
    let mut open = r2ts;
    let mut done = Vec::new();
    while done.len() <= usize::from(SLICES_PER_QUEUE) {
        if let Some(r2t) = open.pop() {
            let data = io.h2c_data(r2t.cccid(), r2t.ttag(), 0, &vec![7; SLICE as usize], true);
            io.send(&data);
            continue;
        }
        let pdu = io.pdu();
        if pdu.kind == 9 {
            open.push(pdu);
        } else {
            assert_eq!(pdu.status(), 0);
            done.push(pdu.response_cid());
        }
    }
    assert!(done.contains(&(SLICES_PER_QUEUE + 1)) && !done.contains(&SLICES_PER_QUEUE), "{done:?}");
    drop((host, io));
    rig.stop();
}

#[test]
fn a_read_that_waits_for_a_buffer_is_aborted_and_one_that_is_carried_out_is_not() {
    let rig = Rig::start(2);
    let mut host = rig.host();
    let mut io = host.io(1, 127, 0);
    rig.disk.hold(true);
    for cid in 0..=SLICES_PER_QUEUE {
        send(&mut io, &read(cid, 0, SLICE / 512), &[]);
    }
    eventually("the others are carried out", || rig.disk.waiting() == usize::from(SLICES_PER_QUEUE));
    assert_eq!(abort(&mut host, 1, 0), Answer::NotAborted, "the disk is reading for it");
    assert_eq!(abort(&mut host, 1, SLICES_PER_QUEUE), Answer::Aborted);
    assert_eq!(answered(&mut io), (SLICES_PER_QUEUE, ABORT_REQUESTED));
    rig.disk.hold(false);
    let mut done = 0;
    while done < SLICES_PER_QUEUE {
        let pdu = io.pdu();
        done += u16::from(pdu.kind == 5 && pdu.status() == 0);
    }
    assert_eq!(abort(&mut host, 1, 0), Answer::NotAborted, "it has been answered");
    assert_eq!(abort(&mut host, 2, 0), Answer::NotAborted, "no such queue");
    drop((host, io));
    rig.stop();
}

#[test]
fn a_write_that_waits_for_a_fused_pair_is_aborted_and_the_pair_goes_on() {
    let (rig, mut host, mut io) = Rig::with_io(2);
    let old = rig.disk.read(4096, 512);
    rig.disk.hold(true);
    send(&mut io, &half(rw(5, 1, 8, 1, Sgl::Capsule(512)), 1), &old);
    send(&mut io, &half(rw(1, 2, 8, 1, Sgl::Capsule(512)), 2), &[8; 512]);
    eventually("the pair is carried out", || rig.disk.waiting() == 1);
    send(&mut io, &rw(1, 3, 8, 1, Sgl::Capsule(512)), &[9; 512]);
    let mut zeroes = rw(8, 4, 8, 1, Sgl::Transport(0));
    zeroes[40..42].copy_from_slice(&8u16.to_le_bytes());
    send(&mut io, &zeroes, &[]);
    // Carried out beside the pair: it has been taken in, and so have those before it.
    send(&mut io, &rw(1, 5, 1024, 1, Sgl::Capsule(512)), &[5; 512]);
    eventually("what is elsewhere is carried out", || rig.disk.waiting() == 2);
    for cid in [1, 2, 5] {
        assert_eq!(abort(&mut host, 1, cid), Answer::NotAborted, "{cid} is carried out");
    }
    for cid in [3, 4] {
        assert_eq!(abort(&mut host, 1, cid), Answer::Aborted);
        assert_eq!(answered(&mut io), (cid, ABORT_REQUESTED));
    }
    rig.disk.hold(false);
    let mut done: Vec<_> = (0..3).map(|_| answered(&mut io)).collect();
    done.sort_unstable();
    assert_eq!(done, [(1, 0), (2, 0), (5, 0)]);
    assert!(rig.disk.read(4096, 512) == [8; 512], "the pair's data, not the aborted write's");
    // Nothing is left closed.
    send(&mut io, &rw(1, 3, 8, 1, Sgl::Capsule(512)), &[9; 512]);
    assert_eq!(answered(&mut io), (3, 0));
    drop((host, io));
    rig.stop();
}

#[test]
fn a_first_half_that_waits_for_its_second_is_aborted() {
    let (rig, mut host, mut io) = Rig::with_io(2);
    send(&mut io, &half(rw(5, 1, 8, 1, Sgl::Capsule(512)), 1), &[0; 512]);
    // It is with its core once a later byte is: half of the next header is no command yet.
    let next = io.capsule(&flush(2), &[]);
    io.send(&next[..4]);
    eventually("it is held", || abort(&mut host, 1, 1) == Answer::Aborted);
    assert_eq!(answered(&mut io), (1, ABORT_REQUESTED));
    io.send(&next[4..]);
    assert_eq!(answered(&mut io), (2, 0), "what follows is not its second half");
    send(&mut io, &half(rw(1, 3, 8, 1, Sgl::Capsule(512)), 2), &[1; 512]);
    assert_eq!(answered(&mut io), (3, MISSING_FUSED));
    assert_eq!(rig.disk.writes(), 0);
    drop((host, io));
    rig.stop();
}

#[test]
fn aborting_either_half_of_a_pair_that_waits_for_data_ends_both() {
    for (aborted, statuses) in
        [(1, [(1, ABORT_REQUESTED), (2, FAILED_FUSED)]), (2, [(1, FAILED_FUSED), (2, ABORT_REQUESTED)])]
    {
        for compared in [false, true] {
            let (rig, mut host, mut io) = Rig::with_io(2);
            let sgl = Sgl::Transport(512);
            send(&mut io, &half(rw(5, 1, 8, 1, sgl), 1), &[]);
            send(&mut io, &half(rw(1, 2, 8, 1, sgl), 2), &[]);
            let mut owed = io.pdu();
            if compared {
                let data = io.h2c_data(1, owed.ttag(), 0, &rig.disk.read(4096, 512), true);
                io.send(&data);
                owed = io.pdu();
            }
            assert_eq!((owed.kind, owed.cccid()), (9, if compared { 2 } else { 1 }));
            send_abort(&mut host, 1, aborted);
            // In order on the admin queue, and then on the core of the I/O queue.
            rig.settled(&mut host);
            send(&mut io, &flush(9), &[]);
            assert_eq!(answered(&mut io), (9, 0), "the pair is not answered while data is owed");
            let data = io.h2c_data(owed.cccid(), owed.ttag(), 0, &[3; 512], true);
            io.send(&data);
            assert_eq!([answered(&mut io), answered(&mut io)], statuses);
            assert_eq!(answer_of(&host.admin.pdu()), Answer::Aborted);
            assert_eq!(rig.disk.writes(), 0);
            drop((host, io));
            rig.stop();
        }
    }
}

#[test]
fn an_aborted_event_request_completes_before_its_abort() {
    let rig = Rig::start(1);
    let mut host = rig.host();
    let mut request = [0; 64];
    request[0] = 0x0C;
    request[1] = 0x40;
    for cid in [20, 21] {
        request[2] = cid;
        send(&mut host.admin, &request, &[]);
    }
    send_abort(&mut host, 0, 21);
    assert_eq!(answered(&mut host.admin), (21, ABORT_REQUESTED));
    assert_eq!(answer_of(&host.admin.pdu()), Answer::Aborted);
    assert_eq!(abort(&mut host, 0, 21), Answer::NotAborted);
    send_abort(&mut host, 0, 20);
    assert_eq!(answered(&mut host.admin), (20, ABORT_REQUESTED));
    assert_eq!(answer_of(&host.admin.pdu()), Answer::Aborted);
    drop(host);
    rig.stop();
}

#[test]
fn an_admin_command_that_waits_for_its_data_is_aborted() {
    let rig = Rig::start(1);
    let mut host = rig.host();
    // Set Features, Host Identifier, 16 bytes by R2T.
    let mut sqe = [0; 64];
    sqe[0] = 9;
    sqe[1] = 0x40;
    sqe[2] = 30;
    sqe[32] = 16;
    sqe[39] = 0x5A;
    sqe[40] = 0x81;
    sqe[44] = 1;
    send(&mut host.admin, &sqe, &[]);
    let r2t = host.admin.pdu();
    assert_eq!((r2t.kind, r2t.cccid(), r2t.length()), (9, 30, 16));
    send_abort(&mut host, 0, 30);
    rig.settled(&mut host);
    let data = host.admin.h2c_data(30, r2t.ttag(), 0, &[1; 16], true);
    host.admin.send(&data);
    assert_eq!(answered(&mut host.admin), (30, ABORT_REQUESTED));
    assert_eq!(answer_of(&host.admin.pdu()), Answer::Aborted);
    drop(host);
    rig.stop();
}

#[test]
fn an_abort_that_waits_does_not_hold_up_the_end_of_its_association() {
    let (rig, mut host, mut io) = Rig::with_io(2);
    send(&mut io, &rw(1, 1, 0, 1, Sgl::Transport(512)), &[]);
    assert_eq!(io.pdu().kind, 9);
    send_abort(&mut host, 1, 1);
    rig.settled(&mut host);
    // The data never comes, and the I/O queue stays as long as it is let.
    drop(host);
    io.drain();
    eventually("nothing is left", || rig.target.metrics().connections == 0);
    rig.stop();
}
