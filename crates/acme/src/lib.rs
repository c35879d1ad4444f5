//! Automatic certificates: obtained from a CA by ACME (RFC 8555), and renewed before they expire.
//!
//! ```text
//!             ┌ thread "acme": schedule ─▶ order ─▶ files ─────────────────────┐
//!             │      ▲ the CA, by http     │ challenges                        │ certificates
//!  Client ────┘      ▼                     ▼                                   ▼
//!   said, counters        engine::tls::challenges::Challenges    engine::tls::certificates::Certificates
//!                          read by servers at 80 and 443          read by every handshake
//! ```
//! Certificates, keys, the account and pending orders are stored in the state directory (`files.rs`); only
//! the thread writes the status of each certificate. A server uses the engine's two tables, and knows nothing
//! of this crate. A process that stops at any moment continues where it was: the account's key is saved
//! before the CA learns of it, an order's URL before its challenges are answered, a certificate and its key
//! in one file.
//!
//! Several instances share all of that, if they have a means of sharing (`share.rs`).
//!
//! *Bounds:* [`NAMES_MAX`] names; one order at a time; 250 orders in three hours; a response of 1 MiB and 30
//! seconds; the waits after failures are computed in `schedule.rs`.

mod client;
mod files;
mod http;
mod name;
mod order;
mod schedule;
mod share;

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

pub use self::{
    client::{Client, RenewalStatus, StartError},
    files::FilesError,
    name::{InvalidName, Name},
    share::{OnChange, Share, ShareError},
};

/// Maximum number of names for which one process obtains certificates.
pub const NAMES_MAX: usize = 1000;
/// Maximum number of addresses, which share one certificate; public CAs accept a hundred names.
pub const ADDRESSES_MAX: usize = 100;

/// ACME challenge type, by which a CA verifies that we control a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// http-01: a request to port 80 (RFC 8555 §8.3).
    Http01,
    /// tls-alpn-01: a TLS handshake at port 443 (RFC 8737).
    TlsAlpn01,
}

impl Challenge {
    /// All challenge types.
    pub const ALL: [Self; 2] = [Self::Http01, Self::TlsAlpn01];

    fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Challenge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|challenge| challenge.name() == text);
        known.ok_or_else(|| format!("unsupported challenge {text:?}; expected http-01 or tls-alpn-01"))
    }
}

/// URL of a CA's directory (RFC 8555 §7.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    url: String,
    is_here: bool,
}

impl FromStr for Directory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let right = "a CA's directory is a URL such as https://acme-v02.api.letsencrypt.org/directory";
        let uri: ureq::http::Uri = text.parse().map_err(|_| format!("{text:?}: {right}"))?;
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
            return Err(format!("{text:?}: {right}"));
        };
        let bare = host.trim_matches(['[', ']']);
        let is_here =
            bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|at| at.is_loopback());
        match uri.scheme_str() {
            Some("https") => {}
            // Plain HTTP is allowed only for a server on this machine, where nobody can intercept it.
            Some("http") if is_here => {}
            _ => {
                return Err(format!(
                    "{text:?}: {right}; without https anyone on the network could pose as the CA"
                ));
            }
        }
        Ok(Self { url: text.to_owned(), is_here })
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Configuration: the CA, and the names for which certificates are obtained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of the CA.
    pub directory: Directory,
    /// CA certificates to trust for the CA's own server (PEM); `None` for the system's.
    pub authorities: Option<PathBuf>,
    /// Contact addresses of the account (`mailto:`).
    pub contacts: Vec<String>,
    /// Certificate profile of the CA; `None` for its default.
    pub profile: Option<String>,
    /// Allowed challenge types; the first is tried first, the next one after a failure.
    pub challenges: Vec<Challenge>,
    /// Names: at most [`NAMES_MAX`], of which at most [`ADDRESSES_MAX`] may be addresses.
    pub names: Vec<Name>,
    /// The state directory.
    pub state: PathBuf,
    /// Wait after the first failure.
    pub retry: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a36_a_directory_is_reached_by_https() {
        for good in [
            "https://acme-v02.api.letsencrypt.org/directory",
            "http://127.0.0.1:14000/dir",
            "http://[::1]/dir",
        ] {
            assert_eq!(good.parse::<Directory>().expect(good).to_string(), good);
        }
        for bad in ["http://ca.example/dir", "ca.example", "/dir", "", "ftp://127.0.0.1/", "https:///dir"] {
            let error = bad.parse::<Directory>().expect_err(bad);
            assert!(error.contains("https://acme-v02"), "{bad}: {error}");
        }
    }
}
