//! The running daemon: metrics, changes by SIGHUP, its supervisor, its end.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::running::{Daemon, SETTINGS, subsystem, text, write};

const MEMORY: &str = "{ kind = \"memory\", size = \"1 MiB\" }";

fn settings_and(subsystems: &[String]) -> String {
    format!("{SETTINGS}{}", subsystems.concat())
}

/// Size of a namespace of the subsystem `a`, as metrics tell it.
fn size(daemon: &Daemon, nsid: &str) -> Option<f64> {
    let labels = [("subsystem", "nqn.2026-01.io.x:a"), ("nsid", nsid)];
    daemon.metric("ashlar_namespace_size_bytes", &labels)
}

#[test]
fn metrics_and_health_are_served() {
    let daemon = Daemon::start(&settings_and(&[subsystem("a", &[(1, MEMORY)])]));
    let (head, body) = daemon.get("/healthz");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body, "ok\n");
    let (head, _) = daemon.get("/metrics");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let (head, _) = daemon.get("/elsewhere");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert_eq!(size(&daemon, "1"), Some(1048576.0));
    assert_eq!(daemon.metric("ashlar_config_applied", &[]), Some(1.0));
    assert!(daemon.metric("ashlar_core_turns_total", &[("core", "1")]) > Some(0.0));
}

#[test]
fn counters_never_fall() {
    let daemon = Daemon::start(SETTINGS);
    let mut before = daemon.metrics();
    for _ in 0..5 {
        let after = daemon.metrics();
        for (name, family) in before.iter().filter(|(_, family)| family.kind == "counter") {
            for old in &family.samples {
                let new = after[name].samples.iter().find(|new| new.labels == old.labels);
                assert!(new.is_some_and(|new| new.value >= old.value), "{old:?} became {new:?}");
            }
        }
        before = after;
    }
}

#[test]
fn hosts_can_connect_where_the_log_says() {
    let daemon = Daemon::start(&format!("{SETTINGS}[[portal]]\nlisten = \"127.0.0.1:0\"\n"));
    let portals = daemon.portals();
    assert_eq!(portals.len(), 2);
    for portal in portals {
        TcpStream::connect(portal).expect("somebody listens");
    }
}

#[test]
fn reload_adds_removes_and_resizes() {
    let mut daemon = Daemon::start(&settings_and(&[subsystem("a", &[(1, MEMORY), (2, MEMORY)])]));
    let larger = "{ kind = \"memory\", size = \"3 MiB\" }";
    let changed =
        settings_and(&[subsystem("a", &[(1, larger), (3, MEMORY)]), subsystem("b", &[(1, MEMORY)])]);
    assert_eq!(daemon.reload(&changed), (5, 0));
    assert_eq!(size(&daemon, "1"), Some(3145728.0));
    assert_eq!(size(&daemon, "2"), None);
    assert_eq!(size(&daemon, "3"), Some(1048576.0));
    let b = [("subsystem", "nqn.2026-01.io.x:b")];
    assert_eq!(daemon.metric("ashlar_namespace_size_bytes", &b), Some(1048576.0));
    // The same again changes nothing; the first again brings everything back.
    assert_eq!(daemon.reload(&changed), (0, 0));
    let first = settings_and(&[subsystem("a", &[(1, MEMORY), (2, MEMORY)])]);
    assert_eq!(daemon.reload(&first), (4, 0));
    assert_eq!(size(&daemon, "1"), Some(1048576.0));
    assert_eq!(size(&daemon, "2"), Some(1048576.0));
    assert_eq!(daemon.metric("ashlar_namespace_size_bytes", &b), None);
    assert_eq!(daemon.metric("ashlar_config_reloads_total", &[("result", "applied")]), Some(3.0));
    assert!(daemon.stop().success());
}

#[test]
fn another_disk_under_the_same_nsid_takes_the_place_of_the_first() {
    let mut daemon = Daemon::start(&settings_and(&[subsystem("a", &[(1, MEMORY)])]));
    let null = "{ kind = \"null\", size = \"2 MiB\" }";
    assert_eq!(daemon.reload(&settings_and(&[subsystem("a", &[(1, null)])])), (2, 0));
    assert_eq!(size(&daemon, "1"), Some(2097152.0));
}

