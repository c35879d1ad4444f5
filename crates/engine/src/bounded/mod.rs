//! A listener with a bounded number of connections, and deadlines while the server waits for their peers.
//! Used by the small servers beside the loops (admin, monitoring, pages).
//!
//! ```text
//!  socket ──accept──▶ ConnectionSlots: room? ── yes ─▶ Connection (AsyncRead, AsyncWrite) ──▶ the protocol's code
//!                        │ no: an idle connection is closed first            ConnectionSlot ◀── reports: head complete,
//!                        └ no idle connection: the accept waits                          being answered, answered
//! ```
//! *Thread:* any that polls; nothing here is on a loop's path. *Bounds:* [`Bounds`]: total slots, slots per
//! address, and a maximum time for each phase in which the server waits for a peer. *Counters:* [`Counts`],
//! one for each bound.
//!
//! The listener does not interpret bytes. It only sees that a request begins (the first byte on an idle
//! connection); the caller reports through its [`ConnectionSlot`] that the head is complete and that the
//! request is answered.

mod bounds;
mod connection;
mod places;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpListener, sync::Notify};

use self::places::{AcceptDecision, ConnectionSlots, SlotId};
pub use self::{
    bounds::{Bounds, Counts},
    connection::Connection,
};
pub use crate::cores::watch::Phase;
use crate::{
    cold_mutex::ColdMutex,
    cores::clock,
    meter::{Family, Point, Source, Unit, Value},
    network::canonical,
};

/// Pause after an accept that failed for lack of file descriptors or memory: an immediate retry would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// State shared by the listener, its connections and their handles.
struct ListenerState {
    name: &'static str,
    /// Locked a few times for each request, by the thread that serves the listener.
    places: ColdMutex<ConnectionSlots>,
    /// Signalled when a connection ends or becomes idle while slots are short.
    freed: Notify,
}

impl ListenerState {
    fn with<T>(&self, change: impl FnOnce(&mut ConnectionSlots) -> T) -> T {
        change(&mut self.places.lock())
    }
}

impl fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerState").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A listening socket with connection slots.
pub struct Listener {
    socket: TcpListener,
    shared: Arc<ListenerState>,
    /// An accepted connection that waits for a slot.
    waiting: Option<(tokio::net::TcpStream, SocketAddr)>,
}

impl Listener {
    /// Creates a listener from a listening socket; `name` is the label of its metrics. To be called within a
    /// runtime.
    ///
    /// # Errors
    /// Returns the system's error if the socket cannot be used.
    pub fn new(name: &'static str, socket: std::net::TcpListener, bounds: Bounds) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let shared = ListenerState {
            name,
            places: ColdMutex::new(ConnectionSlots::new(bounds)),
            freed: Notify::new(),
        };
        Ok(Self { socket, shared: Arc::new(shared), waiting: None })
    }

    /// Returns the address on which the listener listens.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns a handle on the listener's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters(Arc::clone(&self.shared))
    }

    /// Returns the next connection that has a slot, with its peer's canonical address: an IPv4 peer of a
    /// socket on `[::]` is returned with its IPv4 address, so that all later comparisons see one form.
    /// Cancel-safe: no connection is lost if the future is dropped while it waits.
    pub async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (stream, address) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match self.socket.accept().await {
                    Ok((stream, address)) => (stream, canonical(address)),
                    Err(error) => {
                        // Out of file descriptors or memory, or the peer closed at once: the server must go
                        // on.
                        tracing::warn!(%error, "{}: cannot accept a connection", self.shared.name);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
            };
            let now_ms = clock::monotonic_ms();
            let entrance = self.shared.with(|places| {
                let entrance = places.enter(address.ip(), now_ms);
                places.note_memory(now_ms);
                entrance
            });
            match entrance {
                AcceptDecision::Taken(ticket) => {
                    // Without this the second packet of an answer waits for the acknowledgement of the first.
                    _ = stream.set_nodelay(true);
                    let place = ConnectionSlot { shared: Arc::clone(&self.shared), ticket };
                    return (Connection::new(stream, place), address);
                }
                AcceptDecision::Refused => {
                    // Either the short answer fits into the buffer of the new socket, or its peer is gone.
                    _ = stream.try_write(self.shared.with(|places| places.bounds().refused_words));
                }
                AcceptDecision::Full => {
                    self.waiting = Some((stream, address));
                    self.shared.freed.notified().await;
                }
            }
        }
    }
}

