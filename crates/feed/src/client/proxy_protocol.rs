//! PROXY protocol header, by which a proxy names the client that it forwards. It precedes the listener's own
//! protocol: NATS, TLS or WebSocket.
//!
//! Nothing beyond the header may be read from the socket here, because a TLS handshake may follow, which
//! reads from the socket itself. So the bytes are inspected first (`MSG_PEEK`), and only those of the header
//! are read. A header in one packet costs two system calls. *Bounds:* `auth_timeout`, and the limit on
//! handshakes in progress.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use tokio::{io::AsyncReadExt, net::TcpStream};
use wire::proxy::{HEADER_BYTES_MAX, Header, header};

use crate::{
    client::{door::Door, transport::begin},
    counters::Counter,
    mesh::core::{Core, Local},
};

/// Reads the header of a connection from `proxy`, then serves the connection under the address in the header.
pub(crate) fn read(local: &Rc<Local>, core: &mut Core, mut socket: TcpStream, proxy: IpAddr, door: Door) {
    let handshake = core.begin_handshake(proxy);
    let local = Rc::clone(local);
    let at_most = core.settings.config.limits.auth_timeout;
    tokio::task::spawn_local(async move {
        let said = tokio::select! {
            biased;
            said = tokio::time::timeout(at_most, peer(&mut socket)) => said.ok(),
            () = handshake.cut() => None,
        };
        let core = &mut *local.core.borrow_mut();
        core.clients.handshakes.end(&handshake);
        match said {
            Some(Ok(address)) => begin(&local, core, socket, address, door),
            _ => core.count(Counter::BadProxyHeaders),
        }
    });
}

/// Reads the header and returns the client's address in it, or the proxy's own if the header has none.
async fn peer(socket: &mut TcpStream) -> io::Result<SocketAddr> {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let mut have = 0;
    loop {
        let seen = have + socket.peek(&mut bytes[have..]).await?;
        if seen == have {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match header(&bytes[..seen]) {
            Header::Wrong => return Err(io::ErrorKind::InvalidData.into()),
            // All bytes received so far belong to the header.
            Header::NeedMore => {
                socket.read_exact(&mut bytes[have..seen]).await?;
                have = seen;
            }
            Header::Whole { bytes: whole, peer, .. } => {
                socket.read_exact(&mut bytes[have..whole]).await?;
                return peer.map_or_else(|| socket.peer_addr(), Ok);
            }
        }
    }
}
