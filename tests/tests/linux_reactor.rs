//! The runtime works on the oldest kernel that is supported: its own tests, run there.

use std::error::Error;
use std::time::Duration;

use ashlar_tests::built;
use ashlar_tests::guest::{Guest, Kernel};

/// The runtime's tests take seconds; emulation and a busy machine make minutes of them.
const LIMIT: Duration = Duration::from_mins(8);

/// Direct I/O needs a file system on a block device: 6.1's tmpfs has none.
const DISK: &str = r#"
modprobe brd rd_nr=1 rd_size=262144
check "file system" mkfs.ext4 -q /dev/ram0
mount -t ext4 /dev/ram0 /mnt
export TMPDIR=/mnt RUST_BACKTRACE=1
# The folder that cargo gives integration tests, at the path that was compiled into them.
mkdir -p "${CARGO_TMP%/*}"
ln -s /mnt "$CARGO_TMP"
cd /mnt
"#;

#[test]
fn runtime_works_on_linux_6_1() -> Result<(), Box<dyn Error>> {
    let programs = built::test_programs("ashlar-reactor")?;
    // target/PROFILE/deps/program and target/tmp.
    let target = programs[0].ancestors().nth(3).ok_or("a test program lies in target/PROFILE/deps")?;
    let mut guest = Guest::builder(Kernel::V6_1, "reactor")
        .variable("CARGO_TMP", target.join("tmp").display())
        .script(DISK);
    let mut checks = Vec::new();
    for program in programs {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        guest = guest.script(&format!("check '{name}' {name} --test-threads 2")).program(&program);
        checks.push(name);
    }
    let report = guest.start()?.finish(LIMIT, |_| String::new())?;
    for check in &checks {
        assert!(report.held(check), "{check} did not run: {report:?}");
    }
    Ok(())
}
