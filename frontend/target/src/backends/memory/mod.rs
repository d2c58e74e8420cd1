//! Memory of this process: 4 KiB blocks, divided among the cores so that none is shared.
//!
//! Stripes of 1 MiB belong to the cores in turn. A request for a core's own stripe is a call; one for another
//! core's crosses once, by mailbox (`link`), and its payload is copied once, by the core that keeps the
//! blocks (`shard`).
//!
//! The data belongs to the opener: a core keeps its shard while the namespace is open anywhere, and leaves it
//! with the opener when the last handle of all cores is closed, to be taken up at the next opening. Every
//! core must open it before any core uses it, as a core that has not opened it does not answer.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_reactor::mailbox::{Receiver, Sender, mailbox};
use ashlar_reactor::{CoreId, IoBuf, spawn, yield_now};

use crate::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Deallocated, Durability, OpenBackend, ReadData,
    WriteData,
};

mod link;
mod shard;

use link::{Found, Link, Message, Outcome, Work, mailbox_capacity};
use shard::{Budget, Shard};

/// Bytes that belong to one core before the next core's begin: the largest transfer, so that an aligned
/// command stays on one core, and small enough that a sequential load uses all.
const STRIPE_BYTES: u64 = 1024 * 1024;

/// Messages that are served before other tasks of the core have their turn.
const MESSAGES_PER_TURN: usize = 256;

/// Opens [`Memory`], and keeps the data while no core has it open.
pub struct MemoryOpener {
    shared: Arc<Shared>,
    bytes: u64,
}

struct Shared {
    id: u64,
    senders: Box<[Sender<Message>]>,
    seats: Box<[Mutex<Option<Parked>>]>,
    /// Handles on all cores.
    open: AtomicUsize,
}

/// A core's part while it is not open there.
struct Parked {
    shard: Shard,
    receiver: Receiver<Message>,
}

impl fmt::Debug for MemoryOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = self.shared.seats.len();
        f.debug_struct("MemoryOpener").field("bytes", &self.bytes).field("cores", &cores).finish()
    }
}

thread_local! {
    /// What this core has open, to be found by a second opening.
    static OPEN: RefCell<Vec<(u64, Weak<Local>)>> = const { RefCell::new(Vec::new()) };
}

impl MemoryOpener {
    /// A namespace of `bytes` bytes on `cores` cores that takes at most `memory_max` bytes of memory.
    pub fn new(bytes: u64, memory_max: Option<u64>, cores: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let cores = cores.max(1);
        let budget = Budget::new(memory_max.unwrap_or(u64::MAX));
        let boxes = (0..cores).map(|_| mailbox(mailbox_capacity(cores)));
        let (senders, receivers): (Vec<_>, Vec<_>) = boxes.unzip();
        let seats = receivers
            .into_iter()
            .map(|receiver| Mutex::new(Some(Parked { shard: Shard::new(Arc::clone(&budget)), receiver })))
            .collect();
        let shared = Shared {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            senders: senders.into_boxed_slice(),
            seats,
            open: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared), bytes }
    }
}

impl OpenBackend for MemoryOpener {
    type Backend = Memory;

    fn info(&self) -> BackendInfo {
        BackendInfo {
            bytes: self.bytes,
            access_bytes: 512,
            volatile_cache: false,
            deallocated: Deallocated::Zeroes,
        }
    }

    async fn open(&self, core: CoreId) -> Result<Memory, BackendError> {
        let shared = &self.shared;
        let found = OPEN.with_borrow_mut(|open| {
            open.retain(|(_, local)| local.strong_count() > 0);
            open.iter().find(|(id, _)| *id == shared.id).and_then(|(_, local)| local.upgrade())
        });
        let local = match found {
            Some(local) if !local.ended.get() => local,
            _ => Local::start(shared, core.index()).ok_or(BackendError::NotReady)?,
        };
        shared.open.fetch_add(1, Ordering::AcqRel);
        Ok(Memory { local })
    }
}

