//! How connections, controllers and namespaces come and go, with commands under way.

mod rig;

use std::time::Duration;

use ashlar_nvme::ids::{Nguid, Nsid};
use ashlar_reactor::CoreId;
use ashlar_target::inventory::{AnaState, HostAccess};
use ashlar_target::limits::Limits;
use ashlar_target::target::{ChangeError, NewNamespace};
use rig::backend::{Disk, DiskOpener};
use rig::wire::{Sgl, Wire, flush, read, rw};
use rig::{BYTES, Digests, HOST, Host, Rig, SUBSYSTEM, eventually, namespace, nqn};

/// CC with the queue entry sizes, disabled.
const DISABLED: u32 = 0x0046_0000;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1C;

fn connect_io(rig: &Rig, qid: u16, cntlid: u16, host: &str) -> (u16, u32) {
    let mut io = rig.connect();
    io.initialize(Digests::OFF, 0, 0);
    let response = io.fabrics_connect(qid, 31, 0, cntlid, SUBSYSTEM, host);
    (response.status(), response.dw0())
}

#[test]
fn every_admin_connect_makes_a_controller_and_evicts_nobody() {
    let rig = Rig::start(2);
    let mut hosts: Vec<Host> = (0..6).map(|_| rig.host()).collect();
    let mut ids: Vec<u16> = hosts.iter().map(|host| host.cntlid).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6, "all different");
    for host in &mut hosts {
        assert_eq!(host.admin.property_get(CSTS, false).dw0() & 1, 1, "still ready");
    }
    let last = hosts.pop().expect("six").cntlid;
    eventually("it is gone", || rig.target.metrics().connections == 5);
    assert_ne!(rig.host().cntlid, last, "not soon used again");
    drop(hosts);
    rig.stop();
}

#[test]
fn a_host_reconnects_at_once_while_its_old_association_lives() {
    let rig = Rig::start(2);
    let old = rig.host();
    let mut old_io = old.io(1, 31, 0);
    let new = rig.host();
    let mut new_io = new.io(1, 31, 0);
    assert_eq!(new_io.command(&flush(1), &[]).status(), 0);
    assert_eq!(old_io.command(&flush(1), &[]).status(), 0);
    drop((old, old_io, new, new_io));
    rig.stop();
}

#[test]
fn io_connects_must_match_their_controller() {
    const INVALID_PARAMETERS: u16 = 0x182;
    let (rig, mut host, _io) = Rig::with_io(2);
    let unknown = host.cntlid + 2;
    assert_eq!(connect_io(&rig, 2, unknown, HOST), (INVALID_PARAMETERS, 0x1_0010), "no such controller");
    let (status, _) = connect_io(&rig, 2, host.cntlid, "nqn.2026-01.io.ashlar:other");
    assert_ne!(status, 0, "another host's controller");
    assert_ne!(connect_io(&rig, 1, host.cntlid, HOST).0, 0, "the queue exists");
    assert_eq!(host.admin.property_set(CC, DISABLED).status(), 0);
    assert_ne!(connect_io(&rig, 2, host.cntlid, HOST).0, 0, "disabled");
    drop(host);
    rig.stop();
}

#[test]
fn hosts_that_are_not_allowed_are_denied() {
    const CONNECT_INVALID_HOST: u16 = 0x184;
    let rig = Rig::start(1);
    let mut connected = rig.host();
    rig.block_on(|target| async move { target.set_hosts(&nqn(), HostAccess::default()).await.expect("set") });
    let mut admin = rig.connect();
    admin.initialize(Digests::OFF, 0, 0);
    let response = admin.fabrics_connect(0, 31, 0, 0xFFFF, SUBSYSTEM, HOST);
    assert_eq!(response.status(), CONNECT_INVALID_HOST);
    admin.expect_end();
    connected.admin.drain();
    rig.stop();
}

#[test]
fn io_queues_are_spread_over_the_cores() {
    let rig = Rig::start(2);
    let hosts: Vec<Host> = (0..3).map(|_| rig.host()).collect();
    let queues: Vec<Wire> = hosts.iter().flat_map(|host| (1..=3).map(|qid| host.io(qid, 31, 0))).collect();
    let cores = rig.target.metrics().cores;
    assert_eq!(cores.iter().map(|core| core.io).sum::<usize>(), 9);
    assert!(cores[0].io.abs_diff(cores[1].io) <= 1, "{cores:?}");
    assert!(cores[0].admin.abs_diff(cores[1].admin) <= 1, "{cores:?}");
    drop((queues, hosts));
    rig.stop();
}

