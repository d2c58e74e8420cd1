//! Operations in flight: from a submission to its completion, as futures.
//!
//! An operation owns its *resource*: the buffer, the message header, the descriptor that the kernel works on.
//! If the future is dropped first, the operation is cancelled and the table keeps the resource until the
//! kernel has given it back. So memory that the kernel may still write to is never reused, and a descriptor
//! is never closed and handed out again under a submission that still names it.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use io_uring::{cqueue, opcode, squeue};

use crate::core::{self, Core};
use crate::sys;

/// What the kernel said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

impl Completion {
    pub(crate) fn value(self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// Puts right what a completion brings that nobody waits for any more: closes a descriptor, gives a buffer
/// back.
pub(crate) type Cleanup = fn(&Core, Completion);

pub(crate) fn no_cleanup(_: &Core, _: Completion) {}

/// For operations that make a descriptor.
pub(crate) fn close_descriptor(_: &Core, completion: Completion) {
    if completion.result >= 0 {
        drop(sys::adopt(completion.result));
    }
}

enum Slot {
    Vacant { next: u32 },
    Waiting { waker: Option<Waker> },
    Done(Completion),
    Stream { waker: Option<Waker>, arrived: VecDeque<Completion>, ended: bool },
    Orphan { _resource: Box<dyn Any>, cleanup: Cleanup },
}

struct Entry {
    generation: u32,
    slot: Slot,
}

/// Names an operation in the table; its generation guards against a completion that comes after the slot
/// was given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// User data with the top bit set belongs to the core itself.
    fn user_data(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    fn from_user_data(data: u64) -> Self {
        Self { index: data as u32, generation: (data >> 32) as u32 }
    }
}

const END: u32 = u32::MAX;
const GENERATION_MASK: u32 = 0x7fff_ffff;

/// All operations of a core.
pub(crate) struct OpTable {
    entries: Vec<Entry>,
    free: u32,
    live: usize,
}

impl OpTable {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::with_capacity(4096), free: END, live: 0 }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    fn insert(&mut self, slot: Slot) -> Key {
        self.live += 1;
        if self.free == END {
            let index = self.entries.len() as u32;
            self.entries.push(Entry { generation: 0, slot });
            return Key { index, generation: 0 };
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        if let Slot::Vacant { next } = entry.slot {
            self.free = next;
        }
        entry.slot = slot;
        Key { index, generation: entry.generation }
    }

    fn remove(&mut self, key: Key) -> Slot {
        let entry = &mut self.entries[key.index as usize];
        entry.generation = (entry.generation + 1) & GENERATION_MASK;
        let slot = std::mem::replace(&mut entry.slot, Slot::Vacant { next: self.free });
        self.free = key.index;
        self.live -= 1;
        slot
    }

    fn get(&mut self, key: Key) -> Option<&mut Slot> {
        let entry = self.entries.get_mut(key.index as usize)?;
        (entry.generation == key.generation).then_some(&mut entry.slot)
    }

    /// Takes a completion in; gives back whom to wake and what to clean up, to be done once the table is
    /// no longer borrowed.
    fn complete(&mut self, key: Key, completion: Completion) -> Outcome {
        let more = cqueue::more(completion.flags);
        let Some(slot) = self.get(key) else { return Outcome::Nothing };
        match slot {
            Slot::Waiting { waker } => {
                let waker = waker.take();
                *slot = Slot::Done(completion);
                waker.map_or(Outcome::Nothing, Outcome::Wake)
            }
            Slot::Stream { waker, arrived, ended } => {
                arrived.push_back(completion);
                *ended |= !more;
                waker.take().map_or(Outcome::Nothing, Outcome::Wake)
            }
            Slot::Orphan { cleanup, .. } => {
                let cleanup = *cleanup;
                let resource = (!more).then(|| self.remove(key));
                Outcome::CleanUp(cleanup, resource)
            }
            Slot::Done(_) | Slot::Vacant { .. } => Outcome::Nothing,
        }
    }
}

enum Outcome {
    Nothing,
    Wake(Waker),
    CleanUp(Cleanup, Option<Slot>),
}

/// Hands a completion to its operation.
pub(crate) fn deliver(core: &Core, user_data: u64, completion: Completion) {
    let outcome = core.ops.borrow_mut().complete(Key::from_user_data(user_data), completion);
    match outcome {
        Outcome::Nothing => {}
        Outcome::Wake(waker) => waker.wake(),
        Outcome::CleanUp(cleanup, resource) => {
            cleanup(core, completion);
            drop(resource);
        }
    }
}

/// An operation that completes once.
pub(crate) struct Op<T: 'static> {
    key: Key,
    resource: Option<T>,
    cleanup: Cleanup,
}

impl<T: 'static> Op<T> {
    /// Submits on the current core what `build` makes of `resource`.
    ///
    /// # Safety
    /// Every address in the entry must stay valid until the completion while `resource` is alive, also when
    /// `resource` itself is moved: it may point to the heap, not into `resource`.
    pub(crate) unsafe fn submit(
        resource: T,
        cleanup: Cleanup,
        build: impl FnOnce(&T) -> squeue::Entry,
    ) -> Self {
        core::with(|core| {
            let key = core.ops.borrow_mut().insert(Slot::Waiting { waker: None });
            // SAFETY: by this function's contract; the table keeps the resource if the future is dropped.
            unsafe { core.push(build(&resource).user_data(key.user_data())) };
            Self { key, resource: Some(resource), cleanup }
        })
    }
}

