//! `ashlar nvme` against a target.

mod rig;

use ashlar_target::inventory::LbaSize;
use rig::{BYTES, FRIEND, PRIVATE, Rig, SUBSYSTEM, memory};

#[test]
fn discovery_shows_what_this_host_may_use_and_how_to_connect() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    let text = rig.ok("nvme discover");
    let port = rig.address.port();
    let line = format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {SUBSYSTEM} --hostnqn={}", rig::HOST);
    assert!(text.contains(&line), "{text}");
    assert!(!text.contains(PRIVATE), "{text}");

    let friend = rig.command("nvme discover -o json").args(["--host-nqn", FRIEND]).output();
    // Given twice, an option is a usage error: the friend needs a command of its own.
    assert_eq!(friend.expect("runs").status.code(), Some(2));
    let mut friend = rig::ashlar();
    friend.args(["nvme", "discover", "-o", "json", "--address", &rig.address.to_string()]);
    let text = rig::succeed(friend.args(["--host-nqn", FRIEND]));
    assert!(text.contains(PRIVATE), "{text}");
    rig.stop();
}

#[test]
fn namespaces_are_listed_with_size_and_uuid() {
    let rig = Rig::start(memory(), LbaSize::B512);
    let list = rig.json("nvme list");
    assert_eq!(list[0]["nsid"], 1);
    assert_eq!(list[0]["bytes"], BYTES);
    assert_eq!(list[0]["block_bytes"], 512);
    assert_eq!(list[0]["uuid"], "11112222-3333-4444-5555-666677778888");
    assert_eq!(list[0]["nguid"], "42".repeat(16));

    let mut all = rig::ashlar();
    all.args(["nvme", "list", "--address", &rig.address.to_string(), "--host-nqn", rig::HOST]);
    let text = rig::succeed(&mut all);
    assert!(text.starts_with(SUBSYSTEM) && text.contains("16 MiB"), "{text}");
    rig.stop();
}

#[test]
fn controller_and_namespace_are_decoded() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    let controller = rig.json("nvme identify controller");
    assert_eq!(controller["subnqn"], SUBSYSTEM);
    assert_eq!(controller["mn"], "Ashlar");
    assert_eq!(controller["cntrltype"], 1);
    let namespace = rig.json("nvme identify namespace");
    assert_eq!(namespace["nsze"], BYTES / 4096);
    assert_eq!(namespace["uuid"], "11112222-3333-4444-5555-666677778888");
    let discovery = rig.json("nvme identify controller --subsystem discovery");
    assert_eq!(discovery["cntrltype"], 2);
    assert!(rig.fails("nvme identify namespace --nsid 9", 3).contains("namespace 9"));
    rig.stop();
}

#[test]
fn every_log_page_is_decoded() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    for page in ["error", "smart", "firmware", "changed-ns", "effects", "ana", "supported", "discovery"] {
        let table = rig.ok(&format!("nvme log {page}"));
        assert!(!table.is_empty(), "{page}");
        rig.json(&format!("nvme log {page}"));
    }
    let ana = rig.json("nvme log ana");
    assert_eq!(ana["groups"][0]["state"], "Optimized");
    assert_eq!(ana["groups"][0]["nsids"][0], 1);
    let effects = rig.ok("nvme log effects");
    assert!(effects.contains("Write") && effects.contains("changes blocks"), "{effects}");
    rig.stop();
}

#[test]
fn a_target_that_is_not_there_is_unavailable() {
    let rig = Rig::start(memory(), LbaSize::B4096);
    let mut gone = rig.command("nvme discover");
    rig.stop();
    let error = rig::fail(&mut gone, 6);
    assert!(error.contains("127.0.0.1") && error.contains("running"), "{error}");
}
