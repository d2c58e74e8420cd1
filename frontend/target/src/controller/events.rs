//! Asynchronous events: requests that wait, events that wait, and masks (NVMe Base 2.0 §5.2, NVME N11).
//!
//! An event that was reported is masked until its log is read with RAE 0. Masks are per log, not per event
//! type: an ANA change must reach a host that has not read the changed namespaces yet, or its failover waits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ashlar_nvme::Status;
use ashlar_nvme::admin::RetainEvent;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::feature::AsyncEventConfig;
use ashlar_nvme::ids::CommandId;
use ashlar_nvme::log::LogId;
use ashlar_reactor::Notify;

use super::execute::Answer;
use crate::limits;

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// To be reported.
    Pending,
    /// Reported; its log has not been read since.
    Masked,
    /// Reported; its log is being read in pieces (RAE 1).
    BeingRead,
    /// As `BeingRead`, and it happened again meanwhile: what was read may be old.
    Again,
}

/// How a waiting request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Waits,
    Aborted,
}

#[derive(Default)]
pub(super) struct Events {
    standing: RefCell<BTreeMap<LogId, (AsyncEvent, Standing)>>,
    requests: RefCell<Vec<(CommandId, Rc<Cell<Ending>>)>>,
    wake: Notify,
}

impl Events {
    /// Something happened.
    pub(super) fn raise(&self, event: AsyncEvent) {
        let mut standing = self.standing.borrow_mut();
        let next = match standing.get(&event.log()) {
            None | Some((_, Standing::Pending)) => Standing::Pending,
            // The log will say it when it is read.
            Some((_, Standing::Masked)) => Standing::Masked,
            Some((_, Standing::BeingRead | Standing::Again)) => Standing::Again,
        };
        standing.insert(event.log(), (event, next));
        drop(standing);
        self.wake.notify_all();
    }

    /// A log was read.
    pub(super) fn log_read(&self, log: LogId, rae: RetainEvent) {
        let mut standing = self.standing.borrow_mut();
        let Some(&(event, state)) = standing.get(&log) else { return };
        let next = match (rae, state) {
            (RetainEvent::Retain, Standing::Masked) => Some(Standing::BeingRead),
            (RetainEvent::Retain, _) => Some(state),
            (RetainEvent::Clear, Standing::Again) => Some(Standing::Pending),
            (RetainEvent::Clear, _) => None,
        };
        match next {
            Some(next) => standing.insert(log, (event, next)),
            None => standing.remove(&log),
        };
        drop(standing);
        self.wake.notify_all();
    }

    fn take(&self) -> Option<AsyncEvent> {
        let mut standing = self.standing.borrow_mut();
        let (event, state) = standing.values_mut().find(|(_, state)| *state == Standing::Pending)?;
        *state = Standing::Masked;
        Some(*event)
    }

    /// An Asynchronous Event Request: waits for an event.
    pub(super) async fn request(&self, command: CommandId) -> Result<Answer, Status> {
        if self.requests.borrow().len() >= limits::ASYNC_EVENTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED);
        }
        let ending = Rc::new(Cell::new(Ending::Waits));
        self.requests.borrow_mut().push((command, Rc::clone(&ending)));
        let _leave = Leave { events: self, ending: Rc::clone(&ending) };
        loop {
            if ending.get() == Ending::Aborted {
                return Err(Status::ABORT_REQUESTED);
            }
            if let Some(event) = self.take() {
                return Ok(Answer::dw0(event.dw0()));
            }
            self.wake.notified().await;
        }
    }

    /// Aborts a waiting request; `None` if there is none with this identifier.
    pub(super) fn abort(&self, command: CommandId) -> Option<()> {
        let requests = self.requests.borrow();
        let (_, ending) = requests.iter().find(|(id, _)| *id == command)?;
        ending.set(Ending::Aborted);
        drop(requests);
        self.wake.notify_all();
        Some(())
    }

    /// Ends all waiting requests.
    pub(super) fn end_requests(&self) {
        for (_, ending) in self.requests.borrow().iter() {
            ending.set(Ending::Aborted);
        }
        self.wake.notify_all();
    }

    /// Forgets events that the host no longer wants.
    pub(super) fn keep_only(&self, wanted: AsyncEventConfig) {
        self.standing.borrow_mut().retain(|_, (event, _)| match event {
            AsyncEvent::NamespaceAttributeChanged => wanted.namespace_attribute(),
            AsyncEvent::AnaChange => wanted.ana_change(),
            AsyncEvent::DiscoveryLogChange => wanted.discovery_change(),
            _ => true,
        });
    }

    /// Forgets all events, and ends all waiting requests.
    pub(super) fn reset(&self) {
        self.standing.borrow_mut().clear();
        self.end_requests();
    }
}

/// A request no longer counts, however its future ended.
struct Leave<'a> {
    events: &'a Events,
    ending: Rc<Cell<Ending>>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.events.requests.borrow_mut().retain(|(_, ending)| !Rc::ptr_eq(ending, &self.ending));
    }
}
