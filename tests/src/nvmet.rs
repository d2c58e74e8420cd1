//! The kernel's own NVMe/TCP target in a guest, as an independent judge of our host (NVME N15).

use std::net::SocketAddr;
use std::time::Duration;

use crate::guest::{Guest, GuestError, Kernel, Report};

/// The port inside the guest.
const PORT: u16 = 4420;
/// A boot takes seconds, the longest test a minute; a busy machine may need many times that.
const LIMIT: Duration = Duration::from_mins(10);

/// A subsystem that the kernel serves: namespace 1 with blocks of 4096 bytes and namespace 2 with 512, 64 MiB
/// each, open to any host.
#[derive(Debug)]
pub struct KernelTarget {
    guest: Guest,
    address: SocketAddr,
}

impl KernelTarget {
    /// Name of the subsystem.
    pub const NQN: &str = "nqn.2014-08.io.ashlar:kernel";
    /// Size of each namespace.
    pub const NAMESPACE_BYTES: u64 = 64 << 20;

    /// Boots a guest and waits until its target takes connections. The name is for logs.
    ///
    /// # Errors
    /// If the guest does not get that far.
    pub fn start(kernel: Kernel, name: &str) -> Result<Self, GuestError> {
        let mut guest = Guest::builder(kernel, name)
            .variable("NQN", Self::NQN)
            .variable("PORT", PORT)
            .script(include_str!("nvmet.sh"))
            .forward(PORT)
            .start()?;
        let address = guest.address_of(PORT).unwrap_or(SocketAddr::from(([127, 0, 0, 1], PORT)));
        guest.next_ask(LIMIT)?;
        Ok(Self { guest, address })
    }

    /// Where the target can be reached from this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the guest; the kernel must have nothing to complain of.
    ///
    /// # Errors
    /// If it has.
    pub fn finish(mut self) -> Result<Report, GuestError> {
        self.guest.reply("done")?;
        self.guest.finish(LIMIT, |_| String::new())
    }
}
