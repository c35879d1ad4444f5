//! Listening sockets, one per core on one port, and the rules for handing connections from core to core.
//!
//! With `SO_REUSEPORT` the kernel spreads connections over the sockets by a hash of the addresses. The spread
//! is even over many connections and uneven over few, so the cores publish how many they hold ([`Balance`]),
//! and a core that accepts while it is far above the least loaded hands the connection over.
//!
//! **A port in use is an error, though `SO_REUSEPORT` would share it.** Two sockets may be bound to one port
//! only if *both* have the option. So the first socket is bound without the option, which the kernel refuses
//! if any other process listens there, another Nighttrain of the same user included. The socket gets the
//! option after it is bound, and then the others join. At no moment can a second process bind the port in
//! between. Linux looks at the option at the time of the conflict (`inet_csk_bind_conflict`);
//! `tests/cores_listener.rs` shows that all sockets get connections.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections per socket that the kernel has completed and the server has not yet
/// accepted; the kernel caps this at `net.core.somaxconn` (4,096 by default).
pub const BACKLOG: i32 = 4096;

/// Binds and listens, one socket per core, on one port. With port 0 the kernel picks the port for the first
/// socket and the others use the same one.
///
/// The sockets are non-blocking and close-on-exec. `TCP_NODELAY` is set on them, and accepted connections
/// inherit it on Linux. Answers leave in one write, so Nagle's algorithm could only delay the last segment.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] with the address if another process listens there; else the system's error
/// with the address (no permission below port 1024, no such address on this machine).
pub fn bind_all(address: SocketAddr, cores: usize) -> io::Result<Vec<TcpListener>> {
    let explain = |error: io::Error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens there".to_owned(),
            io::ErrorKind::AddrNotAvailable => "this machine does not have this address".to_owned(),
            io::ErrorKind::PermissionDenied if address.port() < 1024 => {
                "ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {why}"))
    };
    let mut sockets: Vec<Socket> = Vec::with_capacity(cores);
    let mut address_of_all = address;
    for core in 0..cores {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        // Connections of the previous process in TIME_WAIT must not prevent the start. Listeners still
        // conflict.
        socket.set_reuse_address(true)?;
        socket.set_tcp_nodelay(true)?;
        if core == 0 {
            socket.bind(&address.into()).map_err(explain)?;
            if let Some(bound) = socket.local_addr()?.as_socket() {
                address_of_all.set_port(bound.port());
            }
            socket.set_reuse_port(true)?;
        } else {
            socket.set_reuse_port(true)?;
            socket.bind(&address_of_all.into()).map_err(explain)?;
        }
        sockets.push(socket);
    }
    for socket in &sockets {
        socket.listen(BACKLOG).map_err(explain)?;
    }
    Ok(sockets.into_iter().map(TcpListener::from).collect())
}

/// Number of connections of each core: each count has one writer, and all cores read it.
#[derive(Debug)]
pub struct Balance {
    cores: Box<[ConnectionCount]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct ConnectionCount(AtomicUsize);

/// Number of connections that a core may hold above the least loaded core before it hands any over.
const SLACK: usize = 8;

/// Number of connections per core up to which related connections are gathered on one core.
const GATHER_BELOW: usize = 64;

impl Balance {
    /// Creates the counts with no connections on any core.
    #[must_use]
    pub fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self { cores: (0..cores).map(|_| ConnectionCount::default()).collect() })
    }

    /// Counts a new connection of core `me`. Only core `me` may call this.
    pub fn opened(&self, me: usize) {
        let held = &self.cores[me].0;
        held.store(held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts the end of a connection of core `me`. Only core `me` may call this.
    ///
    /// # Panics
    /// Panics if the core has no connections.
    pub fn closed(&self, me: usize) {
        let held = &self.cores[me].0;
        let before = held.load(Ordering::Relaxed);
        assert!(before > 0, "core {me} closed a connection that it does not hold");
        held.store(before - 1, Ordering::Relaxed);
    }

    /// Returns how many connections `core` holds.
    #[must_use]
    pub fn held(&self, core: usize) -> usize {
        self.cores[core].0.load(Ordering::Relaxed)
    }

    /// Returns how many connections all cores hold; the counts of other cores may be slightly outdated.
    #[must_use]
    pub fn total(&self) -> usize {
        (0..self.cores.len()).map(|core| self.held(core)).sum()
    }

    /// Returns the core that should get the connection that `me` has just accepted (and not yet counted): the
    /// one with the fewest connections, if `me` exceeds it by more than 8 and by more than an eighth of its
    /// own count. `None`: `me` keeps the connection.
    ///
    /// The counts may be slightly outdated: during a burst a few too many connections may be handed over,
    /// which the slack absorbs.
    #[must_use]
    pub fn hand_off_to(&self, me: usize) -> Option<usize> {
        let mine = self.held(me);
        if mine <= SLACK {
            return None;
        }
        let least = (0..self.cores.len()).min_by_key(|&core| self.held(core))?;
        // Another core may have changed this count since the first read, so the subtraction saturates.
        let above = mine.saturating_sub(self.held(least));
        (above > SLACK.max(mine / 8)).then_some(least)
    }

    /// Chooses a core for servers whose connections talk to each other: connections that arrive one after the
    /// other probably belong together and are gathered on one core. The first `block` go to the first core,
    /// the next ones to the second, and so on, round-robin. Messages between a few connections then never
    /// cross cores. Once every core has 64 connections, works like [`Self::hand_off_to`].
    #[must_use]
    pub fn gather(&self, me: usize, block: usize) -> Option<usize> {
        let blocks = |core: usize| self.held(core) / block.max(1);
        let cores = 0..self.cores.len();
        // The first core among those with the fewest whole blocks.
        let next = cores.min_by_key(|&core| blocks(core))?;
        if self.held(next) >= GATHER_BELOW {
            return self.hand_off_to(me);
        }
        (next != me).then_some(next)
    }
}
