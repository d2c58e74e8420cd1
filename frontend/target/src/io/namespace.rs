//! A namespace as all cores share it, and as one core has it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_nvme::Nsid;
use ashlar_reactor::CoreId;

use super::gate::{self, Gate, GateId};
use crate::backend::{Backend, BackendError, OpenBackend};
use crate::inventory::Namespace;

/// A namespace for all cores: made once when it is added, then opened on every core before it is served on
/// any.
#[derive(Debug)]
pub struct SharedNamespace<O> {
    opener: O,
    gate: GateId,
    cores: usize,
}

impl<O: OpenBackend> SharedNamespace<O> {
    /// A namespace behind `opener`, to be opened on `cores` cores.
    pub fn new(opener: O, cores: usize) -> Arc<Self> {
        Arc::new(Self { opener, gate: GateId::unique(), cores: cores.max(1) })
    }

    /// What opens the backend.
    pub fn opener(&self) -> &O {
        &self.opener
    }

    /// Opens it on the current core, which is `core`.
    pub async fn open(
        self: &Arc<Self>,
        core: CoreId,
        namespace: Arc<Namespace>,
    ) -> Result<NamespaceCore<O::Backend>, BackendError> {
        if core.index() >= self.cores {
            return Err(BackendError::NotReady);
        }
        let backend = self.opener.open(core).await?;
        let inner = Inner {
            namespace: RefCell::new(namespace),
            backend,
            gate: gate::local(self.gate),
            gate_id: self.gate,
            core,
            cores: self.cores,
        };
        Ok(NamespaceCore { inner: Rc::new(inner) })
    }
}

/// A namespace on one core. A clone is a reference count.
pub struct NamespaceCore<B> {
    inner: Rc<Inner<B>>,
}

impl<B> Clone for NamespaceCore<B> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<B> fmt::Debug for NamespaceCore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nsid, core) = (self.inner.namespace.borrow().nsid, self.inner.core);
        f.debug_struct("NamespaceCore").field("nsid", &nsid).field("core", &core).finish_non_exhaustive()
    }
}

struct Inner<B> {
    namespace: RefCell<Arc<Namespace>>,
    backend: B,
    gate: Rc<Gate>,
    gate_id: GateId,
    core: CoreId,
    cores: usize,
}

impl<B> Drop for Inner<B> {
    fn drop(&mut self) {
        gate::release(self.gate_id, &self.gate);
    }
}

impl<B: Backend> NamespaceCore<B> {
    /// How hosts see it at present.
    pub fn namespace(&self) -> Arc<Namespace> {
        Arc::clone(&self.inner.namespace.borrow())
    }

    /// Looks at its present description without taking a reference.
    pub fn with_namespace<T>(&self, look: impl FnOnce(&Namespace) -> T) -> T {
        look(&self.inner.namespace.borrow())
    }

    /// It was resized or its ANA state changed. Commands that have been checked before are checked for size
    /// again when they start.
    pub fn set_namespace(&self, namespace: Arc<Namespace>) {
        *self.inner.namespace.borrow_mut() = namespace;
    }

    pub(super) fn backend(&self) -> &B {
        &self.inner.backend
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(super) fn gate_id(&self) -> GateId {
        self.inner.gate_id
    }

    /// The core that orders the namespace's fused pairs.
    pub(super) fn home(&self) -> CoreId {
        let Nsid(nsid) = self.inner.namespace.borrow().nsid;
        // Core numbers have 16 bits.
        CoreId((nsid as usize % self.inner.cores) as u16)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.with_namespace(|namespace| namespace.blocks << namespace.lba.shift())
    }

    pub(super) fn volatile_cache(&self) -> bool {
        self.with_namespace(|namespace| namespace.backend.volatile_cache)
    }
}
