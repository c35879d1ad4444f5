//! What is configured of a cluster.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use crate::vault::VaultConfig;

/// The shortest lease: below that a busy machine loses it.
pub const LEASE_MIN: Duration = Duration::from_millis(300);
/// The longest lease: so long may a purge wait for an instance that is cut off.
pub const LEASE_MAX: Duration = Duration::from_secs(60);
/// Characters of a name.
const NAME_CHARS_MAX: usize = 64;

/// Everything that is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the cluster's servers listen for clients: `nats://HOST:4222`, `tls://…`. In turn until one takes us.
    pub servers: Vec<String>,
    /// Who we are to it.
    pub login: Login,
    /// Who vouches for its certificates (PEM); `None`: whom the system trusts.
    pub tls_ca: Option<PathBuf>,
    /// Our certificate with its key (PEM), for a cluster that asks for one.
    pub tls_pair: Option<(PathBuf, PathBuf)>,
    /// The name of this instance, of which there is one in the cluster.
    pub name: Name,
    /// For how long this instance may serve what is stored without hearing of the others.
    pub lease: Duration,
    /// Servers that keep stream and bucket, where we make them.
    pub replicas: usize,
    /// The stream of purges; its subject is the same.
    pub stream: Name,
    /// The bucket of instances.
    pub bucket: Name,
    /// What becomes of what is stored when the lease is out.
    pub when_cut_off: WhenCutOff,
    /// Where this instance keeps how far it is; `None`: what it stores does not survive it either.
    pub position: Option<PathBuf>,
    /// Where its peers reach it; empty: nowhere.
    pub address: String,
    /// What instances share beside purges; `None`: nothing.
    pub vault: Option<VaultConfig>,
}

impl VaultConfig {
    /// The bucket, where none is named.
    #[must_use]
    pub fn bucket() -> Name {
        Name("NIGHTTRAIN_CERTIFICATES".to_owned())
    }
}

impl Config {
    /// The defaults, for an instance of this name.
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

/// Who we are to the cluster, where its address does not say it (`nats://USER:PASSWORD@HOST`, `nats://TOKEN@HOST`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Login {
    /// Nobody in particular.
    #[default]
    None,
    /// A file with a JWT and the seed of its key (`.creds`).
    Credentials(PathBuf),
    /// A file with the seed of a key.
    Nkey(PathBuf),
}

/// What an instance does with what it stored when it has not heard of the others for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCutOff {
    /// It asks the origin before it shows any of it.
    #[default]
    Revalidate,
    /// It serves on, and may show what was purged: purges do not wait for it, and say so.
    Serve,
}

/// A name that may stand in a subject and in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

/// It cannot be a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to 64 letters, digits, - and _")]
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
    /// What of a machine's name may stand in one.
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

    /// As text.
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
    fn names_are_such_as_may_stand_in_a_subject() {
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
