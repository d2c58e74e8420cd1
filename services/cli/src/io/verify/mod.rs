//! `ashlar io verify`: writes a pattern that says of itself what it is, remembers what was acknowledged, and
//! checks it at once or later: after a restart of the target, after a failover, after a power loss.
//!
//! - [`pattern`]: the block, and the verdict on one
//! - [`order`]: sequential and random passes
//! - [`state`]: what was acknowledged, in a file
//! - [`board`]: the passes, on the core
//! - [`findings`]: the report

mod board;
mod findings;
mod order;
mod pattern;
mod state;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashlar_initiator::Fua;
use ashlar_reactor::{CoreId, CoresHandle};
use clap::{Args, ValueEnum};
use serde::Serialize;
use uuid::Uuid;

use self::board::{CountAfter, Field, Knowledge, Pass};
use self::findings::Findings;
use self::order::{Order, Visits};
use self::pattern::{BLOCK_BYTES, Generation};
use self::state::{Identity, State, StateFile};
use super::progress::{Done, Progress, REDRAW};
use super::session::{Attached, SessionArgs};
use crate::connect::core_gone;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Format};
use crate::units::{parse_duration, show_bytes, show_count};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How often acknowledged writes are put into the state file.
const SAVE: Duration = Duration::from_secs(1);

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// Write the pattern.
    Write,
    /// Check what an earlier run wrote.
    Check,
    /// Write it and check it at once.
    Both,
}

/// Options of `ashlar io verify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// What to do; write and both destroy what is in the namespace
    #[arg(long, value_enum, default_value = "both")]
    phase: Phase,
    /// File that remembers which blocks were acknowledged with which generation, for a later check
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Seed of the pattern; that of the state file, else a new one, if not given
    #[arg(long, conflicts_with = "tag")]
    seed: Option<u64>,
    /// Any text instead of a seed
    #[arg(long)]
    tag: Option<String>,
    /// Order of the blocks
    #[arg(long, value_enum, default_value = "sequential")]
    order: Order,
    /// Times to write everything, each with a new generation
    #[arg(long, default_value_t = 1)]
    passes: u32,
    /// Write pass after pass for this time instead
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "passes")]
    time: Option<Duration>,
    /// When a write counts as acknowledged
    #[arg(long, value_enum, default_value = "write")]
    count_after: CountAfter,
    /// Force unit access: every write is on the medium when it completes
    #[arg(long)]
    fua: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Written {
    bytes: u64,
    seconds: f64,
    newest_generation: u32,
    reconnects: u64,
}

/// The JSON document of `ashlar io verify`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Document {
    seed: u64,
    offset: u64,
    length: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Findings>,
}

/// Runs `ashlar io verify`.
pub(crate) fn run(args: &VerifyArgs, format: Format) -> Outcome {
    let seed = args.seed()?;
    let attached = Attached::open(&args.session)?;
    let name = attached.name.clone();
    let document = verify(args, &attached, seed);
    // What is on the core goes before the session that it uses.
    let _ = attached.run(|| async {
        board::remove();
        Ok(())
    });
    attached.close();
    let document = document?;
    match format {
        Format::Table => output::print(&document.table())?,
        Format::Json => output::print_json(&document)?,
    }
    match document.check.as_ref().map(Findings::wrong) {
        None | Some(0) => Ok(()),
        Some(wrong) => {
            let why = format!("{} blocks are not what was acknowledged", show_count(wrong));
            Err(Failure::new(Exit::Failed, format!("verifying {name}"), why))
        }
    }
}

