//! Acceptance of connections: the core that serves each, and the limits on their number and memory.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use tokio::net::TcpStream;
use wire::nats::rejection::Rejection;

use crate::{
    client::{door::Door, proxy_protocol, transport::begin},
    counters::Counter,
    mesh::{
        core::{Core, Local},
        links::Message,
    },
};

/// Pause after an accept that failed for lack of file descriptors or memory; an immediate retry would
/// busy-loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections, in an endless loop.
pub(crate) async fn accept(local: Rc<Local>, listener: tokio::net::TcpListener, door: Door) {
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                let core = &mut *local.core.borrow_mut();
                core.count(Counter::Accepted);
                match core.clients.balance.gather(core.index, core.settings.config.gathered) {
                    Some(to) => hand_off(&local, core, to, socket, address, door),
                    None => admit(&local, core, socket, address, door),
                }
            }
            Err(error) => {
                // File descriptors or memory ran out, or the client left at once; the loop must continue.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Hands a new connection to a core that has fewer connections; keeps it if that core cannot accept it now.
fn hand_off(
    local: &Rc<Local>,
    core: &mut Core,
    to: usize,
    socket: TcpStream,
    address: SocketAddr,
    door: Door,
) {
    let Ok(socket) = socket.into_std() else { return };
    match core.links.give(to, Message::Accept(socket, address, door)) {
        Ok(()) => core.count(Counter::HandedOff),
        Err(Message::Accept(socket, address, door)) => take_over(local, core, socket, address, door),
        Err(_) => unreachable!("what was not sent comes back"),
    }
}

/// Serves a connection that another core accepted.
pub(crate) fn take_over(
    local: &Rc<Local>,
    core: &mut Core,
    socket: std::net::TcpStream,
    address: SocketAddr,
    door: Door,
) {
    match TcpStream::from_std(socket) {
        Ok(socket) => admit(local, core, socket, address, door),
        Err(error) => tracing::warn!(%error, "cannot register an accepted socket with the event loop"),
    }
}

/// Serves a connection if the limits allow one more.
fn admit(local: &Rc<Local>, core: &mut Core, socket: TcpStream, address: SocketAddr, door: Door) {
    if core.clients.balance.total() >= core.settings.config.limits.max_connections
        || !core.has_connection_memory()
    {
        core.count(Counter::ConnectionsRefused);
        let mut line = Vec::new();
        Rejection::ConnectionsExceeded.write(&mut line);
        // The socket's send buffer is empty, so it accepts a line unless the client has left.
        let _ = socket.try_write(&line);
        return;
    }
    // Every batch of output is one write, so waiting to combine writes (Nagle's algorithm) would only add
    // latency.
    let _ = socket.set_nodelay(true);
    if core.settings.config.proxy_protocol {
        proxy_protocol::read(local, core, socket, address.ip(), door);
    } else {
        begin(local, core, socket, address, door);
    }
}
