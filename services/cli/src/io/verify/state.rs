//! What was acknowledged: per block the newest generation that the target said it has. Kept in a file, so
//! that a later check can tell a lost write from one that was never acknowledged.
//!
//! The file is a head of 4096 bytes, JSON that a person can read, and then four little-endian bytes per
//! block. The head names the newest generation that was ever sent, and is on disk before the first write of a
//! pass is sent. Floors follow late: at worst a check is told less than is true, and is then milder, never
//! wrong.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::pattern::{BLOCK_BYTES, Generation};
use crate::exit::{Exit, Failure, Outcome};

/// Bytes of the head.
const HEAD_BYTES: usize = 4096;

/// First field of the head.
const FORMAT: &str = "ashlar io verify state 1";

/// Floors that are written to the file together.
pub(crate) const CHUNK: usize = 1024;

/// What the state belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// Subsystem NQN.
    pub(crate) subsystem: String,
    /// Namespace.
    pub(crate) nsid: u32,
    /// Its NGUID in hexadecimal: a new namespace with an old number is another one.
    pub(crate) nguid: String,
    /// Seed of the pattern.
    pub(crate) seed: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: String,
    newest_sent: u32,
    of: Identity,
}

/// Floors of a range of blocks.
#[derive(Debug)]
pub(crate) struct State {
    /// Newest generation that was ever sent.
    pub(crate) newest_sent: Generation,
    /// Per block, the newest generation that was acknowledged or read; 0 is none.
    pub(crate) floors: Vec<u32>,
    /// Where it is kept, if it is.
    pub(crate) file: Option<StateFile>,
}

/// The file.
#[derive(Debug)]
pub(crate) struct StateFile {
    file: File,
    path: PathBuf,
    identity: Identity,
}

impl State {
    /// One that ends with the process.
    pub(crate) fn in_memory(identity: &Identity) -> Self {
        Self { newest_sent: Generation(0), floors: vec![0; blocks(identity)], file: None }
    }

    /// The seed that an existing file was made with.
    pub(crate) fn seed_of(path: &Path) -> Outcome<Option<u64>> {
        let doing = || format!("reading the state file {}", path.display());
        let mut file = match File::open(path) {
            Ok(file) => file.take(HEAD_BYTES as u64),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::file(doing(), &error)),
        };
        let mut head = Vec::new();
        file.read_to_end(&mut head).map_err(|error| Failure::file(doing(), &error))?;
        let head = parse_head(&head).map_err(|why| Failure::new(Exit::Failed, doing(), why))?;
        Ok(Some(head.of.seed))
    }

    /// For writing: takes up an existing file of the same range and seed, or makes a new one.
    pub(crate) fn open_or_create(path: &Path, identity: &Identity) -> Outcome<Self> {
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = match made {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Self::open(path, identity),
            Err(error) => {
                return Err(Failure::file(format!("making the state file {}", path.display()), &error));
            }
        };
        let mut file = StateFile { file, path: path.to_owned(), identity: identity.clone() };
        let bytes = HEAD_BYTES as u64 + blocks(identity) as u64 * 4;
        file.file.set_len(bytes).map_err(|error| file.failed(&error))?;
        file.write_head(Generation(0))?;
        Ok(Self { file: Some(file), ..Self::in_memory(identity) })
    }

    /// For checking: the file must exist and be of the same range and seed.
    pub(crate) fn open(path: &Path, identity: &Identity) -> Outcome<Self> {
        let doing = format!("reading the state file {}", path.display());
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = file.map_err(|error| Failure::file(&*doing, &error))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| Failure::file(&*doing, &error))?;
        let head = parse_head(&bytes).map_err(|why| Failure::new(Exit::Failed, &*doing, why))?;
        if head.of != *identity {
            return Err(Failure::new(Exit::Conflict, doing, difference(&head.of, identity))
                .next("give the options that it was made with, or another file"));
        }
        let floors: Vec<u32> = bytes
            .get(HEAD_BYTES..)
            .unwrap_or_default()
            .chunks_exact(4)
            .map(|floor| floor.try_into().map(u32::from_le_bytes).unwrap_or_default())
            .collect();
        if floors.len() != blocks(identity) {
            return Err(Failure::new(Exit::Failed, doing, "it ends too early"));
        }
        if floors.iter().any(|floor| *floor > head.newest_sent) {
            return Err(Failure::new(Exit::Failed, doing, "it names generations that were never sent"));
        }
        let file = StateFile { file, path: path.to_owned(), identity: identity.clone() };
        Ok(Self { newest_sent: Generation(head.newest_sent), floors, file: Some(file) })
    }
}

impl StateFile {
    fn failed(&self, error: &io::Error) -> Failure {
        Failure::file(format!("writing the state file {}", self.path.display()), error)
    }

    /// Says which generation may be sent from now on. Durable before it returns.
    pub(crate) fn write_head(&mut self, newest_sent: Generation) -> Outcome {
        let head = Head { format: FORMAT.to_owned(), newest_sent: newest_sent.0, of: self.identity.clone() };
        let doing = || format!("writing the state file {}", self.path.display());
        let mut text =
            serde_json::to_vec_pretty(&head).map_err(|error| Failure::new(Exit::Failed, doing(), error))?;
        if text.len() >= HEAD_BYTES {
            return Err(Failure::new(Exit::Failed, doing(), "its head is too long"));
        }
        text.resize(HEAD_BYTES, b'\n');
        self.file.write_all_at(&text, 0).map_err(|error| self.failed(&error))?;
        self.sync()
    }

