//! The life of a queue on its core: a task that receives, a task that sends, and an end that leaves nothing
//! behind.

use std::rc::Rc;

use ashlar_reactor::{first, sleep, timeout};

use crate::backend::OpenBackend;
use crate::transport::handshake::{LINGER, linger};
use crate::transport::queue::{Queue, Reason};
use crate::transport::receive::{self, Ending};

/// Starts serving a queue that has entered its core.
pub(crate) fn start<F: OpenBackend>(queue: &Rc<Queue<F>>, surplus: Vec<u8>) {
    ashlar_reactor::spawn(send(Rc::clone(queue)));
    ashlar_reactor::spawn(serve(Rc::clone(queue), surplus));
}

async fn send<F: OpenBackend>(queue: Rc<Queue<F>>) {
    queue.outbox.run(&queue.stream).await;
    queue.sender_ended();
    match queue.reason() {
        None => queue.close(Reason::PeerGone),
        // The host closes after Disconnect; if not, we do.
        Some(Reason::Disconnected) => {
            let _ = first(sleep(LINGER), queue.left()).await;
            queue.close(Reason::Disconnected);
        }
        Some(_) => {}
    }
}

async fn serve<F: OpenBackend>(queue: Rc<Queue<F>>, surplus: Vec<u8>) {
    match receive::run(&queue, surplus).await {
        Ending::Close(reason @ Reason::Disconnected) => {
            // The response to Disconnect goes out first.
            let _ = timeout(LINGER, async {
                queue.sent().await;
                linger(&queue.stream).await;
            })
            .await;
            queue.close(reason);
        }
        Ending::Close(reason) => queue.close(reason),
        Ending::Terminate(error, head) => {
            queue.terminate(error, head.header());
            let _ = timeout(LINGER, async {
                queue.sent().await;
                linger(&queue.stream).await;
            })
            .await;
            queue.close(Reason::Violation(error));
        }
    }
    queue.quiet().await;
    queue.core.leave(&queue);
    queue.set_left();
    end(queue).await;
}

/// The controller learns that the queue is gone; without its admin queue the association ends.
async fn end<F: OpenBackend>(queue: Rc<Queue<F>>) {
    let state = Rc::clone(&queue.core);
    let controller = std::sync::Arc::clone(&queue.controller);
    let qid = queue.qid;
    drop(queue);
    let cntlid = controller.cntlid;
    if qid.is_admin() {
        let association = state.associations.borrow().get(&cntlid).cloned();
        if let Some(association) = association {
            association.wind_up(&state).await;
            state.changed.notify_all();
        }
        return;
    }
    let shared = std::sync::Arc::clone(&state.shared);
    let release = move |there: Rc<crate::target::core_state::CoreState<F>>| async move {
        if let Some(association) = there.association_of(&controller) {
            association.release(qid);
        }
    };
    let owner = shared.owner_of(cntlid);
    shared.surely_on(owner, release).await;
}
