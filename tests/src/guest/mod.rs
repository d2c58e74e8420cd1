//! Real Linux hosts: stock Debian kernels in QEMU, driven by a shell script and by the test around it.
//!
//! The machine that runs the tests need not have NVMe/TCP in its own kernel, nor root. A guest boots a
//! packed root file system (`initramfs`) with the tools of a Linux storage host, runs the test's script, and
//! talks to the test over its second serial port (`console`). `docs/testing.md` shows how to write one.

mod console;
mod cpio;
mod error;
mod initramfs;
mod kernel;
mod machine;

pub use console::{Ask, Report};
pub use error::GuestError;
pub use kernel::Kernel;
pub use machine::{Builder, Guest};

/// The address by which a guest reaches the test machine's 127.0.0.1 (QEMU's user network).
pub const HOST_ADDRESS: &str = "10.0.2.2";
