//! The guests themselves work: without this, a failure of a whole-system test could be the harness's.

use std::time::Duration;

use ashlar_tests::guest::{Guest, GuestError, Kernel};

/// A boot takes about ten seconds; a busy machine may need many times that.
const LIMIT: Duration = Duration::from_secs(300);

/// Inside the guest the kernel serves a namespace to itself: the modules are complete and work.
const KERNEL_TALKS_TO_ITSELF: &str = r#"
modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=4096
modprobe -a nvmet nvmet-tcp nvme-tcp xfs ext4
mount -t configfs none /sys/kernel/config
nvmet=/sys/kernel/config/nvmet
mkdir -p $nvmet/subsystems/nqn.test/namespaces/1 $nvmet/ports/1
echo 1 > $nvmet/subsystems/nqn.test/attr_allow_any_host
echo /dev/nullb0 > $nvmet/subsystems/nqn.test/namespaces/1/device_path
echo 1 > $nvmet/subsystems/nqn.test/namespaces/1/enable
echo tcp > $nvmet/ports/1/addr_trtype
echo ipv4 > $nvmet/ports/1/addr_adrfam
echo 0.0.0.0 > $nvmet/ports/1/addr_traddr
echo 4420 > $nvmet/ports/1/addr_trsvcid
ln -s $nvmet/subsystems/nqn.test $nvmet/ports/1/subsystems/nqn.test
check "connects" nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.test \
    --hostnqn nqn.2014-08.org.nvmexpress:uuid:11111111-1111-1111-1111-111111111111 \
    --hostid 11111111-1111-1111-1111-111111111111
eventually "device appears" test -b /dev/nvme0n1
check "identifies" nvme id-ctrl /dev/nvme0
check "fio verifies" fio --name=v --filename=/dev/nvme0n1 --size=4M --rw=write --bs=64k --direct=1 \
    --verify=crc32c
equal "the test answers" "$(ask reach 4420)" "reached"
check "disconnects" nvme disconnect -n nqn.test
"#;

fn kernel_talks_to_itself(kernel: Kernel) -> Result<(), GuestError> {
    let guest = Guest::builder(kernel, "itself").script(KERNEL_TALKS_TO_ITSELF).forward(4420).start()?;
    let address = guest.address_of(4420).expect("it was asked for");
    let report = guest.finish(LIMIT, |words| {
        assert_eq!(words, ["reach", "4420"]);
        std::net::TcpStream::connect(address).expect("the guest's target can be reached from here");
        "reached".to_owned()
    })?;
    assert!(report.release.starts_with(&format!("{}.", kernel.line())), "{}", report.release);
    for check in ["connects", "identifies", "fio verifies", "the test answers", "disconnects"] {
        assert!(report.held(check), "{check} did not run: {report:?}");
    }
    Ok(())
}

#[test]
fn linux_6_1_guest_has_a_working_nvme_tcp_host_and_target() -> Result<(), GuestError> {
    kernel_talks_to_itself(Kernel::V6_1)
}

#[test]
fn linux_6_12_guest_has_a_working_nvme_tcp_host_and_target() -> Result<(), GuestError> {
    kernel_talks_to_itself(Kernel::V6_12)
}

#[test]
fn failing_script_is_a_failure_that_shows_its_output() -> Result<(), GuestError> {
    let guest = Guest::builder(Kernel::V6_1, "failing").script("echo before; check 'truth' false").start()?;
    let error = guest.finish(LIMIT, |_| String::new()).expect_err("the check does not hold");
    let text = error.to_string();
    assert!(text.contains("before") && text.contains("NOT OK: truth"), "{text}");
    Ok(())
}

#[test]
fn kernel_panic_is_a_failure_that_shows_the_kernel_log() -> Result<(), GuestError> {
    let guest = Guest::builder(Kernel::V6_1, "panic").script("echo c > /proc/sysrq-trigger").start()?;
    let error = guest.finish(LIMIT, |_| String::new()).expect_err("nothing runs after a panic");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
    Ok(())
}
