//! Accepts client connections: a connection is accepted, possibly handed to a core with fewer connections,
//! and counted; after its TLS handshake the protocol takes over.
//!
//! *Bounds:* the connections of the core, with a [share](crate::client::limits::request_tasks) for each
//! client; the connections of each address; the number of handshakes in progress (`handshakes_max`) and their
//! duration; the memory of all connections (`connection_bytes_max`, the process's budget). When few
//! connections are left, each new connection closes one that is idle or has been sending a request head for a
//! long time; after that, a connection of the client that has the most.

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, OnceLock},
    task::{Context, Wake, Waker},
    time::Duration,
};

use engine::{
    accounts::{Charge, ClientKey},
    cores::{
        clock,
        watch::{Phase, Watch},
    },
    network::Network,
    tls::{challenges, session::HANDSHAKE_BYTES_MAX},
};
use tokio::{net::TcpStream, task::AbortHandle};

use crate::{
    client::{
        accepted::{AcceptedConnection, ListenerKind},
        http1, http2,
        limits::{
            connection_counts::{ConnectionCounts, ConnectionSlot},
            rates::TooMany,
            request_tasks::CONNECTIONS,
            turns::yield_to_ready,
        },
        listener::Listener,
        proxy_protocol,
        transport::{self, Transport},
    },
    core::{Core, Message, with_core},
    counters::Counter,
    request::client_ip::{Peer, number_of},
};

/// Denominator of a fraction of `connections_max`: when no more than this fraction is free, each new
/// connection closes one that is idle or still sending a request head.
const FEW_MORE_PARTS: usize = 16;
/// Minimum time that a connection must have been idle, or sending a request head, before it may be closed to
/// make room.
const WAIT_MIN_MS: u64 = 1000;
/// Pause after an accept that failed because file descriptors or memory ran out; retrying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Estimated memory of a connection with its task and its socket's kernel structures, as measured by `make
/// bench-idle` and rounded up.
const PLAIN_BYTES: usize = 4 << 10;
/// Additional memory of a connection under TLS.
const SECURED_BYTES: usize = 12 << 10;
/// Additional memory of a connection that speaks HTTP/2.
const HTTP2_BYTES: usize = 8 << 10;
/// Maximum number of idle connections that are examined to find the one that has been idle longest.
const EVICTION_LOOKS: usize = 64;
/// Maximum number of idle connections closed in one round because other parts of the process need the memory.
const GIVING_WAY_MAX: usize = 256;

/// Number of connections accepted in a row before existing connections get a turn.
const ACCEPTED_AT_ONCE: usize = 8;

