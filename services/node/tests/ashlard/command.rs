//! What the program says and how it exits when it is not to run, or cannot.

use std::fs::File;
use std::net::TcpListener;
use std::process::Command;

use crate::running::{SETTINGS, run, subsystem, write};

/// Exit status and standard error stream for a configuration.
fn refused(text: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(folder.path(), text);
    let path = path.to_str().expect("a path of letters");
    let output = run(&[&["--config", path], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr).replace(path, "FILE");
    (output.status.code(), said)
}

#[test]
fn example_passes_its_own_check() {
    let example = run(&["--print-example-config"]);
    assert!(example.status.success());
    let text = String::from_utf8(example.stdout).expect("text");
    assert_eq!(refused(&text, &["--check"]), (Some(0), String::new()));
}

#[test]
fn check_says_that_all_is_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(folder.path(), SETTINGS);
    let path = path.to_str().expect("a path of letters");
    let output = run(&["--config", path, "--check"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{path} is valid\n"));
}

#[test]
fn broken_configurations_end_it_with_line_key_and_what_is_allowed() {
    let unknown = "FILE:2: cores.cuonts: unknown key; expected one of `cpus`, `count`, `pin`, `spin_us`\n";
    let size = "FILE:17: subsystem.namespace.backend: missing key `size`, such as \"10 GiB\"\n";
    for (text, message) in [
        ("[cores]\ncuonts = 1\n".to_owned(), unknown),
        (format!("{SETTINGS}{}", subsystem("a", &[(1, "{ kind = \"null\" }")])), size),
    ] {
        for arguments in [&[][..], &["--check"]] {
            assert_eq!(refused(&text, arguments), (Some(1), message.to_owned()));
        }
    }
}

#[test]
fn output_that_nobody_takes_is_an_error_and_no_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(folder.path(), SETTINGS);
    let path = path.to_str().expect("a path of letters");
    for arguments in [&["--print-example-config"][..], &["--config", path, "--check"]] {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut program = Command::new(env!("CARGO_BIN_EXE_ashlard"));
        let output = program.args(arguments).stdout(full).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("writing to standard output: No space left"), "{said}");
    }
}

#[test]
fn unknown_arguments_are_refused() {
    assert_eq!(run(&["--colour"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn addresses_that_are_taken_are_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let metrics = SETTINGS.replacen("127.0.0.1:0", &address.to_string(), 1);
    let portal = SETTINGS
        .replace("[[portal]]\nlisten = \"127.0.0.1:0\"", &format!("[[portal]]\nlisten = \"{address}\""));
    for (text, message) in [
        (metrics, format!("could not listen on {address} for metrics: Address already in use")),
        (portal, format!("could not listen on {address}: Address already in use")),
    ] {
        let (status, said) = refused(&text, &[]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(&message), "{said}");
    }
}
