//! Settings of the cluster through which several accelerators share their purges.

use std::{path::PathBuf, time::Duration};

use cluster::{Config, LEASE_MAX, LEASE_MIN, Login, Name, VaultConfig, WhenCutOff};

use crate::{
    admin::{Token, read_tokens},
    failure::Fault,
    settings::{
        Section, Setting, Settings, ValueAccess, ValueShape, list, one_or_more, optional, parse_path,
        path_text, plain, some_time, units::duration_text, value,
    },
};

const CLUSTER: &str = "Cluster of accelerators (NATS with JetStream)";
/// Maximum number of servers that can be named.
const SERVERS_MAX: usize = 64;
/// Maximum number of replicas that JetStream allows.
const REPLICAS_MAX: usize = 5;

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
    /// Builds the cluster's configuration; `None` if no cluster is configured.
    ///
    /// # Errors
    /// Returns a `Fault` for settings that contradict each other.
    pub(crate) fn config(&self, settings: &Settings) -> Result<Option<Config>, Fault> {
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
        let position = settings.cache.store.as_ref().map(|store| {
            let mut path = store.clone().into_os_string();
            path.push(".cluster");
            PathBuf::from(path)
        });
        let vault = match &self.secret {
            Some(path) => {
                let secrets = read_tokens("cluster-secret", path)
                    .map_err(|message| fault("cluster-secret", message.as_str()))?;
                let secrets = Token::to_cluster(&secrets);
                Some(VaultConfig { bucket: self.vault.clone(), secrets })
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
            address: settings.peers.told_address(),
            vault,
            ..Config::new(self.servers.clone(), name)
        }))
    }
}