/// A core's part while it is open there.
struct Local {
    core: usize,
    cores: usize,
    shard: RefCell<Shard>,
    link: Link,
    shared: Arc<Shared>,
    /// The shard has gone back to the opener.
    ended: std::cell::Cell<bool>,
}

impl Local {
    /// Takes up what was left with the opener; `None` if the core has no part, or another thread has it.
    fn start(shared: &Arc<Shared>, core: usize) -> Option<Rc<Local>> {
        let parked = shared.seats.get(core)?.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let local = Rc::new(Local {
            core,
            cores: shared.seats.len(),
            shard: RefCell::new(parked.shard),
            link: Link::new(core, shared.senders.clone()),
            shared: Arc::clone(shared),
            ended: std::cell::Cell::new(false),
        });
        OPEN.with_borrow_mut(|open| open.push((shared.id, Rc::downgrade(&local))));
        spawn(serve(Rc::clone(&local), parked.receiver));
        Some(local)
    }

    /// Bytes of the namespace before `position` that belong to `core`: where `position` is in that core's
    /// shard.
    fn before(&self, core: usize, position: u64) -> u64 {
        let (stripe, cores) = (position / STRIPE_BYTES, self.cores as u64);
        let whole = (stripe + cores - 1 - core as u64) / cores;
        let rest = if stripe % cores == core as u64 { position % STRIPE_BYTES } else { 0 };
        whole * STRIPE_BYTES + rest
    }

    fn owner(&self, position: u64) -> usize {
        (position / STRIPE_BYTES % self.cores as u64) as usize
    }

    /// Splits a range at stripes' borders: owner, offset in its shard, offset in the range, length.
    fn parts(&self, range: ByteRange) -> impl Iterator<Item = (usize, u64, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == range.len {
                return None;
            }
            let position = range.offset + done;
            let len = (STRIPE_BYTES - position % STRIPE_BYTES).min(range.len - done);
            let owner = self.owner(position);
            let part = (owner, self.before(owner, position), done as usize, len as usize);
            done += len;
            Some(part)
        })
    }

    /// The range as one part of this core's shard, if it is that.
    fn own(&self, range: ByteRange) -> Option<u64> {
        let owner = self.owner(range.offset);
        let single = self.cores == 1 || range.offset / STRIPE_BYTES == (range.end() - 1) / STRIPE_BYTES;
        (owner == self.core && single).then(|| self.before(owner, range.offset))
    }

    /// Clears what this core keeps of a range of the namespace.
    async fn clear_own(&self, range: ByteRange) {
        let mut position = self.before(self.core, range.offset);
        let end = self.before(self.core, range.end());
        while position < end {
            position = self.shard.borrow_mut().clear_step(position, end);
            if position < end {
                yield_now().await;
            }
        }
    }

    fn do_work(&self, work: Work) -> Outcome {
        match work {
            Work::Read { mut buffer, at, len, offset } => {
                let shard = self.shard.borrow();
                let found = if shard.is_unwritten(offset, len) { Found::Unwritten } else { Found::Data };
                if let Some(into) = buffer.get_mut(at..at + len) {
                    shard.read(offset, into);
                }
                Outcome { buffer: Some(buffer), result: Ok(found) }
            }
            Work::Write { buffer, at, len, offset } => {
                let data = buffer.get(at..at + len).unwrap_or_default();
                let result = self.shard.borrow_mut().write(offset, data);
                Outcome { result: result.map(|()| Found::Data), buffer: Some(buffer) }
            }
            // Done by a task of its own, see `serve`.
            Work::Clear { .. } => Outcome { buffer: None, result: Ok(Found::Data) },
        }
    }
}

