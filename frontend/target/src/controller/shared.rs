//! What all cores know of a controller: its identity, whether it may start commands, and who heard of its
//! host.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use ashlar_nvme::ids::{Cntlid, HostId, Nqn};
use ashlar_reactor::{CoreId, Instant};

use crate::WriteCache;

/// Discovery or I/O controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// Serves namespaces.
    Io,
    /// Serves the discovery log.
    Discovery,
}

/// Whether commands may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ControllerState {
    /// CC.EN is 0, or it is starting or shutting down: only Fabrics commands.
    Disabled = 0,
    /// CSTS.RDY is 1.
    Ready = 1,
    /// The association has ended: nothing starts any more (PROTOCOL R9).
    Ended = 2,
}

/// When a core last heard of the controller's host, in nanoseconds of the reactor's clock. One per core, each
/// in a cache line of its own, written by that core alone (NVME N7).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Traffic(AtomicU64);

impl Traffic {
    /// Notes that a command arrived.
    pub fn heard(&self, now: Instant) {
        self.0.store(now.as_ns(), Ordering::Relaxed);
    }

    /// When it was last heard of.
    pub fn last(&self) -> Instant {
        Instant::from_ns(self.0.load(Ordering::Relaxed))
    }
}

/// A controller as every core sees it. Its owner core keeps the rest.
#[derive(Debug)]
pub struct ControllerShared {
    /// Controller id, unique in the target, not soon reused (NVME N6).
    pub cntlid: Cntlid,
    /// Discovery or I/O.
    pub kind: ControllerKind,
    /// Host NQN given at Connect.
    pub host_nqn: Nqn,
    /// Host identifier given at Connect.
    pub host_id: HostId,
    /// Subsystem NQN given at Connect.
    pub subsystem: Nqn,
    /// The core that keeps the admin queue and decides.
    pub owner: CoreId,
    state: AtomicU8,
    write_cache: AtomicBool,
    traffic: Box<[Traffic]>,
}

impl ControllerShared {
    /// A controller that is not ready yet.
    pub fn new(
        cntlid: Cntlid,
        kind: ControllerKind,
        host: (Nqn, HostId),
        subsystem: Nqn,
        owner: CoreId,
        cores: usize,
    ) -> Self {
        let traffic = (0..cores).map(|_| Traffic::default()).collect();
        let (host_nqn, host_id) = host;
        let state = AtomicU8::new(ControllerState::Disabled as u8);
        let write_cache = AtomicBool::new(true);
        Self { cntlid, kind, host_nqn, host_id, subsystem, owner, state, write_cache, traffic }
    }

    /// Whether commands may start. Looked at when each command starts.
    pub fn state(&self) -> ControllerState {
        match self.state.load(Ordering::Acquire) {
            0 => ControllerState::Disabled,
            1 => ControllerState::Ready,
            _ => ControllerState::Ended,
        }
    }

    /// Set by the owner core only; once ended it stays so.
    pub fn set_state(&self, state: ControllerState) {
        if self.state() != ControllerState::Ended {
            self.state.store(state as u8, Ordering::Release);
        }
    }

    /// Looked at when each write starts. It matters only for backends with a volatile cache. Off from the
    /// start if the host was told that there is none: it never flushes then, whatever namespaces are added
    /// later.
    pub fn write_cache(&self) -> WriteCache {
        if self.write_cache.load(Ordering::Acquire) { WriteCache::Enabled } else { WriteCache::Disabled }
    }

    /// Set by the owner core only.
    pub fn set_write_cache(&self, write_cache: WriteCache) {
        self.write_cache.store(write_cache == WriteCache::Enabled, Ordering::Release);
    }

    /// A core's note of when it heard of the host.
    pub fn traffic(&self, core: CoreId) -> Option<&Traffic> {
        self.traffic.get(core.index())
    }

    /// When any core last heard of the host.
    pub fn last_heard(&self) -> Instant {
        self.traffic.iter().map(Traffic::last).max().unwrap_or_default()
    }
}
