//! A core that panics takes the process down with a message.

use std::process::Command;

use ashlar_reactor::{CoreId, Cores, CoresConfig};

const CHILD: &str = "ASHLAR_TEST_PANIC_CHILD";

#[test]
fn a_panic_on_a_core_ends_the_whole_process_with_a_message() {
    if std::env::var_os(CHILD).is_some() {
        let cores = Cores::start(&CoresConfig::floating(1)).expect("start cores");
        let reply = cores.handle().run_on(CoreId(0), || async { panic!("deliberate") });
        let _: Result<(), _> = reply.wait();
        // The reply is lost a moment before the process ends; whoever waits must not get in between.
        loop {
            std::thread::park();
        }
    }
    let test = "a_panic_on_a_core_ends_the_whole_process_with_a_message";
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("run the child");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("deliberate"), "{stderr}");
    assert!(stderr.contains("data core 0 panicked"), "{stderr}");
}
