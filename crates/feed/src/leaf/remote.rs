//! Which hubs are to be joined: what the configuration says.

use std::{fmt, path::PathBuf, str::FromStr};

use nkeys::{KeyPair, KeyPairType};
use percent_encoding::percent_decode_str;

/// Where hubs listen for leaf nodes (nats-server's default).
pub const PORT: u16 = 7422;
/// Addresses of one hub that may be configured.
pub const ADDRESSES_MAX: usize = 64;

/// A hub that the feed joins as a leaf node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remote {
    /// Where it is: servers of one cluster, tried in turn.
    pub addresses: Vec<Address>,
    /// The account here whose subjects are the hub's, too; none: the global one.
    pub account: Option<String>,
    /// How we say who we are, beside what the address says.
    pub login: Login,
    /// Who vouches for it (PEM); none: whom the system trusts.
    pub tls_ca: Option<PathBuf>,
    /// The certificate that we show, and its key (PEM).
    pub tls_pair: Option<(PathBuf, PathBuf)>,
    /// TLS comes before the hub's first word.
    pub tls_handshake_first: bool,
    /// Patterns of subjects that are not had of it.
    pub deny_imports: Vec<String>,
    /// Patterns of subjects that it is not sent.
    pub deny_exports: Vec<String>,
}

/// How we say who we are. Files are read at each connection, so that a new one is used from then on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Login {
    /// Not, or by the address.
    #[default]
    None,
    /// A file with a user's JWT and its seed, which signs the hub's nonce.
    Credentials(PathBuf),
    /// A file with the seed of an nkey.
    Nkey(PathBuf),
    /// That seed itself.
    Seed(UserSeed),
}

/// The seed of a user's nkey. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct UserSeed(String);

impl UserSeed {
    /// None, if it is no such seed.
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

/// What is spoken below the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// TCP, and TLS if the hub asks for it.
    Plain,
    /// TLS, whatever the hub says.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

/// One server's address. What it says of a user is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// What is spoken.
    pub scheme: Scheme,
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// A user and its password; without a password it is a token.
    pub user: Option<(String, Option<String>)>,
}

/// A text that is no address of a hub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// The scheme is another.
    #[error("{0}:// is not spoken to hubs; nats-leaf://, tls://, ws:// and wss:// are")]
    Scheme(String),
    /// There is no host.
    #[error("a host is wanted, such as nats-leaf://hub.example:7422")]
    Host,
    /// The port is none.
    #[error("a port between 1 and 65535 is wanted, such as nats-leaf://hub.example:7422")]
    Port,
    /// There is something behind the port.
    #[error("nothing may follow the port, such as nats-leaf://hub.example:7422")]
    Path,
    /// A user or a password is not UTF-8 with what is special in percents.
    #[error("the user or the password is not text in UTF-8, with special letters as %40")]
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
    /// `host:port`.
    #[must_use]
    pub fn place(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Whether WebSocket is spoken.
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
