//! A command's data on its way: from the capsule or by R2T, and back in C2HData (NVME N1, N5, N14).

use std::cell::Cell;
use std::rc::Rc;

use ashlar_nvme::command::Psdt;
use ashlar_nvme::opcode::DataDirection;
use ashlar_nvme::pdu::data::Last;
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::{CommandId, Sqe, Status};
use ashlar_reactor::IoBuf;
use ashlar_reactor::net::Received;

use crate::backend::{OpenBackend, ReadData, ReceivedSlice, WriteData};
use crate::controller::connect::FlowControl;
use crate::io::DataPort;
use crate::limits::{R2TS_PER_COMMAND, SLICE_BYTES};
use crate::transport::budget::Allowance;
use crate::transport::queue::Queue;
use crate::transport::transfers::{DigestCheck, Standing, Ttag};

/// Data that came with a command.
#[derive(Debug)]
pub(crate) enum CapsuleBytes {
    /// None.
    None,
    /// It lies where it arrived.
    Received { received: Rc<Received>, start: usize, len: usize },
    /// It arrived in pieces, and was put together.
    Buffer(IoBuf),
}

impl CapsuleBytes {
    pub(crate) fn len(&self) -> u32 {
        match self {
            CapsuleBytes::None => 0,
            CapsuleBytes::Received { len, .. } => *len as u32,
            CapsuleBytes::Buffer(buffer) => buffer.len() as u32,
        }
    }
}

impl CapsuleBytes {
    /// The same bytes in a buffer of their own.
    pub(crate) fn into_own(self) -> CapsuleBytes {
        match self {
            CapsuleBytes::Received { received, start, len } => {
                let mut buffer = IoBuf::take(len).unwrap_or_else(|| IoBuf::heap(len));
                // The range was taken from what was received.
                buffer.copy_from_slice(&received[start..start + len]);
                CapsuleBytes::Buffer(buffer)
            }
            own => own,
        }
    }
}

/// In-capsule data with the outcome of its digest.
#[derive(Debug)]
pub(crate) struct CapsuleData {
    pub(crate) bytes: CapsuleBytes,
    pub(crate) digest: DigestCheck,
}

impl CapsuleData {
    pub(crate) const NONE: CapsuleData =
        CapsuleData { bytes: CapsuleBytes::None, digest: DigestCheck::Passed };
}

/// Where a command's data is. A command without data may leave its descriptor empty.
pub(crate) fn data_pointer(sqe: &Sqe, capsule_bytes: u32) -> Result<DataPointer, Status> {
    let without_data = DataDirection::of(sqe.opcode) == DataDirection::None;
    if without_data && sqe.dptr.length.get() == 0 && sqe.psdt()? != Psdt::Prp {
        return Ok(DataPointer::None);
    }
    DataPointer::parse(sqe, capsule_bytes)
}

/// Whether the data PDUs have answered the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// A response must follow.
    No,
    /// The last data PDU had the SUCCESS flag.
    ByData,
}

/// Transfers of one command that were asked for and not handed over, the oldest first.
#[derive(Debug, Clone, Copy)]
struct Window {
    tags: [Ttag; R2TS_PER_COMMAND],
    len: usize,
    /// First byte that has not been asked for.
    next: u32,
}

impl Window {
    const EMPTY: Window = Window { tags: [Ttag(0); R2TS_PER_COMMAND], len: 0, next: 0 };

    fn tags(&self) -> &[Ttag] {
        self.tags.get(..self.len).unwrap_or_default()
    }

    fn is_full(&self) -> bool {
        self.len == R2TS_PER_COMMAND
    }

    /// One more was asked for, unless it is full.
    fn push(&mut self, ttag: Ttag, bytes: u32) {
        if let Some(place) = self.tags.get_mut(self.len) {
            *place = ttag;
            self.len += 1;
            self.next += bytes;
        }
    }

    /// The oldest is handed over.
    fn shift(&mut self) {
        self.tags.rotate_left(1);
        self.len = self.len.saturating_sub(1);
    }
}

