//! For whom a proxy opens a connection, as it says in front of all else by the PROXY protocol.

use std::{future::poll_fn, io, net::SocketAddr, task::Poll};

use engine::cores::watch::Watch;
use tokio::{
    io::{AsyncReadExt, ReadBuf},
    net::TcpStream,
};
use wire::proxy::{self, HEADER_BYTES_MAX, Header};

use crate::client::transport::is_over;

/// What a proxy says of the connection that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// For whom; `None`: for itself.
    pub(crate) peer: Option<SocketAddr>,
    /// TLS ends at the proxy.
    pub(crate) is_secured: bool,
}

/// Reads the header that stands in front of all else on a proxy's connection, and not a byte more. `watch` says how long
/// it may take.
///
/// # Errors
/// `InvalidData`: it is none. `TimedOut`. Or the connection ended.
pub(crate) async fn read(stream: &mut TcpStream, watch: &Watch) -> io::Result<ProxyHeader> {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let mut have = 0;
    loop {
        let seen = have
            + poll_fn(|cx| {
                if is_over(watch, cx) {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                stream.poll_peek(cx, &mut ReadBuf::new(&mut bytes[have..]))
            })
            .await?;
        if seen == have {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match proxy::header(&bytes[..seen]) {
            Header::Wrong => return Err(io::ErrorKind::InvalidData.into()),
            // All of it belongs to the header.
            Header::NeedMore => {
                stream.read_exact(&mut bytes[have..seen]).await?;
                have = seen;
            }
            Header::Whole { bytes: whole, peer, is_secured } => {
                stream.read_exact(&mut bytes[have..whole]).await?;
                return Ok(ProxyHeader { peer, is_secured });
            }
        }
    }
}
