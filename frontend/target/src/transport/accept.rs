//! Accepting connections, on one core: limits, and a task per connection until Connect has been answered.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ashlar_reactor::net::{Listener, Stream, StreamOptions};
use ashlar_reactor::{Notify, first, timeout};

use crate::backend::OpenBackend;
use crate::inventory::Portal;
use crate::target::core_state::CoreState;
use crate::transport::handshake::{self, Greeted};
use crate::transport::placing;

/// Pause after an accept that failed: out of descriptors, mostly, which passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The portals that are listened on, and the peers that have not finished Connect.
#[derive(Default)]
pub(crate) struct Acceptors {
    portals: RefCell<BTreeMap<SocketAddr, Rc<Notify>>>,
    unbound: RefCell<HashMap<IpAddr, usize>>,
}

impl Acceptors {
    /// Stops listening on the portal that is bound to `address`.
    pub(crate) fn remove(&self, address: &SocketAddr) {
        if let Some(stop) = self.portals.borrow_mut().remove(address) {
            stop.notify_one();
        }
    }

    /// Stops listening everywhere.
    pub(crate) fn remove_all(&self) {
        for (_, stop) in std::mem::take(&mut *self.portals.borrow_mut()) {
            stop.notify_one();
        }
    }
}

/// Listens on a portal; returns it with the address that it got.
pub(crate) fn listen<F: OpenBackend>(
    state: &Rc<CoreState<F>>,
    portal: Portal,
) -> std::io::Result<SocketAddr> {
    let listener = Listener::bind(&portal.listen)?;
    let address = listener.local_address();
    let stop = Rc::new(Notify::new());
    state.acceptors.portals.borrow_mut().insert(address, Rc::clone(&stop));
    let state = Rc::clone(state);
    ashlar_reactor::spawn(async move {
        // Either the portal was removed or the core stops.
        let ended = first(stop.notified(), ashlar_reactor::stop_requested());
        let _ = first(accept_all(&state, listener, Portal { listen: address, ..portal }), ended).await;
    });
    Ok(address)
}

async fn accept_all<F: OpenBackend>(state: &Rc<CoreState<F>>, mut listener: Listener, portal: Portal) {
    loop {
        match listener.accept().await {
            Ok(stream) => accepted(state, stream, portal),
            Err(error) => {
                tracing::warn!(portal = %portal.listen, %error, "could not accept a connection");
                ashlar_reactor::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn accepted<F: OpenBackend>(state: &Rc<CoreState<F>>, stream: Stream, portal: Portal) {
    // A peer that is gone already is no error of ours.
    let (Ok(peer), Ok(local)) = (stream.peer_address(), stream.local_address()) else { return };
    let limits = state.shared.limits;
    if !state.shared.places.admit(limits.connections) {
        tracing::warn!(%peer, "connection refused: the target has as many as it takes");
        return;
    }
    let slot = Slot { state: Rc::clone(state), peer: peer.ip() };
    let unbound = {
        let mut peers = state.acceptors.unbound.borrow_mut();
        let count = peers.entry(peer.ip()).or_default();
        *count += 1;
        *count
    };
    if unbound > limits.unbound_connections_per_peer {
        state.shared.places.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%peer, "connection refused: too many of this host wait for Connect");
        return;
    }
    let options = StreamOptions { user_timeout: limits.peer_timeout, ..StreamOptions::default() };
    if let Err(error) = stream.set_options(options) {
        tracing::debug!(%peer, %error, "could not set a connection's options");
    }
    let state = Rc::clone(state);
    ashlar_reactor::spawn(async move {
        let greeted = timeout(limits.connect_time, handshake::greet(&stream));
        // A peer that says nothing must not keep the core from stopping.
        let Ok(greeted) = first(greeted, ashlar_reactor::stop_requested()).await else {
            return stream.shut_down();
        };
        match greeted {
            Ok(Ok(Greeted { terms, connect, surplus })) => {
                placing::place(
                    &state,
                    placing::Moving { stream, terms, connect, surplus, portal, local, slot },
                )
                .await;
            }
            Ok(Err(unwelcome)) => handshake::part(&stream, unwelcome).await,
            Err(_) => {
                tracing::debug!(%peer, "connection dropped: no Connect in time");
                stream.shut_down();
            }
        }
    });
}

/// A connection counts from accept until its queue has left its core.
pub(crate) struct Slot<F: OpenBackend> {
    state: Rc<CoreState<F>>,
    peer: IpAddr,
}

impl<F: OpenBackend> Slot<F> {
    /// The connection has become a queue, which counts on.
    pub(crate) fn keep(self) {
        self.state.shared.places.connections.fetch_add(1, Ordering::AcqRel);
    }
}

impl<F: OpenBackend> Drop for Slot<F> {
    fn drop(&mut self) {
        self.state.shared.places.connections.fetch_sub(1, Ordering::AcqRel);
        let mut peers = self.state.acceptors.unbound.borrow_mut();
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}