/// Serves a core's mailbox until the last handle of all cores is closed.
async fn serve(local: Rc<Local>, mut receiver: Receiver<Message>) {
    let mut served = 0;
    while let Some(message) = receiver.recv().await {
        match message {
            Message::Request { from, slot, work: Work::Clear { range } } => {
                let local = Rc::clone(&local);
                spawn(async move {
                    local.clear_own(range).await;
                    let outcome = Outcome { buffer: None, result: Ok(Found::Data) };
                    local.link.answer(from, slot, outcome);
                });
            }
            Message::Request { from, slot, work } => {
                let outcome = local.do_work(work);
                local.link.answer(from, slot, outcome);
            }
            Message::Answer { slot, outcome } => local.link.answered(slot, outcome),
            // Somebody may have opened it again in the meantime.
            Message::End if local.shared.open.load(Ordering::Acquire) > 0 => {}
            Message::End => break,
        }
        served += 1;
        if served % MESSAGES_PER_TURN == 0 {
            yield_now().await;
        }
    }
    local.ended.set(true);
    let empty = Shard::new(local.shard.borrow().budget());
    let shard = local.shard.replace(empty);
    if let Some(seat) = local.shared.seats.get(local.core) {
        *seat.lock().unwrap_or_else(PoisonError::into_inner) = Some(Parked { shard, receiver });
    }
}

/// One core's handle.
pub struct Memory {
    local: Rc<Local>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("core", &self.local.core).finish_non_exhaustive()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let shared = &self.local.shared;
        if shared.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            for sender in &shared.senders {
                // A mailbox without a receiver has ended; a full one holds endings already.
                let _ = sender.try_send(Message::End);
            }
        }
    }
}

/// A buffer of a slice's length. Requests were checked against the largest slice, which fits.
async fn buffer_for(range: ByteRange) -> Result<IoBuf, BackendError> {
    IoBuf::wait(range.len as usize).await.ok_or(BackendError::NotReady)
}

impl Backend for Memory {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        let local = &*self.local;
        if let Some(offset) = local.own(range) {
            if local.shard.borrow().is_unwritten(offset, range.len as usize) {
                return Ok(ReadData::Zeroes);
            }
            let mut buffer = buffer_for(range).await?;
            local.shard.borrow().read(offset, &mut buffer);
            return Ok(ReadData::Buffer(buffer));
        }
        let mut buffer = buffer_for(range).await?;
        let mut all = Found::Unwritten;
        for (owner, offset, at, len) in local.parts(range) {
            let work = Work::Read { buffer, at, len, offset };
            let outcome =
                if owner == local.core { local.do_work(work) } else { local.link.ask(owner, work).await };
            if outcome.result? == Found::Data {
                all = Found::Data;
            }
            buffer = outcome.buffer.ok_or(BackendError::NotReady)?;
        }
        Ok(if all == Found::Data { ReadData::Buffer(buffer) } else { ReadData::Zeroes })
    }

    async fn write(&self, range: ByteRange, data: WriteData, _: Durability) -> Result<(), BackendError> {
        let local = &*self.local;
        if let Some(offset) = local.own(range) {
            return local.shard.borrow_mut().write(offset, &data);
        }
        let mut buffer = data.into_buffer().await.ok_or(BackendError::NotReady)?;
        for (owner, offset, at, len) in local.parts(range) {
            let work = Work::Write { buffer, at, len, offset };
            let outcome =
                if owner == local.core { local.do_work(work) } else { local.link.ask(owner, work).await };
            outcome.result?;
            buffer = outcome.buffer.ok_or(BackendError::NotReady)?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn clear(&self, range: ByteRange, _: Clear, _: Durability) -> Result<(), BackendError> {
        let local = &*self.local;
        for core in 0..local.cores {
            if local.before(core, range.offset) == local.before(core, range.end()) {
                continue;
            }
            if core == local.core {
                local.clear_own(range).await;
            } else {
                local.link.ask(core, Work::Clear { range }).await.result?;
            }
        }
        Ok(())
    }
}
