//! Hosts that stop, vanish or are too many: each limit that keeps them from holding what others need.

mod rig;

use std::time::Duration;

use ashlar_target::limits::Limits;
use rig::wire::{Pdu, Sgl, Wire, flush, read, rw};
use rig::{Digests, HOST, Host, Rig, SUBSYSTEM, eventually};

/// Short enough for a test, long enough for a busy machine to make progress in.
const SHORT: Duration = Duration::from_millis(500);

const CONTROLLER_BUSY: u16 = 0x181;
const INVALID_HOST: u16 = 0x184;

const SLICE: u32 = 128 * 1024;

fn send(io: &mut Wire, sqe: &[u8; 64]) {
    let capsule = io.capsule(sqe, &[]);
    io.send(&capsule);
}

fn asked(io: &mut Wire, blocks: u32) -> Pdu {
    send(io, &rw(1, 7, 0, blocks, Sgl::Transport(blocks * 512)));
    let r2t = io.pdu();
    assert_eq!(r2t.kind, 9);
    r2t
}

#[test]
fn what_has_begun_and_makes_no_progress_ends_its_connection_and_no_other() {
    let rig = Rig::limited(Limits { receive_progress: SHORT, ..Limits::default() });
    let host = rig.host();
    let mut idle = host.io(1, 31, 0);
    type Stall<'a> = (&'a dyn Fn(&mut Wire), &'a str);
    let stalls: [Stall<'_>; 6] = [
        (&|io| io.send(&flush_capsule(io)[..5]), "in a common header"),
        (&|io| io.send(&flush_capsule(io)[..40]), "in a command"),
        (
            &|io| {
                let capsule = io.capsule(&rw(1, 7, 0, 1, Sgl::Capsule(512)), &[1; 512]);
                io.send(&capsule[..300]);
            },
            "in a capsule's data",
        ),
        (
            &|io| {
                asked(io, 2);
            },
            "before data that was asked for",
        ),
        (
            &|io| {
                let r2t = asked(io, SLICE / 512);
                let data = io.h2c_data(7, r2t.ttag(), 0, &[1; SLICE as usize], true);
                io.send(&data[..60_000]);
            },
            "in data that was asked for",
        ),
        (
            &|io| {
                let r2t = asked(io, 2 * SLICE / 512);
                rig.disk.fail_at(0);
                let data = io.h2c_data(7, r2t.ttag(), 0, &[1; SLICE as usize], true);
                io.send(&data);
                assert_eq!(io.pdu().kind, 9, "the second part is asked for before the first fails");
            },
            "before data that a failed command owes",
        ),
    ];
    for (stall, what) in stalls {
        let mut io = host.io(2, 31, 0);
        stall(&mut io);
        assert!(io.try_pdu().is_none(), "a host that stops {what} is let go");
        eventually("its queue is gone", || rig.target.metrics().connections == 2);
    }
    assert_eq!(idle.command(&flush(1), &[]).status(), 0, "nothing was asked of this one");
    drop((host, idle));
    rig.stop();
}

fn flush_capsule(io: &Wire) -> Vec<u8> {
    io.capsule(&flush(7), &[])
}

#[test]
fn a_host_that_is_slow_and_goes_on_is_not_let_go() {
    // Its data takes twice as long as it may stop.
    let limit = Duration::from_secs(2);
    let rig = Rig::limited(Limits { receive_progress: limit, ..Limits::default() });
    let host = rig.host();
    let mut io = host.io(1, 31, 0);
    let r2t = asked(&mut io, 8);
    let data = io.h2c_data(7, r2t.ttag(), 0, &[3; 4096], true);
    for piece in data.chunks(data.len() / 40 + 1) {
        std::thread::sleep(limit / 20);
        io.send(piece);
    }
    assert_eq!(io.pdu().status(), 0);
    assert!(rig.disk.read(0, 4096) == [3; 4096]);
    drop((host, io));
    rig.stop();
}

#[test]
fn a_host_that_takes_nothing_is_let_go_and_others_go_on() {
    let rig = Rig::limited(Limits { send_progress: SHORT, ..Limits::default() });
    let host = rig.host();
    let mut lazy = host.io(1, 127, 4);
    let mut busy = host.io(2, 31, 0);
    let mut bytes = Vec::new();
    for cid in 0..100 {
        bytes.extend(lazy.capsule(&read(cid, 0, 2048), &[]));
    }
    lazy.send(&bytes);
    eventually("it is let go", || {
        assert_eq!(busy.command(&flush(1), &[]).status(), 0);
        rig.target.metrics().connections == 2
    });
    drop((host, lazy, busy));
    rig.stop();
}

