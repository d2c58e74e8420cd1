//! Devices: made, looked at, verified. Volumes of a node that is not there.

mod rig;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rig::{ashlar, fail, succeed};
use serde_json::Value;

/// A folder on a file system with direct I/O.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn formatted(folder: &Path) -> PathBuf {
    let path = folder.join("device");
    succeed(ashlar().args(["device", "format", "--create", "1g", "--label", "left"]).arg(&path));
    path
}

fn json(words: &[&str], path: &Path) -> Value {
    let text = succeed(ashlar().args(["-o", "json", "device"]).args(words).arg(path));
    serde_json::from_str(&text).expect("one JSON document")
}

#[test]
fn a_new_device_is_sound_and_empty() {
    let folder = folder();
    let path = formatted(folder.path());
    let seen = json(&["inspect", "--extents"], &path);
    assert_eq!(seen["label"], "left");
    assert_eq!(seen["bytes"], 1 << 30);
    assert_eq!(seen["node"], Value::Null, "no node has it yet");
    assert_eq!(seen["lane_list"].as_array().map(Vec::len), Some(4));
    assert_eq!(seen["extent_list"], Value::Array(Vec::new()));
    let checked = json(&["check", "--data"], &path);
    assert_eq!((&checked["errors"], &checked["warnings"]), (&Value::from(0), &Value::from(0)), "{checked}");
    let table = succeed(ashlar().args(["device", "inspect"]).arg(&path));
    assert!(table.contains("left") && table.contains("suspect"), "{table}");
}

#[test]
fn what_a_disk_carries_is_kept_unless_forced() {
    let folder = folder();
    let path = formatted(folder.path());
    let before = json(&["inspect"], &path)["device"].clone();
    let refused = fail(ashlar().args(["device", "format"]).arg(&path), 4);
    assert!(refused.contains("Ashlar device") && refused.contains("--force"), "{refused}");
    assert_eq!(json(&["inspect"], &path)["device"], before);
    let again = json(&["format", "--force"], &path);
    assert_ne!(again["device"], before);
}

#[test]
fn a_device_in_use_is_a_conflict() {
    let folder = folder();
    let path = formatted(folder.path());
    let holder = File::open(&path).expect("open");
    holder.try_lock().expect("nobody has it");
    let refused = fail(ashlar().args(["device", "inspect"]).arg(&path), 4);
    assert!(refused.contains("in use"), "{refused}");
}

#[test]
fn what_is_no_device_is_said_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, vec![7; 1 << 20]).expect("write");
    for command in ["inspect", "check"] {
        let error = fail(ashlar().args(["device", command]).arg(&path), 3);
        assert!(error.contains("not an Ashlar device"), "{error}");
    }
    fail(ashlar().args(["device", "inspect"]).arg(folder.path().join("missing")), 3);
    let small = fail(ashlar().args(["device", "format"]).arg(&path), 5);
    assert!(small.contains("too small"), "{small}");
    assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 7));
    let exists = fail(ashlar().args(["device", "format", "--create", "1g"]).arg(&path), 4);
    assert!(exists.contains("exists"), "{exists}");
}

#[test]
fn damage_is_found_and_named() {
    let folder = folder();
    let path = formatted(folder.path());
    let file = File::options().write(true).open(&path).expect("open");
    file.write_all_at(&[0x55; 4096], 0).expect("write");
    let checked = json(&["check"], &path);
    assert_eq!(checked["errors"], 0, "three copies are left");
    let text = checked["findings"].to_string();
    assert!(text.contains("superblock copy 0"), "{text}");
}

#[test]
fn a_node_that_is_not_there_is_unavailable() {
    let error = fail(ashlar().args(["volume", "show", "--admin", "127.0.0.1:9"]), 6);
    assert!(error.contains("--admin"), "{error}");
}