#[test]
fn disabling_closes_the_io_queues_and_keeps_the_admin_queue() {
    let rig = Rig::start(2);
    let mut host = rig.host();
    let mut queues: Vec<Wire> = (1..=4).map(|qid| host.io(qid, 31, 0)).collect();
    rig.disk.hold(true);
    let capsule = queues[0].capsule(&flush(1), &[]);
    queues[0].send(&capsule);
    eventually("it runs", || rig.disk.waiting() == 1);
    assert_eq!(host.admin.property_set(CC, DISABLED).status(), 0);
    for queue in &mut queues {
        queue.drain();
    }
    assert_eq!(host.admin.property_get(CSTS, false).dw0() & 1, 1, "a command is not accounted for yet");
    rig.disk.hold(false);
    let mut ready = 1;
    let deadline = std::time::Instant::now() + rig::PATIENCE;
    while ready == 1 && std::time::Instant::now() < deadline {
        ready = host.admin.property_get(CSTS, false).dw0() & 1;
    }
    assert_eq!(ready, 0, "every command is accounted for");
    assert_eq!(host.admin.property_set(CC, DISABLED | 1).status(), 0);
    let mut io = host.io(1, 31, 0);
    assert_eq!(io.command(&flush(1), &[]).status(), 0, "enabled once more");
    drop((host, io, queues));
    rig.stop();
}

#[test]
fn losing_the_admin_queue_ends_the_io_queues() {
    let rig = Rig::start(2);
    let host = rig.host();
    let cntlid = host.cntlid;
    let mut queues: Vec<Wire> = (1..=4).map(|qid| host.io(qid, 31, 0)).collect();
    // Asked for data that never comes.
    let capsule = queues[1].capsule(&rw(1, 1, 0, 1, Sgl::Transport(512)), &[]);
    queues[1].send(&capsule);
    assert_eq!(queues[1].pdu().kind, 9);
    drop(host);
    for queue in &mut queues {
        queue.drain();
    }
    assert_ne!(connect_io(&rig, 5, cntlid, HOST).0, 0, "its controller is dying or gone");
    eventually("nothing is left", || rig.target.metrics().connections == 0);
    assert_eq!(rig.disk.writes(), 0);
    rig.stop();
}

#[test]
fn an_io_connect_beside_a_dying_admin_queue_is_answered_cleanly() {
    let rig = Rig::start(2);
    for _ in 0..50 {
        let host = rig.host();
        let cntlid = host.cntlid;
        let mut io = rig.connect();
        io.initialize(Digests::OFF, 0, 0);
        let capsule = io.connect_capsule(1, 31, 0, cntlid, SUBSYSTEM, HOST);
        drop(host);
        io.send(&capsule);
        // Refused, or admitted and then closed; never left open.
        if let Some(response) = io.try_pdu() {
            assert!(matches!(response.status(), 0 | 0x182), "{:#x}", response.status());
        }
        io.drain();
    }
    eventually("nothing is left", || rig.target.metrics().connections == 0);
    rig.stop();
}

#[test]
fn disconnect_ends_one_queue_and_no_other() {
    let (rig, host, mut one) = Rig::with_io(2);
    let mut two = host.io(2, 31, 0);
    let mut sqe = [0; 64];
    sqe[0] = 0x7F;
    sqe[1] = 0x40;
    sqe[2] = 9;
    sqe[4] = 8;
    assert_eq!(one.command(&sqe, &[]).status(), 0);
    one.expect_end();
    drop(one);
    assert_eq!(two.command(&flush(1), &[]).status(), 0);
    eventually("one is gone", || rig.target.metrics().connections == 2);
    let mut again = host.io(1, 31, 0);
    assert_eq!(again.command(&flush(1), &[]).status(), 0, "its id is free");
    drop((host, again, two));
    rig.stop();
}

#[test]
fn a_controller_whose_host_keeps_silent_expires() {
    let rig = Rig::start(2);
    let mut admin = rig.connect();
    admin.initialize(Digests::OFF, 0, 0);
    let mut capsule = admin.connect_capsule(0, 31, 0, 0xFFFF, SUBSYSTEM, HOST);
    // KATO, 1000 ms, at byte 48 of the command.
    capsule[8 + 48..8 + 52].copy_from_slice(&1000u32.to_le_bytes());
    admin.send(&capsule);
    assert_eq!(admin.pdu().status(), 0);
    let mut lasting = rig.host();
    admin.drain();
    assert_eq!(lasting.admin.property_get(CSTS, false).status(), 0, "KATO 0 does not expire");
    drop(lasting);
    rig.stop();
}

