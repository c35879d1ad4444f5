//! Streams that carry a client's bytes: a plain socket, or TLS and WebSocket above one.

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, tcp::OwnedReadHalf},
};
use tokio_rustls::server::TlsStream;

/// A stream that one task both reads and writes.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {
    /// Notes that the client is admitted, so that the limit for clients before login no longer applies.
    fn let_in(&mut self) {}

    /// Returns the count of frames read since the last call.
    fn take_frames(&mut self) -> Frames {
        Frames::default()
    }

    /// Returns how many bytes of memory are held by data that was read but cannot be passed on yet.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// Count of the WebSocket frames that carried a client's bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frames {
    pub(crate) count: u64,
    /// The last read stopped at the allowed number of frames, so the stream may have more.
    pub(crate) may_have_more: bool,
}

impl Duplex for TlsStream<TcpStream> {}

impl Duplex for engine::tls::client::TlsStream<TcpStream> {}

/// Source of a client's bytes.
pub(crate) enum Stream {
    /// A plain socket, to which any task of the core writes directly.
    Plain(OwnedReadHalf),
    /// TLS, WebSocket or both, written by the connection's own task.
    Wrapped(Box<dyn Duplex>),
}

impl Stream {
    #[inline]
    pub(super) fn take_frames(&mut self) -> Frames {
        match self {
            Self::Plain(_) => Frames::default(),
            Self::Wrapped(stream) => stream.take_frames(),
        }
    }

    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Wrapped(stream) => stream.held_bytes(),
        }
    }
}