/// The data of one command.
pub(crate) struct HostData<'a, F: OpenBackend> {
    queue: &'a Queue<F>,
    cid: CommandId,
    pointer: DataPointer,
    capsule: Cell<CapsuleBytes>,
    /// Bytes that go to the host in all.
    to_host: u32,
    answered: Cell<Answered>,
    /// Without flow control the last data PDU can answer (NVME N1).
    success: Cell<FlowControl>,
    window: Cell<Window>,
}

impl<F: OpenBackend> Drop for HostData<'_, F> {
    fn drop(&mut self) {
        for ttag in self.window.get().tags() {
            self.queue.transfers.leave(*ttag);
        }
    }
}

impl<'a, F: OpenBackend> HostData<'a, F> {
    pub(crate) fn new(
        queue: &'a Queue<F>,
        cid: CommandId,
        pointer: DataPointer,
        capsule: CapsuleBytes,
        to_host: u32,
    ) -> Self {
        let answered = Cell::new(Answered::No);
        let success = Cell::new(queue.flow_control);
        let window = Cell::new(Window::EMPTY);
        Self { queue, cid, pointer, capsule: Cell::new(capsule), to_host, answered, success, window }
    }

    pub(crate) fn answered(&self) -> Answered {
        self.answered.get()
    }

    /// A response follows in any case.
    pub(crate) fn needs_response(&self) {
        self.success.set(FlowControl::Enabled);
    }

    fn in_capsule(&self, at: usize, len: usize) -> Result<WriteData, Status> {
        match self.capsule.replace(CapsuleBytes::None) {
            CapsuleBytes::None => Err(Status::INTERNAL_ERROR),
            CapsuleBytes::Received { received, start, len: have } => {
                let from = start + at;
                if at + len < have {
                    let rest = CapsuleBytes::Received { received: Rc::clone(&received), start, len: have };
                    self.capsule.set(rest);
                }
                let slice = ReceivedSlice::new(received, from..from + len).ok_or(Status::INTERNAL_ERROR)?;
                Ok(WriteData::Received(slice))
            }
            CapsuleBytes::Buffer(buffer) if at == 0 && len == buffer.len() => Ok(WriteData::Buffer(buffer)),
            CapsuleBytes::Buffer(buffer) => {
                let mut part = IoBuf::heap(len);
                part.copy_from_slice(buffer.get(at..at + len).ok_or(Status::INTERNAL_ERROR)?);
                self.capsule.set(CapsuleBytes::Buffer(buffer));
                Ok(WriteData::Buffer(part))
            }
        }
    }

    /// Waits until the host owes no data that was asked for: before that the command is not answered, however it ended
    /// (NVME N5). A host that is told of a command's end forgets the data that it still sends for it.
    pub(crate) async fn settle(&self) {
        for ttag in self.window.get().tags() {
            self.queue.transfers.drained(*ttag).await;
        }
    }

    async fn by_r2t(&self, offset: u32, len: u32) -> Result<WriteData, Status> {
        let queue = self.queue;
        if self.window.get().len == 0 {
            if offset != self.window.get().next {
                return Err(Status::INTERNAL_ERROR);
            }
            self.ask(len).await?;
        }
        self.ask_ahead();
        let Some(&ttag) = self.window.get().tags().first() else { return Err(Status::INTERNAL_ERROR) };
        let buffer = queue.transfers.complete(ttag).await?;
        let mut window = self.window.get();
        window.shift();
        self.window.set(window);
        queue.transfers.leave(ttag);
        // What was waited for may have come after the controller's end (PROTOCOL R9).
        queue.may_go_on()?;
        if buffer.len() != len as usize {
            return Err(Status::INTERNAL_ERROR);
        }
        // The host sends on while this part is worked on.
        self.ask_ahead();
        Ok(WriteData::Buffer(buffer))
    }

