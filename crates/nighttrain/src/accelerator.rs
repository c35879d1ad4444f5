//! The accelerator as the program holds it: started once, asked by the admin server, drained at the end.

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cache::{Config, Server, StartError};
pub(crate) use cache::{Drained, PurgeError, Purged};
use engine::meter::Registry;

use crate::{admin::Operated, failure::Failure};

#[expect(clippy::disallowed_types, reason = "the operator's path: taken for a purge and once for the drain")]
type Lock<T> = std::sync::Mutex<T>;

/// A running accelerator, as its operator sees it. The program's is [`Started`]; a test's is its own.
pub(crate) trait Accelerator: Operated {
    /// Drops what is stored under a URL. Blocks until the core that owns it has answered.
    fn purge(&self, url: &str) -> Result<Purged, PurgeError>;
}

/// The one that the program runs.
pub(crate) struct Started {
    /// None once it is drained. One purge at a time holds it.
    server: Lock<Option<Server>>,
    draining: AtomicBool,
    registry: Arc<Registry>,
    addresses: Vec<SocketAddr>,
}

impl Started {
    /// Starts it.
    ///
    /// # Errors
    /// One line that says what stands in the way.
    pub(crate) fn start(config: Config) -> Result<Arc<Self>, Failure> {
        let server = Server::start(config).map_err(|error| {
            Failure::Failed(match error {
                // It names the address itself.
                StartError::Listen { source, .. } => source.to_string(),
                other => other.to_string(),
            })
        })?;
        Ok(Arc::new(Self {
            registry: server.registry(),
            addresses: server.addresses(),
            draining: AtomicBool::new(false),
            server: Lock::new(Some(server)),
        }))
    }

    /// Ready once a loop has failed.
    pub(crate) async fn ended(&self) {
        let ended = self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Server::ended);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    /// Where clients connect.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Says from now on that it is not ready, so that whoever balances the load sends no more.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Takes no more requests, and blocks until those under way have ended or the time is up.
    ///
    /// # Errors
    /// A loop had ended before it was asked to.
    pub(crate) fn drain(&self, at_most: Duration) -> Result<Drained, Failure> {
        self.begin_drain();
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        server.map_or(Ok(Drained::Clean), |server| {
            server.drain(at_most).map_err(|error| Failure::Failed(error.to_string()))
        })
    }
}

impl Operated for Started {
    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    fn is_ready(&self) -> bool {
        if self.draining.load(Ordering::Acquire) {
            return false;
        }
        // Whoever asks for readiness must not wait for a purge; while one runs, a loop answers.
        self.server.try_lock().map_or(true, |server| server.as_ref().is_some_and(Server::is_ready))
    }
}

impl Accelerator for Started {
    fn purge(&self, url: &str) -> Result<Purged, PurgeError> {
        match self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(server) => server.purge(url),
            None => Err(PurgeError::NoAnswer),
        }
    }
}
