//! The journal of a lane: group commit, marks, and space (PROTOCOL S1, S5, S10, S15).
//!
//! Records collect in a block while the blocks before it are being written; a block goes out when little is in
//! flight, or when it is full. Every record has a number. Two frontiers run behind the newest: all records below
//! *completed* have their data on the device, all below *applied* are visible in the tables as well. The journal's tail
//! can move up to *applied*.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use ashlar_io::sync::Notify;
use ashlar_io::{BLOCK_BYTES, Buffer, Bug, Disk, World};

use super::types::{LaneError, LaneSite};
use crate::format::journal::RECORD_BYTES;
use crate::format::{JournalBuilder, JournalHeader, Record};

/// Journal blocks in flight at once. More would thin out group commit (S10), fewer would idle a deep device.
const BLOCKS_IN_FLIGHT: usize = 4;

/// Bytes of a block kept for commit marks.
const MARK_BYTES: usize = 512;

/// Share of the journal from which on a checkpoint is due (S15).
const CHECKPOINT_PERCENT: u64 = 50;

/// Share of the journal that ordinary records leave free (S15).
const RESERVE_PERCENT: u64 = 10;

/// Share that everybody leaves to checkpoints, whose own records wait for nobody: else who frees space waits for space.
const CHECKPOINT_RESERVE_PERCENT: u64 = 5;

/// Blocks that a checkpoint does not use: one that collects, and one that an opening begins with.
const KEPT_BLOCKS: u64 = 2;

/// From where a journal goes on, as recovery found it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resume {
    /// Sequence of the next block.
    pub(super) sequence: u64,
    /// Oldest block that recovery needs.
    pub(super) tail: u64,
    /// Number of the next record.
    pub(super) record: u64,
    /// The first record whose data is not known to have landed.
    pub(super) landed: u64,
    /// The incarnation of this opening.
    pub(super) incarnation: u32,
    /// CRC of the block before.
    pub(super) previous_crc: u32,
}

/// Whether ordinary records may use the reserve (S15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Only if 10% stay free.
    Ordinary,
    /// Marks, closes, frees.
    Reserve,
}

/// A block on its way.
#[derive(Debug, Default)]
pub(super) struct BlockState {
    durable: Cell<bool>,
    waiting: Notify,
}

/// A record in the journal, durable or on its way.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    /// Number of the record.
    pub(super) record: u64,
    block: Rc<BlockState>,
}

/// Records that collect for a block.
struct Collected {
    builder: JournalBuilder<Vec<u8>>,
    first_record: u64,
    state: Rc<BlockState>,
}

/// A block that is being written.
struct Sent {
    state: Rc<BlockState>,
    written: bool,
    /// Its landed mark.
    landed: u64,
}

const COMPLETED: u8 = 1;
const APPLIED: u8 = 2;

/// Which records have their data on the device and are visible.
struct Progress {
    /// Number of the record that the first flag is about.
    base: u64,
    flags: VecDeque<u8>,
    /// All records below have completed.
    completed: u64,
    /// All records below are applied.
    applied: u64,
}

impl Progress {
    fn push(&mut self) -> u64 {
        self.flags.push_back(0);
        self.base + self.flags.len() as u64 - 1
    }

    fn next(&self) -> u64 {
        self.base + self.flags.len() as u64
    }

    fn set(&mut self, record: u64, flag: u8) {
        let Some(at) = record.checked_sub(self.base).map(|at| at as usize) else { return };
        if let Some(flags) = self.flags.get_mut(at) {
            *flags |= flag;
        }
        for (frontier, flag) in [(&mut self.completed, COMPLETED), (&mut self.applied, APPLIED)] {
            while self.flags.get((*frontier - self.base) as usize).is_some_and(|flags| flags & flag != 0) {
                *frontier += 1;
            }
        }
        while self.base < self.completed.min(self.applied) {
            self.flags.pop_front();
            self.base += 1;
        }
    }
}

