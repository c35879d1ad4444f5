//! Targets of the load: `http://`, `https://`, `h2://`, `h2c://`, `nats://`, `smtp://`, `tcp://`.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use rustls::{ClientConfig, crypto::CryptoProvider, pki_types::ServerName};

use super::client::{Client, Echo, Http, Http2, Nats, Smtp};
use crate::secured::{self, Trust};

/// Maximum number of requests under way on one `tcp://` connection.
const ECHO_DEPTH: usize = 64 << 10;
/// Default number of open streams on one HTTP/2 connection.
const STREAMS: usize = 10;

/// A server to load.
#[derive(Debug, Clone)]
pub struct Target {
    scheme: Scheme,
    /// Authority of the URL as written, `host:port`, without user information and path.
    authority: String,
    host: String,
    path: String,
    address: SocketAddr,
    bytes: usize,
    verified: bool,
    /// Maximum number of requests under way on a connection, if the protocol allows more.
    depth_max: usize,
    /// Crypto provider for TLS; `None` selects the default one.
    provider: Option<Arc<CryptoProvider>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    /// HTTP/2 over TLS, negotiated by ALPN.
    H2,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
    Nats,
    Smtp,
    Tcp,
}

/// Schemes with their default ports. RFC 9113 §3.1 calls HTTP/2 over TLS `h2` and HTTP/2 without TLS `h2c`.
const SCHEMES: [(&str, Scheme, u16); 7] = [
    ("http", Scheme::Http, 80),
    ("https", Scheme::Https, 443),
    ("h2", Scheme::H2, 443),
    ("h2c", Scheme::H2c, 80),
    ("nats", Scheme::Nats, 4222),
    ("smtp", Scheme::Smtp, 25),
    ("tcp", Scheme::Tcp, 0),
];