    /// Asks for the next part, when there is room for it.
    async fn ask(&self, len: u32) -> Result<(), Status> {
        let queue = self.queue;
        let room = async {
            // Bounded per queue, then fair among the queues of the core (NVME N14).
            let allowance = queue.transfers.budget.take(len).await?;
            let buffer = if allowance.is_only_one() {
                // A queue's reserve: its first transfer does not wait for buffers that hosts of other queues hold.
                IoBuf::take(len as usize).unwrap_or_else(|| IoBuf::heap(len as usize))
            } else {
                IoBuf::wait(len as usize).await.ok_or(Status::INTERNAL_ERROR)?
            };
            queue.outbox.room_for_header().await.map_err(|_| Status::ABORTED_SQ_DELETION)?;
            Ok((allowance, buffer))
        };
        let (allowance, buffer) = queue.aborts.wait(self.cid, room).await??;
        queue.may_go_on()?;
        self.open(len, buffer, allowance)
    }

    /// Asks for further parts, as many as the host takes R2Ts for (NVMe-TCP 1.0 §3.5.2, MAXR2T), as long as nothing
    /// has to be waited for: who waits goes first.
    fn ask_ahead(&self) {
        let queue = self.queue;
        while !self.window.get().is_full() && queue.may_go_on().is_ok() && queue.outbox.has_room_for_header()
        {
            let window = self.window.get();
            let standing = |ttag: &Ttag| queue.transfers.standing(*ttag);
            let owed = window.tags().iter().filter(|ttag| standing(ttag) == Standing::Owed).count();
            let failed = window.tags().iter().any(|ttag| standing(ttag) == Standing::Failed);
            let len = SLICE_BYTES.min(self.pointer.len().saturating_sub(window.next));
            if len == 0 || failed || owed >= queue.terms.r2ts_max {
                return;
            }
            let Some(allowance) = queue.transfers.budget.try_take(len) else { return };
            let Some(buffer) = IoBuf::take_spare(len as usize) else { return };
            if self.open(len, buffer, allowance).is_err() {
                return;
            }
        }
    }

    /// Sends an R2T for the next part.
    fn open(&self, len: u32, buffer: IoBuf, allowance: Allowance<'_>) -> Result<(), Status> {
        let queue = self.queue;
        let mut window = self.window.get();
        let offset = window.next;
        let opened = queue.transfers.open(self.cid, offset, buffer, allowance);
        let ttag = opened.ok_or(Status::INTERNAL_ERROR)?;
        window.push(ttag, len);
        self.window.set(window);
        queue.outbox.r2t(self.cid, ttag.0, offset, len).map_err(|_| Status::ABORTED_SQ_DELETION)
    }
}

impl<F: OpenBackend> DataPort for HostData<'_, F> {
    async fn fetch(&self, offset: u32, len: u32) -> Result<WriteData, Status> {
        match self.pointer {
            DataPointer::None => Err(Status::DATA_SGL_LENGTH_INVALID),
            DataPointer::InCapsule { offset: base, .. } => {
                self.in_capsule((base + offset) as usize, len as usize)
            }
            DataPointer::Transport { .. } => self.by_r2t(offset, len).await,
        }
    }

    async fn wait<T>(&self, place: impl Future<Output = T>) -> Result<T, Status> {
        self.queue.aborts.wait(self.cid, place).await
    }

    async fn deliver(&self, offset: u32, len: u32, data: ReadData) -> Result<(), Status> {
        let queue = self.queue;
        queue.outbox.room_for(len as usize).await.map_err(|_| Status::ABORTED_SQ_DELETION)?;
        let last = match (offset + len == self.to_host, self.success.get()) {
            (false, _) => Last::No,
            // NVME N1
            (true, FlowControl::Disabled) => Last::YesWithSuccess,
            (true, FlowControl::Enabled) => Last::Yes,
        };
        queue.outbox.data(self.cid, offset, len, data, last).map_err(|_| Status::ABORTED_SQ_DELETION)?;
        if last == Last::YesWithSuccess {
            self.answered.set(Answered::ByData);
        }
        Ok(())
    }
}
