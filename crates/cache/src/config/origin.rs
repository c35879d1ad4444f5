//! Where misses are fetched: an origin's servers, how they share the work, and when one of them is left alone.
//!
//! ```text
//!  http://10.0.0.1:3000 weight=2, https://10.0.0.2, unix:/run/app.sock backup
//!  └──── a server ────┘
//!  └───────── a member ─────────┘ └────── another ──┘ └─ asked when no other can be ─┘
//! ```

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use wire::http1::{fields::is_token, url::Authority};

/// Members of an origin.
const MEMBERS_MAX: usize = 64;
/// How many times the work of another a member can be given.
const WEIGHT_MAX: u16 = 256;

/// Why a text names no origin. It displays as what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOrigin {
    /// A server.
    #[error(
        "{0}: an origin is http://HOST:PORT, https://HOST:PORT or unix:/FILE, for instance http://127.0.0.1:3000"
    )]
    Server(&'static str),
    /// Something that looks like a port.
    #[error("`{0}` is not a port: an origin is http://HOST:PORT, for instance http://127.0.0.1:3000")]
    Port(String),
    /// A server without its scheme.
    #[error(
        "no scheme: an origin is http://HOST or http://HOST:PORT, for instance http://127.0.0.1:3000; perhaps http://{0}"
    )]
    Scheme(String),
    /// What is said of a member.
    #[error("`{0}` says nothing of a server: weight=1 to weight=256, or backup, after a space")]
    Word(String),
    /// A server twice.
    #[error("{0} is there already; weight=2 gives it twice the work")]
    Twice(Server),
    /// None, or too many.
    #[error("one server at least, and at most 64 are taken, with commas between them")]
    Members,
    /// Nobody would be asked first.
    #[error("all are backups, of nobody")]
    Backups,
}

/// Where one server of an origin listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Server {
    /// On a port.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// It speaks TLS.
        is_secured: bool,
    },
    /// On a Unix socket, of this path.
    Unix(String),
}

impl Server {
    /// What it is sent as Host where nothing else says so.
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
            return if is_path { Ok(Self::Unix(path.to_owned())) } else { Err(Wrong("no whole path")) };
        }
        let (is_secured, rest) = match text.split_once("://") {
            None => return Err(InvalidOrigin::Scheme(text.to_owned())),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(Wrong("unknown scheme")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(Wrong("a user name in it is not used"));
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

/// A server, and its part of the work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Where it listens.
    pub server: Server,
    /// How many times the work of a member of weight 1 it is given; 1 to 256.
    pub weight: u16,
    /// It is asked only when no member that is none can be.
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

/// An origin: the servers that a site's misses are fetched from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin(Vec<Member>);

impl Origin {
    /// One server, that of a host and a port.
    pub fn http(host: &str, port: u16) -> Self {
        let server = Server::Tcp { host: host.to_owned(), port, is_secured: false };
        Self(vec![Member { server, weight: 1, is_backup: false }])
    }

    /// One server, at an address.
    pub fn at(address: SocketAddr) -> Self {
        Self::http(&address.ip().to_string(), address.port())
    }

    /// Its servers: at least one, at most 64.
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

/// Which member is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// Each in turn, as often as its weight says.
    #[default]
    RoundRobin,
    /// One by lot.
    Random,
    /// The one that has the fewest requests of ours under way, for its weight.
    LeastBusy,
    /// The same one for the same page, as long as it is not much busier than the others.
    Hash,
}

impl Balance {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("round-robin", Self::RoundRobin),
        ("random", Self::Random),
        ("least-busy", Self::LeastBusy),
        ("hash", Self::Hash),
    ];
}

/// What is spoken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// HTTP/2 where it is asked by https and chooses it (ALPN); else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, in the clear too, where nothing can tell: it has to be known to speak it (RFC 9113 §3.3).
    Http2,
}

impl Protocol {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("http1", Self::Http1), ("http2", Self::Http2)];
}

/// A request by which it is found out whether a server is well.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Probe {
    /// What is asked for; `None`: no server is probed.
    pub path: Option<Box<str>>,
    /// How often.
    pub every: Duration,
    /// Within what time a whole answer has to be there.
    pub time_max: Duration,
    /// The statuses of an answer that is good: from, and to.
    pub status: (u16, u16),
    /// What its content has in it, if anything is asked of that.
    pub body: Option<Box<str>>,
    /// Of so many probes, 64 at most ...
    pub window: u32,
    /// ... so many have to be good.
    pub threshold: u32,
}

/// How TLS is spoken with a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OriginTls {
    /// Who vouches for it (PEM); `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// The name that it is asked for and that its certificate has; `None`: its host.
    pub name: Option<Box<str>>,
    /// The certificate (PEM) that it is shown, with the key.
    pub certificate: Option<PathBuf>,
    /// That certificate's key (PEM).
    pub key: Option<PathBuf>,
}

/// How an origin's servers are treated, each by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerRules {
    /// How they are probed.
    pub probe: Probe,
    /// Exchanges that fail one after the other before a server is left alone; 0: never.
    pub eject_after: u32,
    /// For how long it is, the first time; twice as long each time that it fails again, up to 32 times.
    pub eject_time: Duration,
    /// Over what time its part of the work grows to what it was, once it is back.
    pub slow_start: Duration,
    /// How TLS is spoken.
    pub tls: OriginTls,
    /// What is spoken above that.
    pub protocol: Protocol,
}

/// How an origin is treated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginRules {
    /// Which member is asked.
    pub balance: Balance,
    /// A visitor whose requests are passed stays with one member, by a cookie of this name.
    pub sticky: Option<Box<str>>,
    /// Members that are asked for one answer, one after the other.
    pub tries: u32,
    /// Each by itself.
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
                    status: (200, 399),
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

/// The name of a cookie.
///
/// # Errors
/// It is none (RFC 6265 §4.1.1).
pub fn cookie_name(text: &str) -> Result<Box<str>, String> {
    if is_token(text.as_bytes()) { Ok(text.into()) } else { Err(format!("`{text}` is no name of a cookie")) }
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
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, said) in [
            ("", "no scheme"),
            ("a:80", "perhaps http://a:80"),
            ("ftp://a", "unknown scheme"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://a:0", "`0` is not a port"),
            ("http://a:", "`` is not a port"),
            ("http://a:99999", "`99999` is not a port"),
            ("http://u@a", "a user name"),
            ("http://a/b", "leave the path off"),
            ("http://a?b", "leave the path off"),
            ("unix:run", "no whole path"),
            ("http://a weight=0", "`weight=0` says nothing"),
            ("http://a weight=257", "`weight=257` says nothing"),
            ("http://a fast", "`fast` says nothing"),
            ("http://a, http://a:80", "http://a:80 is there already"),
            ("http://a backup", "all are backups"),
            ("http://a,", "no scheme"),
        ] {
            let error = text.parse::<Origin>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let many: Vec<String> = (1..=65).map(|port| format!("http://a:{port}")).collect();
        assert_eq!(many.join(",").parse::<Origin>(), Err(InvalidOrigin::Members));
        assert!(many[1..].join(",").parse::<Origin>().is_ok());
    }
}