impl VerifyArgs {
    fn seed(&self) -> Outcome<u64> {
        let doing = "choosing the seed";
        if self.passes == 0 {
            return Err(Failure::usage("reading --passes", "at least one is needed"));
        }
        if let Some(seed) = self.seed {
            return Ok(seed);
        }
        if let Some(tag) = &self.tag {
            return Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, tag.as_bytes()).as_u64_pair().0);
        }
        let kept = self.state.as_deref().map(State::seed_of).transpose()?.flatten();
        match (kept, self.phase, &self.state) {
            (Some(seed), _, _) => Ok(seed),
            (None, Phase::Check, Some(path)) => {
                Err(Failure::new(Exit::NotFound, doing, format!("there is no state file {}", path.display()))
                    .next("run --phase write with this --state first"))
            }
            (None, Phase::Check, None) => {
                Err(Failure::usage(doing, "a check needs --state, or the --seed or --tag that was written"))
            }
            // A new seed each time, so that what an earlier run left behind is not taken for this one's.
            (None, Phase::Write | Phase::Both, _) => Ok(Uuid::new_v4().as_u64_pair().0),
        }
    }

    fn field(&self, attached: &Attached, seed: u64) -> Outcome<Field> {
        let doing = || format!("laying out the pattern on {}", attached.name);
        let lba_bytes = attached.seen.block_bytes.max(1);
        if !BLOCK.is_multiple_of(lba_bytes) {
            let why = format!("its blocks of {lba_bytes} bytes are larger than the pattern's of {BLOCK}");
            return Err(Failure::new(Exit::Precondition, doing(), why));
        }
        let (offset, length) = attached.range(&self.session, self.session.length)?;
        let length = match self.session.length {
            // What does not fill a block at the end is left alone if it was not asked for.
            None => length - length % BLOCK,
            Some(length) => length,
        };
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) || length == 0 {
            return Err(Failure::usage(doing(), format!("offset and length must be multiples of {BLOCK}")));
        }
        if !attached.size.is_multiple_of(BLOCK) {
            return Err(Failure::usage(doing(), format!("--size must be a multiple of {BLOCK}")));
        }
        let knowledge = match (self.phase, &self.state) {
            (Phase::Check, None) => Knowledge::Seed,
            _ => Knowledge::Floors,
        };
        Ok(Field {
            name: attached.name.clone(),
            lba_bytes,
            offset,
            length,
            unit: attached.size,
            depth: attached.depth,
            seed,
            count_after: self.count_after,
            fua: if self.fua { Fua::Yes } else { Fua::No },
            knowledge,
        })
    }

    fn open_state(&self, attached: &Attached, field: &Field) -> Outcome<State> {
        let identity = Identity {
            subsystem: self.session.namespace.subsystem.clone(),
            nsid: self.session.namespace.nsid,
            nguid: attached.seen.nguid.iter().map(|byte| format!("{byte:02x}")).collect(),
            seed: field.seed,
            offset: field.offset,
            length: field.length,
        };
        match (&self.state, self.phase) {
            (None, _) => Ok(State::in_memory(&identity)),
            (Some(path), Phase::Check) => State::open(path, &identity),
            (Some(path), Phase::Write | Phase::Both) => State::open_or_create(path, &identity),
        }
    }
}

fn verify(args: &VerifyArgs, attached: &Attached, seed: u64) -> Outcome<Document> {
    let field = args.field(attached, seed)?;
    let state = args.open_state(attached, &field)?;
    let done = Done::default();
    let (board_field, floors, newest, board_done) =
        (field.clone(), state.floors, state.newest_sent, done.clone());
    attached.run(move || async move {
        board::install(board_field, floors, newest, board_done);
        Ok(())
    })?;
    let mut run = Run { args, attached, field, done, file: state.file, newest };
    let write = match args.phase {
        Phase::Write | Phase::Both => Some(run.write()?),
        Phase::Check => None,
    };
    let check = match args.phase {
        Phase::Check | Phase::Both => Some(run.check()?),
        Phase::Write => None,
    };
    Ok(Document { seed, offset: run.field.offset, length: run.field.length, write, check })
}

/// A run as the main thread sees it.
struct Run<'a> {
    args: &'a VerifyArgs,
    attached: &'a Attached,
    field: Field,
    done: Done,
    file: Option<StateFile>,
    newest: Generation,
}

