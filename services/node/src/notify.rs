//! Tells a service supervisor when the node is ready and when it stops (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What a supervisor is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Everything that the configuration names is served.
    Ready,
    /// The node is about to end.
    Stopping,
}

/// Tells the supervisor, if there is one (`NOTIFY_SOCKET`).
pub fn tell(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(socket = %socket.display(), %error, "the supervisor could not be told: {state:?}");
    }
}

fn send(socket: &OsStr, state: State) -> io::Result<()> {
    let message = match state {
        State::Ready => "READY=1\n",
        State::Stopping => "STOPPING=1\n",
    };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervisor_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).expect("a socket");
        send(path.as_os_str(), State::Ready).expect("a listening socket");
        send(path.as_os_str(), State::Stopping).expect("a listening socket");
        let mut message = [0; 64];
        let mut next = || {
            let len = supervisor.recv(&mut message).expect("a message");
            String::from_utf8_lossy(&message[..len]).into_owned()
        };
        assert_eq!([next(), next()], ["READY=1\n", "STOPPING=1\n"]);
    }

    #[test]
    fn socket_that_is_not_there_is_an_error() {
        assert!(send(OsStr::new("/nonexistent/socket"), State::Ready).is_err());
    }
}
