//! Handle of a running server of any kind: it is queried while it runs, and drained once.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::{
    cold_mutex::ColdMutex,
    cores::run::{CoreFailure, DrainReport},
    meter::Registry,
};

use crate::failure::Failure;

/// Common interface of the three servers' libraries. Dropping a server stops it at once.
pub(crate) trait Server: Send + Sized + 'static {
    /// Returns the registry of the server's counters.
    fn registry(&self) -> Arc<Registry>;

    /// Returns whether every loop accepts requests.
    fn is_ready(&self) -> bool;

    /// Returns a future that is ready once a loop has ended.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Accepts no more requests, and blocks until those under way have ended or the time is up.
    ///
    /// # Errors
    /// Returns [`CoreFailure`] if a loop had failed, or fails during the drain.
    fn drain(self, at_most: Duration) -> Result<DrainReport, CoreFailure>;
}

/// Implements [`Server`] for a type by calling the type's own methods of the same names.
macro_rules! server {
    ($server:ty) => {
        impl Server for $server {
            fn registry(&self) -> Arc<Registry> {
                <$server>::registry(self)
            }

            fn is_ready(&self) -> bool {
                <$server>::is_ready(self)
            }

            fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
                Box::pin(<$server>::ended(self))
            }

            fn drain(self, at_most: Duration) -> Result<DrainReport, CoreFailure> {
                <$server>::drain(self, at_most)
            }
        }
    };
}
server!(cache::Server);
server!(feed::Server);
server!(mail::Server);

/// Handle of a running server.
pub(crate) struct ServerHandle<S> {
    /// The server; `None` once it is drained. The lock is held during each query and purge.
    server: ColdMutex<Option<S>>,
    draining: AtomicBool,
    registry: Arc<Registry>,
}

impl<S: Server> ServerHandle<S> {
    pub(crate) fn new(server: S) -> Self {
        Self {
            registry: server.registry(),
            server: ColdMutex::new(Some(server)),
            draining: AtomicBool::new(false),
        }
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Queries the server; `None` once it is drained.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&S) -> T) -> Option<T> {
        self.server.lock().as_ref().map(ask)
    }

    /// Returns whether the server is ready. A readiness check must not wait for a purge; while a purge holds
    /// the lock, the server counts as ready.
    pub(crate) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
            && self.server.try_lock().is_none_or(|server| server.as_ref().is_some_and(Server::is_ready))
    }

    /// Completes once a loop has failed.
    pub(crate) async fn ended(&self) {
        let ended = self.ask(Server::ended);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    /// Makes the server report that it is not ready, so that load balancers send no more requests.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Accepts no more requests, and blocks until those under way have ended (then it returns true) or the
    /// time is up.
    ///
    /// # Errors
    /// Returns a `Failure` if a loop had ended before the drain.
    pub(crate) fn drain(&self, at_most: Duration) -> Result<bool, Failure> {
        self.begin_drain();
        let server = self.server.lock().take();
        server.map_or(Ok(true), |server| {
            let drained = server.drain(at_most).map_err(|error| Failure::Failed(error.to_string()))?;
            Ok(drained.is_clean())
        })
    }
}
