//! A target in this process, and a host written byte by byte: what it sends and expects is taken from the
//! specification, not from the code under test.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod backend;
pub(crate) mod wire;

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use ashlar_reactor::{CoreId, Cores, CoresConfig};
use ashlar_target::Target;
use ashlar_target::inventory::{AnaState, HostAccess, LbaSize, Portal};
use ashlar_target::limits::Limits;
use ashlar_target::target::{NewNamespace, NewSubsystem};
use uuid::Uuid;

use backend::{Disk, DiskOpener};
use wire::Wire;

/// The subsystem of every test.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.io.ashlar:test";

/// The host of every test.
pub(crate) const HOST: &str = "nqn.2026-01.io.ashlar:host";

/// Longest that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Size of the namespace in bytes.
pub(crate) const BYTES: usize = 8 << 20;

/// A running target with one subsystem, one namespace of 512-byte blocks and one portal.
pub(crate) struct Rig {
    pub(crate) cores: Option<Cores>,
    pub(crate) target: Target<DiskOpener>,
    pub(crate) address: SocketAddr,
    pub(crate) disk: Disk,
}

impl Rig {
    pub(crate) fn start(cores: usize) -> Rig {
        Rig::start_with(&CoresConfig::floating(cores), Limits::default())
    }

    /// One core, with limits that a test can reach.
    pub(crate) fn limited(limits: Limits) -> Rig {
        Rig::start_with(&CoresConfig::floating(1), limits)
    }

    pub(crate) fn start_with(config: &CoresConfig, limits: Limits) -> Rig {
        let cores = Cores::start(config).expect("cores start");
        let disk = Disk::new(BYTES);
        let handle = cores.handle();
        let opener = DiskOpener(disk.clone());
        let started = handle.run_on(CoreId(0), {
            let handle = handle.clone();
            move || async move {
                let target = Target::start_with(handle, limits).await.expect("target starts");
                let nqn = Nqn::parse(SUBSYSTEM).expect("a name");
                let hosts = HostAccess::Any;
                let new =
                    NewSubsystem { nqn: nqn.clone(), serial: "1".into(), model: "Ashlar".into(), hosts };
                target.add_subsystem(new).await.expect("subsystem");
                target.add_namespace(&nqn, namespace(1), opener).await.expect("namespace");
                let listen = "127.0.0.1:0".parse().expect("an address");
                let portal = Portal { listen, advertise: None, port_id: 1, discovery_only: false };
                let address = target.add_portal(portal).await.expect("portal");
                (target, address)
            }
        });
        let (target, address) = started.wait().expect("set up");
        Rig { cores: Some(cores), target, address, disk }
    }

    /// A running target, a host, and the host's I/O queue 1 of 32 entries.
    pub(crate) fn with_io(cores: usize) -> (Rig, Host, Wire) {
        let rig = Rig::start(cores);
        let host = rig.host();
        let io = host.io(1, 31, 0);
        (rig, host, io)
    }

    /// Runs a future on the first core and waits for it.
    pub(crate) fn block_on<T, Fut>(&self, make: impl FnOnce(Target<DiskOpener>) -> Fut + Send + 'static) -> T
    where
        T: Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let target = self.target.clone();
        let cores = self.cores.as_ref().expect("running").handle();
        cores.run_on(CoreId(0), move || make(target)).wait().expect("ran")
    }

    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(self.address)
    }

    /// An enabled controller with its admin queue.
    pub(crate) fn host(&self) -> Host {
        Host::new(self.address, Digests::OFF)
    }

    /// Ends when the admin commands that a host has sent have been taken in, and what they sent to other cores, too.
    pub(crate) fn settled(&self, host: &mut Host) {
        // CSTS is answered behind what came before it.
        assert_eq!(host.admin.property_get(0x1C, false).status(), 0);
        let cores = self.cores.as_ref().expect("running").handle();
        for core in cores.ids() {
            cores.run_on(core, || async {}).wait().expect("ran");
        }
    }

    /// Stops everything; nothing may be left over.
    pub(crate) fn stop(mut self) {
        self.block_on(|target| async move { target.stop().await.expect("stops") });
        let cores = self.cores.take().expect("running");
        cores.stop(PATIENCE).expect("nothing is left over");
    }
}

pub(crate) fn namespace(nsid: u32) -> NewNamespace {
    NewNamespace {
        nsid: Nsid(nsid),
        uuid: Uuid::from_u128(u128::from(nsid)),
        nguid: Nguid([nsid as u8; 16]),
        lba: LbaSize::B512,
        blocks: None,
        ana_state: AnaState::Optimized,
    }
}

pub(crate) fn nqn() -> Nqn {
    Nqn::parse(SUBSYSTEM).expect("a name")
}

/// Waits for a condition.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Digests of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

impl Digests {
    pub(crate) const OFF: Digests = Digests { header: false, data: false };
    pub(crate) const ON: Digests = Digests { header: true, data: true };
}

/// A host with an enabled controller.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) admin: Wire,
    pub(crate) cntlid: u16,
    pub(crate) digests: Digests,
}

impl Host {
    pub(crate) fn new(address: SocketAddr, digests: Digests) -> Host {
        let mut admin = Wire::connect(address);
        admin.initialize(digests, 0, 0);
        let response = admin.fabrics_connect(0, 31, 0, 0xFFFF, SUBSYSTEM, HOST);
        assert_eq!(response.status(), 0, "admin Connect");
        let cntlid = response.dw0() as u16;
        // CC: 64-byte and 16-byte entries, enabled.
        let set = admin.property_set(0x14, 0x0046_0001);
        assert_eq!(set.status(), 0, "enable");
        let host = Host { address, admin, cntlid, digests };
        assert!(cntlid < 0xFFF0, "reserved controller id");
        host
    }

    /// An I/O queue with `sqsize` as it goes into Connect (entries less one).
    pub(crate) fn io(&self, qid: u16, sqsize: u16, cattr: u8) -> Wire {
        self.io_with_r2ts(qid, sqsize, cattr, 0)
    }

    /// As [`Host::io`], with MAXR2T as it goes into ICReq (R2Ts less one).
    pub(crate) fn io_with_r2ts(&self, qid: u16, sqsize: u16, cattr: u8, maxr2t: u32) -> Wire {
        let mut wire = Wire::connect(self.address);
        wire.initialize(self.digests, 0, maxr2t);
        let response = wire.fabrics_connect(qid, sqsize, cattr, self.cntlid, SUBSYSTEM, HOST);
        assert_eq!(response.status(), 0, "I/O Connect of queue {qid}");
        wire
    }
}
