//! What the cores share of the target: who they are, and how many connections each has.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ashlar_nvme::ids::Cntlid;
use ashlar_reactor::{CoreId, CoresHandle, Error, Instant, Reply};

use crate::backend::OpenBackend;
use crate::limits::Limits;
use crate::target::core_state::{self, CoreState};
use crate::target::metrics::CoreQueues;

/// Pause before a message is offered again to a core whose inbox is full.
const INBOX_PAUSE: Duration = Duration::from_millis(1);

/// The core that accepts connections.
pub(crate) const ACCEPTING: CoreId = CoreId(0);

/// See the module.
pub(crate) struct TargetShared {
    /// Tells targets of one process apart.
    pub(crate) id: u64,
    pub(crate) cores: CoresHandle,
    pub(crate) places: Places,
    pub(crate) started: Instant,
    pub(crate) limits: Limits,
}

impl TargetShared {
    pub(crate) fn new(cores: CoresHandle, limits: Limits) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let places = Places::new(cores.count());
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            cores,
            places,
            started: ashlar_reactor::clock::read(),
            limits,
        })
    }

    /// The core that owns a controller: the number says it.
    pub(crate) fn owner_of(&self, cntlid: Cntlid) -> CoreId {
        let cores = u16::try_from(self.cores.count()).unwrap_or(u16::MAX).max(1);
        CoreId(cntlid.0 % cores)
    }

    /// Runs `function` on a core with its state; `None` if the target has ended there.
    pub(crate) fn on<F, T, Fut>(
        &self,
        core: CoreId,
        function: impl FnOnce(Rc<CoreState<F>>) -> Fut + Send + 'static,
    ) -> Reply<Option<T>>
    where
        F: OpenBackend,
        T: Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let id = self.id;
        self.cores.run_on(core, move || async move {
            match core_state::current::<F>(id) {
                Some(state) => Some(function(state).await),
                None => None,
            }
        })
    }

    /// As [`TargetShared::on`], from a data core, for what must not get lost: offered again while the inbox
    /// is full.
    pub(crate) async fn surely_on<F, T, Fut>(
        &self,
        core: CoreId,
        function: impl FnOnce(Rc<CoreState<F>>) -> Fut + Clone + Send + 'static,
    ) -> Option<T>
    where
        F: OpenBackend,
        T: Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        loop {
            match self.on(core, function.clone()).await {
                Ok(result) => return result,
                Err(Error::InboxFull { .. }) => ashlar_reactor::sleep(INBOX_PAUSE).await,
                Err(_) => return None,
            }
        }
    }
}

/// How many connections there are, and where. Touched when one comes or goes only.
pub(crate) struct Places {
    io: Box<[AtomicUsize]>,
    admin: Box<[AtomicUsize]>,
    /// All connections, those included that have not finished Connect.
    pub(crate) connections: AtomicUsize,
    /// Refused because of a limit.
    pub(crate) refused: AtomicU64,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Io,
    Admin,
}

impl Places {
    fn new(cores: usize) -> Self {
        let zeroes = || (0..cores).map(|_| AtomicUsize::new(0)).collect();
        Self { io: zeroes(), admin: zeroes(), connections: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    pub(crate) fn io(&self, core: CoreId) -> Option<&AtomicUsize> {
        self.io.get(core.index())
    }

    pub(crate) fn admin(&self, core: CoreId) -> Option<&AtomicUsize> {
        self.admin.get(core.index())
    }

    /// Takes a place on the core that has the fewest (NVME N14). Called on the accepting core only, so that
    /// two connections never choose at once. Given back when the queue leaves its core.
    pub(crate) fn choose(&self, purpose: Purpose) -> CoreId {
        let counts = match purpose {
            Purpose::Io => &self.io,
            Purpose::Admin => &self.admin,
        };
        let fewest = counts.iter().enumerate().min_by_key(|(_, count)| count.load(Ordering::Acquire));
        let Some((index, count)) = fewest else { return ACCEPTING };
        count.fetch_add(1, Ordering::AcqRel);
        CoreId(index as u16)
    }

    /// Gives a chosen place back that was not taken.
    pub(crate) fn give_back(&self, purpose: Purpose, core: CoreId) {
        let place = match purpose {
            Purpose::Io => self.io(core),
            Purpose::Admin => self.admin(core),
        };
        if let Some(place) = place {
            place.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Counts one more connection, unless there are `most`.
    pub(crate) fn admit(&self, most: usize) -> bool {
        let before = self.connections.fetch_add(1, Ordering::AcqRel);
        if before >= most {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub(crate) fn per_core(&self) -> Vec<CoreQueues> {
        let load = |count: &AtomicUsize| count.load(Ordering::Acquire);
        let pairs = self.io.iter().zip(self.admin.iter());
        pairs.map(|(io, admin)| CoreQueues { io: load(io), admin: load(admin) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_up_to_sixteen_hosts_are_spread_evenly() {
        for hosts in 1..=16 {
            let places = Places::new(3);
            for _ in 0..hosts * 4 {
                places.choose(Purpose::Io);
                let counts = places.per_core();
                let (most, fewest) = (counts.iter().map(|c| c.io).max(), counts.iter().map(|c| c.io).min());
                assert!(most.zip(fewest).is_some_and(|(most, fewest)| most - fewest <= 1), "{counts:?}");
            }
        }
    }

    #[test]
    fn a_place_that_was_given_back_is_taken_next() {
        let places = Places::new(2);
        assert_eq!(places.choose(Purpose::Admin), CoreId(0));
        assert_eq!(places.choose(Purpose::Admin), CoreId(1));
        places.give_back(Purpose::Admin, CoreId(1));
        assert_eq!(places.choose(Purpose::Admin), CoreId(1));
    }
}
