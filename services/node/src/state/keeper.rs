//! The control thread that keeps the state: it takes changes, writes them together, and answers when they are durable.

use std::path::Path;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Folder, State, StateError};

/// Most changes that are written together.
const TOGETHER_MAX: usize = 256;

/// Tells whoever asked for a change that it is durable, or why not.
type Answer = Box<dyn FnOnce(Option<&StateError>) + Send>;

/// Changes the state, and says whom to tell.
type Change = Box<dyn FnOnce(&mut State) -> Answer + Send>;

/// Changes and shows the state, from any thread and any executor. Clones keep the same state; the last one to go ends
/// its thread and gives up the folder.
#[derive(Debug, Clone)]
pub struct Keeper {
    changes: mpsc::Sender<Change>,
}

impl Keeper {
    /// Holds the folder and loads what is there; a node that starts for the first time is called `node`.
    ///
    /// # Errors
    /// If the state cannot be held, read, or written for the first time.
    pub fn start(folder: &Path, node: Uuid) -> Result<Keeper, StateError> {
        let folder = Folder::hold(folder)?;
        let state = match folder.load()? {
            Some(state) => state,
            None => {
                let state = State::new(node);
                folder.save(&state)?;
                state
            }
        };
        let (changes, asked) = mpsc::channel();
        thread::Builder::new().name("state".to_owned()).spawn(move || keep(&folder, state, &asked)).map_err(
            |source| StateError::System { what: "start the thread for", path: FOLDER.into(), source },
        )?;
        Ok(Keeper { changes })
    }

    /// Changes the state by `change`, and answers what it returned once that is durable. If `change` changes nothing,
    /// nothing is written.
    ///
    /// # Errors
    /// If it could not be made durable. It then did not happen, as far as this process is concerned; after a restart it
    /// may have.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, StateError> {
        let (answer, answered) = oneshot::channel();
        let boxed: Change = Box::new(move |state| {
            let value = change(state);
            Box::new(move |refused| {
                // Whoever asked may have gone.
                let _ = answer.send(refused.map_or(Ok(value), |error| Err(again(error))));
            })
        });
        self.changes.send(boxed).map_err(|_| StateError::Ended)?;
        answered.await.map_err(|_| StateError::Ended)?
    }

    /// The state as it is now, durable.
    ///
    /// # Errors
    /// If its thread has ended.
    pub async fn state(&self) -> Result<State, StateError> {
        self.change(|state| state.clone()).await
    }
}

/// What errors call the folder where its path is not known.
const FOLDER: &str = "the state";

/// The same error for one more of those who asked.
fn again(error: &StateError) -> StateError {
    match error {
        StateError::System { what, path, source } => {
            let source = std::io::Error::new(source.kind(), source.to_string());
            StateError::System { what, path: path.clone(), source }
        }
        // Nothing else comes from writing.
        _ => StateError::Ended,
    }
}

/// Whether the state can be written, as far as is known, so that what fails again and again is told once.
#[derive(Debug, Default)]
struct Trouble {
    /// What was told last, and how often it came since.
    told: Option<(String, u64)>,
}

impl Trouble {
    fn note(&mut self, saved: &Result<(), StateError>) {
        match (saved, &mut self.told) {
            (Ok(()), told) => {
                if let Some((_, failed)) = told.take() {
                    tracing::info!(failed, "the volumes' state is made durable again");
                }
            }
            (Err(error), Some((text, failed))) if *text == error.to_string() => *failed += 1,
            (Err(error), told) => {
                tracing::error!(%error, "a change of the volumes' state could not be made durable");
                *told = Some((error.to_string(), 1));
            }
        }
    }
}

fn keep(folder: &Folder, mut state: State, asked: &mpsc::Receiver<Change>) {
    let mut trouble = Trouble::default();
    while let Ok(first) = asked.recv() {
        let mut next = state.clone();
        let mut answers = vec![first(&mut next)];
        while answers.len() < TOGETHER_MAX
            && let Ok(change) = asked.try_recv()
        {
            answers.push(change(&mut next));
        }
        let changed = next != state;
        let saved = if changed { folder.save(&next) } else { Ok(()) };
        if changed {
            trouble.note(&saved);
        }
        if saved.is_ok() {
            state = next;
        }
        for answer in answers {
            answer(saved.as_ref().err());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn changes_are_durable_when_they_are_answered() {
        let place = tempfile::tempdir().expect("a folder");
        let node = Uuid::from_u128(1);
        runtime().block_on(async {
            let keeper = Keeper::start(place.path(), node).expect("start");
            let other = Uuid::from_u128(2);
            let before =
                keeper.change(move |state| std::mem::replace(&mut state.node, other)).await.expect("change");
            assert_eq!(before, node);
            let written = std::fs::read_to_string(place.path().join("state")).expect("read");
            assert!(written.contains(&other.to_string()), "{written}");
            assert_eq!(keeper.state().await.expect("state").node, other);
        });
    }

    #[test]
    fn a_node_keeps_its_first_name() {
        let place = tempfile::tempdir().expect("a folder");
        for (named, expected) in [(1, 1), (2, 1)] {
            let keeper = loop {
                // The thread of the keeper before lets go of the folder in its own time.
                match Keeper::start(place.path(), Uuid::from_u128(named)) {
                    Err(StateError::InUse { .. }) => std::thread::yield_now(),
                    other => break other.expect("start"),
                }
            };
            let node = runtime().block_on(keeper.state()).expect("state").node;
            assert_eq!(node, Uuid::from_u128(expected));
        }
    }

    #[test]
    fn what_fails_again_and_again_is_told_once() {
        let full = |what| {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            Err(StateError::System { what, path: FOLDER.into(), source })
        };
        let mut trouble = Trouble::default();
        let told = |trouble: &Trouble| trouble.told.as_ref().map(|(_, failed)| *failed);
        for times in 1..4 {
            trouble.note(&full("write"));
            assert_eq!(told(&trouble), Some(times));
        }
        trouble.note(&full("sync"));
        assert_eq!(told(&trouble), Some(1), "that is news");
        trouble.note(&Ok(()));
        assert_eq!(told(&trouble), None);
    }

    #[test]
    fn what_cannot_be_written_did_not_happen() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("state-folder");
        let keeper = Keeper::start(&folder, Uuid::from_u128(1)).expect("start");
        // Where the new file would be, there is a folder.
        std::fs::create_dir(folder.join("state.new")).expect("make a folder");
        runtime().block_on(async {
            let refused = keeper.change(|state| state.node = Uuid::from_u128(2)).await;
            assert!(matches!(refused, Err(StateError::System { .. })), "{refused:?}");
            assert_eq!(keeper.state().await.expect("state").node, Uuid::from_u128(1));
            std::fs::remove_dir(folder.join("state.new")).expect("remove the folder");
            keeper.change(|state| state.node = Uuid::from_u128(3)).await.expect("change");
        });
    }
}
