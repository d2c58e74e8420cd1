//! Data cores with one namespace open on each, and a port that is two byte vectors.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use ashlar_nvme::command::Sqe;
use ashlar_nvme::ids::Nguid;
use ashlar_nvme::nvm::{DsmAttributes, DsmCommand, DsmRange, RwCommand, RwControl};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::{CommandId, Lba, Nsid, Status, Wire};
use ashlar_reactor::{BufferCounts, CoreId, Cores, CoresConfig, IoBuf, yield_now};
use ashlar_target::WriteCache;
use ashlar_target::backend::{Backend, BackendInfo, Deallocated, OpenBackend, ReadData, WriteData};
use ashlar_target::backends::{AnyBackend, AnyOpener, BackendSource, PrepareError};
use ashlar_target::inventory::{AnaState, LbaSize, Namespace};
use ashlar_target::io::{
    DataPort, FusedRequest, NamespaceCore, SharedNamespace, Transfer, check, check_fused, execute,
    execute_fused,
};

/// Bound for anything that must end; nothing takes near that long.
const DRAIN: Duration = Duration::from_secs(60);

pub(crate) const NSID: Nsid = Nsid(3);

thread_local! {
    static HELD: RefCell<Option<NamespaceCore<AnyBackend>>> = const { RefCell::new(None) };
}

/// A port whose host sends `data` and keeps what it receives.
pub(crate) struct Port {
    data: Vec<u8>,
    received: RefCell<Vec<u8>>,
    fetched: Cell<usize>,
    /// The transport fails when this much has moved.
    fails_at: Option<u32>,
}

impl Port {
    pub(crate) fn new(data: Vec<u8>) -> Self {
        Self { data, received: RefCell::default(), fetched: Cell::new(0), fails_at: None }
    }

    pub(crate) fn failing_at(data: Vec<u8>, offset: u32) -> Self {
        Self { fails_at: Some(offset), ..Self::new(data) }
    }

    pub(crate) fn received(self) -> Vec<u8> {
        self.received.into_inner()
    }

