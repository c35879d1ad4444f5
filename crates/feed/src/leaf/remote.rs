//! Configuration of the hubs to join.

use std::{fmt, path::PathBuf, str::FromStr};

use nkeys::{KeyPair, KeyPairType};
use percent_encoding::percent_decode_str;

/// Default port on which hubs accept leaf nodes (nats-server's).
pub const PORT: u16 = 7422;
/// Maximum number of addresses of one hub that may be configured.
pub const ADDRESSES_MAX: usize = 64;

/// A hub that the feed joins as a leaf node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remote {
    /// Addresses of servers in the hub's cluster, tried in order.
    pub addresses: Vec<Address>,
    /// Local account that is connected to the hub's account; `None`: the global account.
    pub account: Option<String>,
    /// Credentials for the hub, in addition to those in the addresses.
    pub login: Login,
    /// CA certificates to trust (PEM); `None`: the system's CA certificates.
    pub tls_ca: Option<PathBuf>,
    /// Client certificate and its key (PEM) to present to the hub.
    pub tls_pair: Option<(PathBuf, PathBuf)>,
    /// The TLS handshake precedes the hub's INFO.
    pub tls_handshake_first: bool,
    /// Patterns of subjects that are not received from the hub.
    pub deny_imports: Vec<String>,
    /// Patterns of subjects that are not sent to the hub.
    pub deny_exports: Vec<String>,
}

/// Credentials for a hub. Files are read for each connection, so that a changed file takes effect with the
/// next one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Login {
    /// No credentials, or those in the address.
    #[default]
    None,
    /// A file with a user's JWT and seed; the seed signs the hub's nonce.
    Credentials(PathBuf),
    /// A file with the seed of an nkey.
    Nkey(PathBuf),
    /// The seed of an nkey.
    Seed(UserSeed),
}

/// Seed of a user's nkey; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserSeed(String);

impl UserSeed {
    /// Parses a seed; `None` if the text is not a user's seed.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let pair = KeyPair::from_seed(text).ok()?;
        (pair.key_pair_type() == KeyPairType::User).then(|| Self(text.to_owned()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Transport of the leaf connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// TCP, with TLS if the hub's INFO requires it.
    Plain,
    /// TCP with TLS, whatever the hub's INFO says.
    Tls,
    /// WebSocket without TLS.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

/// Address of one server. The credentials in it are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Transport to the server.
    pub scheme: Scheme,
    /// Host name or IP address, IPv6 without brackets.
    pub host: String,
    /// TCP port of the server.
    pub port: u16,
    /// User and password from the address. Without a password, the user part is sent as a token.
    pub user: Option<(String, Option<String>)>,
}

/// Error in the address of a hub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// The scheme is unknown.
    #[error("unsupported scheme {0}:// for a hub; expected nats-leaf://, tls://, ws:// or wss://")]
    Scheme(String),
    /// The host is missing.
    #[error("missing host; expected an address such as nats-leaf://hub.example:7422")]
    Host,
    /// The port is invalid.
    #[error("invalid port: 1 to 65535, such as nats-leaf://hub.example:7422")]
    Port,
    /// There is text after the port.
    #[error("unexpected text after the port; expected an address such as nats-leaf://hub.example:7422")]
    Path,
    /// The user or the password is not percent-encoded UTF-8.
    #[error("user or password is not valid UTF-8; write special characters as %40")]
    User,
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("nats-leaf", text));
        let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
            "nats-leaf" | "nats" => (Scheme::Plain, PORT),
            "tls" => (Scheme::Tls, PORT),
            "ws" => (Scheme::Ws, 80),
            "wss" => (Scheme::Wss, 443),
            other => return Err(InvalidAddress::Scheme(other.to_owned())),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((user, place)) => (Some(user), place),
        };
        if place.contains(['/', '?', '#']) {
            return Err(InvalidAddress::Path);
        }
        let text_of = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(std::borrow::Cow::into_owned).map_err(|_| InvalidAddress::User)
        };
        let user = match user
            .map(|user| user.split_once(':').map_or((user, None), |(user, pass)| (user, Some(pass))))
        {
            None => None,
            Some((user, pass)) => Some((text_of(user)?, pass.map(text_of).transpose()?)),
        };
        let (host, said) = match place.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or(InvalidAddress::Host)?;
                (host, after.strip_prefix(':').or(if after.is_empty() { None } else { Some("") }))
            }
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        let port = match said {
            None => port,
            Some(said) => said.parse().ok().filter(|port| *port > 0).ok_or(InvalidAddress::Port)?,
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(InvalidAddress::Host);
        }
        Ok(Self { scheme, host: host.to_owned(), port, user })
    }
}

impl Address {
    /// Returns the address as `host:port`.
    #[must_use]
    pub fn place(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns whether the transport is WebSocket.
    #[must_use]
    pub fn is_web(&self) -> bool {
        matches!(self.scheme, Scheme::Ws | Scheme::Wss)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Plain => "nats-leaf",
            Scheme::Tls => "tls",
            Scheme::Ws => "ws",
            Scheme::Wss => "wss",
        };
        write!(f, "{scheme}://{}", self.place())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_their_users() {
        for (text, shown, user) in [
            ("nats-leaf://hub.example:7422", "nats-leaf://hub.example:7422", None),
            ("hub.example", "nats-leaf://hub.example:7422", None),
            ("nats://10.0.0.7:1/", "nats-leaf://10.0.0.7:1", None),
            ("tls://hub", "tls://hub:7422", None),
            ("ws://hub", "ws://hub:80", None),
            ("wss://[::1]", "wss://[::1]:443", None),
            ("nats-leaf://[fe80::1]:9", "nats-leaf://[fe80::1]:9", None),
            ("nats-leaf://u:p%40ss@hub:9", "nats-leaf://hub:9", Some(("u", Some("p@ss")))),
            ("nats-leaf://t0ken@hub", "nats-leaf://hub:7422", Some(("t0ken", None))),
        ] {
            let address: Address = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((address.to_string(), format!("{address:?}")), (shown.to_owned(), shown.to_owned()));
            let read = address.user.as_ref().map(|(user, pass)| (user.as_str(), pass.as_deref()));
            assert_eq!(read, user, "{text}");
        }
        for (text, fault) in [
            ("http://hub", InvalidAddress::Scheme("http".to_owned())),
            ("nats-leaf://", InvalidAddress::Host),
            ("nats-leaf://u@", InvalidAddress::Host),
            ("nats-leaf://[::1", InvalidAddress::Host),
            ("nats-leaf://hub:0", InvalidAddress::Port),
            ("nats-leaf://hub:x", InvalidAddress::Port),
            ("nats-leaf://[::1]9", InvalidAddress::Port),
            ("nats-leaf://::1", InvalidAddress::Port),
            ("nats-leaf://hub:7422/x", InvalidAddress::Path),
            ("nats-leaf://%ff@hub", InvalidAddress::User),
        ] {
            assert_eq!(text.parse::<Address>(), Err(fault), "{text}");
        }
    }
}
