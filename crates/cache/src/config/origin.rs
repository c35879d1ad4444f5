//! Origins: the servers from which misses are fetched, their balance, and the rules for ejecting a failing
//! server.
//!
//! ```text
//!  http://10.0.0.1:3000 weight=2, https://10.0.0.2, unix:/run/app.sock backup
//!  └──── a server ────┘
//!  └───────── a member ─────────┘ └────── another ──┘ └─ used when no other is healthy ─┘
//! ```

use std::{fmt, net::SocketAddr, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use wire::http1::{fields::is_token, url::Authority};

/// Maximum number of members of an origin.
const MEMBERS_MAX: usize = 64;
/// Maximum weight of a member.
const WEIGHT_MAX: u16 = 256;

/// Reason why a text is not an origin. The message shows a correct example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOrigin {
    /// The text is not a server.
    #[error(
        "invalid origin {0}: expected http://HOST:PORT, https://HOST:PORT or unix:/FILE, for instance \
         http://127.0.0.1:3000"
    )]
    Server(&'static str),
    /// The port is not a number.
    #[error("invalid port `{0}`: an origin is http://HOST:PORT, for instance http://127.0.0.1:3000")]
    Port(String),
    /// The server has no scheme.
    #[error(
        "missing scheme: an origin is http://HOST or http://HOST:PORT, for instance http://127.0.0.1:3000; perhaps \
         http://{0}"
    )]
    Scheme(String),
    /// The word after a server is unknown.
    #[error("unknown server option `{0}`: expected weight=1 to weight=256, or backup, after a space")]
    Word(String),
    /// The server is listed twice.
    #[error("duplicate server {0}; to send it more requests, set a weight such as weight=2")]
    Twice(Server),
    /// The list is empty or too long.
    #[error("1 to 64 servers are needed, separated by commas")]
    Members,
    /// All members are backups.
    #[error("all servers are backups: at least one must not be")]
    Backups,
}

/// Address of one server of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Server {
    /// A TCP port.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// True if the server speaks TLS.
        is_secured: bool,
    },
    /// A Unix socket, by its path.
    Unix(String),
}

impl Server {
    /// Returns the server's default `Host`.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Tcp { host, port, is_secured } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let is_usual = *port == if *is_secured { 443 } else { 80 };
                if is_usual { host } else { format!("{host}:{port}") }
            }
        }
    }
}

impl FromStr for Server {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        use InvalidOrigin::Server as Wrong;
        if let Some(path) = text.strip_prefix("unix:") {
            let is_path = path.starts_with('/') && path.len() > 1;
            return if is_path {
                Ok(Self::Unix(path.to_owned()))
            } else {
                Err(Wrong("the path is not absolute"))
            };
        }
        let (is_secured, rest) = match text.split_once("://") {
            None => return Err(InvalidOrigin::Scheme(text.to_owned())),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(Wrong("unknown scheme")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(Wrong("a user name is not supported in it"));
        }
        if rest.contains(['/', '?', '#']) {
            return Err(Wrong("leave the path off"));
        }
        let port_at = rest.rfind(':').filter(|at| !rest[*at..].contains(']'));
        let Some(authority) = Authority::parse(rest.as_bytes()) else {
            return Err(match port_at {
                Some(at) if at > 0 => InvalidOrigin::Port(rest[at + 1..].to_owned()),
                _ => Wrong("no host"),
            });
        };
        let host = authority.host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(Wrong("no host"));
        }
        let port = match authority.port {
            Some(0) => return Err(InvalidOrigin::Port("0".to_owned())),
            Some(port) => port,
            None if port_at.is_some() => return Err(InvalidOrigin::Port(String::new())),
            None if is_secured => 443,
            None => 80,
        };
        Ok(Self::Tcp { host: host.to_owned(), port, is_secured })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Tcp { host, port, is_secured } => {
                let scheme = if *is_secured { "https" } else { "http" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")
                } else {
                    write!(f, "{scheme}://{host}:{port}")
                }
            }
        }
    }
}

