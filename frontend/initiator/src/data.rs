//! The data of a command: where it comes from or goes to.

use std::ops::Range;
use std::rc::Rc;

use ashlar_reactor::IoBuf;

/// Bytes to be sent, where they lie. Clones share them; they are sent without being copied.
#[derive(Debug, Clone)]
pub struct Payload {
    pub(crate) buffer: Rc<IoBuf>,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Payload {
    /// All of a buffer.
    #[must_use]
    pub fn new(buffer: Rc<IoBuf>) -> Self {
        let len = buffer.len() as u32;
        Self { buffer, start: 0, len }
    }

    /// A part of a buffer; `None` if it is not within it.
    #[must_use]
    pub fn part(buffer: Rc<IoBuf>, range: Range<usize>) -> Option<Self> {
        let within = range.start <= range.end && range.end <= buffer.len();
        within.then(|| Self { start: range.start as u32, len: range.len() as u32, buffer })
    }

    /// Copies `bytes` into a buffer of their own.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = IoBuf::heap(bytes.len());
        buffer.copy_from_slice(bytes);
        Self::new(Rc::new(buffer))
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let start = self.start as usize;
        self.buffer.get(start..start + self.len as usize).unwrap_or_default()
    }

    pub(crate) fn range(&self, offset: u32, len: u32) -> Range<usize> {
        let start = self.start as usize + offset as usize;
        start..start + len as usize
    }
}

impl From<IoBuf> for Payload {
    fn from(buffer: IoBuf) -> Self {
        Self::new(Rc::new(buffer))
    }
}

/// What happens to data that a command reads.
#[derive(Debug, Default)]
pub enum Sink {
    /// It is received (and its digest checked) and forgotten.
    #[default]
    Discard,
    /// It is put into a buffer, which comes back with the completion.
    Into(IoBuf),
    /// [`crate::Handler::data`] is shown each piece where it was received.
    Handler,
}

/// A command's data.
#[derive(Debug, Default)]
pub enum Data {
    /// None.
    #[default]
    None,
    /// To the controller.
    Out(Payload),
    /// From the controller.
    In {
        /// Bytes.
        len: u32,
        /// Where they go.
        sink: Sink,
    },
}

impl Data {
    /// Reads into all of `buffer`.
    #[must_use]
    pub fn into_buffer(buffer: IoBuf) -> Self {
        Self::In { len: buffer.len() as u32, sink: Sink::Into(buffer) }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Out(payload) => payload.len,
            Self::In { len, .. } => *len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
