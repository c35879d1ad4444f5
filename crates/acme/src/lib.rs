//! Certificates by themselves: obtained of an authority that speaks ACME (RFC 8555), and renewed before they end.
//!
//! ```text
//!             ┌ thread "acme": schedule ─▶ order ─▶ files ─────────────────────┐
//!             │      ▲ the CA, by http     │ challenges                        │ certificates
//!  Client ────┘      ▼                     ▼                                   ▼
//!   said, counters        engine::tls::challenges::Challenges    engine::tls::certificates::Certificates
//!                          read by who listens at 80 and 443      read by every handshake
//! ```
//! Where the data lives: certificates, keys, the account and orders under way in the state directory (`files.rs`); what is
//! known of each certificate on the thread, which is the only one to write it. A server knows two tables of the engine,
//! and nothing of this. A process that ends at any moment goes on where it was: the account's key is there before the CA
//! hears of it, an order's URL before its challenges are answered, a certificate and its key in one file.
//!
//! Several instances share all of that, where they have something to share it by (`share.rs`).
//!
//! *Bounds:* [`NAMES_MAX`] names; one order at a time; 250 orders in three hours; an answer of 1 MiB and 30 seconds; waits
//! after failures by `schedule.rs`.

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

/// Names that one process obtains certificates for.
pub const NAMES_MAX: usize = 1000;
/// Addresses that share one certificate; public authorities take a hundred names.
pub const ADDRESSES_MAX: usize = 100;

/// By what an authority sees that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// A request at port 80 (RFC 8555 §8.3).
    Http01,
    /// A handshake at port 443 (RFC 8737).
    TlsAlpn01,
}

impl Challenge {
    /// All of them.
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
        known.ok_or_else(|| {
            format!("{text:?} is no challenge that is answered here; there are http-01 and tls-alpn-01")
        })
    }
}

/// Where a CA has its directory (RFC 8555 §7.1.1).
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
            // Nobody is in between.
            Some("http") if is_here => {}
            _ => {
                return Err(format!(
                    "{text:?}: {right}; without https, whoever is in between would be the CA"
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

/// What is obtained, and of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The CA.
    pub directory: Directory,
    /// Who vouches for the CA's own server (PEM); `None`: whom the system trusts.
    pub authorities: Option<PathBuf>,
    /// Where the CA may write to (`mailto:`).
    pub contacts: Vec<String>,
    /// Which of the CA's sorts of certificates; `None`: what it gives to whoever does not say.
    pub profile: Option<String>,
    /// By what the CA may look whether a name is ours; the first is tried first, and the next after a failure.
    pub challenges: Vec<Challenge>,
    /// At most [`NAMES_MAX`], of which at most [`ADDRESSES_MAX`] addresses.
    pub names: Vec<Name>,
    /// The state directory.
    pub state: PathBuf,
    /// How long the first failure waits.
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
