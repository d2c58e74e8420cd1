//! A TCP proxy whose connections can be cut, all at once and at any moment.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to a target.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

/// Cuts a proxy's connections.
#[derive(Debug)]
pub(crate) struct Cutter(Arc<Mutex<Vec<TcpStream>>>);

impl Proxy {
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::clone(&open);
        // It ends with the process: a test process ends when its tests do.
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let far = TcpStream::connect(target).expect("the target listens");
                let copies = |from: &TcpStream, to: &TcpStream| {
                    (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"))
                };
                for (from, to) in [copies(&near, &far), copies(&far, &near)] {
                    thread::spawn(move || forward(from, to));
                }
                accepted.lock().expect("nobody panics").extend([near, far]);
            }
        });
        Self { address, open }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cutter(&self) -> Cutter {
        Cutter(Arc::clone(&self.open))
    }
}

impl Cutter {
    /// Cuts everything that is connected now.
    pub(crate) fn cut(&self) {
        for stream in self.0.lock().expect("nobody panics").drain(..) {
            // One that has ended already needs no cut.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(len) = from.read(&mut buffer) {
        if len == 0 || to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The end of one direction ends the other, too.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
