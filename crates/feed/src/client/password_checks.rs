//! Passwords that are compared with their hashes: tens of milliseconds each, on helpers.
//!
//! ```text
//!   CONNECT ─▶ at most CHECKS_WAITING_MAX ─▶ at most CHECKS_AT_ONCE on helpers ─▶ let in, or not
//!                │ more: Authentication Timeout    │ auth_timeout: the same
//!                └ the client leaves: its place in the queue is free
//! ```
//! *Who waits:* clients that have not been let in, in the order in which they came. A check that runs cannot be ended;
//! there are few of them.

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
        connection::{CloseReason, ConnId},
        serve::Stream,
    },
    counters::Counter,
    mesh::core::Local,
};

/// Checks that a core has running at once.
const CHECKS_AT_ONCE: usize = 2;
/// Checks of a core that wait or run; one client more is told to come again.
pub(crate) const CHECKS_WAITING_MAX: usize = 256;
/// How often a client that waits is asked whether it is still there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A core's checks.
#[derive(Debug)]
pub(crate) struct Checks {
    at_once: Arc<Semaphore>,
    /// How many wait or run.
    waiting: usize,
}

impl Default for Checks {
    fn default() -> Self {
        Self { at_once: Arc::new(Semaphore::new(CHECKS_AT_ONCE)), waiting: 0 }
    }
}

/// Has a password compared when it is its turn. `None`: the client has gone or is to be closed.
pub(crate) async fn check(
    local: &Rc<Local>,
    id: ConnId,
    stream: &Stream,
    check: SlowCheck,
) -> Option<Result<Identity, LoginError>> {
    let at_once = {
        let core = &mut *local.core.borrow_mut();
        if core.checks.waiting >= CHECKS_WAITING_MAX {
            core.count(Counter::ChecksRefused);
            core.outputs.reject(id, Rejection::AuthenticationTimeout);
            return None;
        }
        core.checks.waiting += 1;
        Arc::clone(&core.checks.at_once)
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
    core.checks.waiting -= 1;
    checked.filter(|_| core.outputs.connections[id].closing.is_none())
}

/// Waits for a place among those that run.
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

/// Whether the client has closed its side. Of one behind TLS or WebSocket it is not known: `auth_timeout` ends it.
async fn has_left(stream: &Stream) -> bool {
    let Stream::Plain(socket) = stream else { return false };
    poll_fn(|cx| {
        // It says at once what is known.
        let ready = pin!(socket.ready(Interest::READABLE));
        Poll::Ready(match ready.poll(cx) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        })
    })
    .await
}
