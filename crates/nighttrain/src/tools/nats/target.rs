//! URL of a server with the credentials for it: `nats://USER:PASSWORD@HOST:PORT`.

use std::{path::PathBuf, str::FromStr};

/// Default port of a NATS server.
const PORT: u16 = 4222;

/// A server, and the credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Host name or IP address; an IPv6 address has no brackets.
    pub(crate) host: String,
    /// TCP port.
    pub(crate) port: u16,
    /// TLS is used even if the server does not require it (`tls://`).
    pub(crate) tls: bool,
    /// User in the URL.
    pub(crate) user: Option<String>,
    /// Password in the URL.
    pub(crate) password: Option<String>,
    /// Token: the user in the URL, if the URL has no password.
    pub(crate) token: Option<String>,
    /// Seed of an nkey, `SU…`.
    pub(crate) seed: Option<String>,
    /// CA certificates to trust (PEM).
    pub(crate) ca_file: Option<PathBuf>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Target {
    /// Writes the URL without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "tls" } else { "nats" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// Error in a server's URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; a server is nats://HOST:PORT, nats://USER:PASSWORD@HOST:PORT, nats://TOKEN@HOST:PORT or tls://…"
)]
pub(crate) struct NotATarget(&'static str);

impl FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, NotATarget> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("nats", text));
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(NotATarget("unknown scheme; expected nats or tls")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (who, place) = match rest.rsplit_once('@') {
            Some((who, place)) => (Some(who), place),
            None => (None, rest),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or(NotATarget("unclosed ["))?;
                (host, after.strip_prefix(':'))
            }
            None => match place.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        if host.is_empty() || host.contains('/') {
            return Err(NotATarget("missing host"));
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| NotATarget("invalid port"))?,
            None => PORT,
        };
        let (user, password, token) = match who.map(|who| who.split_once(':').ok_or(who)) {
            None => (None, None, None),
            Some(Ok((user, password))) => (Some(user.to_owned()), Some(password.to_owned()), None),
            Some(Err(token)) => (None, None, Some(token.to_owned())),
        };
        let host = host.to_owned();
        Ok(Self { host, port, tls, user, password, token, seed: None, ca_file: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let target = |text: &str| text.parse::<Target>().unwrap();
        assert_eq!(target("localhost").to_string(), "nats://localhost:4222");
        assert_eq!(target("nats://10.0.0.7:1/").to_string(), "nats://10.0.0.7:1");
        assert_eq!(target("tls://[::1]:7").to_string(), "tls://[::1]:7");
        let known = target("nats://ann:s:cr@t@host");
        assert_eq!((known.user.as_deref(), known.password.as_deref()), (Some("ann"), Some("s:cr@t")));
        assert_eq!(target("nats://t0ken@host").token.as_deref(), Some("t0ken"));
        assert!(!format!("{known:?}").contains("s:cr@t"));
        for wrong in ["", "nats://", "http://host", "nats://host:x", "nats://[::1", "nats://host:70000"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