/// Error in a target's URL or options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The URL's scheme is unknown.
    #[error("`{0}`: the URL begins with http://, https://, h2://, h2c://, nats://, smtp:// or tcp://")]
    Scheme(String),
    /// The URL has no port, and `tcp://` has no default.
    #[error("missing port in `{0}`: expected tcp://HOST:PORT")]
    NoPort(String),
    /// The port is not a valid number.
    #[error("`{0}`: the port is a number from 1 to 65535")]
    Port(String),
    /// The host name has no address.
    #[error("cannot resolve `{host}`: {reason}")]
    Address {
        /// Host name.
        host: String,
        /// Message of the resolver.
        reason: String,
    },
    /// Streams were requested for a protocol other than HTTP/2, or zero streams were requested.
    #[error("invalid stream count {0}: only h2:// and h2c:// have streams, and at least 1 is needed")]
    Streams(usize),
    /// The host name is not valid in a certificate.
    #[error("`{0}` is not a valid name in a certificate")]
    Name(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

impl Target {
    /// Parses a URL and resolves its host. `bytes` is the size of an echo, a message or a mail.
    ///
    /// # Errors
    /// Returns [`TargetError`] if the URL is invalid or its host has no address.
    pub fn parse(url: &str, bytes: usize, verified: bool) -> Result<Self, TargetError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| TargetError::Scheme(url.to_owned()))?;
        let (_, scheme, port) = SCHEMES
            .into_iter()
            .find(|(name, ..)| scheme.eq_ignore_ascii_case(name))
            .ok_or_else(|| TargetError::Scheme(url.to_owned()))?;
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = path.split('#').next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            // `[::1]` contains colons itself.
            Some((host, digits)) if !digits.ends_with(']') => {
                let port = digits.parse().ok().filter(|port| *port != 0);
                (host, port.ok_or_else(|| TargetError::Port(url.to_owned()))?)
            }
            _ if port == 0 => return Err(TargetError::NoPort(url.to_owned())),
            _ => (authority, port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let unknown = |reason: String| TargetError::Address { host: host.clone(), reason };
        let address = (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| unknown(error.to_string()))?
            .next()
            .ok_or_else(|| unknown("the resolver returned no address".to_owned()))?;
        let path = match path {
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let bytes = bytes.max(1);
        Ok(Self {
            scheme,
            authority: authority.to_owned(),
            host,
            path,
            address,
            bytes,
            verified,
            depth_max: if matches!(scheme, Scheme::H2 | Scheme::H2c) { STREAMS } else { usize::MAX },
            provider: None,
        })
    }

    /// Creates a target for an echo server at this address, with `bytes` bytes each way.
    #[must_use]
    pub fn echo(address: SocketAddr, bytes: usize) -> Self {
        Self {
            scheme: Scheme::Tcp,
            authority: address.to_string(),
            host: address.ip().to_string(),
            path: "/".to_owned(),
            address,
            bytes,
            verified: false,
            depth_max: usize::MAX,
            provider: None,
        }
    }

    /// Limits the target to one request under way per connection, even if the protocol allows more.
    #[must_use]
    pub fn one_at_a_time(mut self) -> Self {
        self.depth_max = 1;
        self
    }

    /// Sets the number of requests under way on an HTTP/2 connection, if the server accepts as many.
    ///
    /// # Errors
    /// [`TargetError::Streams`] if the target is not HTTP/2, or if `streams` is zero.
    pub fn with_streams(mut self, streams: usize) -> Result<Self, TargetError> {
        if streams == 0 || !matches!(self.scheme, Scheme::H2 | Scheme::H2c) {
            return Err(TargetError::Streams(streams));
        }
        self.depth_max = streams;
        Ok(self)
    }

    /// Restricts TLS to this crypto provider.
    #[must_use]
    pub fn by(mut self, provider: Arc<CryptoProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Returns the maximum number of requests under way on a connection, whatever the protocol allows.
    pub(super) const fn depth_max(&self) -> usize {
        self.depth_max
    }

    /// Returns the address of the server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates the client's side of a connection; `number` makes it distinct from other connections.
    pub(super) fn client(&self, number: u64) -> Box<dyn Client> {
        match self.scheme {
            Scheme::Http | Scheme::Https => Box::new(Http::new(&self.authority, &self.path)),
            Scheme::H2 => Box::new(Http2::new("https", &self.authority, &self.path)),
            Scheme::H2c => Box::new(Http2::new("http", &self.authority, &self.path)),
            Scheme::Tcp => Box::new(Echo::new(self.bytes, ECHO_DEPTH)),
            Scheme::Nats => {
                // The process id distinguishes generators that load the same server.
                let subject = format!("lab.{}.{number}", std::process::id());
                Box::new(Nats::new(&subject, self.bytes))
            }
            Scheme::Smtp => {
                let recipient = match self.path.trim_start_matches('/') {
                    "" => "load@localhost",
                    recipient => recipient,
                };
                Box::new(Smtp::new(recipient, self.bytes))
            }
        }
    }

    /// Returns the TLS configuration and server name; `None` for a scheme without TLS.
    pub(super) fn tls(&self) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, TargetError> {
        let protocols: &[&str] = match self.scheme {
            Scheme::Https => &["http/1.1"],
            Scheme::H2 => &["h2"],
            _ => return Ok(None),
        };
        let name =
            ServerName::try_from(self.host.clone()).map_err(|_| TargetError::Name(self.host.clone()))?;
        let provider = self.provider.clone().unwrap_or_else(engine::tls::provider);
        let trust = if self.verified { Trust::Roots } else { Trust::Anyone };
        let config = secured::client(provider, trust, protocols)
            .map_err(|error| TargetError::Tls(error.to_string()))?;
        Ok(Some((Arc::new(config), name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = |url| Target::parse(url, 1, true).unwrap();
        let parsed = target("http://127.0.0.1:8080/a?b#c");
        assert_eq!((parsed.path.as_str(), parsed.address.port()), ("/a?b", 8080));
        assert_eq!(target("HTTP://127.0.0.1?q").path, "/?q");
        assert_eq!(target("https://[::1]").address, "[::1]:443".parse().unwrap());
        assert_eq!(target("tcp://[::1]:7").address, "[::1]:7".parse().unwrap());
        assert_eq!(target("smtp://127.0.0.1/x@y").address.port(), 25);
        assert_eq!(target("h2://127.0.0.1").address.port(), 443);
        assert_eq!(target("h2c://127.0.0.1").address.port(), 80);
        assert_eq!(target("h2c://127.0.0.1").with_streams(3).unwrap().depth_max(), 3);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |url| Target::parse(url, 1, true).unwrap_err().to_string();
        assert!(error("127.0.0.1:80").contains("begins with http://"));
        assert!(error("ftp://127.0.0.1").contains("begins with http://"));
        assert!(error("tcp://127.0.0.1").contains("missing port"));
        assert!(error("http://127.0.0.1:99999").contains("1 to 65535"));
        assert!(error("http://127.0.0.1:0").contains("1 to 65535"));
        for (url, streams) in [("https://127.0.0.1", 3), ("h2://127.0.0.1", 0)] {
            let target = Target::parse(url, 1, true).unwrap();
            assert!(target.with_streams(streams).unwrap_err().to_string().contains("at least 1"), "{url}");
        }
    }
}