struct State {
    next_sequence: u64,
    tail: u64,
    incarnation: u32,
    previous_crc: u32,
    /// First records of the blocks from the tail to the newest sealed one.
    firsts: VecDeque<u64>,
    /// Full blocks, oldest first, then the one that collects.
    queue: VecDeque<Collected>,
    in_flight: VecDeque<Sent>,
    /// All blocks below are written.
    written: u64,
    /// Of a volatile device: all blocks below are flushed (S5, S6).
    flushed: u64,
    progress: Progress,
    /// All records below have landed: completed and, on a volatile device, flushed.
    landed: u64,
    /// Records before those of this opening are in doubt until a checkpoint holds what recovery decided: until then
    /// nothing further counts as landed, or the next recovery would take them at their word.
    in_doubt: bool,
    /// The landed mark of the newest block.
    landed_sent: u64,
    /// The newest landed mark that is written.
    landed_written: u64,
    /// The newest that is durable.
    landed_durable: u64,
    /// Memory of blocks that were written.
    spare: Vec<Vec<u8>>,
}

impl State {
    /// Begins a block.
    fn collect(&mut self) {
        let bytes = self.spare.pop().unwrap_or_else(|| vec![0; BLOCK_BYTES]);
        let first_record = self.progress.next();
        let builder = JournalBuilder::new(bytes);
        self.queue.push_back(Collected { builder, first_record, state: Rc::default() });
    }
}

/// What the lane adds to a block before it is sealed: marks of shards (S1).
pub(super) trait Marks {
    /// Appends records as long as they fit; says how many.
    fn append(&self, block: &mut JournalBuilder<Vec<u8>>) -> u64;

    /// There is one to append.
    fn pending(&self) -> bool;
}

/// See the module.
pub(super) struct Journal<W: World> {
    world: W,
    disk: W::Disk,
    site: LaneSite,
    volatile: bool,
    /// See [`super::LaneConfig::early_bytes`].
    early_bytes: usize,
    state: RefCell<State>,
    marks: RefCell<Option<Weak<dyn Marks>>>,
    pumping: Cell<bool>,
    /// Told when the tail moved.
    pub(super) freed: Notify,
    /// Told when a checkpoint is due.
    pub(super) checkpoint_due: Notify,
    stopped: RefCell<Option<String>>,
    /// Told when the lane stops.
    pub(super) on_stop: Notify,
    /// Blocks written since opening.
    pub(super) blocks_written: Cell<u64>,
}

impl<W: World> Journal<W> {
    pub(super) fn new(
        world: W,
        disk: W::Disk,
        (site, early_bytes): (LaneSite, usize),
        resume: Resume,
    ) -> Rc<Self> {
        let volatile = disk.geometry().volatile_cache;
        let state = State {
            next_sequence: resume.sequence,
            tail: resume.tail,
            incarnation: resume.incarnation,
            previous_crc: resume.previous_crc,
            firsts: VecDeque::new(),
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            written: resume.sequence,
            flushed: resume.sequence,
            progress: Progress {
                base: resume.record,
                flags: VecDeque::new(),
                completed: resume.record,
                applied: resume.record,
            },
            landed: resume.landed,
            landed_sent: resume.landed,
            landed_written: resume.landed,
            landed_durable: resume.landed,
            in_doubt: resume.landed < resume.record,
            spare: Vec::new(),
        };
        Rc::new(Self {
            world,
            disk,
            site,
            volatile,
            early_bytes,
            state: RefCell::new(state),
            marks: RefCell::new(None),
            pumping: Cell::new(false),
            freed: Notify::new(),
            checkpoint_due: Notify::new(),
            stopped: RefCell::new(None),
            on_stop: Notify::new(),
            blocks_written: Cell::new(0),
        })
    }

    /// Who adds marks to blocks.
    pub(super) fn set_marks(&self, marks: &Rc<dyn Marks>) {
        *self.marks.borrow_mut() = Some(Rc::downgrade(marks));
    }

    fn marks(&self) -> Option<Rc<dyn Marks>> {
        self.marks.borrow().as_ref()?.upgrade()
    }

    /// First records of the blocks that recovery accepted, from the tail on.
    pub(super) fn set_firsts(&self, firsts: VecDeque<u64>) {
        self.state.borrow_mut().firsts = firsts;
    }

    /// Blocks of the ring.
    fn blocks(&self) -> u64 {
        self.site.layout.journal(self.site.lane).blocks
    }