#[test]
fn a_peer_that_says_nothing_is_dropped() {
    let rig = Rig::limited(Limits { connect_time: Duration::from_millis(500), ..Limits::default() });
    let mut silent = rig.connect();
    let mut halfway = rig.connect();
    halfway.initialize(Digests::OFF, 0, 0);
    halfway.send(&[4, 0, 72]);
    silent.expect_end();
    halfway.expect_end();
    eventually("nothing is left", || rig.target.metrics().connections == 0);
    rig.stop();
}

#[test]
fn a_host_that_reads_nothing_harms_nobody_and_gets_everything_later() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut lazy = host.io(1, 127, 4);
    let mut busy = host.io(2, 31, 0);
    let mut bytes = Vec::new();
    for cid in 0..100 {
        bytes.extend(lazy.capsule(&read(cid, 0, 2048), &[]));
    }
    lazy.send(&bytes);
    for cid in 0..200 {
        assert_eq!(busy.command(&flush(cid), &[]).status(), 0);
    }
    let mut got = 0;
    let mut last = 0;
    while last < 100 {
        let pdu = lazy.pdu();
        got += pdu.data.len();
        last += usize::from(pdu.flags & 8 != 0);
    }
    assert_eq!(got, 100 << 20);
    drop((host, lazy, busy));
    rig.stop();
}

#[test]
fn hosts_that_stop_in_mid_transfer_leave_nothing_behind() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut io = host.io(1, 127, 0);
    for cid in 0..100 {
        let capsule = io.capsule(&rw(1, cid, 0, 2048, Sgl::Transport(1 << 20)), &[]);
        io.send(&capsule);
    }
    let r2t = io.pdu();
    let bytes = io.h2c_data(r2t.cccid(), r2t.ttag(), r2t.offset(), &vec![1; r2t.length() as usize], true);
    io.send(&bytes[..bytes.len() / 2]);
    let mut other = host.io(2, 31, 0);
    assert_eq!(other.command(&rw(1, 1, 0, 1, Sgl::Capsule(512)), &[5; 512]).status(), 0);
    drop(io);
    eventually("it is gone", || rig.target.metrics().connections == 2);
    drop((host, other));
    rig.stop();
}

#[test]
fn a_namespace_is_removed_only_when_none_of_its_commands_runs() {
    let (rig, host, mut io) = Rig::with_io(2);
    rig.disk.hold(true);
    let capsule = io.capsule(&rw(1, 1, 0, 1, Sgl::Capsule(512)), &[1; 512]);
    io.send(&capsule);
    eventually("it runs", || rig.disk.waiting() == 1);
    let target = rig.target.clone();
    let cores = rig.cores.as_ref().expect("running").handle();
    let removed = cores.run_on(CoreId(0), move || async move {
        target.remove_namespace(&nqn(), Nsid(1)).await.expect("removed");
        target.metrics().namespaces.len()
    });
    eventually("new commands find none", || io_status(&mut io, 2) == 0x002);
    assert_eq!(rig.disk.writes(), 0);
    rig.disk.hold(false);
    assert_eq!(removed.wait().expect("ran"), 0);
    assert_eq!(rig.disk.writes(), 1, "the removal waited for the write");
    assert_eq!(io.pdu().status(), 0, "and the write was answered");
    drop((host, io));
    rig.stop();
}

fn io_status(io: &mut Wire, cid: u16) -> u16 {
    io.command(&read(cid, 1 << 40, 1), &[]).status()
}

