//! What the raw backend accepts, refuses, and makes of a file.

use std::fs;

use ashlar_nvme::Status;
use ashlar_nvme::nvm::RwControl;
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_target::WriteCache;
use ashlar_target::backends::{BackendSource, PageCache, PrepareError};
use ashlar_target::inventory::LbaSize;

use crate::world::{World, perform, ranged, refusal, with_control};

fn raw(path: &std::path::Path, create_bytes: Option<u64>) -> BackendSource {
    BackendSource::Raw { path: path.to_owned(), create_bytes, page_cache: PageCache::Bypassed }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

#[test]
fn a_file_is_made_only_if_a_size_is_given() {
    let folder = folder();
    let path = folder.path().join("file");
    assert!(matches!(refusal(raw(&path, None)), PrepareError::Path { .. }));
    assert!(!path.exists());
    let world = World::start(1, &raw(&path, Some(1 << 20)), LbaSize::B4096);
    assert_eq!(world.info.bytes, 1 << 20);
    assert!(world.info.volatile_cache, "what is in a file is durable after a sync only");
    assert_eq!(fs::metadata(&path).expect("it is there").len(), 1 << 20);
}

#[test]
fn a_larger_file_keeps_its_size() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, vec![3; 1 << 20]).expect("write");
    let world = World::start(1, &raw(&path, Some(4096)), LbaSize::B4096);
    assert_eq!(world.info.bytes, 1 << 20);
    let (status, data) = world.command(0, ranged(NvmOpcode::Read, 255, 1, 4096), Vec::new());
    assert_eq!((status, data), (Status::SUCCESS, vec![3; 4096]));
}

#[test]
fn what_is_no_storage_is_refused_with_its_reason() {
    let folder = folder();
    assert!(matches!(refusal(raw(folder.path(), None)), PrepareError::Kind { .. }));
    let path = folder.path().join("empty");
    fs::write(&path, []).expect("write");
    assert!(matches!(refusal(raw(&path, None)), PrepareError::Empty { .. }));
    assert!(matches!(refusal(BackendSource::Null { bytes: 0 }), PrepareError::Empty { .. }));
}

#[test]
fn a_file_in_use_is_refused() {
    let folder = folder();
    let path = folder.path().join("file");
    let _world = World::start(1, &raw(&path, Some(1 << 20)), LbaSize::B4096);
    assert!(matches!(refusal(raw(&path, None)), PrepareError::InUse { .. }));
}

#[test]
fn every_way_to_durability_reaches_the_file() {
    let folder = folder();
    let path = folder.path().join("file");
    let world = World::start(2, &raw(&path, Some(1 << 20)), LbaSize::B4096);
    let fua = with_control(NvmOpcode::Write, 1, 1, 4096, RwControl(0).with_fua(true));
    assert_eq!(world.status(0, fua, vec![1; 4096]), Status::SUCCESS);
    let status = world.run(1, |namespace| async move {
        let write = ranged(NvmOpcode::Write, 2, 1, 4096);
        perform(&namespace, &write, vec![2; 4096], WriteCache::Disabled).await.0
    });
    assert_eq!(status, Status::SUCCESS);
    let forced = with_control(NvmOpcode::Read, 2, 1, 4096, RwControl(0).with_fua(true));
    assert_eq!(world.command(0, forced, Vec::new()), (Status::SUCCESS, vec![2; 4096]));
    let zeroes = with_control(NvmOpcode::WriteZeroes, 1, 1, 0, RwControl(0).with_fua(true));
    assert_eq!(world.status(1, zeroes, Vec::new()), Status::SUCCESS);
    let bytes = fs::read(&path).expect("read");
    assert!(bytes[4096..8192].iter().all(|&byte| byte == 0));
    assert!(bytes[8192..12288].iter().all(|&byte| byte == 2));
}

#[test]
fn a_file_that_grew_is_used_to_its_new_end() {
    let folder = folder();
    let path = folder.path().join("file");
    let world = World::start(1, &raw(&path, Some(8192)), LbaSize::B4096);
    world.shared().opener().resize(1 << 20).expect("a file grows");
    let grown = std::sync::Arc::new(world.describe(256));
    world.run(0, move |namespace| async move { namespace.set_namespace(grown) });
    assert_eq!(world.status(0, ranged(NvmOpcode::Write, 255, 1, 4096), vec![4; 4096]), Status::SUCCESS);
    assert_eq!(
        world.command(0, ranged(NvmOpcode::Read, 255, 1, 4096), Vec::new()),
        (Status::SUCCESS, vec![4; 4096])
    );
}

#[test]
fn a_file_that_lost_its_end_answers_errors() {
    let folder = folder();
    let path = folder.path().join("file");
    let world = World::start(1, &raw(&path, Some(1 << 20)), LbaSize::B4096);
    fs::OpenOptions::new().write(true).open(&path).expect("open").set_len(4096).expect("shorten");
    let (status, _) = world.command(0, ranged(NvmOpcode::Read, 0, 2, 8192), Vec::new());
    assert_eq!(status, Status::UNRECOVERED_READ);
    let (status, _) = world.command(0, ranged(NvmOpcode::Read, 0, 1, 4096), Vec::new());
    assert_eq!(status, Status::SUCCESS);
}