impl<T: 'static> Future for Op<T> {
    type Output = (Completion, T);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // `T` is never pinned through `Op`, so moving it out is fine.
        let this = self.get_mut();
        core::with(|core| {
            let mut ops = core.ops.borrow_mut();
            match ops.get(this.key) {
                Some(Slot::Waiting { waker }) => {
                    if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                        *waker = Some(context.waker().clone());
                    }
                    return Poll::Pending;
                }
                Some(Slot::Done(completion)) => {
                    let completion = *completion;
                    if let Some(resource) = this.resource.take() {
                        ops.remove(this.key);
                        return Poll::Ready((completion, resource));
                    }
                }
                _ => {}
            }
            unreachable!("an operation was polled after it had completed")
        })
    }
}

impl<T: 'static> Unpin for Op<T> {}

impl<T: 'static> Drop for Op<T> {
    fn drop(&mut self) {
        let Some(resource) = self.resource.take() else { return };
        core::with(|core| {
            let done = {
                let mut ops = core.ops.borrow_mut();
                match ops.get(self.key) {
                    Some(Slot::Done(completion)) => {
                        let completion = *completion;
                        ops.remove(self.key);
                        Some(completion)
                    }
                    Some(slot) => {
                        *slot = Slot::Orphan { _resource: Box::new(resource), cleanup: self.cleanup };
                        None
                    }
                    None => return,
                }
            };
            match done {
                Some(completion) => (self.cleanup)(core, completion),
                None => cancel(core, self.key),
            }
        });
    }
}

/// An operation that completes many times (multishot).
pub(crate) struct StreamOp<T: 'static> {
    key: Key,
    resource: Option<T>,
    cleanup: Cleanup,
}

impl<T: 'static> StreamOp<T> {
    /// Submits on the current core what `build` makes of `resource`.
    ///
    /// # Safety
    /// As for [`Op::submit`].
    pub(crate) unsafe fn submit(
        resource: T,
        cleanup: Cleanup,
        build: impl FnOnce(&T) -> squeue::Entry,
    ) -> Self {
        core::with(|core| {
            let slot = Slot::Stream { waker: None, arrived: VecDeque::new(), ended: false };
            let key = core.ops.borrow_mut().insert(slot);
            // SAFETY: by this function's contract; the table keeps the resource if the stream is dropped.
            unsafe { core.push(build(&resource).user_data(key.user_data())) };
            Self { key, resource: Some(resource), cleanup }
        })
    }

    /// The next completion; `None` once the kernel has ended the stream and all are taken.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Completion>> {
        core::with(|core| {
            let mut ops = core.ops.borrow_mut();
            let Some(Slot::Stream { waker, arrived, ended }) = ops.get(self.key) else {
                return Poll::Ready(None);
            };
            if let Some(completion) = arrived.pop_front() {
                return Poll::Ready(Some(completion));
            }
            if !*ended {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            ops.remove(self.key);
            self.resource = None;
            Poll::Ready(None)
        })
    }
}

impl<T: 'static> Drop for StreamOp<T> {
    fn drop(&mut self) {
        let Some(resource) = self.resource.take() else { return };
        core::with(|core| {
            let (arrived, ended) = {
                let mut ops = core.ops.borrow_mut();
                let Some(slot) = ops.get(self.key) else { return };
                let orphan = Slot::Orphan { _resource: Box::new(resource), cleanup: self.cleanup };
                let Slot::Stream { arrived, ended, .. } = std::mem::replace(slot, orphan) else { return };
                if ended {
                    ops.remove(self.key);
                }
                (arrived, ended)
            };
            for completion in arrived {
                (self.cleanup)(core, completion);
            }
            if !ended {
                cancel(core, self.key);
            }
        });
    }
}

fn cancel(core: &Core, key: Key) {
    let entry = opcode::AsyncCancel::new(key.user_data()).build().user_data(core::IGNORED);
    // SAFETY: a cancellation names no memory.
    unsafe { core.push(entry) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_completion_does_not_reach_the_slots_next_tenant() {
        let mut table = OpTable::new();
        let first = table.insert(Slot::Waiting { waker: None });
        table.remove(first);
        let second = table.insert(Slot::Waiting { waker: None });
        assert_eq!(first.index, second.index);
        let late = Completion { result: 7, flags: 0 };
        assert!(matches!(table.complete(first, late), Outcome::Nothing));
        assert!(matches!(table.get(second), Some(Slot::Waiting { .. })));
    }

    #[test]
    fn user_data_names_the_operation() {
        let key = Key { index: 12, generation: GENERATION_MASK };
        assert_eq!(Key::from_user_data(key.user_data()), key);
        assert_eq!(key.user_data() >> 63, 0, "the top bit belongs to the core");
    }

    #[test]
    fn an_orphan_keeps_its_resource_until_the_kernel_is_done() {
        let mut table = OpTable::new();
        let key = table.insert(Slot::Orphan { _resource: Box::new(5u8), cleanup: no_cleanup });
        let more = Completion { result: 1, flags: 2 };
        assert!(matches!(table.complete(key, more), Outcome::CleanUp(_, None)));
        assert_eq!(table.live(), 1);
        let last = Completion { result: -125, flags: 0 };
        assert!(matches!(table.complete(key, last), Outcome::CleanUp(_, Some(_))));
        assert_eq!(table.live(), 0);
    }
}