/// A server and its weight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Address of the server.
    pub server: Server,
    /// Share of requests, relative to a member of weight 1; 1 to 256.
    pub weight: u16,
    /// True if the member is used only when no regular member is available.
    pub is_backup: bool,
}

impl FromStr for Member {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let mut words = text.split_ascii_whitespace();
        let server = words.next().unwrap_or_default().parse()?;
        let mut member = Self { server, weight: 1, is_backup: false };
        for word in words {
            let weight = word.strip_prefix("weight=").and_then(|weight| weight.parse().ok());
            match weight {
                Some(weight @ 1..=WEIGHT_MAX) => member.weight = weight,
                None if word == "backup" => member.is_backup = true,
                _ => return Err(InvalidOrigin::Word(word.to_owned())),
            }
        }
        Ok(member)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        f.write_str(if self.is_backup { " backup" } else { "" })
    }
}

/// An origin: the servers from which a site's misses are fetched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin(Vec<Member>);

impl Origin {
    /// Creates an origin of one server, by host and port.
    pub fn http(host: &str, port: u16) -> Self {
        let server = Server::Tcp { host: host.to_owned(), port, is_secured: false };
        Self(vec![Member { server, weight: 1, is_backup: false }])
    }

    /// Creates an origin of one server, by address.
    pub fn at(address: SocketAddr) -> Self {
        Self::http(&address.ip().to_string(), address.port())
    }

    /// Returns the members: at least one, at most 64.
    pub fn members(&self) -> &[Member] {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let members: Vec<Member> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        if members.len() > MEMBERS_MAX {
            return Err(InvalidOrigin::Members);
        }
        if members.iter().all(|member| member.is_backup) {
            return Err(InvalidOrigin::Backups);
        }
        for (at, member) in members.iter().enumerate() {
            if members[..at].iter().any(|other| other.server == member.server) {
                return Err(InvalidOrigin::Twice(member.server.clone()));
            }
        }
        Ok(Self(members))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, member) in self.0.iter().enumerate() {
            write!(f, "{}{member}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Choice of the member for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// Members in turn, in proportion to their weights.
    #[default]
    RoundRobin,
    /// A random member.
    Random,
    /// The member with the fewest of our requests in progress, relative to its weight.
    LeastBusy,
    /// Consistent hashing: each page is always fetched from one member, unless that member is much busier
    /// than the others.
    Hash,
}

impl Balance {
    /// All choices, with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("round-robin", Self::RoundRobin),
        ("random", Self::Random),
        ("least-busy", Self::LeastBusy),
        ("hash", Self::Hash),
    ];
}

/// Protocol spoken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// HTTP/2 if the server speaks TLS and chooses it (ALPN), otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, also without TLS, where it cannot be negotiated: the server must be known to speak it (RFC
    /// 9113 §3.3).
    Http2,
}

impl Protocol {
    /// All protocols, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("http1", Self::Http1), ("http2", Self::Http2)];
}

/// Health probe of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Path that is requested; `None`: servers are not probed.
    pub path: Option<Box<str>>,
    /// Interval between two probes.
    pub every: Duration,
    /// Time limit for the whole answer.
    pub time_max: Duration,
    /// Statuses of a good answer.
    pub status: RangeInclusive<u16>,
    /// Text that the content must contain, if any.
    pub body: Option<Box<str>>,
    /// Number of recent probes that decide the server's health; at most 64.
    pub window: u32,
    /// Number of good probes within the window that a healthy server needs.
    pub threshold: u32,
}

/// TLS settings for a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OriginTls {
    /// CA certificates to trust (PEM); `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Server name sent to the server and expected in its certificate; `None`: the host.
    pub name: Option<Box<str>>,
    /// Client certificate (PEM) shown to the server, used with the key.
    pub certificate: Option<PathBuf>,
    /// Key of the client certificate (PEM).
    pub key: Option<PathBuf>,
}

