//! A namespace as all cores share it, and as one core has it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ashlar_reactor::CoreId;

use crate::backend::{Backend, BackendError, OpenBackend};
use crate::inventory::Namespace;

/// A namespace for all cores: made once when it is added, then opened on every core before it is served on any.
#[derive(Debug)]
pub struct SharedNamespace<O> {
    opener: O,
}

impl<O: OpenBackend> SharedNamespace<O> {
    /// A namespace behind `opener`, to be opened on `cores` cores.
    pub fn new(opener: O, cores: usize) -> Arc<Self> {
        let _ = cores;
        Arc::new(Self { opener })
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
        let backend = self.opener.open(core).await?;
        Ok(NamespaceCore { inner: Rc::new(Inner { namespace: RefCell::new(namespace), backend }) })
    }
}

/// A namespace on one core. A clone is a reference count.
#[derive(Debug)]
pub struct NamespaceCore<B> {
    inner: Rc<Inner<B>>,
}

impl<B> Clone for NamespaceCore<B> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<B> {
    namespace: RefCell<Arc<Namespace>>,
    backend: B,
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

    /// It was resized or its ANA state changed. Commands that have been checked before are checked for size again
    /// when they start.
    pub fn set_namespace(&self, namespace: Arc<Namespace>) {
        *self.inner.namespace.borrow_mut() = namespace;
    }

    pub(super) fn backend(&self) -> &B {
        &self.inner.backend
    }
}
