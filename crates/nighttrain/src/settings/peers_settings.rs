//! Settings for the peers with which this accelerator shares cache keys.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use cache::{PeerAt, PeerRules};
use cluster::Config as ClusterConfig;

use crate::{admin::read_token, failure::Fault};

/// Configured settings of peers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeersSettings {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) address: Option<String>,
    pub(crate) members: Vec<PeerAt>,
    pub(crate) secret: Option<PathBuf>,
    pub(crate) patience: Duration,
    pub(crate) connections_max: usize,
    pub(crate) requests_max: usize,
}

impl Default for PeersSettings {
    fn default() -> Self {
        Self {
            listen: None,
            address: None,
            members: Vec::new(),
            secret: None,
            patience: Duration::from_millis(500),
            connections_max: 64,
            requests_max: 1024,
        }
    }
}

impl PeersSettings {
    /// Returns the address at which other accelerators reach this one; empty if keys are not shared.
    pub(crate) fn told_address(&self) -> String {
        let of_listen = || self.listen.map(|listen| listen.to_string()).unwrap_or_default();
        self.address.clone().filter(|_| self.listen.is_some()).unwrap_or_else(of_listen)
    }

    /// Builds the rules for peers; `None` if this accelerator shares no keys with others. `cluster` is its
    /// cluster, which knows the other members.
    ///
    /// # Errors
    /// Returns a `Fault` for settings that contradict each other, or a secret that cannot be read.
    pub(crate) fn rules(&self, cluster: Option<&ClusterConfig>) -> Result<Option<PeerRules>, Fault> {
        let fault = |place: &str, message: String| Fault { place: place.to_owned(), message };
        let Some(listen) = self.listen else {
            if *self == Self::default() {
                return Ok(None);
            }
            let message = "is missing: set the address where peers connect to this instance, which the other peers- \
                           settings need, for instance 10.0.0.1:6080";
            return Err(fault("peers-listen", message.to_owned()));
        };
        let secret = self.secret.as_deref().ok_or_else(|| {
            let message = "is missing: set a file with the peers' shared secret; create one with `head -c 24 \
                           /dev/urandom | base64`";
            fault("peers-secret", message.to_owned())
        })?;
        let secret = read_token("peers-secret", secret).map_err(|message| fault("peers-secret", message))?;
        let address = self.told_address();
        if self.address.is_none() && listen.ip().is_unspecified() {
            let message = format!("is missing: {listen} is not an address that peers could connect to");
            return Err(fault("peers-address", message));
        }
        let (name, members) = match (cluster, &self.members[..]) {
            (Some(_), [_, ..]) => {
                let message = "the cluster lists the members already; leave out this, or cluster";
                return Err(fault("peers-members", message.to_owned()));
            }
            (Some(cluster), []) => {
                let name = cluster.name.to_string();
                (name.clone(), vec![PeerAt { name, address }])
            }
            (None, []) => {
                let message = "is missing: list the members, such as web1=10.0.0.1:6080,web2=10.0.0.2:6080, the same \
                               on each instance; or set cluster, which lists them";
                return Err(fault("peers-members", message.to_owned()));
            }
            (None, members) => {
                let own = members.iter().find(|member| member.address == address).ok_or_else(|| {
                    fault("peers-members", format!("no member has the address of this instance, {address}"))
                })?;
                (own.name.clone(), members.to_vec())
            }
        };
        Ok(Some(PeerRules {
            listen,
            name,
            members,
            secret: secret.to_peers(),
            patience: self.patience,
            connections_max: self.connections_max,
            requests_max: self.requests_max,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::settings::{Section, Settings, in_section};

    fn said(lines: &[(&str, &str)], cluster: Option<&ClusterConfig>) -> Result<Option<PeerRules>, String> {
        let mut settings = Settings::default();
        for (key, text) in lines {
            let (_, setting) = in_section(Section::Cache, key).expect("a setting");
            setting.set(&mut settings, text).map_err(|wrong| format!("{key}: {wrong}"))?;
        }
        settings.peers.rules(cluster).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a38_what_does_not_go_together_is_said() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"a-secret-of-twenty-four!\n").expect("written");
        let secret = ("peers-secret", file.path().to_str().expect("a path"));
        let listen = ("peers-listen", "10.0.0.1:6080");
        let members = ("peers-members", "web1=10.0.0.1:6080, web2=web2.internal:6080");
        let cluster = ClusterConfig::new(vec!["nats://a".to_owned()], "web7".parse().expect("a name"));
        assert_eq!(said(&[], None), Ok(None));
        assert_eq!(said(&[], Some(&cluster)), Ok(None));
        let rules = said(&[listen, members, secret], None).expect("right").expect("peers");
        assert_eq!((rules.name.as_str(), rules.members.len()), ("web1", 2));
        let rules = said(&[listen, secret], Some(&cluster)).expect("right").expect("peers");
        let own = PeerAt { name: "web7".to_owned(), address: "10.0.0.1:6080".to_owned() };
        assert_eq!((rules.name.as_str(), &rules.members[..]), ("web7", &[own][..]));
        for (lines, cluster, says) in [
            (&[secret][..], None, "peers-listen: is missing"),
            (&[listen, members], None, "peers-secret: is missing"),
            (&[listen, secret], None, "peers-members: is missing"),
            (&[listen, secret, members], Some(&cluster), "the cluster lists the members"),
            (&[listen, secret, ("peers-members", "a=b:1")], None, "no member has the address"),
            (&[("peers-listen", "0.0.0.0:6080"), secret, members], None, "peers-address: is missing"),
            (&[listen, members, ("peers-secret", "/nowhere")], None, "cannot be read"),
            (&[("peers-members", "a=b:1,a=c:1")], None, "duplicate"),
            (&[("peers-members", "a")], None, "invalid member"),
            (&[("peers-members", "a.b=c:1")], None, "invalid name"),
            (&[("peers-address", "http://a:1/")], None, "invalid address"),
            (&[("peers-address", "a:0")], None, "invalid address"),
            (&[("peers-connections-max", "0")], None, "peers-connections-max"),
            (&[("peers-patience", "100ms")], None, "at least 300ms"),
        ] {
            let wrong = said(lines, cluster).expect_err(says);
            assert!(wrong.contains(says), "{wrong}");
        }
    }
}