/// Settings table of the cluster.
pub(crate) const CLUSTER_SETTINGS: &[Setting] = &[
    Setting {
        key: "cluster",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CLUSTER,
        value_name: "URL,…",
        help: "NATS servers with JetStream through which accelerators share purges, such as \
               nats://nats-1.internal:4222 (also tls://, and USER:PASSWORD@ or TOKEN@ before the host), tried in turn",
        access: ValueAccess {
            set: |settings, text| {
                settings.cluster.servers = servers(text)?;
                Ok(())
            },
            text: |settings| {
                let servers = &settings.cluster.servers;
                let shown = servers.iter().map(|server| cluster::without_secret(server)).collect::<Vec<_>>();
                (!servers.is_empty()).then(|| shown.join(","))
            },
        },
    },
    Setting {
        key: "cluster-name",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "NAME",
        help: "Name of this instance, unique in the cluster; unset: the machine's name",
        access: optional!(cluster.name, parse = name, show = ToString::to_string),
    },
    Setting {
        key: "cluster-lease",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "TIME",
        help: "Lease: how long an instance may serve stored objects without contact to the cluster, and how long a \
               purge waits for an instance that is cut off",
        access: value!(cluster.lease, parse = lease, show = duration_text),
    },
    Setting {
        key: "cluster-when-cut-off",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "HOW",
        help: "When the lease has run out: revalidate (stored objects are revalidated with the origin before use) or \
               serve (they are served, perhaps after a purge; purges do not wait for this instance)",
        access: ValueAccess {
            set: |settings, text| {
                settings.cluster.when_cut_off = match text {
                    "revalidate" => WhenCutOff::Revalidate,
                    "serve" => WhenCutOff::Serve,
                    _ => return Err("expected revalidate or serve".to_owned()),
                };
                Ok(())
            },
            text: |settings| {
                Some(match settings.cluster.when_cut_off {
                    WhenCutOff::Revalidate => "revalidate".to_owned(),
                    WhenCutOff::Serve => "serve".to_owned(),
                })
            },
        },
    },
    Setting {
        key: "cluster-credentials",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "FILE",
        help: "Credentials file for the NATS cluster (.creds: a user's JWT and seed), read at each connection",
        access: optional!(cluster.credentials, parse = parse_path, show = path_text),
    },
    Setting {
        key: "cluster-nkey",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "FILE",
        help: "nkey seed file for the NATS cluster, read at each connection",
        access: optional!(cluster.nkey, parse = parse_path, show = path_text),
    },
    Setting {
        key: "cluster-tls-ca",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "FILE",
        help: "CA certificates to trust for the NATS cluster (PEM); unset: the system's",
        access: optional!(cluster.tls_ca, parse = parse_path, show = path_text),
    },
    Setting {
        key: "cluster-tls-cert",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "FILE",
        help: "Client certificate for the NATS cluster (PEM), if it requires one",
        access: optional!(cluster.tls_cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "cluster-tls-key",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "FILE",
        help: "Private key of cluster-tls-cert (PEM)",
        access: optional!(cluster.tls_key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "cluster-replicas",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: CLUSTER,
        value_name: "COUNT",
        help: "Replicas of the purge stream if it is created here; 1 for a single NATS server",
        access: value!(cluster.replicas, parse = replicas, show = plain),
    },
    Setting {
        key: "cluster-stream",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "NAME",
        help: "Name and subject of the purge stream; created if missing",
        access: value!(cluster.stream, parse = name, show = |name: Name| name.to_string()),
    },
    Setting {
        key: "cluster-bucket",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "NAME",
        help: "Key-value bucket of the instances' heartbeats; created if missing",
        access: value!(cluster.bucket, parse = name, show = |name: Name| name.to_string()),
    },
    Setting {
        key: "cluster-secret",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "FILE",
        help: "File with a secret shared by all instances, to share certificates of acme-directory, their keys and the \
               account, sealed; the first line seals, each line opens; unset: each instance obtains its own",
        access: optional!(cluster.secret, parse = parse_path, show = path_text),
    },
    Setting {
        key: "cluster-certificates",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CLUSTER,
        value_name: "NAME",
        help: "Key-value bucket of the shared certificates; created if missing",
        access: value!(cluster.vault, parse = name, show = |name: Name| name.to_string()),
    },
];

fn servers(text: &str) -> Result<Vec<String>, String> {
    let servers: Vec<String> = list(text).map(str::to_owned).collect();
    if servers.len() > SERVERS_MAX {
        return Err(format!("too many servers: at most {SERVERS_MAX}"));
    }
    let is_one = |server: &String| {
        let host = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
        host.is_some_and(|host| !host.is_empty() && !host.ends_with('@'))
    };
    match servers.iter().find(|server| !is_one(server)) {
        Some(wrong) => Err(format!(
            "{}: expected a server of a NATS cluster, such as nats://nats-1.internal:4222 or tls://…",
            cluster::without_secret(wrong)
        )),
        None => Ok(servers),
    }
}

fn name(text: &str) -> Result<Name, String> {
    text.parse().map_err(|wrong: cluster::InvalidName| wrong.to_string())
}

fn replicas(text: &str) -> Result<usize, String> {
    match one_or_more(text)? {
        count @ ..=REPLICAS_MAX => Ok(count),
        _ => Err(format!("at most {REPLICAS_MAX}")),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let time = some_time(text)?;
    let right = LEASE_MIN..=LEASE_MAX;
    let words = || format!("from {} to {}", duration_text(LEASE_MIN), duration_text(LEASE_MAX));
    if right.contains(&time) { Ok(time) } else { Err(words()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[(&str, &str)]) -> Result<Option<Config>, String> {
        let mut settings = Settings::default();
        for (key, text) in lines {
            let setting = CLUSTER_SETTINGS.iter().find(|setting| setting.key == *key).expect("a setting");
            setting.set(&mut settings, text).map_err(|wrong| format!("{key}: {wrong}"))?;
        }
        settings.cluster.config(&settings).map_err(|fault| fault.to_string())
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

    #[test]
    fn a38_a_password_is_not_shown() {
        let mut settings = Settings::default();
        CLUSTER_SETTINGS[0].set(&mut settings, "nats://u:p@a:1").expect("an address");
        assert_eq!(CLUSTER_SETTINGS[0].text(&settings).as_deref(), Some("nats://***@a:1"));
    }
}
