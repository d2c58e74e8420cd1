//! TCP connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use crate::buffer::IoBuf;
use crate::net::Gather;
use crate::net::provided::{self, GROUP, Received};
use crate::ops::{Op, StreamOp, no_cleanup};
use crate::sys::{self, RawAddress};

/// Options of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Kernel buffer in each direction, in bytes. With the kernel's defaults deep write queues stall.
    pub buffer_bytes: u32,
    /// Unacknowledged data older than this ends the connection (`TCP_USER_TIMEOUT`), and so do probes that nobody
    /// answers for so long when there is no data (`SO_KEEPALIVE`): a peer that vanished. In steps of a second.
    pub user_timeout: Duration,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { buffer_bytes: 2 * 1024 * 1024, user_timeout: Duration::from_secs(30) }
    }
}

/// A multishot receive, see [`Stream::receive_many`]. Dropping it ends the operation; what had arrived is
/// lost.
pub struct ReceiveMany {
    stream: Stream,
    receiving: Option<StreamOp<Rc<OwnedFd>>>,
    /// Buffers given back before it was submitted.
    returns: u64,
}

impl std::fmt::Debug for ReceiveMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveMany").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl ReceiveMany {
    /// What has arrived next; `None` at the end of the stream.
    pub async fn next(&mut self) -> io::Result<Option<Received>> {
        let provided = provided::current();
        loop {
            let receiving = self.receiving.get_or_insert_with(|| {
                self.returns = provided.returns();
                // SAFETY: the kernel chooses buffers of the group, which outlives the ring.
                unsafe {
                    StreamOp::submit(Rc::clone(&self.stream.fd), provided::clean_up, |fd| {
                        opcode::RecvMulti::new(types::Fd(fd.as_raw_fd()), GROUP).build()
                    })
                }
            });
            match poll_fn(|context| receiving.poll_next(context)).await {
                // The kernel ended the operation after an error or the end of the stream: arm it again.
                None => self.receiving = None,
                Some(completion) if completion.result == -libc::ENOBUFS => provided.wait(self.returns).await,
                Some(completion) => {
                    let arrived = completion.value()?;
                    return Ok(provided.received(completion).filter(|_| arrived > 0));
                }
            }
        }
    }
}

/// A TCP connection on one core. Clones are the same connection.
#[derive(Debug, Clone)]
pub struct Stream {
    fd: Rc<OwnedFd>,
}