#[test]
fn a_host_whose_every_packet_is_lost_is_let_go() {
    type Act = fn(&mut Wire);
    let vanish: [(Act, &str); 3] = [
        (|_| {}, "with nothing under way"),
        (
            |io| {
                asked(io, 8);
            },
            "before data that was asked for",
        ),
        (
            |io| {
                for cid in 0..30 {
                    send(io, &read(cid, 0, 2048));
                }
                assert_eq!(io.pdu().kind, 7);
            },
            "in mid-transfer",
        ),
    ];
    for (act, what) in vanish {
        // Only the kernel notices: no limit of a connection's own is near.
        let rig = Rig::limited(Limits { peer_timeout: Duration::from_secs(2), ..Limits::default() });
        let mut host = rig.host();
        let mut io = host.io(1, 127, 0);
        act(&mut io);
        // Neither end of a connection is heard of any more; KATO is 0.
        io.vanish();
        eventually(what, || rig.target.metrics().connections == 1);
        assert_eq!(host.admin.property_get(0x1C, false).status(), 0, "the admin queue's peer is there");
        host.admin.vanish();
        eventually(what, || rig.target.metrics().connections == 0);
        drop((host, io));
        rig.stop();
    }
}

fn admin_connect(rig: &Rig, host: &str) -> (Wire, u16) {
    let mut admin = rig.connect();
    admin.initialize(Digests::OFF, 0, 0);
    let status = admin.fabrics_connect(0, 31, 0, 0xFFFF, SUBSYSTEM, host).status();
    (admin, status)
}

#[test]
fn a_host_has_no_more_controllers_than_its_share() {
    const OTHER: &str = "nqn.2026-01.io.ashlar:other";
    let rig = Rig::limited(Limits { controllers_per_host: 2, ..Limits::default() });
    let (first, one) = admin_connect(&rig, HOST);
    let (second, two) = admin_connect(&rig, HOST);
    assert_eq!((one, two), (0, 0));
    for _ in 0..3 {
        let (mut third, status) = admin_connect(&rig, HOST);
        assert_eq!(status, CONTROLLER_BUSY);
        third.expect_end();
    }
    let (other, status) = admin_connect(&rig, OTHER);
    assert_eq!(status, 0, "another host has a share of its own");
    drop(first);
    eventually("its place is free", || admin_connect(&rig, HOST).1 == 0);
    drop((second, other));
    // What is refused for another reason takes no share.
    eventually("all are gone", || rig.target.metrics().connections == 0);
    rig.block_on(|target| async move {
        target.set_hosts(&rig::nqn(), ashlar_target::inventory::HostAccess::default()).await.expect("set");
    });
    for _ in 0..5 {
        assert_eq!(admin_connect(&rig, HOST).1, INVALID_HOST);
    }
    rig.block_on(|target| async move {
        target.set_hosts(&rig::nqn(), ashlar_target::inventory::HostAccess::Any).await.expect("set");
    });
    let kept = [admin_connect(&rig, HOST), admin_connect(&rig, HOST)];
    assert_eq!([kept[0].1, kept[1].1], [0, 0]);
    drop(kept);
    rig.stop();
}

#[test]
fn connections_that_wait_for_connect_are_limited_per_peer() {
    let rig = Rig::limited(Limits { unbound_connections_per_peer: 3, ..Limits::default() });
    // A queue that has connected does not count.
    let mut host = rig.host();
    let silent: Vec<Wire> = (0..3).map(|_| rig.connect()).collect();
    eventually("all are accepted", || rig.target.metrics().connections == 4);
    rig.connect().expect_end();
    assert_eq!(rig.target.metrics().refused, 1);
    assert_eq!(host.admin.property_get(0x1C, false).status(), 0);
    drop(silent);
    eventually("their places are free", || rig.target.metrics().connections == 1);
    let queues: Vec<Wire> = (1..=6).map(|qid| host.io(qid, 31, 0)).collect();
    assert_eq!(rig.target.metrics().refused, 1, "one after the other is never too many");
    drop((host, queues));
    rig.stop();
}

#[test]
fn the_target_has_no_more_connections_than_it_takes() {
    let rig = Rig::limited(Limits { connections: 3, ..Limits::default() });
    let host = rig.host();
    let mut io = host.io(1, 31, 0);
    let unbound = rig.connect();
    eventually("it is accepted", || rig.target.metrics().connections == 3);
    rig.connect().expect_end();
    assert_eq!(rig.target.metrics().refused, 1);
    assert_eq!(io.command(&flush(1), &[]).status(), 0);
    drop(unbound);
    eventually("its place is free", || rig.target.metrics().connections == 2);
    let another = Host::new(rig.address, Digests::ON);
    drop((host, io, another));
    rig.stop();
}
