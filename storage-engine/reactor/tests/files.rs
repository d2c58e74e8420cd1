//! Files through the ring.

use std::path::PathBuf;
use std::time::Duration;

use ashlar_reactor::file::{Clear, Durability};
use ashlar_reactor::{
    BufferCounts, CoreId, Cores, CoresConfig, File, FileKind, IoBuf, OpenOptions, spawn_join,
};

const DRAIN: Duration = Duration::from_secs(20);

fn on_core<T: Send + 'static, Fut: Future<Output = T> + 'static>(
    f: impl FnOnce() -> Fut + Send + 'static,
) -> T {
    let mut config = CoresConfig::floating(1);
    config.buffers = BufferCounts { blocks: 64, capsules: 4, slices: 2 };
    let cores = Cores::start(&config).expect("start cores");
    let result = cores.handle().run_on(CoreId(0), f).wait().expect("the core answers");
    cores.stop(DRAIN).expect("nothing is left over");
    result
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    // Direct I/O needs a real file system, which the build folder is on.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("file");
    (folder, path)
}

const NEW: OpenOptions = OpenOptions { write: true, create: true, direct: true, exclusive: false };

#[test]
fn blocks_written_at_depth_are_read_back() {
    let (_folder, path) = scratch();
    on_core(move || async move {
        let file = File::open(&path, NEW).await.expect("open");
        file.set_len(64 * 4096).expect("set length");
        let writers: Vec<_> = (0..64u8)
            .map(|number| {
                let file = file.clone();
                spawn_join(async move {
                    let mut buffer = IoBuf::wait(4096).await.expect("in range");
                    buffer.fill(number);
                    let how = if number % 2 == 0 { Durability::Cached } else { Durability::Through };
                    file.write_at(buffer, u64::from(number) * 4096, how).await.0.expect("write")
                })
            })
            .collect();
        for writer in writers {
            assert_eq!(writer.await.expect("the task ends"), 4096);
        }
        file.sync_data().await.expect("sync");
        for number in 0..64u8 {
            let buffer =
                if number % 2 == 0 { IoBuf::heap(4096) } else { IoBuf::take(4096).expect("a buffer") };
            let (result, buffer) = file.read_at(buffer, u64::from(number) * 4096).await;
            assert_eq!(result.expect("read"), 4096);
            assert!(buffer.iter().all(|&byte| byte == number));
        }
        let (result, _) = file.read_at(IoBuf::heap(4096), 64 * 4096).await;
        assert_eq!(result.expect("read"), 0, "the end of the file");
    });
}

#[test]
fn a_cleared_range_reads_as_zeroes_and_its_neighbours_stay() {
    let (_folder, path) = scratch();
    on_core(move || async move {
        let file = File::open(&path, NEW).await.expect("open");
        let mut buffer = IoBuf::heap(4 * 4096);
        buffer.fill(9);
        file.write_at(buffer, 0, Durability::Cached).await.0.expect("write");
        file.clear(4096, 4096, Clear::Deallocate).await.expect("deallocate");
        file.clear(2 * 4096, 4096, Clear::Zero).await.expect("zero");
        let (result, buffer) = file.read_at(IoBuf::heap(4 * 4096), 0).await;
        result.expect("read");
        for (block, expected) in [9u8, 0, 0, 9].into_iter().enumerate() {
            assert!(buffer[block * 4096..][..4096].iter().all(|&byte| byte == expected), "block {block}");
        }
    });
}

#[test]
fn errors_are_the_kernels_own() {
    let (_folder, path) = scratch();
    on_core(move || async move {
        let missing = File::open(&path, OpenOptions::default()).await;
        assert_eq!(missing.expect_err("no such file").kind(), std::io::ErrorKind::NotFound);
        let file = File::open(&path, NEW).await.expect("open");
        let (result, _) = file.write_at(IoBuf::heap(100), 0, Durability::Cached).await;
        assert_eq!(result.expect_err("not aligned").kind(), std::io::ErrorKind::InvalidInput);
    });
}

#[test]
fn geometry_tells_a_files_size() {
    let (_folder, path) = scratch();
    on_core(move || async move {
        let file = File::open(&path, NEW).await.expect("open");
        file.set_len(12_345).expect("set length");
        let geometry = file.geometry().expect("geometry");
        assert_eq!((geometry.kind, geometry.bytes), (FileKind::Regular, 12_345));
        assert!(geometry.volatile_cache);
    });
}

#[test]
fn ten_thousand_opens_leave_no_descriptor() {
    let (_folder, path) = scratch();
    on_core(move || async move {
        drop(File::open(&path, NEW).await.expect("create"));
        for _ in 0..10_000 {
            drop(File::open(&path, OpenOptions::default()).await.expect("open"));
        }
    });
    let open = std::fs::read_dir("/proc/self/fd").expect("proc").count();
    assert!(open < 500, "{open} descriptors are open");
}