impl Stream {
    /// Takes a connected socket, for example one that another core accepted.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd: Rc::new(fd) }
    }

    /// Gives the socket up, to be moved to another core. Fails while a clone or an operation is alive.
    pub fn into_fd(self) -> Result<OwnedFd, Stream> {
        Rc::try_unwrap(self.fd).map_err(|fd| Stream { fd })
    }

    /// Connects to `address`.
    pub async fn connect(address: &SocketAddr, options: StreamOptions) -> io::Result<Self> {
        let stream = Self::from_fd(sys::tcp_socket(address)?);
        // Buffer sizes must be set before the handshake to allow large windows.
        stream.set_options(options)?;
        let resource = (Box::new(RawAddress::new(address)), Rc::clone(&stream.fd));
        // SAFETY: the address is on the heap and owned by the operation.
        let op = unsafe {
            Op::submit(resource, no_cleanup, |(address, fd)| {
                let at = (&raw const address.storage).cast();
                opcode::Connect::new(types::Fd(fd.as_raw_fd()), at, address.len).build()
            })
        };
        op.await.0.value()?;
        Ok(stream)
    }

    /// Sets the options; Nagle's algorithm is off in any case.
    pub fn set_options(&self, options: StreamOptions) -> io::Result<()> {
        let fd = self.fd.as_fd();
        let bytes = i32::try_from(options.buffer_bytes).unwrap_or(i32::MAX);
        let timeout_ms = i32::try_from(options.user_timeout.as_millis()).unwrap_or(i32::MAX);
        sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
        sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, timeout_ms)?;
        // Several probes within the time, so that one that gets lost ends nothing.
        let timeout_s = timeout_ms / 1000;
        sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, (timeout_s / 2).max(1))?;
        sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (timeout_s / 6).max(1))?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
    }

    /// Our end's address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        sys::local_address(self.fd.as_fd())
    }

    /// The other end's address.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        sys::peer_address(self.fd.as_fd())
    }

    /// Ends both directions: receives and sends that wait end, and the peer is told.
    pub fn shut_down(&self) {
        sys::shut_down(self.fd.as_fd());
    }

    /// Tells the peer that nothing follows what was sent; receiving goes on.
    pub fn finish_sending(&self) {
        sys::finish_sending(self.fd.as_fd());
    }

    /// Receives whatever has arrived into a shared buffer; `None` at the end of the stream. Waits for a
    /// buffer if all are in use.
    pub async fn receive(&self) -> io::Result<Option<Received>> {
        let provided = provided::current();
        loop {
            let returns = provided.returns();
            // SAFETY: the kernel chooses a buffer of the group, which outlives the ring.
            let op = unsafe {
                Op::submit(Rc::clone(&self.fd), provided::clean_up, |fd| {
                    opcode::Recv::new(types::Fd(fd.as_raw_fd()), std::ptr::null_mut(), 0)
                        .buf_group(GROUP)
                        .build()
                        .flags(squeue::Flags::BUFFER_SELECT)
                })
            };
            let (completion, _) = op.await;
            if completion.result == -libc::ENOBUFS {
                provided.wait(returns).await;
                continue;
            }
            let arrived = completion.value()?;
            return Ok(provided.received(completion).filter(|_| arrived > 0));
        }
    }

    /// Receives again and again from one submission (multishot). It goes on taking shared buffers while
    /// nobody looks, so it suits a reader that never holds its peer back; [`Stream::receive`] takes one
    /// buffer at a time.
    pub fn receive_many(&self) -> ReceiveMany {
        ReceiveMany { stream: self.clone(), receiving: None, returns: 0 }
    }

    /// Receives into `buffer[from..]`; returns the number of bytes, zero at the end of the stream.
    pub async fn receive_into(&self, buffer: IoBuf, from: usize) -> (io::Result<usize>, IoBuf) {
        let range = from..buffer.len();
        self.receive_part(buffer, range).await
    }

    /// As [`Stream::receive_into`], into a part of the buffer: what comes after it is somebody else's.
    pub async fn receive_part(&self, buffer: IoBuf, part: Range<usize>) -> (io::Result<usize>, IoBuf) {
        let end = part.end.min(buffer.len());
        let start = part.start.min(end);
        // SAFETY: the bytes belong to the buffer, which the operation owns; moving an `IoBuf` does not move
        // them.
        let op = unsafe {
            Op::submit((buffer, Rc::clone(&self.fd)), no_cleanup, |(buffer, fd)| {
                let at = buffer.pointer().wrapping_add(start);
                let len = (end - start) as u32;
                opcode::Recv::new(types::Fd(fd.as_raw_fd()), at, len).build()
            })
        };
        let (completion, (buffer, _)) = op.await;
        (completion.value().map(|received| received as usize), buffer)
    }

    /// Sends what `gather` holds, or a part of it; returns the number of bytes, which are gone from `gather`.
    /// Call it again until the gather is empty.
    pub async fn send(&self, mut gather: Box<Gather>) -> (io::Result<usize>, Box<Gather>) {
        let message = gather.message();
        // SAFETY: message, segments, headers and buffers are on the heap, owned by the gather that the
        // operation owns, and do not move with it.
        let op = unsafe {
            Op::submit((gather, Rc::clone(&self.fd)), no_cleanup, |(_, fd)| {
                opcode::SendMsg::new(types::Fd(fd.as_raw_fd()), message)
                    .flags(libc::MSG_NOSIGNAL as u32)
                    .build()
            })
        };
        let (completion, (mut gather, _)) = op.await;
        let result = completion.value().map(|sent| sent as usize);
        if let Ok(sent) = result {
            gather.advance(sent);
        }
        (result, gather)
    }
}
