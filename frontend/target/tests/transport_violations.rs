//! What a host gets that breaks the transport's rules: the termination request with the right status and
//! information, its connection closed, and every other connection untouched.

mod rig;

use rig::wire::{Sgl, Wire, flush, read, rw};
use rig::{Digests, HOST, Host, Rig, SUBSYSTEM};

const INVALID_FIELD: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const OUT_OF_RANGE: u16 = 4;
const LIMIT_EXCEEDED: u16 = 5;
const UNSUPPORTED: u16 = 6;

/// Sends `bytes` and expects the request with `fatal`, which echoes the header sent, and then the end.
fn expect_fatal(wire: &mut Wire, bytes: &[u8], fatal: (u16, u32), what: &str) {
    wire.send(bytes);
    let pdu = wire.pdu();
    assert_eq!((pdu.kind, pdu.flags, pdu.header[3]), (3, 0, 0), "{what}: C2HTermReq");
    assert_eq!(pdu.fatal(), fatal, "{what}");
    assert!(pdu.data.len() >= 8 && pdu.data.len() <= 128, "{what}: echoes {} bytes", pdu.data.len());
    assert!(bytes.starts_with(&pdu.data), "{what}: echoes the offending header");
    wire.expect_end();
}

fn changed(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = value;
    bytes
}

#[test]
fn each_wrong_field_of_icreq_is_named() {
    let rig = Rig::start(1);
    let good = Wire::icreq(Digests::OFF, 0, 0);
    let cases: [(usize, u8, (u16, u32), &str); 8] = [
        (0, 0x0A, (INVALID_FIELD, 0), "unknown type"),
        (0, 0x01, (INVALID_FIELD, 0), "a controller's PDU"),
        (0, 0x04, (SEQUENCE, 0), "a command before ICReq"),
        (2, 72, (INVALID_FIELD, 2), "HLEN"),
        (4, 127, (INVALID_FIELD, 4), "PLEN"),
        (8, 1, (UNSUPPORTED, 8), "PFV"),
        (10, 32, (INVALID_FIELD, 10), "HPDA"),
        (11, 4, (INVALID_FIELD, 11), "DGST"),
    ];
    for (at, value, fatal, what) in cases {
        expect_fatal(&mut rig.connect(), &changed(&good, at, value), fatal, what);
    }
    rig.stop();
}

#[test]
fn each_wrong_field_of_a_command_capsule_is_named() {
    let (rig, host, mut witness) = Rig::with_io(1);
    let plain = |io: &Wire| io.capsule(&flush(1), &[]);
    let with_data = |io: &Wire| io.capsule(&rw(1, 1, 0, 1, Sgl::Capsule(512)), &[0; 512]);
    type Case<'a> = (&'a dyn Fn(&Wire) -> Vec<u8>, usize, u8, (u16, u32), &'a str);
    let cases: [Case<'_>; 11] = [
        (&plain, 0, 0x05, (INVALID_FIELD, 0), "a response from the host"),
        (&plain, 0, 0x08, (INVALID_FIELD, 0), "an undefined type"),
        (&plain, 0, 0x00, (SEQUENCE, 0), "ICReq once more"),
        (&plain, 1, 0x01, (INVALID_FIELD, 1), "a header digest that was not negotiated"),
        (&with_data, 1, 0x02, (INVALID_FIELD, 1), "a data digest that was not negotiated"),
        (&plain, 2, 71, (INVALID_FIELD, 2), "HLEN"),
        (&with_data, 3, 70, (INVALID_FIELD, 3), "PDO inside the header"),
        (&with_data, 3, 74, (INVALID_FIELD, 3), "PDO between dwords"),
        (&plain, 4, 71, (INVALID_FIELD, 4), "PLEN below the header"),
        (&plain, 4, 7, (INVALID_FIELD, 4), "PLEN below the common header"),
        // 512 + 72 bytes become 16384 + 72 + 256.
        (&with_data, 5, 0x42, (LIMIT_EXCEEDED, 0), "more in-capsule data than was offered"),
    ];
    for (make, at, value, fatal, what) in cases {
        let mut io = host.io(2, 31, 0);
        let bytes = changed(&make(&io), at, value);
        expect_fatal(&mut io, &bytes, fatal, what);
        drop(io);
        rig::eventually("the queue id is free again", || rig.target.metrics().connections == 2);
    }
    assert_eq!(witness.command(&flush(1), &[]).status(), 0, "other queues go on");
    drop((witness, host));
    rig.stop();
}