/// Rules for each server of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerRules {
    /// Health probe.
    pub probe: Probe,
    /// Consecutive failed exchanges after which a server is ejected; 0: never.
    pub eject_after: u32,
    /// Duration of the first ejection; doubled each time that the server fails again, up to 32 times this
    /// duration.
    pub eject_time: Duration,
    /// Time over which a returning server's share of requests grows back to its full weight.
    pub slow_start: Duration,
    /// TLS settings.
    pub tls: OriginTls,
    /// HTTP version.
    pub protocol: Protocol,
}

/// Rules for an origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginRules {
    /// Choice of the member for a request.
    pub balance: Balance,
    /// Name of a cookie that keeps a visitor's passed requests with one member.
    pub sticky: Option<Box<str>>,
    /// Maximum number of members that are tried, one after the other, for one answer.
    pub tries: u32,
    /// Rules for each server.
    pub server: ServerRules,
}

impl Default for OriginRules {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            sticky: None,
            tries: 3,
            server: ServerRules {
                probe: Probe {
                    path: None,
                    every: Duration::from_secs(5),
                    time_max: Duration::from_secs(2),
                    status: 200..=399,
                    body: None,
                    window: 8,
                    threshold: 3,
                },
                eject_after: 5,
                eject_time: Duration::from_secs(10),
                slow_start: Duration::from_secs(30),
                tls: OriginTls::default(),
                protocol: Protocol::default(),
            },
        }
    }
}

/// Parses the name of a cookie.
///
/// # Errors
/// Returns a message if the text is not a cookie name (RFC 6265 §4.1.1).
pub fn cookie_name(text: &str) -> Result<Box<str>, String> {
    if is_token(text.as_bytes()) { Ok(text.into()) } else { Err(format!("invalid cookie name `{text}`")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_again() {
        for text in [
            "http://127.0.0.1:3000",
            "http://[::1]:80",
            "https://app.internal:443 weight=256",
            "unix:/run/app.sock",
            "http://a:80, http://b:80 weight=2, unix:/c backup",
        ] {
            assert_eq!(text.parse::<Origin>().expect(text).to_string(), text);
        }
        let usual: Origin = "http://a/,https://b".parse().expect("usual ports");
        assert_eq!(usual.to_string(), "http://a:80, https://b:443");
        let authorities = |text: &str| text.parse::<Server>().expect("a server").authority();
        assert_eq!(authorities("http://a"), "a");
        assert_eq!(authorities("https://[::1]:80"), "[::1]:80");
        assert_eq!(authorities("unix:/a"), "localhost");
    }

    #[test]
    fn an_invalid_origin_error_suggests_a_correction() {
        for (text, said) in [
            ("", "missing scheme"),
            ("a:80", "perhaps http://a:80"),
            ("ftp://a", "unknown scheme"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://a:0", "invalid port `0`"),
            ("http://a:", "invalid port ``"),
            ("http://a:99999", "invalid port `99999`"),
            ("http://u@a", "a user name"),
            ("http://a/b", "leave the path off"),
            ("http://a?b", "leave the path off"),
            ("unix:run", "the path is not absolute"),
            ("http://a weight=0", "unknown server option `weight=0`"),
            ("http://a weight=257", "unknown server option `weight=257`"),
            ("http://a fast", "unknown server option `fast`"),
            ("http://a, http://a:80", "duplicate server http://a:80"),
            ("http://a backup", "all servers are backups"),
            ("http://a,", "missing scheme"),
        ] {
            let error = text.parse::<Origin>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let many: Vec<String> = (1..=65).map(|port| format!("http://a:{port}")).collect();
        assert_eq!(many.join(",").parse::<Origin>(), Err(InvalidOrigin::Members));
        assert!(many[1..].join(",").parse::<Origin>().is_ok());
    }
}
