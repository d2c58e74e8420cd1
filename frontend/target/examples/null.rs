//! Serves a namespace with nothing behind it, to any host, for measurements:
//! `cargo run --release --example null -- 127.0.0.1:4420 [CPU]`.

use std::error::Error;
use std::net::SocketAddr;

use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use ashlar_reactor::{CoreId, Cores, CoresConfig, CoresHandle};
use ashlar_target::Target;
use ashlar_target::backends::null::NullOpener;
use ashlar_target::inventory::{AnaState, HostAccess, LbaSize, Portal};
use ashlar_target::target::{ChangeError, NewNamespace, NewSubsystem};
use uuid::Uuid;

/// Name of the subsystem.
const NQN: &str = "nqn.2026-01.io.ashlar:null";

/// Size of the namespace: 1 TiB.
const BYTES: u64 = 1 << 40;

async fn serve(cores: CoresHandle, nqn: Nqn, listen: SocketAddr) -> Result<SocketAddr, ChangeError> {
    let target = Target::start(cores).await?;
    let (serial, model) = ("0".to_owned(), "Ashlar".to_owned());
    target.add_subsystem(NewSubsystem { nqn: nqn.clone(), serial, model, hosts: HostAccess::Any }).await?;
    let new = NewNamespace {
        nsid: Nsid(1),
        uuid: Uuid::from_u128(1),
        nguid: Nguid([1; 16]),
        lba: LbaSize::B4096,
        blocks: None,
        ana_state: AnaState::Optimized,
    };
    target.add_namespace(&nqn, new, NullOpener::new(BYTES)).await?;
    target.add_portal(Portal { listen, advertise: None, port_id: 1, discovery_only: false }).await
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen: SocketAddr = arguments.next().unwrap_or_else(|| "127.0.0.1:4420".to_owned()).parse()?;
    let cpu = arguments.next().map(|cpu| cpu.parse()).transpose()?;
    let cores = Cores::start(&CoresConfig { cpus: vec![cpu], ..CoresConfig::floating(1) })?;
    let handle = cores.handle();
    let nqn = Nqn::parse(NQN)?;
    let started = handle.run_on(CoreId(0), {
        let handle = handle.clone();
        move || serve(handle, nqn, listen)
    });
    println!("{NQN} on {}", started.wait()??);
    loop {
        std::thread::park();
    }
}
