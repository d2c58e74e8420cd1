//! Tasks: a future behind a header, reference-counted, woken from any thread, polled on one core.
//!
//! A task's memory holds a [`Header`] followed by its future. References are counted in the header: one for
//! being alive, one for each place in a queue, one for each waker. The future is only touched by the owning
//! core and is dropped as soon as it is done; the memory follows with the last reference. Memory whose last
//! reference ends on the owning core is kept there for the next task of that size, so in steady state
//! spawning allocates nothing.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::core;
use crate::remote::Remote;

/// The task is in a queue.
const QUEUED: u32 = 1;
/// The future is done or dropped.
const COMPLETE: u32 = 2;

/// Sizes in which task memory is kept for reuse, header included.
pub(crate) const CLASS_BYTES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];
/// Class of a task that is larger than all classes, or more strictly aligned: allocated and freed each time.
const CLASS_NONE: u8 = CLASS_BYTES.len() as u8;
/// Alignment of a task's memory: one cache line, so that two tasks never share one.
const TASK_ALIGN: usize = 64;

pub(crate) struct Header {
    state: AtomicU32,
    refs: AtomicU32,
    next: AtomicPtr<Header>,
    remote: Arc<Remote>,
    vtable: Cell<&'static VTable>,
    slot: Cell<u32>,
    class: u8,
    layout: Layout,
}

struct VTable {
    poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    drop_future: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Cellar<F> {
    header: Header,
    future: F,
}

impl Header {
    pub(crate) fn set_next(task: NonNull<Header>, next: *mut Header) {
        // SAFETY: the caller holds a reference, so the header is alive; `next` is atomic.
        unsafe { task.as_ref() }.next.store(next, Ordering::Relaxed);
    }

    pub(crate) fn next(task: NonNull<Header>) -> *mut Header {
        // SAFETY: as in `set_next`.
        unsafe { task.as_ref() }.next.load(Ordering::Relaxed)
    }
}

/// An owned reference to a task.
pub(crate) struct TaskRef(NonNull<Header>);

impl TaskRef {
    /// Makes a task on the current core from `future`; `recycled` is memory of the right class, if there is
    /// any.
    pub(crate) fn new<F>(
        future: F,
        remote: &Arc<Remote>,
        recycled: impl FnOnce(u8) -> Option<TaskMemory>,
    ) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let needed = Layout::new::<Cellar<F>>();
        let class = class_of(needed);
        let memory = match recycled(class) {
            Some(memory) => ManuallyDrop::new(memory).0,
            None => allocate(class, needed, remote),
        };
        let vtable: &'static VTable =
            const { &VTable { poll: poll_future::<F>, drop_future: drop_future::<F> } };
        // SAFETY: the memory is of this class, so it is large and aligned enough for `Cellar<F>` (see
        // `class_of`), its header is initialised and nobody else refers to it, its future is vacant.
        unsafe {
            let header = memory.as_ref();
            header.state.store(0, Ordering::Relaxed);
            header.refs.store(1, Ordering::Relaxed);
            header.vtable.set(vtable);
            ptr::write(&raw mut (*memory.cast::<Cellar<F>>().as_ptr()).future, future);
        }
        TaskRef(memory)
    }

    fn header(&self) -> &Header {
        // SAFETY: we hold a reference, so the header is alive.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn set_slot(&self, slot: u32) {
        self.header().slot.set(slot);
    }

    pub(crate) fn slot(&self) -> u32 {
        self.header().slot.get()
    }

