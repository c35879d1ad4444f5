//! A listener whose connections have a bounded number of places, and deadlines while we wait for their peers: for the
//! small servers beside the loops (admin, monitoring, pages).
//!
//! ```text
//!  socket ──accept──▶ ConnectionSlots: room? ── yes ─▶ Connection (AsyncRead, AsyncWrite) ──▶ whoever knows what the bytes mean
//!                        │ no: somebody who only waits goes first            ConnectionSlot ◀── says: the head is whole, it is
//!                        └ nobody does: the accept waits                               answered, it is answered no more
//! ```
//! *Which thread:* whichever polls; nothing here is on a loop's path. *Bounds:* [`Bounds`]: places in all, places of
//! one address, a time for each thing that a peer may be waited for. *What is counted:* [`Counts`], one for each bound.
//!
//! Bytes have no meaning here. That a question begins is seen (a byte comes from who was idle); that its head is whole,
//! and that it is answered, the caller says through its [`ConnectionSlot`].

mod bounds;
mod connection;
mod places;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError},
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
    cores::clock,
    meter::{Family, Point, Source, Unit, Value},
    network::canonical,
};

/// Pause after an accept that failed for want of files or memory: trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[expect(clippy::disallowed_types, reason = "beside the loops: taken a few times a question, by one thread")]
type Lock<T> = std::sync::Mutex<T>;

/// What listener, connections and handles have in common.
struct ListenerState {
    name: &'static str,
    places: Lock<ConnectionSlots>,
    /// Somebody left, or only waits, while places were short.
    freed: Notify,
}

impl ListenerState {
    fn with<T>(&self, change: impl FnOnce(&mut ConnectionSlots) -> T) -> T {
        change(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A listening socket with places.
pub struct Listener {
    socket: TcpListener,
    shared: Arc<ListenerState>,
    /// Accepted, and not yet in.
    waiting: Option<(tokio::net::TcpStream, SocketAddr)>,
}

impl Listener {
    /// ConnectionSlots on a socket that listens; `name` is the label that its numbers have. To be called within a runtime.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub fn new(name: &'static str, socket: std::net::TcpListener, bounds: Bounds) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let shared =
            ListenerState { name, places: Lock::new(ConnectionSlots::new(bounds)), freed: Notify::new() };
        Ok(Self { socket, shared: Arc::new(shared), waiting: None })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters(Arc::clone(&self.shared))
    }

    /// The next connection that has a place, with its peer's canonical address: an IPv4 peer of a socket on `[::]` is
    /// that IPv4 address, so that every comparison behind this sees one form. It may be dropped while it waits; nobody
    /// is lost.
    pub async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (stream, address) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match self.socket.accept().await {
                    Ok((stream, address)) => (stream, canonical(address)),
                    Err(error) => {
                        // Out of files or memory, or a peer that was gone at once: the server must live on.
                        tracing::warn!(%error, "{}: a connection could not be accepted", self.shared.name);
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
                    // Without it the second packet of an answer waits for the first one's acknowledgement.
                    _ = stream.set_nodelay(true);
                    let place = ConnectionSlot { shared: Arc::clone(&self.shared), ticket };
                    return (Connection::new(stream, place), address);
                }
                AcceptDecision::Refused => {
                    // A socket that is new takes these few bytes, or its peer is gone.
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

/// A connection's place, for whoever knows what its bytes mean. Outliving the connection, it does nothing.
#[derive(Debug, Clone)]
pub struct ConnectionSlot {
    shared: Arc<ListenerState>,
    ticket: SlotId,
}

impl ConnectionSlot {
    /// A question's head is whole, and a body follows.
    pub fn receiving(&self) {
        self.wait(Phase::Body);
    }

    /// That body has come, or nobody wants it.
    pub fn received(&self) {
        if self.shared.with(|places| places.phase(self.ticket)) == Some(Phase::Body) {
            self.wait(Phase::Working);
        }
    }

    /// A question is whole, and being answered: until [`ConnectionSlot::answered`] nothing is expected of the peer but to take
    /// what is sent.
    pub fn working(&self) {
        self.wait(Phase::Working);
    }

    /// Who asks is not who the connection comes from, but somebody behind it: until the answer is given the place
    /// counts as theirs. False if that address has its places, which is counted; the question is to be refused.
    #[must_use]
    pub fn asked_by(&self, address: IpAddr) -> bool {
        self.shared.with(|places| places.asked_by(self.ticket, address))
    }

    /// The answer has been handed to the connection.
    pub fn answered(&self) {
        self.wait(Phase::Idle);
        if self.shared.with(|places| places.is_short) {
            self.shared.freed.notify_one();
        }
    }

    /// So many bytes of a question or an answer were freed: where they were many, they are given back to the system.
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
        // A permit that nobody waits for only makes the next wait look twice.
        self.shared.freed.notify_one();
    }
}

/// What a listener counts.
#[derive(Debug, Clone)]
pub struct Counters(Arc<ListenerState>);

impl Counters {
    /// The numbers as they are now.
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
        families.push(family("listener_connections", "Connections that are open.", open));
        for (name, help, count) in [
            ("listener_connections_accepted", "Connections that came in.", counts.accepted),
            (
                "listener_connections_waited",
                "Connections that waited: every place was being answered.",
                counts.waited,
            ),
            (
                "listener_address_refused",
                "Connections, or questions through a proxy, refused: their address had its places.",
                counts.refused,
            ),
            (
                "listener_idle_evicted",
                "Idle connections ended because places were short.",
                counts.idle_evicted,
            ),
            (
                "listener_heads_evicted",
                "Connections ended in a head because places were short.",
                counts.heads_evicted,
            ),
            (
                "listener_bodies_evicted",
                "Connections ended in a body because places were short.",
                counts.bodies_evicted,
            ),
            ("listener_idle_ended", "Connections that had idled for too long.", counts.idle_ended),
            ("listener_slow_heads", "Connections ended because a head took too long.", counts.slow_heads),
            ("listener_long_heads", "Connections ended because a head was too long.", counts.long_heads),
            ("listener_slow_bodies", "Connections ended because a body took too long.", counts.slow_bodies),
            (
                "listener_stalled",
                "Connections ended because the peer took nothing of its answer.",
                counts.stalled,
            ),
            (
                "listener_slow_answers",
                "Connections ended because the peer took too long over an answer.",
                counts.slow_answers,
            ),
        ] {
            families.push(family(name, help, Value::Counter(count)));
        }
    }
}
