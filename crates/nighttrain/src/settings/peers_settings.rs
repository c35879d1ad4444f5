//! Settings for the peers with which this accelerator shares cache keys.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use cache::{PEERS_MAX, PeerAt, PeerRules};
use cluster::Config as ClusterConfig;

use crate::{
    admin::read_token,
    failure::Fault,
    settings::{
        Section, Setting, ValueAccess, ValueShape, list, one_or_more, optional, parse_address, parse_path,
        path_text, plain, some_time, units::duration_text, value,
    },
};

const PEERS: &str = "Peers: accelerators that share fetches";
/// Default port of peers.
const PORT: u16 = 6080;
/// Minimum time to wait for a peer's answer.
const PATIENCE_MIN: Duration = Duration::from_millis(300);
/// Maximum length of a name in characters, as in a cluster.
const NAME_CHARS_MAX: usize = 64;

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

/// Settings table of peers.
pub(crate) const PEERS_SETTINGS: &[Setting] = &[
    Setting {
        key: "peers-listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: PEERS,
        value_name: "ADDRESS",
        help: "Address where the other accelerators request keys that this one owns, before they ask the origin; put \
               it on a network that only they can reach; unset: each instance fetches for itself",
        access: optional!(peers.listen, parse = |text| parse_address(text, PORT), show = ToString::to_string),
    },
    Setting {
        key: "peers-address",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: PEERS,
        value_name: "HOST:PORT",
        help: "Address announced to peers; unset: peers-listen",
        access: optional!(peers.address, parse = address, show = Clone::clone),
    },
    Setting {
        key: "peers-members",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: PEERS,
        value_name: "NAME=ADDRESS,…",
        help: "All peers, including this one, if no cluster lists them",
        access: ValueAccess {
            set: |settings, text| {
                settings.peers.members = members(text)?;
                Ok(())
            },
            text: |settings| {
                let shown = settings.peers.members.iter().map(|one| format!("{}={}", one.name, one.address));
                let shown: Vec<_> = shown.collect();
                (!shown.is_empty()).then(|| shown.join(","))
            },
        },
    },
    Setting {
        key: "peers-secret",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: PEERS,
        value_name: "FILE",
        help: "File with the peers' shared secret, the same on each",
        access: optional!(peers.secret, parse = parse_path, show = path_text),
    },
    Setting {
        key: "peers-patience",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: PEERS,
        value_name: "TIME",
        help: "Time that a peer may be silent (while it waits for the origin it sends a sign ten times a second) \
               before the origin is asked and the peer is out of use for a while",
        access: value!(peers.patience, parse = patience, show = duration_text),
    },
    Setting {
        key: "peers-connections-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: PEERS,
        value_name: "COUNT",
        help: "Connections per core to each peer; requests beyond that go to the origin",
        access: value!(peers.connections_max, parse = one_or_more, show = plain),
    },
    Setting {
        key: "peers-requests-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: PEERS,
        value_name: "COUNT",
        help: "Requests of peers served at once; peers send further ones to the origin",
        access: value!(peers.requests_max, parse = one_or_more, show = plain),
    },
];

fn patience(text: &str) -> Result<Duration, String> {
    let time = some_time(text)?;
    if time < PATIENCE_MIN {
        let least = duration_text(PATIENCE_MIN);
        return Err(format!("at least {least}: a waiting peer sends a sign each tenth of a second"));
    }
    Ok(time)
}

/// Checks that the text is a host and a port.
fn address(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) && !host.contains(['/', '@', '=', ' ']) => {
            Ok(text.to_owned())
        }
        _ => Err(format!("invalid address {text:?}: expected web1.internal:{PORT} or 10.0.0.1:{PORT}")),
    }
}

fn members(text: &str) -> Result<Vec<PeerAt>, String> {
    let mut members: Vec<PeerAt> = Vec::new();
    for one in list(text) {
        let (name, at) = one.split_once('=').ok_or_else(|| {
            format!(
                "invalid member {one:?}: expected NAME=ADDRESS, such as \
                                                       web1=10.0.0.1:{PORT}"
            )
        })?;
        let is_one = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if !(1..=NAME_CHARS_MAX).contains(&name.len()) || !name.chars().all(is_one) {
            return Err(format!("invalid name {name:?}: it has 1 to 64 letters, digits, - and _"));
        }
        let at = PeerAt { name: name.to_owned(), address: address(at)? };
        if members.iter().any(|other| other.name == at.name || other.address == at.address) {
            return Err(format!("{one}: duplicate name or address"));
        }
        members.push(at);
    }
    if members.len() > PEERS_MAX {
        Err(format!("too many members: at most {PEERS_MAX}"))
    } else {
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::settings::Settings;

    fn said(lines: &[(&str, &str)], cluster: Option<&ClusterConfig>) -> Result<Option<PeerRules>, String> {
        let mut settings = Settings::default();
        for (key, text) in lines {
            let setting = PEERS_SETTINGS.iter().find(|setting| setting.key == *key).expect("a setting");
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