#[test]
fn namespaces_come_and_change_while_hosts_are_connected() {
    let (rig, host, mut io) = Rig::with_io(2);
    let mut second = read(1, 0, 1);
    second[4] = 2;
    assert_eq!(io.command(&second, &[]).status(), 0x002, "not there yet");
    rig.block_on(|target| async move {
        let opener = DiskOpener(Disk::new(1 << 20));
        target.add_namespace(&nqn(), namespace(2), opener).await.expect("added");
        target.resize_namespace(&nqn(), Nsid(1), 8).await.expect("resized");
    });
    let capsule = io.capsule(&second, &[]);
    io.send(&capsule);
    assert_eq!(io.collect(1).0.len(), 512);
    assert_eq!(io.command(&read(2, 8, 1), &[]).status(), 0x080, "behind its new end");
    rig.block_on(|target| async move {
        target.set_ana_state(&nqn(), Nsid(1), AnaState::Inaccessible).await.expect("set");
    });
    assert_eq!(io.command(&read(3, 0, 1), &[]).status(), 0x302, "Asymmetric Access Inaccessible");
    drop((host, io));
    rig.stop();
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let rig = Rig::start(1);
    let opener = || DiskOpener(Disk::new(1 << 20));
    let errors = rig.block_on(move |target| async move {
        let add =
            async |new: NewNamespace| target.add_namespace(&nqn(), new, opener()).await.expect_err("refused");
        let other = namespace(2);
        let too_large = NewNamespace { blocks: Some(BYTES as u64), ..other };
        vec![
            add(namespace(1)).await,
            add(NewNamespace { uuid: namespace(1).uuid, ..other }).await,
            add(NewNamespace { nguid: namespace(1).nguid, ..other }).await,
            add(NewNamespace { nguid: Nguid::default(), ..other }).await,
            add(NewNamespace { nsid: Nsid(4097), ..other }).await,
            add(too_large).await,
            target.resize_namespace(&nqn(), Nsid(1), 1 << 40).await.expect_err("refused"),
            target.remove_namespace(&nqn(), Nsid(9)).await.expect_err("refused"),
        ]
    });
    let kinds: Vec<bool> = vec![
        matches!(errors[0], ChangeError::NamespaceExists { nsid: Nsid(1), .. }),
        matches!(errors[1], ChangeError::IdentityTaken { what: "UUID", .. }),
        matches!(errors[2], ChangeError::IdentityTaken { what: "NGUID", .. }),
        matches!(errors[3], ChangeError::NoIdentity { what: "NGUID", .. }),
        matches!(errors[4], ChangeError::BadNsid(Nsid(4097))),
        matches!(errors[5], ChangeError::BadSize { .. }),
        matches!(errors[6], ChangeError::BadSize { .. }),
        matches!(errors[7], ChangeError::NoNamespace { .. }),
    ];
    assert!(kinds.iter().all(|right| *right), "{kinds:?} {errors:?}");
    rig.stop();
}

#[test]
fn a_core_that_was_late_executes_nothing_that_waited() {
    let (rig, mut host, mut io) = Rig::with_io(1);
    assert_eq!(io.command(&flush(1), &[]).status(), 0);
    let cores = rig.cores.as_ref().expect("running").handle();
    // A stall that the core cannot see coming.
    let stalled = cores.run_on(CoreId(0), || async { std::thread::sleep(Duration::from_millis(600)) });
    std::thread::sleep(Duration::from_millis(50));
    let capsule = io.capsule(&rw(1, 2, 0, 1, Sgl::Capsule(512)), &[1; 512]);
    io.send(&capsule);
    stalled.wait().expect("ran");
    io.expect_end();
    host.admin.drain();
    assert_eq!(rig.disk.writes(), 0, "the write waited too long to be executed");
    drop((host, io));
    let host = rig.host();
    let mut io = host.io(1, 31, 0);
    assert_eq!(io.command(&flush(1), &[]).status(), 0, "hosts can come back");
    drop((host, io));
    rig.stop();
}

#[test]
fn a_thousand_connects_leak_no_descriptor() {
    let rig = Rig::start(2);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    drop(rig.host());
    eventually("it is gone", || rig.target.metrics().connections == 0);
    let before = descriptors();
    for round in 0..1000 {
        match round % 4 {
            0 => drop(rig.host().io(1, 31, 0)),
            1 => drop(rig.connect()),
            2 => drop(rig.connect().initialize(Digests::OFF, 0, 0)),
            _ => drop(rig.host()),
        }
    }
    eventually("all are gone", || rig.target.metrics().connections == 0);
    // Other tests of this process have descriptors of their own.
    eventually("no descriptor is left", || descriptors() <= before + 64);
    rig.stop();
}

#[test]
fn stopping_waits_for_what_runs() {
    let (rig, _host, mut io) = Rig::with_io(2);
    rig.disk.hold(true);
    let capsule = io.capsule(&rw(1, 1, 0, 1, Sgl::Capsule(512)), &[1; 512]);
    io.send(&capsule);
    eventually("it runs", || rig.disk.waiting() == 1);
    let disk = rig.disk.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        disk.hold(false);
    });
    let disk = rig.disk.clone();
    rig.stop();
    assert_eq!(disk.writes(), 1);
    release.join().expect("joins");
    io.drain();
}
