//! Disks of the real world: files, loop devices, memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, Data, Disk, DiskOperation, Tearing, World};
use ashlar_reactor::world::{AnyDevice, AnyDisk, FileDevice, HoldError, MemoryDisk, ReactorWorld};
use ashlar_reactor::{BufferCounts, CoreId, Cores, CoresConfig, spawn_join};

const DRAIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Blocks of the disks under test: more than one part of a memory disk.
const BLOCKS: u64 = 1024;

fn cores(count: usize) -> Cores {
    let mut config = CoresConfig::floating(count);
    config.buffers = BufferCounts { blocks: 64, capsules: 8, slices: 4 };
    Cores::start(&config).expect("start cores")
}

fn on_core<T: Send + 'static, Fut: Future<Output = T> + 'static>(
    f: impl FnOnce() -> Fut + Send + 'static,
) -> T {
    let cores = cores(1);
    let result = cores.handle().run_on(CoreId(0), f).wait().expect("the core answers");
    cores.stop(DRAIN).expect("nothing is left over");
    result
}

fn scratch(blocks: u64) -> (tempfile::TempDir, PathBuf) {
    // Direct I/O needs a real file system, which the build folder is on.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("disk");
    fs::File::create(&path).and_then(|file| file.set_len(blocks * BLOCK_BYTES as u64)).expect("a file");
    (folder, path)
}

fn hold(path: &Path) -> AnyDevice {
    AnyDevice::File(FileDevice::hold(path).expect("nobody else has it"))
}

async fn filled(blocks: usize, byte: u8) -> ashlar_reactor::IoBuf {
    let mut buffer = ReactorWorld.buffer(blocks).await;
    buffer.fill(byte);
    buffer
}

async fn read(disk: &AnyDisk, block: u64, blocks: usize) -> ashlar_reactor::IoBuf {
    let (result, buffer) = disk.read(block, ReactorWorld.buffer(blocks).await).await;
    result.expect("read");
    buffer
}

/// What every disk does.
async fn exercise(disk: AnyDisk) {
    let last = disk.geometry().blocks - 1;
    // Slices of one buffer, written at once, in two places each.
    let mut buffer = ReactorWorld.buffer(32).await;
    for (number, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
        block.fill(number as u8 + 1);
    }
    let data = Buffer::freeze(buffer);
    let writers: Vec<_> = (0..32u64)
        .flat_map(|number| [(number, 2 * number), (number, 200 + 3 * number)])
        .map(|(number, to)| {
            let at = number as usize * BLOCK_BYTES;
            let (disk, part) = (disk.clone(), data.slice(at..at + BLOCK_BYTES));
            spawn_join(async move { disk.write(to, part).await })
        })
        .collect();
    drop(data);
    for writer in writers {
        writer.await.expect("the task ends").expect("write");
    }
    disk.flush().await.expect("flush");
    for number in 0..32u64 {
        for at in [2 * number, 200 + 3 * number] {
            let buffer = read(&disk, at, 1).await;
            assert!(buffer.iter().all(|&byte| u64::from(byte) == number + 1), "block {at}");
        }
    }
    // Over the boundary of two parts, and larger than any registered buffer.
    disk.write(240, Buffer::freeze(filled(64, 0xcd).await)).await.expect("write");
    assert!(read(&disk, 240, 64).await.iter().all(|&byte| byte == 0xcd));
    // The last block, and not one further.
    disk.write(last, Buffer::freeze(filled(1, 0xab).await)).await.expect("write");
    assert_eq!(read(&disk, last, 1).await[4095], 0xab);
    let error = disk.write(last, Buffer::freeze(filled(2, 1).await)).await.expect_err("behind the end");
    assert_eq!((error.operation, error.block), (DiskOperation::Write, last));
    let (result, _) = disk.read(last + 1, filled(1, 0).await).await;
    assert_eq!(result.expect_err("behind the end").operation, DiskOperation::Read);
    let (result, _) = disk.read(u64::MAX, filled(1, 0).await).await;
    result.expect_err("no such block");
    let range = 512..768;
    disk.discard(range).await.expect("discard");
    disk.discard(3..3).await.expect("nothing to discard");
    assert_eq!(read(&disk, last, 1).await[0], 0xab, "what was not discarded stays");
}

#[test]
fn a_file_keeps_what_is_written() {
    let (_folder, path) = scratch(BLOCKS);
    let device = hold(&path);
    let geometry = device.geometry();
    assert_eq!((geometry.blocks, geometry.volatile_cache, geometry.tearing), (BLOCKS, true, Tearing::Atomic));
    on_core(move || async move { exercise(device.open().expect("open")).await });
    assert_eq!(fs::metadata(&path).expect("still there").len(), BLOCKS * BLOCK_BYTES as u64);
}

