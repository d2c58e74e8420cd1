//! A network path that a test can cut: relays TCP connections on the loopback to an address.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A relay that listens on a port of 127.0.0.1 until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    path: Arc<Mutex<Path>>,
}

/// The state of the path and what runs over it.
#[derive(Debug)]
struct Path {
    state: State,
    sockets: Vec<TcpStream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Cut,
    Ended,
}

impl Relay {
    /// Listens on a free port; each connection made to it is made to `to`.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn to(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let path = Arc::new(Mutex::new(Path { state: State::Open, sockets: Vec::new() }));
        let accepting = Arc::clone(&path);
        thread::spawn(move || accept(&listener, to, &accepting));
        Ok(Self { address, path })
    }

    /// Where the relay listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections at once; new ones are closed as soon as they are made.
    pub fn cut(&self) {
        self.change(State::Cut);
    }

    /// Lets new connections through again.
    pub fn mend(&self) {
        lock(&self.path).state = State::Open;
    }

    fn change(&self, state: State) {
        let mut path = lock(&self.path);
        path.state = state;
        for socket in path.sockets.drain(..) {
            // It may have been closed by its ends already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.change(State::Ended);
        // Wakes the accepting thread, which then sees the end.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, path: &Mutex<Path>) {
    for client in listener.incoming() {
        let mut path = lock(path);
        match path.state {
            State::Ended => return,
            State::Cut => continue,
            State::Open => {}
        }
        // A connection that fails on either side is, to both ends, a path that broke.
        let _ = client.and_then(|client| path.join(client, TcpStream::connect(to)?));
    }
}

impl Path {
    fn join(&mut self, client: TcpStream, server: TcpStream) -> io::Result<()> {
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
        }
        self.sockets.push(client.try_clone()?);
        self.sockets.push(server.try_clone()?);
        let back = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || pump(client, server));
        thread::spawn(move || pump(back.0, back.1));
        Ok(())
    }
}

/// Moves bytes one way until that way ends, and passes the end on.
fn pump(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// No code that holds the lock panics between two changes that belong together.
fn lock(path: &Mutex<Path>) -> MutexGuard<'_, Path> {
    path.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || stream.try_clone().map(|to| pump(stream, to)));
            }
        });
        Ok(address)
    }

    fn echoes(stream: &mut TcpStream) -> bool {
        let mut answer = [0; 5];
        stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut answer)).is_ok()
            && &answer == b"hello"
    }

    #[test]
    fn cut_path_ends_connections_and_a_mended_one_takes_new_ones() -> io::Result<()> {
        let relay = Relay::to(echo()?)?;
        let mut before = TcpStream::connect(relay.address())?;
        assert!(echoes(&mut before));
        relay.cut();
        assert!(!echoes(&mut before));
        let mut during = TcpStream::connect(relay.address())?;
        assert!(!echoes(&mut during));
        relay.mend();
        assert!(echoes(&mut TcpStream::connect(relay.address())?));
        Ok(())
    }

    #[test]
    fn dropped_relay_listens_no_more() -> io::Result<()> {
        let relay = Relay::to(echo()?)?;
        let address = relay.address();
        drop(relay);
        // The last connection may still be in the queue of the ending listener, but none is served.
        let served = TcpStream::connect(address).is_ok_and(|mut stream| echoes(&mut stream));
        assert!(!served);
        Ok(())
    }
}
