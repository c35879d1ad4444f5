//! A port for pages: admin, monitoring. Its places are few, and whoever only holds one gives way to whoever asks.

use std::{io, net::SocketAddr, sync::Arc};

use axum::Router;
use engine::{bounded::Listener, cores::listener::bind_all, meter::Source, tls::TlsAcceptor};
use tokio::runtime::{Builder, Runtime};

use super::PURGES_MAX;

/// Connections at once: a scraper that leaks connections must not eat the process's files.
const CONNECTIONS_MAX: usize = 64;
/// Connections of one address that is not this machine's.
const ADDRESS_CONNECTIONS_MAX: usize = 16;

/// A port that is bound, and the runtime that will serve it.
pub(crate) struct Port {
    name: &'static str,
    address: SocketAddr,
    listener: Listener,
    runtime: Runtime,
}

impl Port {
    /// Takes the address (`is_secured`: who comes begins with a handshake), so that a port in use is known before anything else starts.
    ///
    /// # Errors
    /// What the system says, with the address and what it means.
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its listener counts.
    pub(crate) fn counters(&self) -> Arc<dyn Source> {
        Arc::new(self.listener.counters())
    }

    /// Serves `pages`, under TLS if that is given, on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// What the system says of the thread.
    pub(crate) fn serve(self, pages: Router, tls: Option<TlsAcceptor>) -> io::Result<()> {
        let Self { name, listener, runtime, .. } = self;
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let served = httpd::serve_behind(Arc::default(), listener, tls, pages, std::future::pending());
            if let Err(error) = runtime.block_on(served) {
                tracing::error!("the server of {name} ended: {error}");
            }
        })?;
        Ok(())
    }
}
