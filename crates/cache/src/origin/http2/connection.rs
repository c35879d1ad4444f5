//! A connection of HTTP/2 to an origin, as a core's pool holds it; and the task that reads and writes it.

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

/// Bytes of a request's content that wait in `h2` to be sent, for each stream; beyond, who has them waits.
pub(in crate::origin) const SEND_BYTES_MAX: usize = 32 << 10;
/// RFC 9113 §6.9.1.
const WINDOW_MAX: usize = (1 << 31) - 1;
/// What a connection's window begins with, and cannot be made smaller (RFC 9113 §6.9.2).
const WINDOW_MIN: usize = 65_535;
/// How often an origin is asked whether it is still there (RFC 9113 §6.7).
const PING_EVERY: Duration = Duration::from_secs(10);
/// Within what time it has to say so; else the connection ends, and whoever waits for an answer there need not.
const PONG_TIME_MAX: Duration = Duration::from_secs(5);

/// A connection, as long as requests may begin on it.
pub(in crate::origin) struct Connection {
    requests: Requests,
    shared: Arc<ConnectionState>,
    /// Streams at once of ours; the origin may allow fewer.
    streams_max: usize,
    is_secured: bool,
}

/// What a connection's streams and its task tell the pool.
#[derive(Default)]
struct ConnectionState {
    streams: AtomicUsize,
    /// When the last stream ended, in milliseconds of the core's clock.
    idle_since_ms: AtomicU64,
    /// It has ended.
    is_over: AtomicBool,
}

/// A stream's place on a connection, and its leave to keep a window of bytes, while it is held.
pub(in crate::origin) struct Place {
    pub(super) requests: Requests,
    shared: Arc<ConnectionState>,
    is_secured: bool,
    pub(super) leave: StreamLeave,
}

impl Place {
    /// The connection is under TLS.
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
    /// Whether another request may begin here now; `None`: never again.
    pub(in crate::origin) fn has_room(&mut self) -> Option<bool> {
        // It has ended, or its origin has said that it goes (RFC 9113 §6.8).
        let is_over = self.shared.is_over.load(Relaxed)
            || matches!(
                self.requests.poll_ready(&mut Context::from_waker(Waker::noop())),
                Poll::Ready(Err(_))
            );
        let streams = self.shared.streams.load(Relaxed);
        (!is_over).then(|| streams < self.streams_max.min(self.requests.current_max_send_streams()))
    }

    /// A place for a request, whether there is room or not: where the origin allows no more, it waits for its turn.
    pub(in crate::origin) fn place(&self, leave: StreamLeave) -> Place {
        self.shared.streams.fetch_add(1, Relaxed);
        Place {
            requests: self.requests.clone(),
            shared: Arc::clone(&self.shared),
            is_secured: self.is_secured,
            leave,
        }
    }

    /// For how long nobody has had a stream here; `None`: somebody has.
    pub(in crate::origin) fn idle_for(&self) -> Option<Duration> {
        let idle_ms = clock::monotonic_ms().saturating_sub(self.shared.idle_since_ms.load(Relaxed));
        (self.shared.streams.load(Relaxed) == 0).then(|| Duration::from_millis(idle_ms))
    }
}

/// Begins to speak HTTP/2. A task of its own reads and writes the connection until it ends: by the origin, or because the
/// pool and all streams have let go.
pub(in crate::origin) async fn open(
    line: Line,
    limits: &Limits,
    tell: Tell,
) -> Result<Connection, OriginError> {
    let is_secured = matches!(line, Line::Secured(_));
    // Windows are numbers of 31 bits. That of the connection is never what a stream waits for: it is all of theirs.
    let window = limits.origin_stream_bytes_max.clamp(1, WINDOW_MAX);
    let streams_max = limits.origin_streams_max.clamp(1, WINDOW_MAX / window);
    let handshake = Builder::new()
        .enable_push(false)
        .initial_window_size(u32_of(window))
        .initial_connection_window_size(u32_of((window * streams_max).max(WINDOW_MIN)))
        .max_header_list_size(u32_of(limits.response_head_bytes_max))
        .max_send_buffer_size(SEND_BYTES_MAX)
        // Until the origin has said how many.
        .initial_max_send_streams(streams_max)
        .handshake::<_, Bytes>(line)
        .await;
    let (requests, wire) = handshake.map_err(|error| super::of_stream(&error))?;
    let shared = Arc::new(ConnectionState::default());
    shared.idle_since_ms.store(clock::monotonic_ms(), Relaxed);
    tell(OriginEvent::Begun);
    tokio::spawn(drive(wire, Arc::clone(&shared), tell));
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
            is_there = beat(&mut pings) => if !is_there {
                tracing::info!("origin does not answer HTTP/2 pings: connection closed");
                tell(OriginEvent::Silent);
                break;
            },
        }
    }
    // Before those whose streams have failed by it look for another one.
    shared.is_over.store(true, Relaxed);
    tell(OriginEvent::Ended);
}

/// Asks, after a while, whether the origin is still there.
async fn beat(pings: &mut Option<PingPong>) -> bool {
    sleep(PING_EVERY).await;
    match pings {
        Some(pings) => {
            timeout(PONG_TIME_MAX, pings.ping(Ping::opaque())).await.is_ok_and(|pong| pong.is_ok())
        }
        None => true,
    }
}
