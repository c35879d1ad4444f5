//! Settings for the peers with which this accelerator shares cache keys.

use std::time::Duration;

use cache::{PEERS_MAX, PeerAt};

use crate::settings::{
    Group, Section, Setting, access, list, list_text, one_or_more, optional, optional_path, parse_address,
    plain, some_time, units::duration_text, value,
};

const PEERS: Group = Group { section: Section::Cache, heading: "Peers: accelerators that share fetches" };
/// Default port of peers.
const PORT: u16 = 6080;
/// Minimum time to wait for a peer's answer.
const PATIENCE_MIN: Duration = Duration::from_millis(300);
/// Maximum length of a name in characters, as in a cluster.
const NAME_CHARS_MAX: usize = 64;

/// Settings table of peers.
pub(crate) const PEERS_SETTINGS: &[Setting] = &[
    PEERS.text(
        "peers-listen",
        "ADDRESS",
        "Address where the other accelerators request keys that this one owns, before they ask the origin; \
         put it on a network that only they can reach; unset: each instance fetches for itself",
        optional!(peers.listen, parse = |text| parse_address(text, PORT), show = ToString::to_string),
    ),
    PEERS.text(
        "peers-address",
        "HOST:PORT",
        "Address announced to peers; unset: peers-listen",
        optional!(peers.address, parse = address, show = Clone::clone),
    ),
    PEERS.texts(
        "peers-members",
        "NAME=ADDRESS,…",
        "All peers, including this one, if no cluster lists them",
        access!(peers.members, parse = members, show = members_text),
    ),
    PEERS.text(
        "peers-secret",
        "FILE",
        "File with the peers' shared secret, the same on each",
        optional_path!(peers.secret),
    ),
    PEERS.text(
        "peers-patience",
        "TIME",
        "Time that a peer may be silent (while it waits for the origin it sends a sign ten times a second) \
         before the origin is asked and the peer is out of use for a while",
        value!(peers.patience, parse = patience, show = duration_text),
    ),
    PEERS.count(
        "peers-connections-max",
        "COUNT",
        "Connections per core to each peer; requests beyond that go to the origin",
        value!(peers.connections_max, parse = one_or_more, show = plain),
    ),
    PEERS.count(
        "peers-requests-max",
        "COUNT",
        "Requests of peers served at once; peers send further ones to the origin",
        value!(peers.requests_max, parse = one_or_more, show = plain),
    ),
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
            format!("invalid member {one:?}: expected NAME=ADDRESS, such as web1=10.0.0.1:{PORT}")
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

fn members_text(members: &[PeerAt]) -> Option<String> {
    let shown: Vec<_> = members.iter().map(|one| format!("{}={}", one.name, one.address)).collect();
    list_text(&shown)
}