    /// Blocks between the tail and the newest, counting those that still collect.
    fn used(&self) -> u64 {
        let state = self.state.borrow();
        state.next_sequence + state.queue.len() as u64 - state.tail
    }

    /// A checkpoint is due (S15).
    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.used() * 100 >= self.blocks() * CHECKPOINT_PERCENT
    }

    /// Records of this kind may be appended.
    pub(super) fn has_room(&self, room: Room) -> bool {
        let reserve = match room {
            Room::Ordinary if !self.world.bug(Bug::FillJournalReserve) => RESERVE_PERCENT,
            _ => CHECKPOINT_RESERVE_PERCENT,
        };
        self.used() < self.blocks() * (100 - reserve) / 100
    }

    /// How far the tail can move towards `target` if records of these numbers and sizes, in order, are appended once
    /// more: the block, and its first record.
    pub(super) fn carriable(&self, target: (u64, u64), records: &[(u64, usize)]) -> (u64, u64) {
        let most = self.blocks().saturating_sub(self.used() + KEPT_BLOCKS);
        let state = self.state.borrow();
        let mut records = records.iter().peekable();
        let (mut blocks, mut room) = (0, 0);
        let mut reached = (state.tail, state.firsts.front().copied().unwrap_or(target.1));
        for (block, first) in (state.tail..=target.0).zip(&state.firsts) {
            while let Some((_, bytes)) = records.next_if(|(record, _)| record < first) {
                if *bytes > room {
                    blocks += 1;
                    room = RECORD_BYTES - MARK_BYTES;
                }
                room = room.saturating_sub(*bytes);
            }
            if blocks > most {
                break;
            }
            reached = (block, *first);
        }
        reached
    }

    /// Waits until records of this kind may be appended.
    pub(super) async fn room(&self, room: Room) -> Result<(), LaneError> {
        loop {
            self.check()?;
            if self.has_room(room) {
                return Ok(());
            }
            self.checkpoint_due.notify_one();
            self.freed.notified().await;
        }
    }

    /// The lane goes on.
    pub(super) fn check(&self) -> Result<(), LaneError> {
        match &*self.stopped.borrow() {
            Some(cause) => Err(LaneError::Stopped(cause.clone())),
            None => Ok(()),
        }
    }

    /// Stops the lane: nothing will be acknowledged any more.
    pub(super) fn stop(&self, cause: &str) {
        let mut stopped = self.stopped.borrow_mut();
        if stopped.is_some() {
            return;
        }
        *stopped = Some(cause.to_owned());
        drop(stopped);
        let waiting: Vec<_> = {
            let state = self.state.borrow();
            let queued = state.queue.iter().map(|block| Rc::clone(&block.state));
            state.in_flight.iter().map(|sent| Rc::clone(&sent.state)).chain(queued).collect()
        };
        for block in waiting {
            block.waiting.notify_all();
        }
        self.freed.notify_all();
        self.on_stop.notify_all();
    }

    /// Adds a record to the block that collects. Callers that may have to wait call [`Journal::room`] first.
    pub(super) fn append(self: &Rc<Self>, record: &Record<'_>) -> Ticket {
        let ticket = {
            let mut state = self.state.borrow_mut();
            let need = record.encoded_bytes();
            let fits = state.queue.back().is_some_and(|block| need + MARK_BYTES <= block.builder.room());
            if !fits {
                self.close_collecting(&mut state);
                state.collect();
            }
            let number = state.progress.push();
            let block = state.queue.back_mut().expect("one was pushed if none was there");
            let fitted = block.builder.push(record);
            debug_assert!(fitted.is_some(), "a record fits into an empty block");
            Ticket { record: number, block: Rc::clone(&block.state) }
        };
        self.pump();
        ticket
    }

    /// Adds the marks to the block that collects: the next record goes into another one.
    fn close_collecting(&self, state: &mut State) {
        let Some(marks) = self.marks() else { return };
        let State { queue, progress, .. } = state;
        let Some(block) = queue.back_mut() else { return };
        let added = marks.append(&mut block.builder);
        for _ in 0..added {
            let number = progress.push();
            progress.set(number, COMPLETED | APPLIED);
        }
    }

    /// Writes a block with marks alone if there is something to mark that no block has said yet (S1).
    pub(super) fn mark_idle(self: &Rc<Self>) {
        let pending = self.marks().is_some_and(|marks| marks.pending());
        {
            let state = self.state.borrow();
            let landed = state.landed > state.landed_sent;
            if !(pending || landed) || !state.queue.is_empty() {
                return;
            }
            drop(state);
            if !self.has_room(Room::Reserve) {
                return;
            }
            self.state.borrow_mut().collect();
        }
        self.pump();
    }

    /// A block that says nothing: when it is durable, so is everything before, and this incarnation has begun (S5).
    pub(super) fn barrier(self: &Rc<Self>) -> Ticket {
        let ticket = {
            let mut state = self.state.borrow_mut();
            if state.queue.is_empty() {
                state.collect();
            }
            let record = state.progress.next();
            let block = state.queue.back().expect("one was pushed if none was there");
            Ticket { record, block: Rc::clone(&block.state) }
        };
        self.pump();
        ticket
    }

    /// Waits until a record and all before it are on the device (S5).
    pub(super) async fn durable(&self, ticket: &Ticket) -> Result<(), LaneError> {
        while !ticket.block.durable.get() {
            self.check()?;
            ticket.block.waiting.notified().await;
        }
        Ok(())
    }

    /// The record's data is on the device.
    pub(super) fn completed(&self, record: u64) {
        self.progress(record, COMPLETED);
    }

    /// The record's effect is visible.
    pub(super) fn applied(&self, record: u64) {
        self.progress(record, APPLIED);
    }

    /// A record without data is visible.
    pub(super) fn done(&self, record: u64) {
        self.progress(record, COMPLETED | APPLIED);
    }

    fn progress(&self, record: u64, flag: u8) {
        let mut state = self.state.borrow_mut();
        state.progress.set(record, flag);
        if (!self.volatile && !state.in_doubt) || self.world.bug(Bug::MarkLandedEarly) {
            state.landed = state.progress.completed;
        }
    }

    /// Starts the writer if it does not run. It works behind everything that is ready now, so that records of one
    /// turn go out together.
    fn pump(self: &Rc<Self>) {
        if self.pumping.replace(true) {
            return;
        }
        let journal = Rc::clone(self);
        self.world.spawn(async move {
            while journal.wants_to_write() {
                let buffer = journal.world.spare_buffer(1);
                journal.send(buffer);
            }
            journal.pumping.set(false);
            // Something may have come while the last buffer was awaited.
            if journal.wants_to_write() {
                journal.pump();
            }
        });
    }

    fn wants_to_write(&self) -> bool {
        let state = self.state.borrow();
        let Some(block) = state.queue.front() else { return false };
        if self.stopped.borrow().is_some() || state.next_sequence - state.tail >= self.blocks() {
            return false;
        }
        match state.in_flight.len() {
            0 => true,
            BLOCKS_IN_FLIGHT.. => false,
            _ => state.queue.len() > 1 || RECORD_BYTES - block.builder.room() >= self.early_bytes,
        }
    }

    /// Seals the oldest collected block and writes it.
    fn send(self: &Rc<Self>, mut buffer: W::Buffer) {
        let (sequence, data) = {
            let mut state = self.state.borrow_mut();
            if state.queue.len() == 1 {
                self.close_collecting(&mut state);
            }
            let Some(block) = state.queue.pop_front() else { return };
            let sequence = state.next_sequence;
            state.next_sequence += 1;
            // On a volatile device a block is durable once it was flushed (S5, S6).
            let durable = if self.volatile { state.flushed } else { state.written };
            let header = JournalHeader {
                sequence,
                incarnation: state.incarnation,
                predecessor: state.previous_crc,
                first_record: block.first_record,
                acked_through: durable - 1,
                landed: state.landed,
            };
            state.landed_sent = state.landed;
            state.firsts.push_back(block.first_record);
            let landed = state.landed;
            state.in_flight.push_back(Sent { state: block.state, written: false, landed });
            let LaneSite { device, layout, lane } = &self.site;
            let (bytes, crc) = block.builder.seal(&header, layout, *device, *lane);
            state.previous_crc = crc;
            buffer.copy_from_slice(&bytes);
            state.spare.push(bytes);
            (sequence, buffer.freeze())
        };
        self.blocks_written.set(self.blocks_written.get() + 1);
        let journal = Rc::clone(self);
        let address = self.site.layout.journal_block(self.site.lane, sequence);
        self.world.spawn(async move {
            let result = super::retry::write(&journal.world, &journal.disk, address, data).await;
            match result {
                Ok(()) => journal.block_written(sequence),
                Err(error) => journal.stop(&format!("its journal cannot be written: {error}")),
            }
        });
        if self.is_checkpoint_due() {
            self.checkpoint_due.notify_one();
        }
    }

    /// A block is on the device: it and its followers are durable once all before them are (S5).
    fn block_written(self: &Rc<Self>, sequence: u64) {
        let durable: Vec<_> = {
            let mut state = self.state.borrow_mut();
            let at = (sequence - state.written) as usize;
            if let Some(sent) = state.in_flight.get_mut(at) {
                sent.written = true;
                if self.world.bug(Bug::AcknowledgeOutOfOrder) {
                    sent.state.durable.set(true);
                    sent.state.waiting.notify_all();
                }
            }
            let mut durable = Vec::new();
            while state.in_flight.front().is_some_and(|sent| sent.written) {
                let Some(sent) = state.in_flight.pop_front() else { break };
                durable.push(sent.state);
                state.written += 1;
                state.landed_written = sent.landed;
            }
            if !self.volatile {
                state.landed_durable = state.landed_written;
            }
            durable
        };
        for block in durable {
            block.durable.set(true);
            block.waiting.notify_all();
        }
        self.pump();
    }

    /// What a device flush that starts now makes durable: blocks, their landed mark, and records.
    pub(super) fn before_flush(&self) -> (u64, u64, u64) {
        let state = self.state.borrow();
        (state.written, state.landed_written, state.progress.completed)
    }

    /// The flush that began at `before` succeeded.
    pub(super) fn after_flush(&self, (written, landed, completed): (u64, u64, u64)) {
        let mut state = self.state.borrow_mut();
        state.flushed = state.flushed.max(written);
        state.landed_durable = state.landed_durable.max(landed);
        if self.volatile && !state.in_doubt {
            state.landed = state.landed.max(completed);
        }
    }

    /// A checkpoint holds everything that recovery decided.
    pub(super) fn doubt_is_over(&self) {
        let mut state = self.state.borrow_mut();
        state.in_doubt = false;
        if !self.volatile {
            state.landed = state.progress.completed;
        }
    }

    /// Records below this are durably known to have landed.
    pub(super) fn landed_durable(&self) -> u64 {
        self.state.borrow().landed_durable
    }

    /// Completed records that no flush has made durable yet.
    pub(super) fn is_flush_due(&self) -> bool {
        let state = self.state.borrow();
        self.volatile && state.landed < state.progress.completed
    }

    /// The oldest block that recovery would need after a checkpoint of what is applied now, and the number of its
    /// first record.
    pub(super) fn next_tail(&self) -> (u64, u64) {
        let state = self.state.borrow();
        let applied = match self.world.bug(Bug::CheckpointUnlanded) {
            true => state.progress.next(),
            false => state.progress.applied,
        };
        let written = (state.written - state.tail) as usize;
        // The newest written block whose first record is not beyond what is applied: it can be needed in part.
        let blocks = state.firsts.iter().take(written).take_while(|&&first| first <= applied).count();
        match blocks.checked_sub(1) {
            None => (state.tail, state.firsts.front().copied().unwrap_or(applied)),
            Some(last) => (state.tail + last as u64, state.firsts[last]),
        }
    }

    /// A checkpoint is complete: blocks before `tail` are free.
    pub(super) fn move_tail(self: &Rc<Self>, tail: u64) {
        {
            let mut state = self.state.borrow_mut();
            let freed = (tail - state.tail) as usize;
            state.firsts.drain(..freed);
            state.tail = tail;
        }
        self.freed.notify_all();
        self.pump();
    }

    /// The oldest block that is kept.
    pub(super) fn tail(&self) -> u64 {
        self.state.borrow().tail
    }

    /// The incarnation of this opening.
    pub(super) fn incarnation(&self) -> u32 {
        self.state.borrow().incarnation
    }
}
