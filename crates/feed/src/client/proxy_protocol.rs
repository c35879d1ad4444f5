//! The PROXY protocol's header, by which a proxy says whom it speaks for, before whatever the listener speaks: NATS,
//! TLS, WebSocket.
//!
//! It is taken from the socket to its last byte and no further, because what comes behind it may be a TLS handshake,
//! which reads the socket itself: so it is looked at first (`MSG_PEEK`), and only what belongs to it is read. A header
//! that comes in one packet costs two system calls. *Bounds:* `auth_timeout`, and with handshakes so many at a time.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use tokio::{io::AsyncReadExt, net::TcpStream};
use wire::proxy::{HEADER_BYTES_MAX, Header, header};

use crate::{
    counters::Counter,
    mesh::core::{Core, Local},
    server::{Door, begin},
};

/// Serves a connection from `proxy` once its header is read, as the address that it names.
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
        core.handshakes.end(&handshake);
        match said {
            Some(Ok(address)) => begin(&local, core, socket, address, door),
            _ => core.count(Counter::BadProxyHeaders),
        }
    });
}

/// Whom the header names; the proxy, if that speaks for itself.
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
            // All of it belongs to the header.
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