impl Run<'_> {
    fn visits(&self, generation: Generation) -> Visits {
        let units = self.field.length.div_ceil(self.field.unit);
        Visits::new(self.args.order, units, self.field.seed ^ u64::from(generation.0))
    }

    fn write(&mut self) -> Outcome<Written> {
        let since = Instant::now();
        let end = self.args.time.map(|time| ashlar_reactor::clock::read() + time);
        let before = self.done.bytes();
        let total = match self.args.time {
            None => Some(self.field.length.saturating_mul(u64::from(self.args.passes))),
            Some(_) => None,
        };
        let mut passes = 0;
        while self.args.time.is_some() || passes < self.args.passes {
            let next = self.newest.0.checked_add(1).map(Generation).ok_or_else(|| {
                Failure::new(Exit::Precondition, "writing another pass", "there are no generations left")
                    .next("start over with a new state file")
            })?;
            // Before the first write of the pass: a check must know of everything that may be there.
            if let Some(file) = &mut self.file {
                file.write_head(next)?;
            }
            self.newest = next;
            let visits = self.visits(next);
            let pass =
                self.watched("writing", total, before, move || board::write_pass(visits, next, end))?;
            if pass == Pass::OutOfTime {
                break;
            }
            passes += 1;
        }
        self.attached.flush()?;
        save(&self.attached.cores(), self.file.as_mut())?;
        Ok(Written {
            bytes: self.done.bytes() - before,
            seconds: since.elapsed().as_secs_f64(),
            newest_generation: self.newest.0,
            reconnects: self.attached.reconnects(),
        })
    }

    fn check(&mut self) -> Outcome<Findings> {
        let (visits, before) = (self.visits(self.newest), self.done.bytes());
        let total = Some(self.field.length);
        let findings = self.watched("checking", total, before, move || board::check_pass(visits))?;
        save(&self.attached.cores(), self.file.as_mut())?;
        Ok(findings)
    }

    /// Runs a pass on the core. Meanwhile another thread draws the bar and keeps the state file up to date.
    fn watched<T, Work, Fut>(
        &mut self,
        what: &'static str,
        total: Option<u64>,
        before: u64,
        work: Work,
    ) -> Outcome<T>
    where
        T: Send + 'static,
        Work: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T>> + 'static,
    {
        let ended = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (ended, done, cores) = (Arc::clone(&ended), self.done.clone(), self.attached.cores());
            let mut file = self.file.take();
            std::thread::spawn(move || {
                let progress = Progress::new(what, total);
                let (mut saved, mut result) = (Instant::now(), Ok(()));
                while !ended.load(Ordering::Acquire) {
                    progress.set(done.bytes() - before);
                    if saved.elapsed() >= SAVE && result.is_ok() {
                        result = save(&cores, file.as_mut());
                        saved = Instant::now();
                    }
                    std::thread::park_timeout(REDRAW);
                }
                (file, result)
            })
        };
        let result = self.attached.start(work).wait();
        ended.store(true, Ordering::Release);
        watcher.thread().unpark();
        let (file, saved) = watcher
            .join()
            .map_err(|_| Failure::new(Exit::Failed, "keeping the state file", "its thread panicked"))?;
        self.file = file;
        let result = result.map_err(core_gone)?;
        if result.is_err() {
            // What was acknowledged before the failure is what a later check is for; the failure itself
            // counts more than one of writing it down.
            let _ = save(&self.attached.cores(), self.file.as_mut());
        }
        let value = result?;
        saved?;
        Ok(value)
    }
}

/// Puts new floors into the state file.
fn save(cores: &CoresHandle, file: Option<&mut StateFile>) -> Outcome {
    let chunks = cores.run_on(CoreId(0), board::settle).wait().map_err(core_gone)??;
    let Some(file) = file else { return Ok(()) };
    if chunks.is_empty() {
        return Ok(());
    }
    for (chunk, floors) in chunks {
        file.write_chunk(chunk, &floors)?;
    }
    file.sync()
}

impl Document {
    fn table(&self) -> String {
        let mut text = String::new();
        if let Some(written) = &self.write {
            let speed = written.bytes as f64 / written.seconds.max(1e-9);
            let reconnects = match written.reconnects {
                0 => String::new(),
                n => format!(", {n} reconnects"),
            };
            text.push_str(&format!(
                "wrote {} up to generation {} in {:.1} s, {}/s{reconnects}, flushed\nseed {}\n",
                show_bytes(written.bytes),
                written.newest_generation,
                written.seconds,
                show_bytes(speed as u64),
                self.seed
            ));
        }
        if let Some(findings) = &self.check {
            text.push_str(&format!("checked {} from offset {}\n", show_bytes(self.length), self.offset));
            text.push_str(&findings.table());
            text.push_str(match (findings.wrong(), findings.good()) {
                (0, 0) => "nothing was acknowledged before, so nothing could be verified\n",
                (0, _) => "verified\n",
                _ => "",
            });
        }
        text
    }
}
