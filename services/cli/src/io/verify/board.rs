//! What happens on the core: passes of writes and reads, and the floors that they raise.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use ashlar_initiator::{Fua, Payload};
use ashlar_nvme::Lba;
use ashlar_reactor::{Instant, IoBuf, now, spawn_join};
use clap::ValueEnum;

use super::findings::Findings;
use super::order::Visits;
use super::pattern::{self, BLOCK_BYTES, Expect, Generation, Verdict, Wrong};
use super::state::CHUNK;
use crate::connect::Doing;
use crate::exit::{Exit, Failure, Outcome};
use crate::io::progress::Done;
use crate::io::session::current;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// When a write counts as acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CountAfter {
    /// When it completes.
    Write,
    /// When a flush after it completes: for devices with a volatile cache that will lose power.
    Flush,
}

/// What is written and checked.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// How the namespace is called in messages.
    pub(crate) name: String,
    /// Bytes of a logical block.
    pub(crate) lba_bytes: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Bytes per command.
    pub(crate) unit: u64,
    /// Commands in flight.
    pub(crate) depth: u16,
    /// Seed of the pattern.
    pub(crate) seed: u64,
    /// When a write counts.
    pub(crate) count_after: CountAfter,
    /// Whether writes force unit access.
    pub(crate) fua: Fua,
    /// Whether the state is known, or only that there should be a pattern.
    pub(crate) knowledge: Knowledge,
}

/// What a check may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Floors of this run or of a state file.
    Floors,
    /// None: every block should hold some write of this seed.
    Seed,
}

/// The core's side of a run.
#[derive(Debug)]
pub(crate) struct Board {
    field: Field,
    done: Done,
    newest_sent: Cell<Generation>,
    floors: RefCell<Vec<u32>>,
    /// Chunks of floors that the state file does not have yet.
    dirty: RefCell<BTreeSet<usize>>,
    /// Completed writes that wait for a flush: first block, blocks, generation.
    unflushed: RefCell<Vec<(u64, u64, Generation)>>,
    findings: RefCell<Findings>,
    /// Next turn of the pass.
    turn: Cell<u64>,
    failed: RefCell<Option<Failure>>,
}

thread_local! {
    static BOARD: RefCell<Option<Rc<Board>>> = const { RefCell::new(None) };
}

/// Sets the core up; replaces what was there.
pub(crate) fn install(field: Field, floors: Vec<u32>, newest_sent: Generation, done: Done) {
    BOARD.set(Some(Rc::new(Board {
        field,
        done,
        newest_sent: Cell::new(newest_sent),
        floors: RefCell::new(floors),
        dirty: RefCell::default(),
        unflushed: RefCell::default(),
        findings: RefCell::default(),
        turn: Cell::new(0),
        failed: RefCell::default(),
    })));
}

/// Forgets the core's side.
pub(crate) fn remove() {
    BOARD.set(None);
}

fn board() -> Outcome<Rc<Board>> {
    BOARD
        .with_borrow(Clone::clone)
        .ok_or_else(|| Failure::new(Exit::Failed, "verifying", "the core is not set up"))
}

/// What a pass of writes came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Every unit was written.
    Complete,
    /// Time was up.
    OutOfTime,
}

/// Writes every unit once with `generation`, in the order of `visits`, until `end`.
pub(crate) async fn write_pass(
    visits: Visits,
    generation: Generation,
    end: Option<Instant>,
) -> Outcome<Pass> {
    let board = board()?;
    board.newest_sent.set(generation);
    let worked = board
        .clone()
        .run(visits, end, move |board, unit| async move { board.write_unit(unit, generation).await });
    worked.await
}

/// Reads every unit once and judges it.
pub(crate) async fn check_pass(visits: Visits) -> Outcome<Findings> {
    let board = board()?;
    board.findings.replace(Findings::default());
    board.clone().run(visits, None, |board, unit| async move { board.check_unit(unit).await }).await?;
    Ok(board.findings.take())
}

/// Floors that the state file does not have yet, by chunk. Flushes first if only flushed writes count.
pub(crate) async fn settle() -> Outcome<Vec<(usize, Vec<u32>)>> {
    let board = board()?;
    if board.field.count_after == CountAfter::Flush {
        let flushed = board.unflushed.take();
        if !flushed.is_empty() {
            let doing = Doing::new(format!("flushing {}", board.field.name));
            current()?.flush().await.map_err(|error| doing.failed(&error))?;
        }
        for (first, count, generation) in flushed {
            board.raise(first, count, generation);
        }
    }
    let dirty = board.dirty.take();
    let floors = board.floors.borrow();
    Ok(dirty
        .into_iter()
        .filter_map(|chunk| {
            let start = chunk * CHUNK;
            let end = (start + CHUNK).min(floors.len());
            Some((chunk, floors.get(start..end)?.to_vec()))
        })
        .collect())
}