    /// Writes one chunk of floors.
    pub(crate) fn write_chunk(&mut self, chunk: usize, floors: &[u32]) -> Outcome {
        let bytes: Vec<u8> = floors.iter().flat_map(|floor| floor.to_le_bytes()).collect();
        let at = (HEAD_BYTES + chunk * CHUNK * 4) as u64;
        self.file.write_all_at(&bytes, at).map_err(|error| self.failed(&error))
    }

    /// Makes everything durable.
    pub(crate) fn sync(&mut self) -> Outcome {
        self.file.sync_data().map_err(|error| self.failed(&error))
    }
}

fn blocks(identity: &Identity) -> usize {
    // A machine that holds the floors has addresses for them.
    (identity.length / BLOCK_BYTES as u64) as usize
}

fn parse_head(bytes: &[u8]) -> Result<Head, String> {
    let head = bytes.get(..HEAD_BYTES).ok_or("it is shorter than its head")?;
    let head: Head = serde_json::from_slice(head).map_err(|error| format!("its head is broken: {error}"))?;
    if head.format == FORMAT { Ok(head) } else { Err(format!("its format is {:?}", head.format)) }
}

fn difference(file: &Identity, asked: &Identity) -> String {
    let pairs = [
        ("subsystem", file.subsystem.clone(), asked.subsystem.clone()),
        ("nsid", file.nsid.to_string(), asked.nsid.to_string()),
        ("NGUID", file.nguid.clone(), asked.nguid.clone()),
        ("seed", file.seed.to_string(), asked.seed.to_string()),
        ("offset", file.offset.to_string(), asked.offset.to_string()),
        ("length", file.length.to_string(), asked.length.to_string()),
    ];
    let different = pairs.into_iter().find(|(_, file, asked)| file != asked);
    different.map_or_else(
        || "it belongs to something else".to_owned(),
        |(what, file, asked)| format!("it belongs to {what} {file}, not {asked}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            subsystem: "nqn.2024-01.io.ashlar:test".into(),
            nsid: 1,
            nguid: "00".repeat(16),
            seed: 7,
            offset: 0,
            length: 3000 * BLOCK_BYTES as u64,
        }
    }

    fn exit_of(result: Outcome<State>) -> Exit {
        result.expect_err("refused").exit()
    }

    #[test]
    fn what_was_acknowledged_is_there_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let mut state = State::open_or_create(&path, &identity()).expect("makes it");
        assert_eq!((state.newest_sent, state.floors.len()), (Generation(0), 3000));
        let file = state.file.as_mut().expect("it has a file");
        file.write_head(Generation(2)).expect("writes");
        file.write_chunk(1, &[2; CHUNK]).expect("writes");
        file.write_chunk(2, &[1; 3000 - 2 * CHUNK]).expect("writes");
        drop(state);
        assert_eq!(State::seed_of(&path).expect("reads"), Some(7));
        for state in [State::open_or_create(&path, &identity()), State::open(&path, &identity())] {
            let state = state.expect("opens");
            assert_eq!(state.newest_sent, Generation(2));
            assert_eq!([state.floors[0], state.floors[CHUNK], state.floors[2999]], [0, 2, 1]);
        }
    }

    #[test]
    fn the_state_of_something_else_is_a_conflict() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        drop(State::open_or_create(&path, &identity()).expect("makes it"));
        for other in [
            Identity { seed: 8, ..identity() },
            Identity { nguid: "01".repeat(16), ..identity() },
            Identity { length: 4096, ..identity() },
        ] {
            let failure = State::open_or_create(&path, &other).expect_err("refused");
            assert_eq!(failure.exit(), Exit::Conflict);
            assert!(failure.to_string().contains("it belongs to"), "{failure}");
        }
    }

    #[test]
    fn a_missing_state_is_not_found() {
        assert_eq!(State::seed_of(Path::new("/nowhere/state")).expect("no file is no error"), None);
        assert_eq!(exit_of(State::open(Path::new("/nowhere/state"), &identity())), Exit::NotFound);
    }

    #[test]
    fn a_broken_state_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let mut state = State::open_or_create(&path, &identity()).expect("makes it");
        let file = state.file.as_mut().expect("it has a file");
        file.write_chunk(0, &[9; CHUNK]).expect("writes");
        assert_eq!(exit_of(State::open(&path, &identity())), Exit::Failed);
        file.file.set_len(5000).expect("shortens");
        assert_eq!(exit_of(State::open(&path, &identity())), Exit::Failed);
        file.file.set_len(3).expect("shortens");
        assert_eq!(exit_of(State::open(&path, &identity())), Exit::Failed);
        std::fs::write(&path, vec![b'x'; 9000]).expect("writes");
        assert_eq!(exit_of(State::open(&path, &identity())), Exit::Failed);
    }
}