#[test]
fn broken_configuration_changes_nothing_while_it_runs() {
    let good = settings_and(&[subsystem("a", &[(1, MEMORY)])]);
    let mut daemon = Daemon::start(&good);
    let broken = settings_and(&[subsystem("b", &[(1, "{ kind = \"tape\" }")])]);
    write(daemon.folder.path(), &broken);
    daemon.signal(Signal::HUP);
    let line = daemon.log_line("configuration refused");
    let place = daemon.folder.path().join("ashlard.toml");
    let expected = format!(
        "configuration refused: {}:17: subsystem.namespace.backend.kind: unknown variant `tape`, expected \
         one of `null`, `memory`, `raw`",
        place.display()
    );
    assert_eq!(text(&line, "message"), expected);
    daemon.log_line("everything stays as it was");
    assert_eq!(size(&daemon, "1"), Some(1048576.0));
    assert_eq!(daemon.metric("ashlar_config_applied", &[]), Some(0.0));
    assert_eq!(daemon.metric("ashlar_config_reloads_total", &[("result", "failed")]), Some(1.0));
    assert_eq!(daemon.reload(&good), (0, 0));
    assert_eq!(daemon.metric("ashlar_config_applied", &[]), Some(1.0));
}

#[test]
fn what_needs_a_restart_is_told() {
    let mut daemon = Daemon::start(SETTINGS);
    write(daemon.folder.path(), &SETTINGS.replace("count = 2", "count = 1"));
    daemon.signal(Signal::HUP);
    let line = daemon.log_line("this change of the configuration needs a restart");
    assert_eq!(text(&line, "key"), "cores and buffers");
}

#[test]
fn files_are_made_and_grow() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let raw = |size: &str| {
        let path = path.display();
        let backend = format!(
            "{{ kind = \"raw\", path = \"{path}\", size = \"{size}\", create = true, page_cache = true }}"
        );
        settings_and(&[subsystem("a", &[(1, &backend)])])
    };
    let mut daemon = Daemon::start(&raw("1 MiB"));
    assert_eq!(fs::metadata(&path).expect("it was made").len(), 1 << 20);
    assert_eq!(daemon.reload(&raw("2 MiB")), (1, 0));
    assert_eq!(fs::metadata(&path).expect("it is there").len(), 2 << 20);
    assert_eq!(size(&daemon, "1"), Some(2097152.0));
    assert!(daemon.stop().success());
}

#[test]
fn file_that_grew_is_seen_on_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = File::create(&path).expect("a file");
    file.set_len(1 << 20).expect("a sparse file");
    let backend = format!("{{ kind = \"raw\", path = \"{}\", page_cache = true }}", path.display());
    let config = settings_and(&[subsystem("a", &[(1, &backend)])]);
    let mut daemon = Daemon::start(&config);
    assert_eq!(size(&daemon, "1"), Some(1048576.0));
    assert_eq!(daemon.reload(&config), (0, 0));
    file.set_len(2 << 20).expect("a sparse file");
    assert_eq!(daemon.reload(&config), (1, 0));
    assert_eq!(size(&daemon, "1"), Some(2097152.0));
}

#[test]
fn disk_can_move_to_another_nsid_in_one_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    fs::write(&path, vec![0; 8192]).expect("the folder takes a file");
    let backend = format!("{{ kind = \"raw\", path = \"{}\", page_cache = true }}", path.display());
    let mut daemon = Daemon::start(&settings_and(&[subsystem("a", &[(2, &backend)])]));
    let moved = settings_and(&[subsystem("a", &[(1, &backend)])]);
    assert_eq!(daemon.reload(&moved), (2, 0));
    assert_eq!((size(&daemon, "1"), size(&daemon, "2")), (Some(8192.0), None));
}

#[test]
fn unusable_storage_is_left_out_and_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let backend = format!("{{ kind = \"raw\", path = \"{}\", page_cache = true }}", path.display());
    let config = settings_and(&[subsystem("a", &[(1, &backend), (2, MEMORY)])]);
    let mut daemon = Daemon::start(&config);
    assert_eq!((size(&daemon, "1"), size(&daemon, "2")), (None, Some(1048576.0)));
    assert_eq!(daemon.metric("ashlar_config_applied", &[]), Some(0.0));
    assert_eq!(daemon.reload(&config), (0, 1));
    fs::write(&path, vec![0; 8192]).expect("the folder takes a file");
    assert_eq!(daemon.reload(&config), (1, 0));
    assert_eq!(size(&daemon, "1"), Some(8192.0));
    assert_eq!(daemon.metric("ashlar_config_applied", &[]), Some(1.0));
}

#[test]
fn both_signals_end_it_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&settings_and(&[subsystem("a", &[(1, MEMORY)])]));
        let connection = TcpStream::connect(daemon.portals()[0]).expect("somebody listens");
        daemon.signal(signal);
        assert_eq!(daemon.end().code(), Some(0));
        drop(connection);
    }
}

#[test]
fn supervisor_is_told_of_start_and_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let supervisor = UnixDatagram::bind(&path).expect("a socket");
    let mut daemon = Daemon::start_with(SETTINGS, &[("NOTIFY_SOCKET", &path)]);
    assert!(daemon.stop().success());
    let mut message = [0; 64];
    let mut next = || {
        let len = supervisor.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    assert_eq!([next(), next()], ["READY=1\n", "STOPPING=1\n"]);
}
