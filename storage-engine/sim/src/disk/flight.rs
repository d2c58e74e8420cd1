//! An operation that a device works on, and where its asker waits for the answer.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ashlar_io::{DiskError, DiskOperation};

use super::contents::Content;
use crate::process::ProcessId;

/// What was asked.
#[derive(Debug)]
pub(crate) enum Request {
    /// Contents so far: some blocks are read early, the others at the end.
    Read {
        blocks: Range<u64>,
        early: Vec<Option<Content>>,
    },
    /// What is still to land, by block: a misdirected write has another place, what landed or is lost is missing.
    Write {
        blocks: Range<u64>,
        pieces: Vec<(u64, Content)>,
    },
    /// Everything up to a place in the order of writes.
    Flush {
        through: u64,
    },
    Discard {
        blocks: Range<u64>,
    },
}

impl Request {
    pub(crate) fn operation(&self) -> DiskOperation {
        match self {
            Request::Read { .. } => DiskOperation::Read,
            Request::Write { .. } => DiskOperation::Write,
            Request::Flush { .. } => DiskOperation::Flush,
            Request::Discard { .. } => DiskOperation::Discard,
        }
    }

    pub(crate) fn blocks(&self) -> Range<u64> {
        match self {
            Request::Read { blocks, .. } | Request::Write { blocks, .. } | Request::Discard { blocks } => {
                blocks.clone()
            }
            Request::Flush { .. } => 0..0,
        }
    }
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) process: ProcessId,
    pub(crate) request: Request,
    /// When it completes; an event of another time is not its own.
    pub(crate) due_ns: u64,
    pub(crate) error: Option<String>,
    pub(crate) answer: Rc<Answer>,
}

/// What a read brought: the content of each block. Nothing for other operations.
pub(crate) type Answered = Result<Vec<Content>, DiskError>;

/// Where the answer is left.
#[derive(Debug, Default)]
pub(crate) struct Answer(RefCell<State>);

#[derive(Debug, Default)]
struct State {
    result: Option<Answered>,
    waker: Option<Waker>,
}

impl Answer {
    pub(crate) fn give(&self, result: Answered) {
        let mut state = self.0.borrow_mut();
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits for an answer.
pub(crate) struct Wait(pub(crate) Rc<Answer>);

impl Future for Wait {
    type Output = Answered;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let mut state = self.0.0.borrow_mut();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
