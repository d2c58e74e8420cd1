//! Accepting connections: one multishot operation per listener.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::{opcode, types};

use crate::net::Stream;
use crate::ops::{StreamOp, close_descriptor};
use crate::sys;

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1024;

/// A listening socket on one core.
pub struct Listener {
    fd: Rc<OwnedFd>,
    address: SocketAddr,
    accepting: Option<StreamOp<Rc<OwnedFd>>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one, see [`Listener::local_address`].
    pub fn bind(address: &SocketAddr) -> io::Result<Self> {
        let fd = sys::tcp_socket(address)?;
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if address.is_ipv6() {
            sys::set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        sys::bind_and_listen(fd.as_fd(), address, BACKLOG)?;
        let address = sys::local_address(fd.as_fd())?;
        Ok(Self { fd: Rc::new(fd), address, accepting: None })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection. An error concerns one connection (`ECONNABORTED`) or passes (`EMFILE`): wait a
    /// moment and go on.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        loop {
            let accepting = self.accepting.get_or_insert_with(|| {
                // SAFETY: no memory is named; the descriptor is kept by the operation.
                unsafe {
                    StreamOp::submit(Rc::clone(&self.fd), close_descriptor, |fd| {
                        opcode::AcceptMulti::new(types::Fd(fd.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build()
                    })
                }
            });
            match poll_fn(|context| accepting.poll_next(context)).await {
                Some(completion) => {
                    completion.value()?;
                    return Ok(Stream::from_fd(sys::adopt(completion.result)));
                }
                // The kernel ends a multishot after an error: arm it again.
                None => self.accepting = None,
            }
        }
    }
}