    pub(crate) fn into_raw(self) -> NonNull<Header> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` came from [`TaskRef::into_raw`] and is taken back once.
    pub(crate) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        TaskRef(raw)
    }

    pub(crate) fn another(&self) -> TaskRef {
        self.header().refs.fetch_add(1, Ordering::Relaxed);
        TaskRef(self.0)
    }

    /// Marks a freshly made task as queued, so that it can be put into the run queue.
    pub(crate) fn mark_queued(&self) {
        self.header().state.fetch_or(QUEUED, Ordering::AcqRel);
    }

    /// Polls the future. Must be called on the owning core, and not from within the same task.
    /// Returns true when the task has just ended.
    pub(crate) fn poll(&self) -> bool {
        let header = self.header();
        let before = header.state.fetch_and(!QUEUED, Ordering::AcqRel);
        if before & COMPLETE != 0 {
            return false;
        }
        // SAFETY: the waker borrows our reference and is not dropped, so it takes none of its own.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(self.0)) });
        let mut context = Context::from_waker(&waker);
        // SAFETY: the future is there (not COMPLETE) and only this core polls it; the run loop polls a task
        // only from the queue and never nested in itself, since `poll` runs to the end before the next pop.
        if unsafe { (header.vtable.get().poll)(self.0, &mut context) }.is_pending() {
            return false;
        }
        self.discard_future();
        true
    }

    /// Drops the future if it is still there. Owning core only.
    pub(crate) fn discard_future(&self) {
        let header = self.header();
        if header.state.fetch_or(COMPLETE, Ordering::AcqRel) & COMPLETE == 0 {
            // SAFETY: COMPLETE was clear, so the future is there, and now nobody else will touch it.
            unsafe { (header.vtable.get().drop_future)(self.0) }
        }
    }
}

impl Drop for TaskRef {
    fn drop(&mut self) {
        // SAFETY: we own one reference and give it up here.
        unsafe { release(self.0) }
    }
}

/// Memory of an ended task: an initialised header, a vacant future, no references.
pub(crate) struct TaskMemory(NonNull<Header>);

impl TaskMemory {
    pub(crate) fn class(&self) -> u8 {
        // SAFETY: the header of recycled memory stays initialised.
        unsafe { self.0.as_ref() }.class
    }
}

impl Drop for TaskMemory {
    fn drop(&mut self) {
        // SAFETY: nobody refers to this memory any more, and its future is vacant.
        unsafe { free(self.0) }
    }
}

fn class_of(needed: Layout) -> u8 {
    if needed.align() > TASK_ALIGN {
        return CLASS_NONE;
    }
    CLASS_BYTES.iter().position(|&bytes| needed.size() <= bytes).map_or(CLASS_NONE, |class| class as u8)
}

fn allocate(class: u8, needed: Layout, remote: &Arc<Remote>) -> NonNull<Header> {
    let layout = match CLASS_BYTES.get(class as usize) {
        Some(&bytes) => Layout::from_size_align(bytes, TASK_ALIGN).unwrap_or(needed),
        None => needed,
    };
    // SAFETY: the layout is not empty, it holds a header.
    let memory = unsafe { alloc(layout) }.cast::<Header>();
    let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
    let vtable: &'static VTable = &VTable { poll: poll_vacant, drop_future: drop_vacant };
    // SAFETY: the memory is ours and large enough; `Cellar` is repr(C), so the header comes first.
    unsafe {
        memory.write(Header {
            state: AtomicU32::new(COMPLETE),
            refs: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            remote: Arc::clone(remote),
            vtable: Cell::new(vtable),
            slot: Cell::new(u32::MAX),
            class,
            layout,
        });
    }
    memory
}

/// # Safety
/// No reference is left and the future is vacant.
unsafe fn free(memory: NonNull<Header>) {
    // SAFETY: by contract the header is initialised and ours alone.
    unsafe {
        let layout = memory.as_ref().layout;
        ptr::drop_in_place(memory.as_ptr());
        dealloc(memory.as_ptr().cast(), layout);
    }
}

/// # Safety
/// The caller owns a reference and gives it up.
unsafe fn release(task: NonNull<Header>) {
    // SAFETY: the reference keeps the header alive until `fetch_sub`; whoever takes the last one has it
    // alone, and the acquire side of AcqRel makes all earlier uses visible to it.
    unsafe {
        if task.as_ref().refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // The future is gone: the alive reference is given up only after COMPLETE.
        let memory = TaskMemory(task);
        if memory.class() != CLASS_NONE {
            core::recycle(Arc::as_ptr(&task.as_ref().remote), memory);
        }
    }
}

unsafe fn poll_future<F: Future<Output = ()>>(task: NonNull<Header>, context: &mut Context<'_>) -> Poll<()> {
    // SAFETY: the vtable was set together with a future of type F in this memory, which never moves.
    unsafe { Pin::new_unchecked(&mut (*task.cast::<Cellar<F>>().as_ptr()).future).poll(context) }
}

unsafe fn drop_future<F>(task: NonNull<Header>) {
    // SAFETY: as in `poll_future`; called once, by whoever set COMPLETE.
    unsafe { ptr::drop_in_place(&raw mut (*task.cast::<Cellar<F>>().as_ptr()).future) }
}

unsafe fn poll_vacant(_: NonNull<Header>, _: &mut Context<'_>) -> Poll<()> {
    Poll::Pending
}

unsafe fn drop_vacant(_: NonNull<Header>) {}

static WAKER: RawWakerVTable = RawWakerVTable::new(waker_clone, waker_wake, waker_wake_by_ref, waker_drop);

fn raw_waker(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr().cast_const().cast(), &WAKER)
}

fn from_data(data: *const ()) -> NonNull<Header> {
    // SAFETY: the data of our wakers is always a header's address.
    unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
}

unsafe fn waker_clone(data: *const ()) -> RawWaker {
    let task = from_data(data);
    // SAFETY: the waker that is cloned holds (or borrows) a reference.
    unsafe { task.as_ref() }.refs.fetch_add(1, Ordering::Relaxed);
    raw_waker(task)
}

unsafe fn waker_wake(data: *const ()) {
    let task = from_data(data);
    // SAFETY: the waker's own reference keeps the header alive; it either goes into a queue or is given up.
    unsafe {
        if task.as_ref().state.fetch_or(QUEUED, Ordering::AcqRel) & (QUEUED | COMPLETE) != 0 {
            release(task);
        } else {
            enqueue(TaskRef(task));
        }
    }
}

unsafe fn waker_wake_by_ref(data: *const ()) {
    let task = from_data(data);
    // SAFETY: the waker keeps the header alive; the queue gets a reference of its own.
    unsafe {
        let header = task.as_ref();
        if header.state.fetch_or(QUEUED, Ordering::AcqRel) & (QUEUED | COMPLETE) == 0 {
            header.refs.fetch_add(1, Ordering::Relaxed);
            enqueue(TaskRef(task));
        }
    }
}

unsafe fn waker_drop(data: *const ()) {
    // SAFETY: the dropped waker owns a reference.
    unsafe { release(from_data(data)) }
}

fn enqueue(task: TaskRef) {
    let remote = Arc::as_ptr(&task.header().remote);
    if let Err(task) = core::enqueue_local(remote, task) {
        // The reference in the list keeps the task, and with it the Remote, alive.
        // SAFETY: `remote` is kept alive by the header, and the header by the reference that we pass on; once
        // it is on the list the owning core may release it, so a clone of the Arc is held over the call.
        let remote = unsafe { Arc::clone(&task.0.as_ref().remote) };
        remote.push_woken(task.into_raw());
    }
}
