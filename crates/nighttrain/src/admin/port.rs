//! A port that serves HTTP pages, such as the admin port or the feed's monitoring port. It has few connection
//! slots: an idle connection is closed to make room for one that sends requests.

use std::{io, net::SocketAddr, sync::Arc};

use axum::Router;
use engine::{bounded::Listener, cores::listener::bind_all, meter::Source, tls::TlsAcceptor};
use tokio::runtime::{Builder, Runtime};

use super::state::PURGES_MAX;

/// Maximum number of connections: a scraper that leaks connections must not exhaust the process's file
/// descriptors.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of connections from one remote address.
const ADDRESS_CONNECTIONS_MAX: usize = 16;

/// A bound port, and the runtime that will serve it.
pub(crate) struct Port {
    name: &'static str,
    address: SocketAddr,
    listener: Listener,
    runtime: Runtime,
}

impl Port {
    /// Binds the address, so that a port in use is reported before anything else starts. With `is_secured`,
    /// connections begin with a TLS handshake.
    ///
    /// # Errors
    /// Returns the system's error, with the address and an explanation.
    pub(crate) fn bind(name: &'static str, address: SocketAddr, is_secured: bool) -> io::Result<Self> {
        let socket = bind_all(address, 1)?.pop().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(PURGES_MAX).build()?;
        let listener = {
            let _inside = runtime.enter();
            let bounds = httpd::bounds(CONNECTIONS_MAX, ADDRESS_CONNECTIONS_MAX);
            let bounds = if is_secured { httpd::bounds_under_tls(bounds) } else { bounds };
            Listener::new(name, socket, bounds)?
        };
        Ok(Self { name, address: listener.local_addr()?, listener, runtime })
    }

    /// Returns the address on which the port listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the listener's counters.
    pub(crate) fn counters(&self) -> Arc<dyn Source> {
        Arc::new(self.listener.counters())
    }

    /// Serves `pages` on a thread of its own until the process ends; over TLS if `tls` is given.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot start.
    pub(crate) fn serve(self, pages: Router, tls: Option<TlsAcceptor>) -> io::Result<()> {
        let Self { name, listener, runtime, .. } = self;
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let served = httpd::serve_behind(Arc::default(), listener, tls, pages, std::future::pending());
            if let Err(error) = runtime.block_on(served) {
                tracing::error!("HTTP server of {name} ended: {error}");
            }
        })?;
        Ok(())
    }
}
