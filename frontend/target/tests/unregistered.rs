//! A machine that does not let the process lock its buffers in memory: I/O works without. A file of its own, as the
//! limit is the process's.

use std::time::Duration;

use ashlar_reactor::{CoreId, Cores, CoresConfig, IoBuf};
use ashlar_target::backend::{Backend, ByteRange, Durability, OpenBackend, ReadData, WriteData};
use ashlar_target::backends::{AnyOpener, BackendSource, Held, PageCache};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const DRAIN: Duration = Duration::from_secs(20);
const BYTES: u64 = 1 << 20;

/// What Debian lets a process lock: enough for rings, too little for the 64 MiB of a core's buffers.
const LOCKED: u64 = 8 << 20;

/// Buffers that are registered with the process's rings.
fn registered() -> u64 {
    let infos = std::fs::read_dir("/proc/self/fdinfo").expect("procfs").filter_map(Result::ok);
    let texts = infos.filter_map(|info| std::fs::read_to_string(info.path()).ok());
    let counts = texts.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("UserBufs:"))?;
        line.trim().parse::<u64>().ok()
    });
    counts.sum()
}

async fn write_and_read(held: Held) {
    let opener = AnyOpener::prepare(held, 1).await.expect("it is there");
    let raw = opener.open(CoreId(0)).await.expect("it opens");
    for (index, len) in [512, 4096, 16_384, 131_072].into_iter().enumerate() {
        let range = ByteRange { offset: index as u64 * 131_072, len };
        let mut buffer = IoBuf::take(len as usize).expect("a buffer");
        buffer.fill(index as u8 + 1);
        raw.write(range, WriteData::Buffer(buffer), Durability::Durable).await.expect("written");
        match raw.read(range).await.expect("read") {
            ReadData::Buffer(buffer) => assert!(buffer.iter().all(|byte| *byte == index as u8 + 1)),
            ReadData::Zeroes => panic!("{len} bytes were written"),
        }
    }
}

#[test]
fn buffers_that_cannot_be_registered_serve_all_the_same() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let source = BackendSource::Raw {
        path: file.path().to_owned(),
        create_bytes: Some(BYTES),
        page_cache: PageCache::Used,
    };
    let run = || {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("cores start");
        let registered = registered();
        let held = source.hold().expect("nobody else has it");
        cores.handle().run_on(CoreId(0), move || write_and_read(held)).wait().expect("ran");
        cores.stop(DRAIN).expect("nothing is left over");
        registered
    };
    let locked = run();
    // This thread's capabilities are what the cores' threads get.
    let mut sets = capabilities(None).expect("known");
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).expect("fewer");
    setrlimit(Resource::Memlock, Rlimit { current: Some(LOCKED), maximum: Some(LOCKED) }).expect("lowered");
    assert_eq!(run(), 0, "more than may be locked");
    assert!(locked <= 1, "one part per core, where it may be locked");
}
