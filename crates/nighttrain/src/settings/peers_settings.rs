//! What can be set of the accelerators that share keys with this one.

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

const PEERS: &str = "Several accelerators, one fetch";
/// Where peers are asked where no port is said.
const PORT: u16 = 6080;
/// The shortest patience.
const PATIENCE_MIN: Duration = Duration::from_millis(300);
/// Characters of a name, as a cluster's.
const NAME_CHARS_MAX: usize = 64;

/// What was said of them.
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
    /// Where others are told that they find this one; empty: there can be none.
    pub(crate) fn told_address(&self) -> String {
        let of_listen = || self.listen.map(|listen| listen.to_string()).unwrap_or_default();
        self.address.clone().filter(|_| self.listen.is_some()).unwrap_or_else(of_listen)
    }

    /// The rules; `None`: it shares no keys. `cluster` is the one that it is of, which knows who else is there.
    ///
    /// # Errors
    /// Settings that do not go together, or a secret that cannot be read.
    pub(crate) fn rules(&self, cluster: Option<&ClusterConfig>) -> Result<Option<PeerRules>, Fault> {
        let fault = |place: &str, message: String| Fault { place: place.to_owned(), message };
        let Some(listen) = self.listen else {
            if *self == Self::default() {
                return Ok(None);
            }
            let message = "is missing: where do the others ask this one, which the other peers- settings are for? For \
                           instance 10.0.0.1:6080";
            return Err(fault("peers-listen", message.to_owned()));
        };
        let secret = self.secret.as_deref().ok_or_else(|| {
            let message = "is missing: a file with the secret by which they know each other; \
                           `head -c 24 /dev/urandom | base64` makes a good one";
            fault("peers-secret", message.to_owned())
        })?;
        let secret = read_token("peers-secret", secret).map_err(|message| fault("peers-secret", message))?;
        let address = self.told_address();
        if self.address.is_none() && listen.ip().is_unspecified() {
            let message = format!("is missing: {listen} is no address that the others could ask at");
            return Err(fault("peers-address", message));
        }
        let (name, members) = match (cluster, &self.members[..]) {
            (Some(_), [_, ..]) => {
                let message = "the cluster says who is there; leave them out, or leave out cluster";
                return Err(fault("peers-members", message.to_owned()));
            }
            (Some(cluster), []) => {
                let name = cluster.name.to_string();
                (name.clone(), vec![PeerAt { name, address }])
            }
            (None, []) => {
                let message = "is missing: who else is there? Such as web1=10.0.0.1:6080,web2=10.0.0.2:6080, the same on \
                               each; or cluster, which knows";
                return Err(fault("peers-members", message.to_owned()));
            }
            (None, members) => {
                let own = members.iter().find(|member| member.address == address).ok_or_else(|| {
                    fault("peers-members", format!("none of them is this one, which they ask at {address}"))
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

/// The settings of peers.
pub(crate) const PEERS_SETTINGS: &[Setting] = &[
    Setting {
        key: "peers-listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: PEERS,
        value_name: "ADDRESS",
        help: "Where the other accelerators ask this one for what is its own, before they ask the origin: an address of a \
               network that only they are in; unset: each fetches for itself",
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
        help: "All of them, this one too, where there is no cluster that says who is there",
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
        help: "File with the secret of the peers, the same on each",
        access: optional!(peers.secret, parse = parse_path, show = path_text),
    },
    Setting {
        key: "peers-patience",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: PEERS,
        value_name: "TIME",
        help: "For how long one may say nothing (while it waits for the origin it says so ten times a second) before the \
               origin is asked and it is left out for a while",
        access: value!(peers.patience, parse = patience, show = duration_text),
    },
    Setting {
        key: "peers-connections-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: PEERS,
        value_name: "COUNT",
        help: "Connections of a core to each peer; beyond that the origin is asked",
        access: value!(peers.connections_max, parse = one_or_more, show = plain),
    },
    Setting {
        key: "peers-requests-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: PEERS,
        value_name: "COUNT",
        help: "Requests of peers served at once; beyond that they are sent to the origin",
        access: value!(peers.requests_max, parse = one_or_more, show = plain),
    },
];

fn patience(text: &str) -> Result<Duration, String> {
    let time = some_time(text)?;
    if time < PATIENCE_MIN {
        let least = duration_text(PATIENCE_MIN);
        return Err(format!("at least {least}: one that waits says so each tenth of a second"));
    }
    Ok(time)
}

/// A host and a port.
fn address(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) && !host.contains(['/', '@', '=', ' ']) => {
            Ok(text.to_owned())
        }
        _ => Err(format!("{text:?}: an address is such as web1.internal:{PORT} or 10.0.0.1:{PORT}")),
    }
}

fn members(text: &str) -> Result<Vec<PeerAt>, String> {
    let mut members: Vec<PeerAt> = Vec::new();
    for one in list(text) {
        let (name, at) =
            one.split_once('=').ok_or_else(|| format!("{one:?}: one is such as web1=10.0.0.1:{PORT}"))?;
        let is_one = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if !(1..=NAME_CHARS_MAX).contains(&name.len()) || !name.chars().all(is_one) {
            return Err(format!("{name:?}: a name has 1 to 64 letters, digits, - and _"));
        }
        let at = PeerAt { name: name.to_owned(), address: address(at)? };
        if members.iter().any(|other| other.name == at.name || other.address == at.address) {
            return Err(format!("{one}: its name or its address is there already"));
        }
        members.push(at);
    }
    if members.len() > PEERS_MAX { Err(format!("at most {PEERS_MAX} are taken")) } else { Ok(members) }
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
            (&[listen, secret, members], Some(&cluster), "the cluster says who is there"),
            (&[listen, secret, ("peers-members", "a=b:1")], None, "none of them is this one"),
            (&[("peers-listen", "0.0.0.0:6080"), secret, members], None, "peers-address: is missing"),
            (&[listen, members, ("peers-secret", "/nowhere")], None, "cannot be read"),
            (&[("peers-members", "a=b:1,a=c:1")], None, "there already"),
            (&[("peers-members", "a")], None, "one is such as"),
            (&[("peers-members", "a.b=c:1")], None, "a name has"),
            (&[("peers-address", "http://a:1/")], None, "an address is such as"),
            (&[("peers-address", "a:0")], None, "an address is such as"),
            (&[("peers-connections-max", "0")], None, "peers-connections-max"),
            (&[("peers-patience", "100ms")], None, "at least 300ms"),
        ] {
            let wrong = said(lines, cluster).expect_err(says);
            assert!(wrong.contains(says), "{wrong}");
        }
    }
}
