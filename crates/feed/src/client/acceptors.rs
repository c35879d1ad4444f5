//! TLS acceptors of the listeners.

use std::fmt;

use engine::tls::{self, TlsAcceptor, TlsError};

use crate::config::{Config, Tls};

/// TLS acceptors of the listeners.
#[derive(Default)]
pub(crate) struct Acceptors {
    pub(super) nats: Option<TlsAcceptor>,
    pub(super) web: Option<TlsAcceptor>,
}

impl fmt::Debug for Acceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptors")
            .field("nats", &self.nats.is_some())
            .field("web", &self.web.is_some())
            .finish()
    }
}

impl Acceptors {
    /// Builds the acceptors from the configured files.
    pub(crate) fn build(config: &Config) -> Result<Self, TlsError> {
        let web_tls = config.websocket.as_ref().and_then(|web| web.tls.as_ref());
        Ok(Self {
            nats: config.tls.as_ref().map(acceptor).transpose()?,
            web: web_tls.map(acceptor).transpose()?,
        })
    }

    /// Returns whether a listener has TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.nats.is_some() || self.web.is_some()
    }
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, TlsError> {
    let clients = match (tls.verify, &tls.ca_file) {
        (false, _) => None,
        (true, Some(file)) => Some(file.as_path()),
        (true, None) => return Err(TlsError::NoAuthority),
    };
    tls::acceptor(&tls.shown, &[], clients)
}
