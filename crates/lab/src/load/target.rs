//! What is loaded: `http://`, `https://`, `nats://`, `smtp://`, `tcp://`.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::client::{Client, Echo, Http, Nats, Smtp};

/// Requests that may be under way at once on one `tcp://` connection.
const ECHO_DEPTH: usize = 64 << 10;

/// A server that is loaded.
#[derive(Debug, Clone)]
pub struct Target {
    scheme: Scheme,
    /// `host:port` as it was written, without user and path.
    authority: String,
    host: String,
    path: String,
    address: SocketAddr,
    bytes: usize,
    verified: bool,
    /// See [`Target::one_at_a_time`].
    serial: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Nats,
    Smtp,
    Tcp,
}

const SCHEMES: [(&str, Scheme, u16); 5] = [
    ("http", Scheme::Http, 80),
    ("https", Scheme::Https, 443),
    ("nats", Scheme::Nats, 4222),
    ("smtp", Scheme::Smtp, 25),
    ("tcp", Scheme::Tcp, 0),
];

/// A URL that cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No scheme that is spoken here.
    #[error("`{0}`: the URL begins with http://, https://, nats://, smtp:// or tcp://")]
    Scheme(String),
    /// `tcp://` has no port of its own.
    #[error("`{0}` names no port: tcp://HOST:PORT")]
    NoPort(String),
    /// No such port.
    #[error("`{0}`: the port is a number from 1 to 65535")]
    Port(String),
    /// The name has no address.
    #[error("`{host}` has no address: {reason}")]
    Address {
        /// The host.
        host: String,
        /// What the resolver says.
        reason: String,
    },
    /// The name cannot stand in a certificate.
    #[error("`{0}` is no name for a certificate")]
    Name(String),
}

impl Target {
    /// Reads a URL and looks its host up. `bytes` is the size of an echo, a message or a mail.
    ///
    /// # Errors
    /// What is wrong with it.
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
            // `[::1]` has colons of its own.
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
            .ok_or_else(|| unknown("the resolver knows none".to_owned()))?;
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
            serial: false,
        })
    }

    /// An echo server at this address, `bytes` bytes there and back.
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
            serial: false,
        }
    }

    /// The same, with one request under way on a connection at a time, also where the protocol allows more.
    #[must_use]
    pub fn one_at_a_time(mut self) -> Self {
        self.serial = true;
        self
    }

    /// Requests under way on a connection, at most, whatever its protocol allows.
    pub(super) const fn depth_max(&self) -> usize {
        if self.serial { 1 } else { usize::MAX }
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The client's side of one connection; `number` tells connections apart.
    pub(super) fn client(&self, number: u64) -> Box<dyn Client> {
        match self.scheme {
            Scheme::Http | Scheme::Https => Box::new(Http::new(&self.authority, &self.path)),
            Scheme::Tcp => Box::new(Echo::new(self.bytes, ECHO_DEPTH)),
            Scheme::Nats => {
                // Other generators may load the same server.
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

    /// How TLS is spoken, where it is.
    pub(super) fn tls(&self) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, TargetError> {
        if self.scheme != Scheme::Https {
            return Ok(None);
        }
        let name =
            ServerName::try_from(self.host.clone()).map_err(|_| TargetError::Name(self.host.clone()))?;
        let provider = engine::tls::provider();
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TargetError::Name(error.to_string()))?;
        let config = if self.verified {
            let mut roots = rustls::RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            config.with_root_certificates(roots).with_no_client_auth()
        } else {
            config
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
                .with_no_client_auth()
        };
        Ok(Some((Arc::new(config), name)))
    }
}

/// Takes any certificate: what is measured here is time, and test servers sign for themselves.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
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
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |url| Target::parse(url, 1, true).unwrap_err().to_string();
        assert!(error("127.0.0.1:80").contains("begins with http://"));
        assert!(error("ftp://127.0.0.1").contains("begins with http://"));
        assert!(error("tcp://127.0.0.1").contains("names no port"));
        assert!(error("http://127.0.0.1:99999").contains("1 to 65535"));
        assert!(error("http://127.0.0.1:0").contains("1 to 65535"));
    }
}