impl Board {
    /// Works off a pass with `depth` tasks, each taking the next unit when it is done with one.
    async fn run<Work, Fut>(self: Rc<Self>, visits: Visits, end: Option<Instant>, work: Work) -> Outcome<Pass>
    where
        Work: Fn(Rc<Board>, u64) -> Fut + Clone + 'static,
        Fut: Future<Output = Outcome>,
    {
        self.turn.set(0);
        let pass = Rc::new(Cell::new(Pass::Complete));
        let tasks: Vec<_> = (0..self.field.depth)
            .map(|_| {
                let (board, visits, work, pass) =
                    (Rc::clone(&self), visits.clone(), work.clone(), Rc::clone(&pass));
                spawn_join(async move {
                    while board.failed.borrow().is_none() {
                        if end.is_some_and(|end| now() >= end) {
                            pass.set(Pass::OutOfTime);
                            break;
                        }
                        let turn = board.turn.replace(board.turn.get() + 1);
                        let Some(unit) = visits.unit(turn) else { break };
                        if let Err(failure) = work(Rc::clone(&board), unit).await {
                            board.failed.borrow_mut().get_or_insert(failure);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            // Only a stopping core drops it, and then nobody looks at the result.
            let _ = task.await;
        }
        match self.failed.take() {
            Some(failure) => Err(failure),
            None => Ok(pass.get()),
        }
    }

    /// Offset and bytes of a unit; the last one can be shorter.
    fn span(&self, unit: u64) -> (u64, u64) {
        let at = unit * self.field.unit;
        (self.field.offset + at, self.field.unit.min(self.field.length - at))
    }

    async fn write_unit(&self, unit: u64, generation: Generation) -> Outcome {
        let (offset, bytes) = self.span(unit);
        let mut buffer = IoBuf::take(bytes as usize).unwrap_or_else(|| IoBuf::heap(bytes as usize));
        for (index, block) in (0_u64..).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            pattern::fill(block, self.field.seed, offset + index * BLOCK, generation);
        }
        let slba = Lba(offset / self.field.lba_bytes);
        if let Err(error) = current()?.write(slba, Payload::from(buffer), self.field.fua).await {
            let doing =
                Doing::new(format!("writing {bytes} bytes at offset {offset} of {}", self.field.name));
            return Err(doing.failed(&error));
        }
        let (first, count) = ((offset - self.field.offset) / BLOCK, bytes / BLOCK);
        match self.field.count_after {
            CountAfter::Write => self.raise(first, count, generation),
            CountAfter::Flush => self.unflushed.borrow_mut().push((first, count, generation)),
        }
        self.done.add(bytes);
        Ok(())
    }

    async fn check_unit(&self, unit: u64) -> Outcome {
        let (offset, bytes) = self.span(unit);
        let slba = Lba(offset / self.field.lba_bytes);
        // A transfer, so below 4 GiB.
        let read = current()?.read(slba, bytes as u32).await;
        match read {
            Ok(buffer) => {
                for (index, block) in (0_u64..).zip(buffer.chunks_exact(BLOCK_BYTES)) {
                    self.check_block(offset + index * BLOCK, block);
                }
            }
            // The target answered that it cannot: that is a finding, and other blocks may be fine.
            Err(error) if error.status().is_some() => {
                let mut findings = self.findings.borrow_mut();
                for block in 0..bytes / BLOCK {
                    findings.add(offset + block * BLOCK, Verdict::Wrong(Wrong::Unreadable));
                }
            }
            Err(error) => {
                let doing =
                    Doing::new(format!("reading {bytes} bytes at offset {offset} of {}", self.field.name));
                return Err(doing.failed(&error));
            }
        }
        self.done.add(bytes);
        Ok(())
    }

    fn check_block(&self, offset: u64, block: &[u8]) {
        let index = (offset - self.field.offset) / BLOCK;
        let expect = match self.field.knowledge {
            Knowledge::Seed => Expect::Any,
            Knowledge::Floors => {
                let floor = self.floors.borrow().get(index as usize).copied().unwrap_or_default();
                Expect::Between { floor: Generation(floor), ceiling: self.newest_sent.get() }
            }
        };
        let verdict = pattern::judge(block, self.field.seed, offset, expect);
        if let (Verdict::Unacknowledged(generation), Knowledge::Floors) = (verdict, self.field.knowledge) {
            // What one read returned, no later read may take back (design §1, D2).
            self.raise(index, 1, generation);
        }
        self.findings.borrow_mut().add(offset, verdict);
    }

    /// Blocks `first` to `first + count` have at least this generation.
    fn raise(&self, first: u64, count: u64, generation: Generation) {
        let mut floors = self.floors.borrow_mut();
        let mut dirty = self.dirty.borrow_mut();
        let first = first as usize;
        for (index, floor) in floors.iter_mut().enumerate().skip(first).take(count as usize) {
            if *floor < generation.0 {
                *floor = generation.0;
                dirty.insert(index / CHUNK);
            }
        }
    }
}
