//! What needs no target: help, version, completion, man pages, usage.

mod rig;

use rig::{ashlar, succeed};

#[test]
fn the_version_is_the_packages() {
    let text = succeed(ashlar().arg("--version"));
    assert_eq!(text.trim(), format!("ashlar {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completion_scripts_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(ashlar().args(["completion", shell]));
        assert!(script.contains("perf") && script.contains("discover"), "{shell}");
    }
}

#[test]
fn there_is_a_man_page_per_command() {
    let folder = tempfile::tempdir().expect("a folder");
    succeed(ashlar().arg("man").arg(folder.path()));
    for page in
        ["ashlar.1", "ashlar-perf.1", "ashlar-io-verify.1", "ashlar-nvme-log.1", "ashlar-device-check.1"]
    {
        assert!(folder.path().join(page).exists(), "{page}");
    }
}

#[test]
fn a_wrong_command_line_is_usage() {
    for words in [&["perf"][..], &["perf", "--rw", "sideways"], &["fly"], &[]] {
        let output = ashlar().args(words).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn a_name_that_is_no_nqn_is_usage() {
    let error = rig::fail(ashlar().args(["perf", "--subsystem", "my-volume"]), 2);
    assert!(error.contains("nqn."), "{error}");
}

#[test]
fn exit_codes_are_told_by_help() {
    let help = succeed(ashlar().arg("--help"));
    assert!(help.contains("6 unavailable"), "{help}");
}
