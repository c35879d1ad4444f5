//! Settings of the cluster through which several accelerators share their purges.

use std::{path::PathBuf, time::Duration};

use cluster::{Config, Login, Name, VaultConfig, WhenCutOff};

use crate::{admin::read_tokens, failure::Fault};

/// Configured settings of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClusterSettings {
    pub(crate) servers: Vec<String>,
    pub(crate) name: Option<Name>,
    pub(crate) lease: Duration,
    pub(crate) when_cut_off: WhenCutOff,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) nkey: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) replicas: usize,
    pub(crate) stream: Name,
    pub(crate) bucket: Name,
    pub(crate) secret: Option<PathBuf>,
    pub(crate) vault: Name,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        let Config { lease, when_cut_off, replicas, stream, bucket, .. } =
            Config::new(Vec::new(), Name::of_host(""));
        Self {
            servers: Vec::new(),
            name: None,
            lease,
            when_cut_off,
            credentials: None,
            nkey: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            replicas,
            stream,
            bucket,
            secret: None,
            vault: VaultConfig::bucket(),
        }
    }
}

impl ClusterSettings {
    /// Builds the cluster's configuration; `None` if no cluster is configured. `store` is the file of the
    /// accelerator's store; `address` is where its peers reach it, empty if keys are not shared.
    ///
    /// # Errors
    /// Returns a `Fault` for settings that contradict each other.
    pub(crate) fn config(&self, store: Option<&PathBuf>, address: String) -> Result<Option<Config>, Fault> {
        let fault =
            |place: &str, message: &str| Fault { place: place.to_owned(), message: message.to_owned() };
        if self.servers.is_empty() {
            let is_default = *self == Self::default();
            let message = "is missing: set the cluster that the other cluster- settings are for, for instance \
                           nats://nats-1.internal:4222";
            return if is_default { Ok(None) } else { Err(fault("cluster", message)) };
        }
        let login = match (&self.credentials, &self.nkey) {
            (Some(_), Some(_)) => {
                let message = "contains a key already; cluster-nkey is for a key without a JWT";
                return Err(fault("cluster-credentials", message));
            }
            (Some(path), None) => Login::Credentials(path.clone()),
            (None, Some(path)) => Login::Nkey(path.clone()),
            (None, None) => Login::None,
        };
        let tls_pair = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(fault("cluster-tls-cert", "must be set together with cluster-tls-key")),
        };
        let name = self.name.clone().unwrap_or_else(|| {
            // If the host has no name, the program's name is used instead.
            Name::of_host(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default())
        });
        let position = store.map(|store| {
            let mut path = store.clone().into_os_string();
            path.push(".cluster");
            PathBuf::from(path)
        });
        let vault = match &self.secret {
            Some(path) => {
                let secrets = read_tokens("cluster-secret", path)
                    .map_err(|message| fault("cluster-secret", message.as_str()))?;
                Some(VaultConfig { bucket: self.vault.clone(), secrets: secrets.to_cluster() })
            }
            None => None,
        };
        Ok(Some(Config {
            login,
            tls_ca: self.tls_ca.clone(),
            tls_pair,
            lease: self.lease,
            replicas: self.replicas,
            stream: self.stream.clone(),
            bucket: self.bucket.clone(),
            when_cut_off: self.when_cut_off,
            position,
            address,
            vault,
            ..Config::new(self.servers.clone(), name)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Section, Settings, in_section};

    fn said(lines: &[(&str, &str)]) -> Result<Option<Config>, String> {
        let mut settings = Settings::default();
        for (key, text) in lines {
            let (_, setting) = in_section(Section::Cache, key).expect("a setting");
            setting.set(&mut settings, text).map_err(|wrong| format!("{key}: {wrong}"))?;
        }
        let (store, address) = (settings.cache.store.as_ref(), settings.peers.told_address());
        settings.cluster.config(store, address).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a38_what_does_not_go_together_is_said() {
        assert_eq!(said(&[]), Ok(None));
        let servers = ("cluster", "nats://u:p@a,tls://b:1");
        let config = said(&[servers, ("cluster-name", "web1")]).expect("right").expect("a cluster");
        assert_eq!((config.name.as_str(), config.servers.len()), ("web1", 2));
        for (lines, says) in [
            (&[("cluster-lease", "5s")][..], "cluster: is missing"),
            (&[servers, ("cluster-credentials", "/a"), ("cluster-nkey", "/b")], "contains a key already"),
            (&[servers, ("cluster-tls-cert", "/a")], "must be set together with cluster-tls-key"),
            (&[("cluster", "http://a")], "expected a server of a NATS cluster"),
            (&[("cluster", "nats://u:secret@")], "nats://***@: expected a server"),
            (&[("cluster-lease", "1h")], "from 300ms to 1m"),
            (&[("cluster-replicas", "6")], "at most 5"),
            (&[("cluster-name", "a.b")], "invalid name"),
        ] {
            let wrong = said(lines).expect_err(says);
            assert!(wrong.contains(says), "{wrong}");
        }
    }
}