    fn check(&self, offset: u32) -> Result<(), Status> {
        if self.fails_at.is_some_and(|fails| offset >= fails) {
            return Err(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        Ok(())
    }
}

impl DataPort for Port {
    async fn fetch(&self, offset: u32, len: u32) -> Result<WriteData, Status> {
        self.check(offset)?;
        yield_now().await;
        let (offset, len) = (offset as usize, len as usize);
        assert_eq!(offset, self.fetched.get(), "parts ascend without gaps");
        assert!(len > 0 && len <= 128 * 1024, "a part of {len} bytes");
        self.fetched.set(offset + len);
        let mut buffer = IoBuf::heap(len);
        buffer.copy_from_slice(&self.data[offset..offset + len]);
        Ok(WriteData::Buffer(buffer))
    }

    async fn deliver(&self, offset: u32, len: u32, data: ReadData) -> Result<(), Status> {
        self.check(offset)?;
        let mut received = self.received.borrow_mut();
        assert_eq!(offset as usize, received.len(), "parts ascend without gaps");
        assert!(len > 0 && len <= 128 * 1024, "a part of {len} bytes");
        match data {
            ReadData::Buffer(buffer) => {
                assert_eq!(buffer.len(), len as usize);
                received.extend_from_slice(&buffer);
            }
            ReadData::Zeroes => received.resize((offset + len) as usize, 0),
        }
        Ok(())
    }
}

/// Checks and executes a command on the current core.
pub(crate) async fn perform<B: Backend>(
    namespace: &NamespaceCore<B>,
    sqe: &Sqe,
    data: Vec<u8>,
    cache: WriteCache,
) -> (Status, Vec<u8>) {
    let request = match namespace.with_namespace(|described| check(sqe, described, sqe.dptr.length.get())) {
        Ok(request) => request,
        Err(status) => return (status, Vec::new()),
    };
    let to_host = match request.transfer() {
        Transfer::FromHost(bytes) => {
            assert_eq!(bytes as usize, data.len());
            0
        }
        Transfer::ToHost(bytes) => bytes as usize,
        Transfer::None => 0,
    };
    let port = Port::new(data);
    let status = execute(namespace, &request, &port, cache).await;
    let received = port.received();
    if status.is_success() {
        assert_eq!(received.len(), to_host);
    }
    (status, received)
}

/// Checks and executes a pair on the current core.
pub(crate) async fn perform_fused<B: Backend>(
    namespace: &NamespaceCore<B>,
    request: &FusedRequest,
    expected: Vec<u8>,
    new: Vec<u8>,
) -> (Status, Status) {
    let (compare, write) = (Port::new(expected), Port::new(new));
    execute_fused(namespace, request, &compare, &write, WriteCache::Enabled).await
}

/// A Compare and a Write of the same blocks, checked.
pub(crate) fn pair<B: Backend>(
    namespace: &NamespaceCore<B>,
    slba: u64,
    nlb: u32,
) -> Result<FusedRequest, (Status, Status)> {
    namespace.with_namespace(|described| {
        let bytes = nlb << described.lba.shift();
        let compare = ranged(NvmOpcode::Compare, slba, nlb, bytes);
        let write = ranged(NvmOpcode::Write, slba, nlb, bytes);
        check_fused((&compare, bytes), (&write, bytes), described)
    })
}

pub(crate) fn ranged(opcode: NvmOpcode, slba: u64, nlb: u32, bytes: u32) -> Sqe {
    with_control(opcode, slba, nlb, bytes, RwControl(0))
}

pub(crate) fn with_control(opcode: NvmOpcode, slba: u64, nlb: u32, bytes: u32, control: RwControl) -> Sqe {
    let data = if bytes == 0 { DataPointer::None } else { DataPointer::Transport { len: bytes } };
    RwCommand { slba: Lba(slba), nlb, control }.to_sqe(opcode, CommandId(1), NSID, data)
}

/// Dataset Management with Deallocate, and its list of ranges (first block, blocks).
pub(crate) fn discard(ranges: &[(u64, u32)]) -> (Sqe, Vec<u8>) {
    let list: Vec<u8> =
        ranges.iter().flat_map(|&(slba, nlb)| DsmRange::new(Lba(slba), nlb).bytes().to_vec()).collect();
    let command =
        DsmCommand { nr: ranges.len() as u16, attributes: DsmAttributes(0).with_ad(true).with_idw(true) };
    (command.to_sqe(CommandId(1), NSID, DataPointer::Transport { len: list.len() as u32 }), list)
}

pub(crate) struct World {
    cores: Option<Cores>,
    pub(crate) info: BackendInfo,
    shared: Arc<SharedNamespace<AnyOpener>>,
    lba: LbaSize,
}

impl World {
    pub(crate) fn start(cores: u16, source: &BackendSource, lba: LbaSize) -> Self {
        let mut config = CoresConfig::floating(usize::from(cores));
        config.buffers = BufferCounts { blocks: 64, capsules: 8, slices: 4 };
        config.spin = Duration::ZERO;
        let running = Cores::start(&config).expect("start cores");
        let held = source.hold().expect("nobody else has it");
        let opener = running
            .handle()
            .run_on(CoreId(0), move || async move { AnyOpener::prepare(held, usize::from(cores)).await })
            .wait()
            .expect("the core answers")
            .expect("the backend is there");
        let info = opener.info();
        assert!(lba.bytes() >= info.access_bytes, "the block size fits");
        let shared = SharedNamespace::new(opener, usize::from(cores));
        let world = Self { cores: Some(running), info, shared, lba };
        let described = Arc::new(world.describe(info.bytes >> lba.shift()));
        world.open(&described);
        world
    }

    fn open(&self, described: &Arc<Namespace>) {
        for core in 0..self.count() {
            let (shared, described) = (Arc::clone(&self.shared), Arc::clone(described));
            self.on_core(core, move || async move {
                let namespace = shared.open(CoreId(core), described).await.expect("it opens");
                HELD.set(Some(namespace));
            });
        }
    }

    fn close(&self) {
        for core in 0..self.count() {
            self.on_core(core, || async { HELD.set(None) });
        }
    }

    /// Closes it on all cores, then opens it again.
    pub(crate) fn reopen(&self, described: &Arc<Namespace>) {
        self.close();
        self.open(described);
    }

    fn count(&self) -> u16 {
        self.cores.as_ref().expect("they run until the end").handle().count() as u16
    }

    pub(crate) fn describe(&self, blocks: u64) -> Namespace {
        Namespace {
            nsid: NSID,
            uuid: uuid::Uuid::from_u128(7),
            nguid: Nguid([1; 16]),
            lba: self.lba,
            blocks,
            backend: self.info,
            ana_group: 1,
            ana_state: AnaState::Optimized,
        }
    }

    pub(crate) fn zeroes_discarded(&self) -> bool {
        self.info.deallocated == Deallocated::Zeroes
    }

    pub(crate) fn shared(&self) -> &SharedNamespace<AnyOpener> {
        &self.shared
    }

    fn on_core<T: Send + 'static, Fut: Future<Output = T> + 'static>(
        &self,
        core: u16,
        function: impl FnOnce() -> Fut + Send + 'static,
    ) -> T {
        self.start_on(core, function).wait().expect("the core answers")
    }

    fn start_on<T: Send + 'static, Fut: Future<Output = T> + 'static>(
        &self,
        core: u16,
        function: impl FnOnce() -> Fut + Send + 'static,
    ) -> ashlar_reactor::Reply<T> {
        self.cores.as_ref().expect("they run until the end").handle().run_on(CoreId(core), function)
    }

    /// Starts something on a core, with the namespace as that core has it.
    pub(crate) fn begin<T: Send + 'static, Fut: Future<Output = T> + 'static>(
        &self,
        core: u16,
        function: impl FnOnce(NamespaceCore<AnyBackend>) -> Fut + Send + 'static,
    ) -> ashlar_reactor::Reply<T> {
        self.start_on(core, move || {
            let held = HELD.with_borrow(Clone::clone).expect("it is open");
            function(held)
        })
    }

    pub(crate) fn run<T: Send + 'static, Fut: Future<Output = T> + 'static>(
        &self,
        core: u16,
        function: impl FnOnce(NamespaceCore<AnyBackend>) -> Fut + Send + 'static,
    ) -> T {
        self.begin(core, function).wait().expect("the core answers")
    }

    pub(crate) fn command(&self, core: u16, sqe: Sqe, data: Vec<u8>) -> (Status, Vec<u8>) {
        self.run(
            core,
            move |namespace| async move { perform(&namespace, &sqe, data, WriteCache::Enabled).await },
        )
    }

    pub(crate) fn status(&self, core: u16, sqe: Sqe, data: Vec<u8>) -> Status {
        self.command(core, sqe, data).0
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.close();
        if let Some(cores) = self.cores.take() {
            cores.stop(DRAIN).expect("nothing is left over");
        }
    }
}

pub(crate) fn memory(bytes: u64) -> BackendSource {
    BackendSource::Memory { bytes, memory_max: None }
}

/// The error of preparing `source`.
pub(crate) fn refusal(source: BackendSource) -> PrepareError {
    let held = match source.hold() {
        Ok(held) => held,
        Err(error) => return error,
    };
    let cores = Cores::start(&CoresConfig::floating(1)).expect("start cores");
    let prepared = cores
        .handle()
        .run_on(CoreId(0), move || async move { AnyOpener::prepare(held, 1).await })
        .wait()
        .expect("the core answers");
    cores.stop(DRAIN).expect("nothing is left over");
    prepared.expect_err("it is refused")
}
