//! A process without a descriptor left: who is connected goes on, who comes waits. A file of its own, as the limit is
//! the process's.

mod rig;

use std::fs::File;

use rig::wire::flush;
use rig::{Digests, HOST, Rig, SUBSYSTEM, eventually};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the target, its hosts and the test's own files may have.
const DESCRIPTORS: u64 = 128;

#[test]
fn without_a_descriptor_who_is_connected_goes_on_and_who_comes_is_served_later() {
    // The kernel takes the limit that holds when accepting begins.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).expect("lowered");
    let (rig, mut host, mut io) = Rig::with_io(2);
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    for round in 0..3 {
        // One for the host's end, none for the target's.
        drop(files.pop());
        let mut late = rig.connect();
        late.send(&rig::wire::Wire::icreq(Digests::OFF, 0, 0));
        for cid in 0..100 {
            assert_eq!(io.command(&flush(cid), &[]).status(), 0, "who is connected goes on");
        }
        assert_eq!(rig.target.metrics().connections, 2, "there is no descriptor for the late one");
        // One for its end, and one to spare.
        files.truncate(files.len() - 2);
        assert_eq!(late.pdu().kind, 1, "ICResp in round {round}");
        let response = late.fabrics_connect(0, 31, 0, 0xFFFF, SUBSYSTEM, HOST);
        assert_eq!(response.status(), 0);
        drop(late);
        eventually("it is gone", || rig.target.metrics().connections == 2);
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
    }
    drop(files);
    assert_eq!(host.admin.property_get(0x1C, false).status(), 0);
    drop((host, io));
    rig.stop();
}
