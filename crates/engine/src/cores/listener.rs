//! One listening socket per core on one port, and which core hands a connection to which.
//!
//! With `SO_REUSEPORT` the kernel spreads connections over the sockets by a hash of the addresses. That is even over
//! many connections and uneven over few, so the cores publish how many they hold ([`Balance`]), and one that accepts
//! while it is far above the least hands the connection over.
//!
//! **A port in use is an error, though `SO_REUSEPORT` would share it.** Two sockets may be bound to one port only if
//! *both* have the option. So the first socket is bound without it, which the kernel refuses if anybody is there,
//! another Nighttrain of the same user included; it gets the option after it is bound, and then the others join. From
//! bind to the end no moment is left in which a second process could slip in. Linux looks at the option at the time
//! of the conflict (`inet_csk_bind_conflict`); `tests/cores_listener.rs` shows that all sockets get connections.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel completes for each socket before they are accepted; it cuts this to
/// `net.core.somaxconn` (4,096 by default).
pub const BACKLOG: i32 = 4096;

/// Binds and listens, one socket per core, on one port. With port 0 the kernel picks the port for the first socket
/// and the others follow it.
///
/// The sockets are non-blocking and close-on-exec. `TCP_NODELAY` is set on them, and Linux hands it on to every
/// accepted connection: nobody needs to set it again. Answers leave in one write, so Nagle's algorithm could only
/// delay the last segment.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] with the address when anybody listens there; else what the system says, with the
/// address (no permission below port 1024, no such address here).
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
        // Connections of the last process in TIME_WAIT must not keep us from starting. Listeners still conflict.
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

/// How many connections each core holds: one writer each, read by all.
#[derive(Debug)]
pub struct Balance {
    cores: Box<[ConnectionCount]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct ConnectionCount(AtomicUsize);

/// A core may be this many connections above the least before it hands any over.
const SLACK: usize = 8;

/// From this many on every core, those that belong together are no longer looked for.
const GATHER_BELOW: usize = 64;

impl Balance {
    /// No connections on any core.
    #[must_use]
    pub fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self { cores: (0..cores).map(|_| ConnectionCount::default()).collect() })
    }

    /// Core `me` took a connection. Only core `me` may say so.
    pub fn opened(&self, me: usize) {
        let held = &self.cores[me].0;
        held.store(held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A connection of core `me` has ended. Only core `me` may say so.
    ///
    /// # Panics
    /// If the core holds none.
    pub fn closed(&self, me: usize) {
        let held = &self.cores[me].0;
        let before = held.load(Ordering::Relaxed);
        assert!(before > 0, "core {me} closed a connection that it does not hold");
        held.store(before - 1, Ordering::Relaxed);
    }

    /// How many connections `core` holds.
    #[must_use]
    pub fn held(&self, core: usize) -> usize {
        self.cores[core].0.load(Ordering::Relaxed)
    }

    /// How many connections all cores hold; a moment old for those of other cores.
    #[must_use]
    pub fn total(&self) -> usize {
        (0..self.cores.len()).map(|core| self.held(core)).sum()
    }

    /// The core that should get the connection that `me` has just accepted (and not yet counted): the one with the
    /// least, if `me` is above it by more than 8 and by more than an eighth of its own. `None`: keep it.
    ///
    /// The figures are a moment old: a burst may hand over a few too many, which the slack absorbs.
    #[must_use]
    pub fn hand_off_to(&self, me: usize) -> Option<usize> {
        let mine = self.held(me);
        if mine <= SLACK {
            return None;
        }
        let least = (0..self.cores.len()).min_by_key(|&core| self.held(core))?;
        // The second look may see more than the first.
        let above = mine.saturating_sub(self.held(least));
        (above > SLACK.max(mine / 8)).then_some(least)
    }

    /// The same for a server whose connections talk to each other: those that come one after the other, of which it is
    /// likely that they belong together, are gathered on one core, `block` on the first, the next ones on the second,
    /// and round again. A few then cost no crossing from core to core. Once every core has 64, as
    /// [`Self::hand_off_to`].
    #[must_use]
    pub fn gather(&self, me: usize, block: usize) -> Option<usize> {
        let blocks = |core: usize| self.held(core) / block.max(1);
        let cores = 0..self.cores.len();
        // The first of those with the fewest whole blocks.
        let next = cores.min_by_key(|&core| blocks(core))?;
        if self.held(next) >= GATHER_BELOW {
            return self.hand_off_to(me);
        }
        (next != me).then_some(next)
    }
}