/// Accepts connections in an endless loop.
pub(crate) async fn accept(listener: &Listener) {
    for number in 1_usize.. {
        if number.is_multiple_of(ACCEPTED_AT_ONCE) {
            yield_to_ready().await;
        }
        match listener.accept().await {
            Ok((stream, arrival)) => with_core(|core| {
                core.count(Counter::Accepted);
                match core.clients.balance.hand_off_to(core.index) {
                    Some(to) => hand_off(core, to, stream, arrival),
                    None => admit(core, stream, arrival),
                }
            }),
            Err(error) => {
                // File descriptors or memory ran out, or the client has already left: the accept loop must
                // continue.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Hands a new connection to a core that has fewer; serves it here if that core cannot take it now.
fn hand_off(core: &Core, to: usize, stream: TcpStream, arrival: AcceptedConnection) {
    let Ok(stream) = stream.into_std() else { return };
    match core.give(to, Message::Accept(stream, arrival)) {
        Ok(()) => core.count(Counter::HandedOff),
        Err(Message::Accept(stream, arrival)) => take_over(core, stream, arrival),
        Err(_) => unreachable!("what was not sent comes back"),
    }
}

/// Serves a connection that another core has accepted.
pub(crate) fn take_over(core: &Core, stream: std::net::TcpStream, arrival: AcceptedConnection) {
    match TcpStream::from_std(stream) {
        Ok(stream) => admit(core, stream, arrival),
        Err(error) => tracing::warn!(%error, "cannot register an accepted socket with the event loop"),
    }
}

/// Serves a connection if the limits allow one more.
fn admit(core: &Core, stream: TcpStream, arrival: AcceptedConnection) {
    let clients = &core.in_force.clients;
    make_room(core);
    let is_peer = arrival.over == ListenerKind::Peer;
    let is_announced = !is_peer && is_in(&core.config.proxy_protocol_from, arrival.address);
    // Connections from an operator's proxy belong to many clients. A connection on the peer port is checked
    // later.
    let is_proxy = is_peer || is_announced || is_in(&core.config.trusted_proxies, arrival.address);
    let Some(share) = ConnectionShare::new(core, arrival.address, is_proxy, Arc::default()) else {
        return turn_away(core, stream, arrival);
    };
    let held = match (!is_proxy).then(|| clients.admit(arrival.address.ip())).transpose() {
        Ok(held) => held,
        Err(too_many) => return refuse(core, stream, arrival, too_many),
    };
    let ending = Arc::clone(&share.ending);
    let (share, named_later) = if is_announced { (None, Some(share)) } else { (Some(share), None) };
    let open = OpenConnection::new(core, held, share);
    // Boxed: the field is rare, but unboxed it would enlarge every connection's task.
    let announced = named_later.map(|share| Box::new((share, Arc::clone(clients))));
    let task = tokio::task::spawn_local(async move {
        let watch = Watch::new();
        let watched = with_core(|core| WatchEntry(core.clients.watches.borrow_mut().add(Rc::clone(&watch))));
        match announced {
            Some(announced) => {
                let (share, clients) = *announced;
                Box::pin(serve_announced(stream, arrival, Rc::clone(&watch), share, clients)).await;
            }
            None => serve(stream, arrival, false, watch).await,
        }
        drop((watched, open));
    });
    ending.0.get_or_init(|| task.abort_handle());
}

/// A connection's entry among the watches of its core, removed on drop.
struct WatchEntry(usize);

impl Drop for WatchEntry {
    fn drop(&mut self) {
        with_core(|core| core.clients.watches.borrow_mut().remove(self.0));
    }
}

/// Charge of one connection to its client's account.
struct ConnectionShare {
    _charge: Charge,
    ending: Arc<ConnectionEnd>,
}

/// Ends a connection's task when the connection has to give way to other clients' connections.
#[derive(Default)]
struct ConnectionEnd(OnceLock<AbortHandle>);

impl Wake for ConnectionEnd {
    fn wake(self: Arc<Self>) {
        if let Some(task) = self.0.get() {
            with_core(|core| core.count(Counter::ConnectionsDisplaced));
            task.abort();
        }
    }
}

impl ConnectionShare {
    /// Charges a connection to its client. Returns `None`, and counts the refusal, if the client exceeds its
    /// share of the connections or there is no room. Each connection of a proxy counts as a client of its
    /// own, because a proxy serves many clients.
    fn new(core: &Core, address: SocketAddr, is_proxy: bool, ending: Arc<ConnectionEnd>) -> Option<Self> {
        let number = number_of(address);
        let key = if is_proxy {
            ClientKey::Connection(number)
        } else {
            ClientKey::of_connection(address.ip(), number, &core.config.shared_networks)
        };
        let Ok(charge) = core.budgets.accounts.charge(key, CONNECTIONS, 1) else {
            let is_by_memory = core.clients.are_connections_fitted.get();
            core.count(if is_by_memory {
                Counter::ConnectionBytesRefused
            } else {
                Counter::ConnectionsRefused
            });
            return None;
        };
        // The poll is always pending here: no other client has needed room since the charge was made.
        _ = charge.poll_cut(&Context::from_waker(&Waker::from(Arc::clone(&ending))));
        Some(Self { _charge: charge, ending })
    }

    /// Charges the connection to the client that its proxy has named.
    fn hand_over(self, core: &Core, address: SocketAddr) -> Option<Self> {
        let Self { _charge: of_proxy, ending } = self;
        // The proxy's charge is released first: otherwise the connection would need room for two charges at
        // once.
        drop(of_proxy);
        Self::new(core, address, false, ending)
    }
}

/// Closes a waiting connection if there is little room left. While connections use all the memory that they
/// are allowed, their number is limited to the current number, so that the client with the most connections
/// gives way to others.
fn make_room(core: &Core) {
    let connections_max = core.config.limits.connections_max;
    let is_short = core.budgets.connection_memory.is_short();
    let are_many =
        core.clients.balance.held(core.index) >= connections_max - connections_max / FEW_MORE_PARTS;
    if (is_short && !end_idle(core)) || are_many {
        end_waiting(core);
    }
    if !core.budgets.connection_memory.has_room(PLAIN_BYTES) {
        core.budgets.accounts.resize(CONNECTIONS, core.budgets.accounts.used(CONNECTIONS), 1);
        core.clients.are_connections_fitted.set(true);
    } else if core.clients.are_connections_fitted.get() && !is_short {
        core.budgets.accounts.resize(CONNECTIONS, connections_max, 1);
        core.clients.are_connections_fitted.set(false);
    }
}

/// Closes the connection that has been idle, or sending a request head, for the longest time, if that is at
/// least a second.
fn end_waiting(core: &Core) {
    let limits = &core.config.limits;
    let before_ms = clock::monotonic_ms().saturating_sub(WAIT_MIN_MS);
    let begun = |phase: Phase, deadline_ms: u64| {
        let at_most = match phase {
            Phase::Idle => limits.idle_time_max,
            Phase::Head => limits.request_head_time_max,
            Phase::Body | Phase::Send | Phase::Working | Phase::Streams => return None,
        };
        let at_most_ms = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        Some(deadline_ms.saturating_sub(at_most_ms)).filter(|&begun_ms| begun_ms <= before_ms)
    };
    if core.clients.watches.borrow_mut().end_earliest(EVICTION_LOOKS, begun) {
        core.count(Counter::IdleEvicted);
    }
}

/// Ends the connection that has been idle longest. Returns whether there was one.
fn end_idle(core: &Core) -> bool {
    let is_ended = core.clients.watches.borrow_mut().end_longest_idle(EVICTION_LOOKS);
    if is_ended {
        core.count(Counter::IdleEvicted);
    }
    is_ended
}

/// Closes idle connections while connections exceed their memory limit, which shrinks when another part of
/// the process needs memory.
pub(crate) fn give_way(core: &Core) {
    for _ in 0..GIVING_WAY_MAX {
        if core.budgets.connection_memory.has_room(0) || !end_idle(core) {
            return;
        }
    }
}

/// Memory of a connection that is counted while this guard is held.
struct Weight(usize);

impl Weight {
    fn of(core: &Core, bytes: usize) -> Self {
        core.budgets.connection_memory.add(bytes);
        core.gauge(Counter::ConnectionBytes, core.budgets.connection_memory.bytes() as u64);
        Self(bytes)
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        with_core(|core| {
            core.budgets.connection_memory.give_back(self.0);
            core.gauge(Counter::ConnectionBytes, core.budgets.connection_memory.bytes() as u64);
        });
    }
}

fn is_in(networks: &[Network], address: SocketAddr) -> bool {
    networks.iter().any(|network| network.contains(address.ip()))
}

/// Serves a client whose address a proxy announces (PROXY protocol).
async fn serve_announced(
    mut stream: TcpStream,
    arrival: AcceptedConnection,
    watch: Rc<Watch>,
    share: ConnectionShare,
    clients: Arc<ConnectionCounts>,
) {
    with_core(|core| {
        watch.wait(Phase::Head, clock::monotonic_ms(), core.config.limits.request_head_time_max);
    });
    let announced = match proxy_protocol::read(&mut stream, &watch).await {
        Ok(announced) => announced,
        Err(error) => {
            with_core(|core| core.count(Counter::BadProxyHeaders));
            tracing::debug!(%error, proxy = %arrival.address, "connection closed: no valid PROXY protocol header");
            return;
        }
    };
    watch.work();
    let arrival = AcceptedConnection { address: announced.peer.unwrap_or(arrival.address), ..arrival };
    let is_proxy =
        announced.peer.is_none() || with_core(|core| is_in(&core.config.trusted_proxies, arrival.address));
    let share = if is_proxy {
        share
    } else {
        let Some(share) = with_core(|core| {
            make_room(core);
            share.hand_over(core, arrival.address)
        }) else {
            return with_core(|core| turn_away(core, stream, arrival));
        };
        share
    };
    let _held = match (!is_proxy).then(|| clients.admit(arrival.address.ip())).transpose() {
        Ok(held) => held,
        Err(too_many) => return with_core(|core| refuse(core, stream, arrival, too_many)),
    };
    serve(stream, arrival, announced.is_secured, watch).await;
    drop(share);
}

/// Refuses a connection because its address or network already has the maximum number of connections.
fn refuse(core: &Core, stream: TcpStream, arrival: AcceptedConnection, too_many: TooMany) {
    core.count(match too_many {
        TooMany::Address => Counter::ClientConnectionsRefused,
        TooMany::Network => Counter::NetworkConnectionsRefused,
    });
    turn_away(core, stream, arrival);
}

/// Answers 503 to a client over the limit. A TLS connection is closed without an answer, which would cost a
/// handshake.
fn turn_away(core: &Core, stream: TcpStream, arrival: AcceptedConnection) {
    if arrival.over == ListenerKind::Plain {
        http1::turn_away(core, stream, Peer::new(arrival.address, false, &[]));
    }
}

/// Serves a client. `is_secured`: the client's connection to its proxy is under TLS.
async fn serve(stream: TcpStream, arrival: AcceptedConnection, is_secured: bool, watch: Rc<Watch>) {
    let mut early = Vec::new();
    let transport = match arrival.over {
        ListenerKind::Peer => return Box::pin(serve_peer(stream, arrival, watch)).await,
        ListenerKind::Plain => Transport::plain(stream),
        ListenerKind::Tls => match shake_hands(stream, &watch, &mut early).await {
            Ok(transport) => transport,
            Err(error) => {
                // Refused handshakes are counted where they are refused.
                if error.kind() != io::ErrorKind::ResourceBusy {
                    with_core(|core| core.count(Counter::HandshakesFailed));
                }
                tracing::debug!(%error, client = %arrival.address, "TLS handshake failed");
                return;
            }
        },
    };
    let _secured = transport.session().map(|_| with_core(|core| Weight::of(core, SECURED_BYTES)));
    let is_secured = is_secured || transport.session().is_some();
    if transport.session().is_some_and(|session| session.protocol() == Some(challenges::PROTOCOL)) {
        // The ACME server has seen the challenge certificate (RFC 8737 §3).
        with_core(|core| core.count(Counter::ChallengesAnswered));
        return;
    }
    let peer = with_core(|core| Peer::new(arrival.address, is_secured, &core.config.trusted_proxies));
    let member = with_core(|core| core.clients.turns.join(arrival.address.ip()));
    let transport = if transport.session().is_some_and(|session| session.protocol() == Some(b"h2")) {
        transport
    } else {
        // HTTP/2 may begin without ALPN, by prior knowledge.
        let serving = http1::serve(transport, Rc::clone(&watch), peer, early, &member);
        let Some((transport, read)) = serving.await else { return };
        early = read;
        transport
    };
    let _http2 = with_core(|core| Weight::of(core, HTTP2_BYTES));
    // Boxed, so that the HTTP/2 state does not enlarge the tasks of HTTP/1 connections.
    Box::pin(http2::serve(transport, watch, peer, early, &member)).await;
}

/// Serves a connection on the peer port. The other side is treated like any client until it sends a valid
/// MAC.
async fn serve_peer(stream: TcpStream, arrival: AcceptedConnection, watch: Rc<Watch>) {
    let admitted = with_core(|core| core.in_force.clients.admit(arrival.address.ip()));
    match admitted {
        Ok(held) => http1::serve_peer(stream, watch, arrival.address, held).await,
        Err(too_many) => with_core(|core| refuse(core, stream, arrival, too_many)),
    }
}

async fn shake_hands(stream: TcpStream, watch: &Watch, early: &mut Vec<u8>) -> io::Result<Transport> {
    let (terms, _shaking) = with_core(|core| {
        let terms = core.clients.terms.clone().ok_or(io::ErrorKind::Unsupported)?;
        let at_most = core.config.limits.handshake_time_max;
        watch.wait(Phase::Head, clock::monotonic_ms(), at_most);
        HandshakeSlot::new(core).map(|shaking| (terms, shaking)).ok_or(io::ErrorKind::ResourceBusy)
    })?;
    // Boxed: a handshake happens once, and its state would make every connection's future larger.
    let transport = Box::pin(transport::shake_hands(stream, terms, watch, early)).await?;
    watch.work();
    with_core(|core| core.count(Counter::Handshakes));
    Ok(transport)
}

/// A TLS handshake in progress, with its memory.
struct HandshakeSlot {
    _weight: Weight,
}

impl HandshakeSlot {
    fn new(core: &Core) -> Option<Self> {
        let under_way = core.clients.handshakes.get();
        if under_way >= core.config.limits.handshakes_max {
            core.count(Counter::HandshakesRefused);
            return None;
        }
        core.clients.handshakes.set(under_way + 1);
        Some(Self { _weight: Weight::of(core, HANDSHAKE_BYTES_MAX) })
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        with_core(|core| core.clients.handshakes.set(core.clients.handshakes.get() - 1));
    }
}

/// Accounting of an open connection; released on drop, however its task ends.
struct OpenConnection {
    _held: Option<ConnectionSlot>,
    /// `None` if a proxy announces the client's address only later (PROXY protocol); the task then holds the
    /// charge.
    _share: Option<ConnectionShare>,
    _weight: Weight,
}

impl OpenConnection {
    fn new(core: &Core, held: Option<ConnectionSlot>, share: Option<ConnectionShare>) -> Self {
        core.clients.balance.opened(core.index);
        core.storage.rounds.stir();
        core.gauge(Counter::Connections, core.clients.balance.held(core.index) as u64);
        Self { _held: held, _share: share, _weight: Weight::of(core, PLAIN_BYTES) }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        with_core(|core| {
            core.clients.balance.closed(core.index);
            core.gauge(Counter::Connections, core.clients.balance.held(core.index) as u64);
        });
    }
}
