//! Password checks: bcrypt comparisons on helper threads, each of which takes tens of milliseconds.
//!
//! ```text
//!   CONNECT ─▶ at most CHECKS_WAITING_MAX ─▶ at most CHECKS_AT_ONCE on helpers ─▶ admitted, or not
//!                │ more: Authentication Timeout    │ auth_timeout: the same
//!                └ the client leaves: its place in the queue is free
//! ```
//! *Who waits:* clients that are not admitted yet, in the order of their arrival. A running check cannot be
//! aborted, but only a few run at a time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{
    io::Interest,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use wire::nats::rejection::Rejection;

use crate::{
    accounts::identity::{Identity, LoginError, SlowCheck},
    client::{
        check_slots::CHECKS_WAITING_MAX,
        connection::{CloseReason, ConnId},
        stream::Stream,
    },
    counters::Counter,
    mesh::core::Local,
};

/// Interval at which the server checks whether a queued client has closed its socket.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Queues a password check and returns its result. `None`: the client has left, or its connection is to be
/// closed.
pub(crate) async fn check(
    local: &Rc<Local>,
    id: ConnId,
    stream: &Stream,
    check: SlowCheck,
) -> Option<Result<Identity, LoginError>> {
    let at_once = {
        let core = &mut *local.core.borrow_mut();
        if core.clients.checks.waiting >= CHECKS_WAITING_MAX {
            core.count(Counter::ChecksRefused);
            core.outputs.reject(id, Rejection::AuthenticationTimeout);
            return None;
        }
        core.clients.checks.waiting += 1;
        Arc::clone(&core.clients.checks.at_once)
    };
    let permit = wait(local, id, stream, at_once).await;
    let checked = match permit {
        None => None,
        Some(permit) => {
            local.core.borrow().count(Counter::Checks);
            let running = tokio::task::spawn_blocking(move || {
                let checked = check.run();
                drop(permit);
                checked
            });
            Some(running.await.unwrap_or(Err(LoginError::Wrong)))
        }
    };
    let core = &mut *local.core.borrow_mut();
    core.clients.checks.waiting -= 1;
    checked.filter(|_| core.outputs.connections[id].closing.is_none())
}

/// Waits until one of the core's password checks may start.
async fn wait(
    local: &Local,
    id: ConnId,
    stream: &Stream,
    at_once: Arc<Semaphore>,
) -> Option<OwnedSemaphorePermit> {
    let mut acquired = pin!(at_once.acquire_owned());
    loop {
        tokio::select! {
            permit = &mut acquired => return permit.ok(),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let has_left = has_left(stream).await;
        let core = &mut *local.core.borrow_mut();
        if has_left {
            core.outputs.close(id, CloseReason::ClientClosed);
        }
        if core.outputs.connections[id].closing.is_some() {
            return None;
        }
    }
}

/// Returns whether the client has closed its side. This is unknown behind TLS or WebSocket, where
/// `auth_timeout` ends the wait.
async fn has_left(stream: &Stream) -> bool {
    let Stream::Plain(socket) = stream else { return false };
    poll_fn(|cx| {
        // The socket's readiness is polled once, without waiting.
        let ready = pin!(socket.ready(Interest::READABLE));
        Poll::Ready(match ready.poll(cx) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        })
    })
    .await
}
