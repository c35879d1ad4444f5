//! Configuration of a cluster.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use crate::vault::VaultConfig;

/// The shortest lease: a busy machine could fail to renew a shorter one in time.
pub const LEASE_MIN: Duration = Duration::from_millis(300);
/// The longest lease, which is also the longest time that a purge may wait for an unreachable instance.
pub const LEASE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of characters of a name.
const NAME_CHARS_MAX: usize = 64;

/// Configuration of this instance and of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Client addresses of the cluster's servers: `nats://HOST:4222`, `tls://…`. They are tried in turn until
    /// one accepts.
    pub servers: Vec<String>,
    /// Credentials for the cluster.
    pub login: Login,
    /// CA certificates to trust for the servers (PEM); `None` for the system's.
    pub tls_ca: Option<PathBuf>,
    /// Client certificate with its key (PEM), for a cluster that requires one.
    pub tls_pair: Option<(PathBuf, PathBuf)>,
    /// Name of this instance, unique in the cluster.
    pub name: Name,
    /// Time for which this instance may serve stored objects without contact with the cluster.
    pub lease: Duration,
    /// Number of servers that store the stream and the bucket, if this instance creates them.
    pub replicas: usize,
    /// Name of the stream of purges, and of its subject.
    pub stream: Name,
    /// Name of the bucket that holds the instances' heartbeats.
    pub bucket: Name,
    /// Policy for stored objects after the lease has expired.
    pub when_cut_off: WhenCutOff,
    /// File that stores the purge position; `None` if the store does not survive a restart.
    pub position: Option<PathBuf>,
    /// Address at which peers reach this instance; empty if there is none.
    pub address: String,
    /// Configuration of the data shared in addition to purges; `None` for none.
    pub vault: Option<VaultConfig>,
}

impl VaultConfig {
    /// Returns the default bucket.
    #[must_use]
    pub fn bucket() -> Name {
        Name("NIGHTTRAIN_CERTIFICATES".to_owned())
    }
}

impl Config {
    /// Returns the defaults for an instance of this name.
    #[must_use]
    pub fn new(servers: Vec<String>, name: Name) -> Self {
        let fixed = |text: &str| Name(text.to_owned());
        Self {
            servers,
            login: Login::None,
            tls_ca: None,
            tls_pair: None,
            name,
            lease: Duration::from_secs(3),
            replicas: 3,
            stream: fixed("NIGHTTRAIN_PURGES"),
            bucket: fixed("NIGHTTRAIN_INSTANCES"),
            when_cut_off: WhenCutOff::Revalidate,
            position: None,
            address: String::new(),
            vault: None,
        }
    }
}

/// Credentials for the cluster, used if its address contains none (`nats://USER:PASSWORD@HOST`,
/// `nats://TOKEN@HOST`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Login {
    /// No credentials.
    #[default]
    None,
    /// A file with a JWT and the seed of its key (`.creds`).
    Credentials(PathBuf),
    /// A file with the seed of a key.
    Nkey(PathBuf),
}

/// Policy for stored objects once the lease has expired without contact with the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCutOff {
    /// Stored objects are revalidated with the origin before they are served.
    #[default]
    Revalidate,
    /// Stored objects are still served, even if they may be purged. Purges do not wait for such an instance,
    /// but list it in their result.
    Serve,
}

/// A name that is valid in a subject and in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

/// Error for text that is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid name: it has 1 to 64 letters, digits, - and _")]
pub struct InvalidName;

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_one = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let is_valid = (1..=NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(is_one);
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidName) }
    }
}

impl Name {
    /// Derives a name from a machine's host name.
    #[must_use]
    pub fn of_host(host: &str) -> Self {
        let short = host.split('.').next().unwrap_or_default();
        let kept: String =
            short.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
        kept.chars()
            .take(NAME_CHARS_MAX)
            .collect::<String>()
            .parse()
            .unwrap_or_else(|_| Self("nighttrain".to_owned()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_subject_tokens() {
        for text in ["a", "A-1_b", &"x".repeat(64)] {
            assert_eq!(text.parse::<Name>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(65)] {
            assert_eq!(text.parse::<Name>(), Err(InvalidName), "{text}");
        }
        for (host, name) in
            [("web1.example.org", "web1"), ("web_1", "web1"), ("", "nighttrain"), ("ß", "nighttrain")]
        {
            assert_eq!(Name::of_host(host).as_str(), name);
        }
    }
}