#[test]
fn each_wrong_field_of_h2c_data_is_named() {
    let rig = Rig::start(1);
    let host = rig.host();
    type Make<'a> = &'a dyn Fn(&Wire, u16) -> Vec<u8>;
    let block = [1; 512];
    let two = [1; 1024];
    let cases: [(Make<'_>, (u16, u32), &str); 9] = [
        (&|io, ttag| io.h2c_data(8, ttag, 0, &two, true), (INVALID_FIELD, 8), "another command"),
        (&|io, ttag| io.h2c_data(7, ttag + 1, 0, &two, true), (INVALID_FIELD, 10), "an unknown tag"),
        (&|io, ttag| io.h2c_data(7, ttag, 512, &block, true), (INVALID_FIELD, 12), "a gap"),
        (&|io, ttag| io.h2c_data(7, ttag, 2, &block, false), (INVALID_FIELD, 12), "between dwords"),
        (&|io, ttag| io.h2c_data(7, ttag, 1024, &block, true), (OUT_OF_RANGE, 0), "behind the range"),
        (&|io, ttag| io.h2c_data(7, ttag, 512, &two, true), (OUT_OF_RANGE, 0), "across the range's end"),
        (&|io, ttag| io.h2c_data(7, ttag, 0, &block, true), (INVALID_FIELD, 1), "LAST too early"),
        (&|io, ttag| io.h2c_data(7, ttag, 0, &two, false), (INVALID_FIELD, 1), "LAST missing"),
        (
            &|io, ttag| changed(&io.h2c_data(7, ttag, 0, &two, true), 17, 3),
            (INVALID_FIELD, 16),
            "DATAL against PLEN",
        ),
    ];
    for (make, fatal, what) in cases {
        let mut io = host.io(2, 31, 0);
        let capsule = io.capsule(&rw(1, 7, 0, 2, Sgl::Transport(1024)), &[]);
        io.send(&capsule);
        let r2t = io.pdu();
        assert_eq!((r2t.kind, r2t.offset(), r2t.length()), (9, 0, 1024), "R2T");
        let bytes = make(&io, r2t.ttag());
        expect_fatal(&mut io, &bytes, fatal, what);
        drop(io);
        rig::eventually("the queue id is free again", || rig.target.metrics().connections == 1);
    }
    assert_eq!(rig.disk.writes(), 0, "nothing was written");
    drop(host);
    rig.stop();
}

#[test]
fn data_that_nobody_asked_for_ends_the_connection() {
    let (rig, host, mut io) = Rig::with_io(1);
    let bytes = io.h2c_data(1, 0, 0, &[0; 512], true);
    expect_fatal(&mut io, &bytes, (INVALID_FIELD, 10), "no transfer at all");
    drop(host);
    rig.stop();
}

#[test]
fn a_wrong_header_digest_ends_the_connection_and_is_shown() {
    let rig = Rig::start(1);
    let host = Host::new(rig.address, Digests { header: true, data: false });
    let mut io = host.io(1, 31, 0);
    let mut bytes = io.capsule(&flush(1), &[]);
    bytes[72] ^= 0x80;
    let received = u32::from_le_bytes(bytes[72..76].try_into().expect("four bytes"));
    expect_fatal(&mut io, &bytes, (HEADER_DIGEST, received), "header digest");
    drop(host);
    rig.stop();
}

#[test]
fn a_wrong_data_digest_fails_its_command_only() {
    const TRANSIENT_TRANSPORT_ERROR: u16 = 0x022;
    let rig = Rig::start(1);
    let host = Host::new(rig.address, Digests { header: false, data: true });
    let mut io = host.io(1, 31, 0);
    let mut bytes = io.capsule(&rw(1, 1, 0, 1, Sgl::Capsule(512)), &[9; 512]);
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    io.send(&bytes);
    assert_eq!(io.pdu().status(), TRANSIENT_TRANSPORT_ERROR);
    let capsule = io.capsule(&rw(1, 2, 0, 256, Sgl::Transport(131_072)), &[]);
    io.send(&capsule);
    let r2t = io.pdu();
    // Large enough to be received in place.
    let mut bytes = io.h2c_data(2, r2t.ttag(), 0, &vec![9; 131_072], true);
    bytes[30_000] ^= 1;
    io.send(&bytes);
    assert_eq!(io.pdu().status(), TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(rig.disk.writes(), 0);
    assert_eq!(io.command(&flush(3), &[]).status(), 0, "the queue goes on");
    drop((io, host));
    rig.stop();
}

#[test]
fn a_termination_request_from_the_host_ends_its_connection() {
    let rig = Rig::start(1);
    let host = rig.host();
    for echoed in [0usize, 72] {
        let mut io = host.io(1, 31, 0);
        let mut bytes = vec![2, 0, 24, 0];
        bytes.extend((24 + echoed as u32).to_le_bytes());
        bytes.extend([2, 0, 0, 0, 0, 0]);
        bytes.resize(24 + echoed, 0);
        io.send(&bytes);
        io.expect_end();
        drop(io);
        rig::eventually("the queue id is free again", || rig.target.metrics().connections == 1);
    }
    drop(host);
    rig.stop();
}

#[test]
fn a_live_command_identifier_is_refused_and_the_first_command_goes_on() {
    const COMMAND_ID_CONFLICT: u16 = 0x003;
    let (rig, host, mut io) = Rig::with_io(1);
    let capsule = io.capsule(&rw(1, 5, 0, 1, Sgl::Transport(512)), &[]);
    io.send(&capsule);
    let r2t = io.pdu();
    assert_eq!(io.command(&flush(5), &[]).status(), COMMAND_ID_CONFLICT);
    let data = io.h2c_data(5, r2t.ttag(), 0, &[3; 512], true);
    io.send(&data);
    let response = io.pdu();
    assert_eq!((response.response_cid(), response.status()), (5, 0));
    assert_eq!(io.command(&flush(5), &[]).status(), 0, "free again");
    drop((io, host));
    rig.stop();
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_connection() {
    let rig = Rig::start(1);
    let host = rig.host();
    rig.disk.hold(true);
    let mut io = host.io(1, 3, 0);
    for cid in 0..4 {
        let capsule = io.capsule(&flush(cid), &[]);
        io.send(&capsule);
    }
    let bytes = io.capsule(&flush(9), &[]);
    expect_fatal(&mut io, &bytes, (SEQUENCE, 0), "a fifth of four");
    rig.disk.hold(false);
    drop(host);
    rig.stop();
}

#[test]
fn queues_deeper_or_shallower_than_possible_are_refused() {
    let rig = Rig::start(1);
    let host = rig.host();
    // Connect Invalid Parameters, SQSIZE at byte 44.
    for sqsize in [0, 1024, 0xFFFF] {
        let mut io = rig.connect();
        io.initialize(Digests::OFF, 0, 0);
        let response = io.fabrics_connect(1, sqsize, 0, host.cntlid, SUBSYSTEM, HOST);
        assert_eq!((response.status(), response.dw0()), (0x182, 44), "SQSIZE {sqsize}");
        io.expect_end();
    }
    for sqsize in [1, 1023] {
        let mut io = host.io(1, sqsize, 0);
        assert_eq!(io.command(&flush(1), &[]).status(), 0);
        drop(io);
        rig::eventually("the queue id is free again", || rig.target.metrics().connections == 1);
    }
    drop(host);
    rig.stop();
}

#[test]
fn a_first_command_that_is_not_connect_is_out_of_sequence() {
    let rig = Rig::start(1);
    let mut io = rig.connect();
    io.initialize(Digests::OFF, 0, 0);
    let response = io.command(&read(1, 0, 1), &[]);
    assert_eq!(response.status(), 0x00C, "Command Sequence Error");
    io.expect_end();
    rig.stop();
}

#[test]
fn descriptors_that_do_not_fit_get_their_status() {
    let (rig, host, mut io) = Rig::with_io(1);
    let mut bad = |change: &dyn Fn(&mut [u8; 64]), data: &[u8]| {
        let mut sqe = rw(1, 1, 0, 1, Sgl::Capsule(512));
        change(&mut sqe);
        io.command(&sqe, data).status()
    };
    let data = [0; 512];
    assert_eq!(bad(&|sqe| sqe[39] = 0x00, &data), 0x011, "SGL Descriptor Type Invalid");
    assert_eq!(bad(&|sqe| sqe[1] = 0x00, &data), 0x002, "PRPs are Invalid Field");
    assert_eq!(bad(&|sqe| sqe[25] = 2, &data), 0x016, "SGL Offset Invalid");
    assert_eq!(bad(&|sqe| sqe[32] = 1, &data), 0x00F, "Data SGL Length Invalid");
    assert_eq!(bad(&|sqe| sqe[33] = 4, &data), 0x00F, "longer than the capsule");
    assert_eq!(bad(&|sqe| sqe[1] = 0x80, &data), 0, "PSDT 10b is as good");
    drop((io, host));
    rig.stop();
}
