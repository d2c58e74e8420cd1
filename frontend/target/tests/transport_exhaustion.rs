//! What happens when buffers run out: commands wait and are answered, nothing is lost and nothing is left over.

mod rig;

use std::collections::BTreeMap;
use std::thread;

use ashlar_reactor::{BufferCounts, CoresConfig};
use ashlar_target::limits::Limits;
use rig::wire::{Sgl, Wire, flush, read, rw};
use rig::{Rig, eventually};

/// Receive buffers that the connections of a core share.
const RECEIVE_BUFFERS: u16 = 256;

/// Commands that a queue has under way.
const DEPTH: u16 = 24;

fn starved(blocks: u32, capsules: u32, slices: u32) -> Rig {
    let mut config = CoresConfig::floating(1);
    config.buffers = BufferCounts { blocks, capsules, slices };
    Rig::start_with(&config, Limits::default())
}

/// Lengths in blocks: of every size of buffer, and of several.
const LENGTHS: [u32; 6] = [1, 8, 33, 256, 300, 1024];

/// Writes and reads with everything under way at once, in a part of the disk that is this queue's alone; every byte
/// read is compared.
fn work(io: &mut Wire, base: u64, rounds: u16) {
    for round in 0..rounds {
        let fill = |cid: u16| (cid ^ (round * 37)) as u8;
        // Writes by R2T do not overlap: each has a place of its own.
        let place = |cid: u16| base + u64::from(cid) * 64;
        let blocks = |cid: u16| LENGTHS[usize::from(cid) % LENGTHS.len()].min(64);
        let mut bytes = Vec::new();
        for cid in 0..DEPTH {
            bytes.extend(
                io.capsule(&rw(1, cid, place(cid), blocks(cid), Sgl::Transport(blocks(cid) * 512)), &[]),
            );
        }
        io.send(&bytes);
        let mut left = DEPTH;
        while left > 0 {
            let pdu = io.pdu();
            if pdu.kind == 9 {
                let data = vec![fill(pdu.cccid()); pdu.length() as usize];
                let data = io.h2c_data(pdu.cccid(), pdu.ttag(), pdu.offset(), &data, true);
                io.send(&data);
            } else {
                assert_eq!(pdu.status(), 0);
                left -= 1;
            }
        }
        // Long reads go over what others write; only their length is known.
        let mut bytes = Vec::new();
        for cid in 0..DEPTH {
            bytes.extend(io.capsule(&read(cid, place(cid), blocks(cid)), &[]));
            bytes.extend(io.capsule(&read(1000 + cid, 0, LENGTHS[usize::from(cid) % LENGTHS.len()]), &[]));
        }
        io.send(&bytes);
        let mut got: BTreeMap<u16, usize> = BTreeMap::new();
        let mut left = 2 * DEPTH;
        while left > 0 {
            let pdu = io.pdu();
            if pdu.kind == 5 {
                assert_eq!(pdu.status(), 0);
                left -= 1;
                continue;
            }
            let cid = pdu.cccid();
            *got.entry(cid).or_default() += pdu.data.len();
            assert!(cid >= 1000 || pdu.data.iter().all(|byte| *byte == fill(cid)), "what was written");
        }
        for cid in 0..DEPTH {
            assert_eq!(got[&cid], blocks(cid) as usize * 512);
            assert_eq!(got[&(1000 + cid)], LENGTHS[usize::from(cid) % LENGTHS.len()] as usize * 512);
        }
    }
}

#[test]
fn queues_that_share_too_few_buffers_are_all_answered() {
    for (blocks, capsules, slices) in [(2, 2, 2), (1, 1, 1), (64, 1, 4)] {
        let rig = starved(blocks, capsules, slices);
        let host = rig.host();
        let mut queues: Vec<Wire> = (1..=4).map(|qid| host.io_with_r2ts(qid, 127, 0, 3)).collect();
        thread::scope(|scope| {
            for (io, base) in queues.iter_mut().zip([0, 4096, 8192, 12288]) {
                scope.spawn(move || work(io, base, 3));
            }
        });
        drop((host, queues));
        rig.stop();
    }
}

#[test]
fn hosts_that_go_while_others_wait_for_their_buffers_free_them() {
    let rig = starved(4, 2, 2);
    let host = rig.host();
    let mut greedy = host.io_with_r2ts(1, 127, 0, 3);
    let mut patient = host.io(2, 127, 0);
    for cid in 0..DEPTH {
        let capsule = greedy.capsule(&rw(1, cid, 0, 1024, Sgl::Transport(1024 * 512)), &[]);
        greedy.send(&capsule);
    }
    // It has what it gets, and sends nothing.
    assert_eq!(greedy.pdu().kind, 9);
    let mut bytes = Vec::new();
    for cid in 0..DEPTH {
        bytes.extend(patient.capsule(&read(cid, 0, 256), &[]));
    }
    patient.send(&bytes);
    drop(greedy);
    let mut left = DEPTH;
    while left > 0 {
        let pdu = patient.pdu();
        left -= u16::from(pdu.kind == 5 && pdu.status() == 0);
    }
    drop((host, patient));
    rig.stop();
}

#[test]
fn commands_that_hold_every_receive_buffer_are_answered_and_so_are_those_behind_them() {
    let rig = Rig::start(1);
    let host = rig.host();
    let mut io = host.io(1, 1023, 0);
    let mut other = host.io(2, 31, 0);
    rig.disk.hold(true);
    // One by one, so that each lies in a buffer of its own and keeps it.
    let writes = RECEIVE_BUFFERS + 60;
    for cid in 0..writes {
        let capsule = io.capsule(&rw(1, cid, u64::from(cid), 1, Sgl::Capsule(512)), &[cid as u8; 512]);
        io.send(&capsule);
        if cid < RECEIVE_BUFFERS {
            eventually("it is carried out", || rig.disk.waiting() == usize::from(cid) + 1);
        }
    }
    let capsule = other.capsule(&flush(1), &[]);
    other.send(&capsule);
    assert_eq!(
        rig.disk.waiting(),
        usize::from(RECEIVE_BUFFERS),
        "there is no buffer to receive the rest into"
    );
    rig.disk.hold(false);
    let mut done: Vec<u16> = (0..writes).map(|_| io.pdu()).map(|pdu| pdu.response_cid()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..writes).collect::<Vec<_>>());
    assert_eq!(other.pdu().status(), 0);
    for cid in 0..writes {
        assert!(rig.disk.read(usize::from(cid) * 512, 512) == [cid as u8; 512], "write {cid}");
    }
    drop((host, io, other));
    rig.stop();
}