/// Handle on a connection's slot, for the code that interprets the connection's bytes. Does nothing after the
/// connection has ended.
#[derive(Debug, Clone)]
pub struct ConnectionSlot {
    shared: Arc<ListenerState>,
    ticket: SlotId,
}

impl ConnectionSlot {
    /// Reports that a request's head is complete and a body follows.
    pub fn receiving(&self) {
        self.wait(Phase::Body);
    }

    /// Reports that the body is complete or not wanted.
    pub fn received(&self) {
        if self.shared.with(|places| places.phase(self.ticket)) == Some(Phase::Body) {
            self.wait(Phase::Working);
        }
    }

    /// Reports that a request is complete and being answered: until [`ConnectionSlot::answered`] the only
    /// deadlines are those for accepting the sent data.
    pub fn working(&self) {
        self.wait(Phase::Working);
    }

    /// Reports the client address behind a proxy: until the request is answered the slot counts for that
    /// address. Returns false, and counts a refusal, if that address has used all its slots; the request must
    /// then be refused.
    #[must_use]
    pub fn asked_by(&self, address: IpAddr) -> bool {
        self.shared.with(|places| places.asked_by(self.ticket, address))
    }

    /// Reports that the answer has been handed to the connection.
    pub fn answered(&self) {
        self.wait(Phase::Idle);
        if self.shared.with(|places| places.is_short) {
            self.shared.freed.notify_one();
        }
    }

    /// Reports that `bytes` of a request or an answer were freed; large amounts are returned to the system.
    pub fn let_go(&self, bytes: usize) {
        self.shared.with(|places| places.tide.let_go(bytes));
    }

    fn wait(&self, phase: Phase) {
        self.shared.with(|places| places.wait(self.ticket, phase, clock::monotonic_ms()));
    }

    fn leave(&self) {
        self.shared.with(|places| {
            places.leave(self.ticket);
            places.note_memory(clock::monotonic_ms());
        });
        // A surplus permit only makes the next wait check twice.
        self.shared.freed.notify_one();
    }
}

/// Handle on a listener's counters.
#[derive(Debug, Clone)]
pub struct Counters(Arc<ListenerState>);

impl Counters {
    /// Returns the current counters.
    #[must_use]
    pub fn now(&self) -> Counts {
        self.0.with(|places| places.counts)
    }
}

impl Source for Counters {
    fn collect(&self, families: &mut Vec<Family>) {
        let counts = self.now();
        let family = |name, help, value| Family {
            name,
            help,
            unit: Unit::None,
            points: vec![Point { labels: vec![("listener", self.0.name.to_owned())], value }],
        };
        #[expect(clippy::cast_precision_loss, reason = "connections: far below 2^53")]
        let open = Value::Gauge(counts.open as f64);
        families.push(family("listener_connections", "Open connections.", open));
        for (name, help, count) in [
            ("listener_connections_accepted", "Connections accepted.", counts.accepted),
            (
                "listener_connections_waited",
                "Connections that waited because all connection slots were in use.",
                counts.waited,
            ),
            (
                "listener_address_refused",
                "Connections, or requests through a proxy, refused because their address used all of its slots.",
                counts.refused,
            ),
            (
                "listener_idle_evicted",
                "Idle connections closed because connection slots were short.",
                counts.idle_evicted,
            ),
            (
                "listener_heads_evicted",
                "Connections closed within a request head because connection slots were short.",
                counts.heads_evicted,
            ),
            (
                "listener_bodies_evicted",
                "Connections closed within a request body because connection slots were short.",
                counts.bodies_evicted,
            ),
            ("listener_idle_ended", "Connections closed by the idle timeout.", counts.idle_ended),
            ("listener_slow_heads", "Connections ended because a head took too long.", counts.slow_heads),
            ("listener_long_heads", "Connections ended because a head was too long.", counts.long_heads),
            ("listener_slow_bodies", "Connections ended because a body took too long.", counts.slow_bodies),
            (
                "listener_stalled",
                "Connections closed because the client did not read its answer.",
                counts.stalled,
            ),
            (
                "listener_slow_answers",
                "Connections closed because the client took too long to read an answer.",
                counts.slow_answers,
            ),
        ] {
            families.push(family(name, help, Value::Counter(count)));
        }
    }
}
