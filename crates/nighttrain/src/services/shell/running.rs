//! A server that runs, whichever it is: asked while it runs, drained once.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::{
    cores::run::{CoreFailure, DrainReport},
    meter::Registry,
};

use crate::failure::Failure;

/// What the libraries of the three servers have in common. Dropping one stops it at once.
pub(crate) trait Server: Send + Sized + 'static {
    /// What it counts.
    fn registry(&self) -> Arc<Registry>;

    /// Whether every loop takes work.
    fn is_ready(&self) -> bool;

    /// Ready once a loop has ended.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Takes no more work, and blocks until what is under way has ended or the time is up.
    ///
    /// # Errors
    /// A loop had failed, or fails now.
    fn drain(self, at_most: Duration) -> Result<DrainReport, CoreFailure>;
}

/// Each names its own methods, which have these names and meanings.
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

#[expect(clippy::disallowed_types, reason = "the operator's path: a question, a purge, the drain")]
type Lock<T> = std::sync::Mutex<T>;

/// One that runs.
pub(crate) struct ServerHandle<S> {
    /// None once it is drained. A question or a purge at a time holds it.
    server: Lock<Option<S>>,
    draining: AtomicBool,
    registry: Arc<Registry>,
}

impl<S: Server> ServerHandle<S> {
    pub(crate) fn new(server: S) -> Self {
        Self {
            registry: server.registry(),
            server: Lock::new(Some(server)),
            draining: AtomicBool::new(false),
        }
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Asks the server something; none once it is drained.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&S) -> T) -> Option<T> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }

    /// Whoever asks for readiness must not wait for a purge; while one runs, a loop answers.
    pub(crate) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
            && match self.server.try_lock() {
                Ok(server) => server.as_ref().is_some_and(Server::is_ready),
                Err(TryLockError::WouldBlock) => true,
                Err(TryLockError::Poisoned(_)) => false,
            }
    }

    /// Ready once a loop has failed.
    pub(crate) async fn ended(&self) {
        let ended = self.ask(Server::ended);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    /// Says from now on that it is not ready, so that whoever balances the load sends no more.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Takes no more work, and blocks until what is under way has ended (then it is true) or the time is up.
    ///
    /// # Errors
    /// A loop had ended before it was asked to.
    pub(crate) fn drain(&self, at_most: Duration) -> Result<bool, Failure> {
        self.begin_drain();
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        server.map_or(Ok(true), |server| {
            let drained = server.drain(at_most).map_err(|error| Failure::Failed(error.to_string()))?;
            Ok(drained.is_clean())
        })
    }
}
