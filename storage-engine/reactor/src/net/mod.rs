//! TCP through the ring.

mod gather;
mod listener;
pub(crate) mod provided;
mod stream;

pub use gather::Gather;
pub use listener::Listener;
pub use provided::Received;
pub use stream::{ReceiveMany, Stream, StreamOptions};
