//! An HTTP/2 connection to an origin, as kept in a core's pool, and the task that reads and writes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use engine::cores::clock;
use h2::{
    Ping, PingPong,
    client::{Builder, Connection as Wire},
};
use tokio::time::{sleep, timeout};

use super::{
    super::{OriginError, OriginEvent, Tell, line::Line, upstream::StreamLeave},
    render::Requests,
};
use crate::config::Limits;

/// Maximum number of content bytes per stream that wait in `h2` to be sent; a request with more to send
/// waits.
pub(in crate::origin) const SEND_BYTES_MAX: usize = 32 << 10;
/// Largest flow-control window (RFC 9113 §6.9.1).
const WINDOW_MAX: usize = (1 << 31) - 1;
/// Initial window of a connection, which cannot be made smaller (RFC 9113 §6.9.2).
const WINDOW_MIN: usize = 65_535;
/// Interval between two PING frames to an origin (RFC 9113 §6.7).
const PING_EVERY: Duration = Duration::from_secs(10);
/// Time within which an origin must answer a PING. Otherwise the connection ends, and its requests fail.
const PONG_TIME_MAX: Duration = Duration::from_secs(5);

/// A connection on which requests may begin.
pub(in crate::origin) struct Connection {
    requests: Requests,
    shared: Arc<ConnectionState>,
    /// Our limit of concurrent streams; the origin may allow fewer.
    streams_max: usize,
    is_secured: bool,
}

/// State of a connection that its streams and its task share with the pool.
#[derive(Default)]
struct ConnectionState {
    streams: AtomicUsize,
    /// Time at which the last stream ended, in milliseconds of the core's clock.
    idle_since_ms: AtomicU64,
    /// The connection has ended.
    is_over: AtomicBool,
}

/// A stream's slot on a connection, with its permit to buffer a window of bytes.
pub(in crate::origin) struct Place {
    pub(super) requests: Requests,
    shared: Arc<ConnectionState>,
    is_secured: bool,
    pub(super) leave: StreamLeave,
}

impl Place {
    /// Returns whether the connection uses TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.is_secured
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.idle_since_ms.store(clock::monotonic_ms(), Relaxed);
        self.shared.streams.fetch_sub(1, Relaxed);
    }
}

impl Connection {
    /// Returns whether another request may begin on this connection now; `None` if the connection takes no
    /// more requests at all.
    pub(in crate::origin) fn check_room(&mut self) -> Option<bool> {
        // The connection has ended, or the origin has sent GOAWAY (RFC 9113 §6.8).
        let is_over = self.shared.is_over.load(Relaxed)
            || matches!(
                self.requests.poll_ready(&mut Context::from_waker(Waker::noop())),
                Poll::Ready(Err(_))
            );
        let streams = self.shared.streams.load(Relaxed);
        (!is_over).then(|| streams < self.streams_max.min(self.requests.current_max_send_streams()))
    }

    /// Takes a slot for a request, even if there is no room: while the origin allows no more streams, the
    /// request waits in line.
    pub(in crate::origin) fn place(&self, leave: StreamLeave) -> Place {
        self.shared.streams.fetch_add(1, Relaxed);
        Place {
            requests: self.requests.clone(),
            shared: Arc::clone(&self.shared),
            is_secured: self.is_secured,
            leave,
        }
    }

    /// Returns how long the connection has been without streams; `None` if it has one.
    pub(in crate::origin) fn idle_for(&self) -> Option<Duration> {
        let idle_ms = clock::monotonic_ms().saturating_sub(self.shared.idle_since_ms.load(Relaxed));
        (self.shared.streams.load(Relaxed) == 0).then(|| Duration::from_millis(idle_ms))
    }
}

/// Starts HTTP/2 on a connection. A task of its own reads and writes the connection until the origin ends it,
/// or the pool and all streams have dropped it.
pub(in crate::origin) async fn open(
    line: Line,
    limits: &Limits,
    tell: Tell,
) -> Result<Connection, OriginError> {
    let is_secured = matches!(line, Line::Secured(_));
    // Windows are 31-bit numbers. The connection's window is the sum of its streams' windows, so no stream
    // waits for it.
    let window = limits.origin_stream_bytes_max.clamp(1, WINDOW_MAX);
    let streams_max = limits.origin_streams_max.clamp(1, WINDOW_MAX / window);
    let handshake = Builder::new()
        .enable_push(false)
        .initial_window_size(u32_of(window))
        .initial_connection_window_size(u32_of((window * streams_max).max(WINDOW_MIN)))
        .max_header_list_size(u32_of(limits.response_head_bytes_max))
        .max_send_buffer_size(SEND_BYTES_MAX)
        // Limit until the origin has sent its own.
        .initial_max_send_streams(streams_max)
        .handshake::<_, Bytes>(line)
        .await;
    let (requests, wire) = handshake.map_err(|error| super::of_stream(&error))?;
    let shared = Arc::new(ConnectionState::default());
    shared.idle_since_ms.store(clock::monotonic_ms(), Relaxed);
    tell(OriginEvent::Begun);
    tokio::task::spawn_local(drive(wire, Arc::clone(&shared), tell));
    Ok(Connection { requests, shared, streams_max, is_secured })
}

fn u32_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Reads and writes a connection until it ends.
async fn drive(mut wire: Wire<Line>, shared: Arc<ConnectionState>, tell: Tell) {
    let mut pings = wire.ping_pong();
    loop {
        tokio::select! {
            biased;
            ended = &mut wire => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "HTTP/2 connection to an origin closed");
                }
                break;
            }
            is_there = send_ping(&mut pings) => if !is_there {
                tracing::info!("origin does not answer HTTP/2 pings: connection closed");
                tell(OriginEvent::Silent);
                break;
            },
        }
    }
    // Set before the requests whose streams have failed look for another connection.
    shared.is_over.store(true, Relaxed);
    tell(OriginEvent::Ended);
}

/// Waits for [`PING_EVERY`], sends a PING, and returns whether the origin has answered it.
async fn send_ping(pings: &mut Option<PingPong>) -> bool {
    sleep(PING_EVERY).await;
    match pings {
        Some(pings) => {
            timeout(PONG_TIME_MAX, pings.ping(Ping::opaque())).await.is_ok_and(|pong| pong.is_ok())
        }
        None => true,
    }
}
