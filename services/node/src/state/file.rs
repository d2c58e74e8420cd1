//! The state's file: a line that tells version and checksum, then the document as JSON.
//!
//! It is written beside the old one, made durable, and put in its place, so that at every moment one of the two is
//! whole. A file that is damaged all the same is never guessed at: the node does not start with it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::State;

/// The file.
const FILE: &str = "state";

/// What is written before it takes the file's place.
const NEW_FILE: &str = "state.new";

/// What the file begins with, before its version.
const MAGIC: &str = "ashlar-state";

/// Version of the document.
const VERSION: u32 = 1;

/// The state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The system refused something.
    #[error("could not {what} {}: {source}", path.display())]
    System {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the state in {} is in use by another process", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not what was written.
    #[error("{} is damaged: {why}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A later program wrote it.
    #[error("{} has version {found}, and this program knows {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The control thread has ended.
    #[error("the state is no longer kept: its thread has ended")]
    Ended,
}

/// The folder of the state, held by this process.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked as long as it is open.
    held: File,
}

impl Folder {
    /// Makes the folder if it is missing, and holds it.
    ///
    /// # Errors
    /// If another process has it, or the system refuses.
    pub fn hold(path: &Path) -> Result<Folder, StateError> {
        let failed = |what| move |source| StateError::System { what, path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(failed("make the folder"))?;
        let held = File::open(path).map_err(failed("open the folder"))?;
        held.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateError::InUse { path: path.to_owned() },
            TryLockError::Error(source) => failed("lock the folder")(source),
        })?;
        Ok(Folder { path: path.to_owned(), held })
    }

    /// What was written last; `None` if nothing ever was.
    ///
    /// # Errors
    /// If it is damaged, or cannot be read.
    pub fn load(&self) -> Result<Option<State>, StateError> {
        let path = self.path.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::System { what: "read", path, source }),
        };
        decode(&bytes, &path).map(Some)
    }

    /// Writes the state. At return it is durable.
    ///
    /// # Errors
    /// If the system refuses. The file is then the old one or the new one.
    pub fn save(&self, state: &State) -> Result<(), StateError> {
        let (new, path) = (self.path.join(NEW_FILE), self.path.join(FILE));
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StateError::System { what, path, source }
        };
        let bytes = encode(state).map_err(|source| failed("encode", &path)(source.into()))?;
        let mut file = File::create(&new).map_err(failed("make", &new))?;
        file.write_all(&bytes).map_err(failed("write", &new))?;
        file.sync_all().map_err(failed("make durable", &new))?;
        fs::rename(&new, &path).map_err(failed("replace", &path))?;
        self.held.sync_all().map_err(failed("make durable", &self.path))
    }
}

fn encode(state: &State) -> serde_json::Result<Vec<u8>> {
    let mut body = serde_json::to_vec_pretty(state)?;
    body.push(b'\n');
    let mut bytes = format!("{MAGIC} {VERSION} crc32c {:08x}\n", crc32c::crc32c(&body)).into_bytes();
    bytes.append(&mut body);
    Ok(bytes)
}

fn decode(bytes: &[u8], path: &Path) -> Result<State, StateError> {
    let damaged = |why: &str| StateError::Damaged { path: path.to_owned(), why: why.to_owned() };
    let end =
        bytes.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged("its first line is missing"))?;
    let (line, body) = (&bytes[..end], &bytes[end + 1..]);
    let line = std::str::from_utf8(line).unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let [MAGIC, version, "crc32c", crc] = words[..] else {
        return Err(damaged("its first line is not that of a state"));
    };
    let found = version.parse().map_err(|_| damaged("its version is no number"))?;
    if found != VERSION {
        return Err(StateError::Version { path: path.to_owned(), found });
    }
    if crc != format!("{:08x}", crc32c::crc32c(body)) {
        return Err(damaged("its checksum is not that of its content"));
    }
    serde_json::from_slice(body)
        .map_err(|error| StateError::Damaged { path: path.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::{InSync, ReplicaState, ScrubState, SegmentState, VolumeState};
    use super::*;

    fn state() -> State {
        let replica = ReplicaState {
            id: Uuid::from_u128(3),
            pool: Uuid::from_u128(4),
            devices: [Uuid::from_u128(5)].into(),
            in_sync: InSync::Yes,
        };
        let volume = VolumeState {
            name: "db".to_owned(),
            bytes: 1 << 30,
            segment_bytes: 32 << 30,
            shards: 32,
            target_epoch: 7,
            segments: vec![SegmentState { membership_epoch: 9, replicas: vec![replica] }],
            scrub: ScrubState { began_s: Some(5), ended_s: None, at: Some((0, 17)) },
        };
        let mut state = State::new(Uuid::from_u128(1));
        state.volumes.insert(Uuid::from_u128(2), volume);
        state
    }

    #[test]
    fn what_was_saved_is_loaded_also_beside_the_remains_of_a_crash() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::hold(&place.path().join("a/b")).expect("hold");
        assert_eq!(folder.load().expect("nothing there"), None);
        folder.save(&state()).expect("save");
        fs::write(place.path().join("a/b").join(NEW_FILE), "half").expect("write");
        assert_eq!(folder.load().expect("load"), Some(state()));
        folder.save(&State::new(Uuid::from_u128(8))).expect("save");
        assert_eq!(folder.load().expect("load"), Some(State::new(Uuid::from_u128(8))));
    }

    #[test]
    fn a_folder_belongs_to_one_holder() {
        let place = tempfile::tempdir().expect("a folder");
        let held = Folder::hold(place.path()).expect("hold");
        assert!(matches!(Folder::hold(place.path()), Err(StateError::InUse { .. })));
        drop(held);
        Folder::hold(place.path()).expect("it is free again");
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        let good = encode(&state()).expect("encode");
        for at in 0..good.len() {
            for bit in [0, 5] {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(decode(&bad, Path::new("state")).is_err(), "byte {at}");
            }
        }
        for end in 0..good.len() {
            assert!(decode(&good[..end], Path::new("state")).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let error = decode(b"ashlar-state 2 crc32c 00000000\n", Path::new("/x/state")).expect_err("too new");
        assert_eq!(error.to_string(), "/x/state has version 2, and this program knows 1");
    }
}
