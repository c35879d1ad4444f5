//! The PROXY protocol header, with which a proxy names the client at the beginning of a connection.

use std::{future::poll_fn, io, net::SocketAddr, task::Poll};

use engine::cores::watch::Watch;
use tokio::{
    io::{AsyncReadExt, ReadBuf},
    net::TcpStream,
};
use wire::proxy::{self, HEADER_BYTES_MAX, Header};

use crate::client::transport::is_over;

/// Contents of a PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// Address of the client; `None` if the proxy connects for itself.
    pub(crate) peer: Option<SocketAddr>,
    /// True if the client's TLS ends at the proxy.
    pub(crate) is_secured: bool,
}

/// Reads the PROXY protocol header at the beginning of a proxy's connection, and not a byte more. `watch`
/// limits the time.
///
/// # Errors
/// `InvalidData` if the header is invalid, `TimedOut` if it takes too long, or an error if the connection
/// ends.
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
            // All bytes so far belong to the header.
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
