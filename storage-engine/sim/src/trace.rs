//! What happened in a run: a hash of everything, and the last events in words.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use ashlar_io::DiskOperation;

use crate::random::mix;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A process started.
    Started {
        /// Its name.
        process: Rc<str>,
    },
    /// A process was killed, with so many tasks.
    Killed {
        /// Its name.
        process: Rc<str>,
        /// Tasks that it had.
        tasks: usize,
    },
    /// A disk was asked for something.
    Asked {
        /// The device.
        device: Rc<str>,
        /// Number of the operation on this device.
        id: u64,
        /// What.
        operation: DiskOperation,
        /// First block.
        block: u64,
        /// How many blocks.
        blocks: u64,
    },
    /// A disk answered.
    Answered {
        /// The device.
        device: Rc<str>,
        /// Number of the operation on this device.
        id: u64,
        /// Whether it succeeded.
        success: bool,
    },
    /// A device did something that it should not, or had something done to it.
    Fault {
        /// The device.
        device: Rc<str>,
        /// In words.
        what: String,
    },
    /// What a scenario wanted to say.
    Note(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { process } => write!(f, "{process} starts"),
            Event::Killed { process, tasks } => write!(f, "{process} is killed with {tasks} tasks"),
            Event::Asked { device, id, operation, block, blocks } => {
                write!(f, "{device} #{id} {operation} {block}+{blocks}")
            }
            Event::Answered { device, id, success: true } => write!(f, "{device} #{id} done"),
            Event::Answered { device, id, success: false } => write!(f, "{device} #{id} failed"),
            Event::Fault { device, what } => write!(f, "{device} FAULT {what}"),
            Event::Note(note) => f.write_str(note),
        }
    }
}

impl Event {
    fn fold(&self, hash: u64) -> u64 {
        match self {
            Event::Started { process } => fold_text(hash ^ 1, process),
            Event::Killed { process, tasks } => fold_text(hash ^ 2, process) ^ mix(*tasks as u64),
            Event::Asked { device, id, operation, block, blocks } => {
                let hash = fold_text(hash ^ 3, device);
                [*id, *operation as u64, *block, *blocks].into_iter().fold(hash, fold)
            }
            Event::Answered { device, id, success } => {
                fold(fold(fold_text(hash ^ 4, device), *id), u64::from(*success))
            }
            Event::Fault { device, what } => fold_text(fold_text(hash ^ 5, device), what),
            Event::Note(note) => fold_text(hash ^ 6, note),
        }
    }
}

fn fold(hash: u64, value: u64) -> u64 {
    mix(hash ^ mix(value))
}

fn fold_text(hash: u64, text: &str) -> u64 {
    text.bytes().fold(hash, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
}

/// The events of a run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    recent: VecDeque<(u64, Event)>,
}

impl Trace {
    /// Events that are kept to be shown. Enough to see a whole recovery and what led to it.
    pub const KEPT: usize = 20_000;

    /// Takes in an event at a moment of virtual time.
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.hash = fold(event.fold(self.hash), at_ns);
        if self.recent.len() == Self::KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((at_ns, event));
    }

    /// Takes in what is too frequent to be kept, such as which task was polled.
    pub(crate) fn count(&mut self, value: u64) {
        self.hash = fold(self.hash, value);
    }

    /// Differs, as good as surely, if anything differed.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last `count` events, a line each.
    pub fn tail(&self, count: usize) -> String {
        let skipped = self.recent.len().saturating_sub(count);
        let line = |(at, event): &(u64, Event)| {
            format!("{:>14.3} us  {event}\n", Duration::from_nanos(*at).as_secs_f64() * 1e6)
        };
        self.recent.iter().skip(skipped).map(line).collect()
    }
}
