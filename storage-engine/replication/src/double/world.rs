//! A world for tests: one thread, virtual time, tasks in the order in which they were woken.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut, Range};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ashlar_io::{BLOCK_BYTES, Buffer, Bug, Data, Disk, DiskError, DiskGeometry, Instant, Tearing, World};

/// Polls of a test after which it counts as stuck.
const STEPS_MAX: u64 = 10_000_000;

#[derive(Debug)]
pub(crate) struct Bytes(Vec<u8>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Buffer for Bytes {
    type Data = Shared;

    fn freeze(self) -> Shared {
        let range = 0..self.0.len();
        Shared { bytes: Arc::from(self.0), range }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Shared {
    bytes: Arc<[u8]>,
    range: Range<usize>,
}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Data for Shared {
    fn slice(&self, part: Range<usize>) -> Self {
        let start = self.range.start;
        Self { bytes: Arc::clone(&self.bytes), range: start + part.start..start + part.end }
    }
}

/// Replication never touches a disk.
#[derive(Debug, Clone)]
pub(crate) struct NoDisk;

impl Disk for NoDisk {
    type Buffer = Bytes;

    fn geometry(&self) -> DiskGeometry {
        DiskGeometry { blocks: 0, volatile_cache: false, tearing: Tearing::Atomic, discard: false }
    }

    async fn read(&self, _block: u64, buffer: Bytes) -> (Result<(), DiskError>, Bytes) {
        (Ok(()), buffer)
    }

    async fn write(&self, _block: u64, _data: Shared) -> Result<(), DiskError> {
        Ok(())
    }

    async fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }

    async fn discard(&self, _blocks: Range<u64>) -> Result<(), DiskError> {
        Ok(())
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Inner {
    now: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    next: Cell<u64>,
    woken: Arc<Mutex<VecDeque<u64>>>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    random: Cell<u64>,
    bug: Option<Bug>,
}

#[derive(Clone, Default)]
pub(crate) struct TestWorld(Rc<Inner>);

struct TaskWaker {
    id: u64,
    woken: Arc<Mutex<VecDeque<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock().expect("nobody panics with it");
        if !woken.contains(&self.id) {
            woken.push_back(self.id);
        }
    }
}

/// The task that a test itself is.
const MAIN: u64 = u64::MAX;

impl TestWorld {
    pub(crate) fn with_bug(bug: Bug) -> Self {
        Self(Rc::new(Inner { bug: Some(bug), ..Inner::default() }))
    }

    /// Runs a test to its end; time jumps to the next timer when nothing else is left.
    pub(crate) fn run<T>(&self, test: impl Future<Output = T>) -> T {
        let mut test = pin!(test);
        self.waker(MAIN).wake();
        for _ in 0..STEPS_MAX {
            let next = self.0.woken.lock().expect("nobody panics with it").pop_front();
            match next {
                Some(MAIN) => {
                    let waker = self.waker(MAIN);
                    if let Poll::Ready(out) = test.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return out;
                    }
                }
                Some(id) => {
                    let Some(mut task) = self.0.tasks.borrow_mut().remove(&id) else { continue };
                    let waker = self.waker(id);
                    if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                        self.0.tasks.borrow_mut().insert(id, task);
                    }
                }
                None => {
                    let timer = self.0.timers.borrow_mut().pop_first();
                    let ((at, _), waker) = timer.expect("somebody must be about to do something");
                    self.0.now.set(at.max(self.0.now.get()));
                    waker.wake();
                }
            }
        }
        panic!("the test does not end");
    }

    fn waker(&self, id: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { id, woken: Arc::clone(&self.0.woken) }))
    }

    fn number(&self) -> u64 {
        let number = self.0.next.get();
        self.0.next.set(number + 1);
        number
    }
}

impl World for TestWorld {
    type Disk = NoDisk;
    type Buffer = Bytes;

    fn now(&self) -> Instant {
        Instant::from_ns(self.0.now.get())
    }

    async fn sleep(&self, duration: Duration) {
        let due = self.now() + duration;
        let number = self.number();
        poll_fn(|context| {
            if self.now() >= due {
                return Poll::Ready(());
            }
            self.0.timers.borrow_mut().insert((due.as_ns(), number), context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let id = self.number();
        self.0.tasks.borrow_mut().insert(id, Box::pin(task));
        self.waker(id).wake();
    }

    async fn next_turn(&self) {
        let mut passed = false;
        poll_fn(|context| {
            if std::mem::replace(&mut passed, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    fn random(&self) -> u64 {
        let next = self.0.random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0.random.set(next);
        next >> 16
    }

    async fn buffer(&self, blocks: usize) -> Bytes {
        self.spare_buffer(blocks)
    }

    fn spare_buffer(&self, blocks: usize) -> Bytes {
        Bytes(vec![0xee; blocks * BLOCK_BYTES])
    }

    const MAX_BUFFER_BLOCKS: usize = 64;

    fn bug(&self, bug: Bug) -> bool {
        self.0.bug == Some(bug)
    }
}