#[test]
fn memory_keeps_what_is_written_and_gives_back_what_is_discarded() {
    let memory = MemoryDisk::new(BLOCKS);
    let device = AnyDevice::Memory(memory.clone());
    on_core(move || async move { exercise(device.open().expect("open")).await });
    // Parts of 1 MiB: the first two and the last were written.
    assert_eq!(memory.memory_bytes(), 3 << 20);
    on_core(|| async move { memory.discard(0..BLOCKS).await.map(|()| assert_eq!(memory.memory_bytes(), 0)) })
        .expect("discard");
}

/// A loop device over a file, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None` only where there cannot be any: without loop devices in the kernel, or without the right to use them.
    fn over(path: &Path, sector_bytes: u32) -> Option<Self> {
        if !Path::new("/dev/loop-control").exists() || fs::File::open("/dev/loop-control").is_err() {
            eprintln!("skipped: this system has no loop devices, or this user may not use them");
            return None;
        }
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size", &sector_bytes.to_string()])
            .arg(path)
            .output()
            .expect("losetup runs: ops/setup installs it");
        assert!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        Some(Self(String::from_utf8(output.stdout).expect("a path").trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // One that stays is told by losetup, and does no harm.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_keeps_what_is_written() {
    let (_folder, path) = scratch(BLOCKS);
    let Some(device) = Loop::over(&path, 4096) else { return };
    let held = hold(Path::new(&device.0));
    assert_eq!((held.geometry().blocks, held.geometry().tearing), (BLOCKS, Tearing::Atomic));
    on_core(move || async move { exercise(held.open().expect("open")).await });
}

#[test]
fn small_sectors_without_a_promise_count_as_torn() {
    let (_folder, path) = scratch(BLOCKS);
    let Some(device) = Loop::over(&path, 512) else { return };
    let held = FileDevice::hold(Path::new(&device.0)).expect("hold");
    assert_eq!((held.logical_block_bytes(), held.geometry().tearing), (512, Tearing::Torn));
}

#[test]
fn a_block_device_belongs_to_one_holder() {
    let (_folder, path) = scratch(BLOCKS);
    let Some(device) = Loop::over(&path, 4096) else { return };
    let held = hold(Path::new(&device.0));
    let again = FileDevice::hold(Path::new(&device.0));
    assert!(matches!(again, Err(HoldError::InUse { .. })), "{again:?}");
    drop(held);
    FileDevice::hold(Path::new(&device.0)).expect("it is free again");
}

#[test]
fn a_file_belongs_to_one_holder_as_long_as_a_core_has_it_open() {
    let (_folder, path) = scratch(BLOCKS);
    let device = hold(&path);
    let again = path.clone();
    on_core(move || async move {
        let disk = device.open().expect("open");
        drop(device);
        let second = FileDevice::hold(&again);
        assert!(matches!(second, Err(HoldError::InUse { .. })), "{second:?}");
        assert_eq!(disk.geometry().blocks, BLOCKS);
    });
    // A kernel that closes a ring lets go of its files a moment later (Linux 6.1).
    let free = (0..1000).any(|_| {
        let held = FileDevice::hold(&path);
        if held.is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        held.is_ok()
    });
    assert!(free, "it is free again");
}

#[test]
fn what_is_no_disk_is_refused() {
    let (folder, _path) = scratch(1);
    assert!(matches!(FileDevice::hold(folder.path()), Err(HoldError::Kind { .. })));
    assert!(matches!(FileDevice::hold(Path::new("/dev/null")), Err(HoldError::Kind { .. })));
    let missing = FileDevice::hold(&folder.path().join("missing")).expect_err("no such file");
    assert!(missing.to_string().contains("missing"), "{missing}");
}

#[test]
fn one_buffer_is_written_by_the_disks_of_two_cores() {
    let (_folder, first) = scratch(BLOCKS);
    let (_other_folder, second) = scratch(BLOCKS);
    let (here, there) = (hold(&first), hold(&second));
    let cores = cores(2);
    let handle = cores.handle();
    let written = handle.run_on(CoreId(0), move || async move {
        let peers = ashlar_reactor::peers().expect("on a core");
        let disk = here.open().expect("open");
        // More rounds than there are buffers: each must come home from the other core.
        for round in 0..300u64 {
            let data = Buffer::freeze(filled(1, round as u8).await);
            let (copy, device) = (data.clone(), there.clone());
            let other = peers.run_on(CoreId(1), move || async move {
                device.open().expect("open").write(round, copy).await
            });
            disk.write(round, data).await.expect("write");
            other.await.expect("the core answers").expect("write");
        }
    });
    written.wait().expect("the core answers");
    cores.stop(DRAIN).expect("every buffer came home");
    let (first, second) = (fs::read(first).expect("read"), fs::read(second).expect("read"));
    assert!(first == second, "both hold the same bytes");
    assert!((0..300).all(|round| first[round * BLOCK_BYTES] == round as u8));
}
