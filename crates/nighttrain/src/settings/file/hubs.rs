//! The hubs of a configuration file that the feed joins as a leaf node, `[[feed.leaf-remote]]`.

use std::{ops::Range, path::PathBuf};

use feed::leaf::{Login, REMOTES_MAX, Remote};
use toml::de::DeTable;

use super::{FileReader, sites::Value, text_of, unknown};
use crate::settings::{ValueShape, feed_settings::addresses, truth};

const HEADING: &str = "[[feed.leaf-remote]]";

/// Keys of a hub.
const OF_HUBS: [(&str, ValueShape); 10] = [
    ("urls", ValueShape::Texts),
    ("account", ValueShape::Text),
    ("credentials", ValueShape::Text),
    ("nkey", ValueShape::Text),
    ("tls-ca", ValueShape::Text),
    ("tls-cert", ValueShape::Text),
    ("tls-key", ValueShape::Text),
    ("tls-handshake-first", ValueShape::Flag),
    ("deny-imports", ValueShape::Texts),
    ("deny-exports", ValueShape::Texts),
];

impl FileReader<'_> {
    /// Reads the hubs from the key `leaf-remote` of `[feed]`; returns false for any other key.
    pub(super) fn has_read_hubs(&mut self, name: &str, value: Value<'_, '_>) -> bool {
        if name != "leaf-remote" {
            return false;
        }
        let tables = self.tables(value, HEADING);
        if let Some((_, span)) = tables.get(REMOTES_MAX) {
            self.fault(span, format!("too many hubs: at most {REMOTES_MAX}"));
        }
        for (table, span) in tables.into_iter().take(REMOTES_MAX) {
            let hub = self.hub(table, &span);
            self.sites.hubs.extend(hub);
        }
        true
    }

    fn hub(&mut self, table: &DeTable<'_>, span: &Range<usize>) -> Option<Remote> {
        let before = self.faults.len();
        let mut remote = Remote::default();
        let (mut credentials, mut nkey, mut pair) = (None, None, (None, None));
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let Some((name, shape)) = OF_HUBS.into_iter().find(|(known, _)| *known == name) else {
                self.fault(&key.span(), unknown(name, OF_HUBS.into_iter().map(|(known, _)| known)));
                continue;
            };
            let set = text_of(value.get_ref(), shape).and_then(|text| {
                let path = || Some(PathBuf::from(&text));
                match name {
                    "urls" => remote.addresses = addresses(&text)?,
                    "account" => remote.account = Some(text),
                    "credentials" => credentials = path(),
                    "nkey" => nkey = path(),
                    "tls-ca" => remote.tls_ca = path(),
                    "tls-cert" => pair.0 = path(),
                    "tls-key" => pair.1 = path(),
                    "tls-handshake-first" => remote.tls_handshake_first = truth(&text)?,
                    "deny-imports" => remote.deny_imports = subjects(&text)?,
                    _ => remote.deny_exports = subjects(&text)?,
                }
                Ok(())
            });
            if let Err(message) = set {
                self.fault(&value.span(), format!("{name}: {message}"));
            }
        }
        if !table.iter().any(|(key, _)| key.get_ref().as_ref() == "urls") {
            self.fault(
                span,
                "urls: missing; set the hub's addresses, for instance urls = [\"nats-leaf://hub.example:7422\"]".to_owned(),
            );
        }
        remote.login = match (credentials, nkey) {
            (Some(_), Some(_)) => {
                self.fault(
                    span,
                    "credentials: contain a key already; nkey is for a key without a JWT".to_owned(),
                );
                Login::None
            }
            (Some(credentials), None) => Login::Credentials(credentials),
            (None, Some(nkey)) => Login::Nkey(nkey),
            (None, None) => Login::None,
        };
        remote.tls_pair = match pair {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                self.fault(span, "tls-cert: must be set together with tls-key".to_owned());
                None
            }
        };
        (self.faults.len() == before).then_some(remote)
    }
}

/// Parses patterns separated by commas.
fn subjects(text: &str) -> Result<Vec<String>, String> {
    let one = |text: &str| {
        let subject = text.trim().to_owned();
        let is_valid = feed::identity::is_valid_pattern(&subject);
        is_valid
            .then_some(subject)
            .ok_or_else(|| format!("invalid subject pattern `{text}`; expected a pattern such as orders.>"))
    };
    text.split(',').map(one).collect()
}

/// Returns the rows that `config --print` shows for a hub.
pub(crate) fn rows_of_hub(remote: &Remote) -> Vec<(&'static str, String, ValueShape)> {
    let path = |path: &PathBuf| path.display().to_string();
    let (credentials, nkey) = match &remote.login {
        Login::None => (None, None),
        Login::Credentials(file) => (Some(path(file)), None),
        Login::Nkey(file) => (None, Some(path(file))),
        Login::Seed(_) => (None, Some("***".to_owned())),
    };
    let pair = remote.tls_pair.as_ref();
    let texts = [
        Some(crate::settings::feed_settings::addresses_text(&remote.addresses)),
        remote.account.clone(),
        credentials,
        nkey,
        remote.tls_ca.as_ref().map(path),
        pair.map(|(certificate, _)| path(certificate)),
        pair.map(|(_, key)| path(key)),
        remote.tls_handshake_first.then(|| "true".to_owned()),
        (!remote.deny_imports.is_empty()).then(|| remote.deny_imports.join(",")),
        (!remote.deny_exports.is_empty()).then(|| remote.deny_exports.join(",")),
    ];
    let rows = OF_HUBS.into_iter().zip(texts);
    rows.filter_map(|((key, shape), text)| text.map(|text| (key, text, shape))).collect()
}

#[cfg(test)]
mod tests {
    use crate::settings::file::values;

    #[test]
    fn f9_hub_faults_name_place_and_expectation() {
        let text = "[[feed.leaf-remote]]\nurls = [\"http://a\"]\naccount = 5\n[[feed.leaf-remote]]\nurl = \"b\"\n\
                    [[feed.leaf-remote]]\nurls = []\ncredentials = \"c\"\nnkey = \"d\"\n[[feed.leaf-remote]]\n\
                    urls = [\"nats-leaf://a\", \"ws://b\"]\ntls-cert = \"e\"\n[feed]\nleaf-remotes = 1\n";
        let (_, said, faults) = values("n.toml", text);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "n.toml:2:8: urls: unsupported scheme http:// for a hub; expected nats-leaf://, tls://, ws:// or wss://",
                "n.toml:3:11: account: expected a string in quotes",
                "n.toml:4:1: urls: missing; set the hub's addresses, for instance urls = [\"nats-leaf://hub.example:7422\"]",
                "n.toml:5:1: unknown key `url`; perhaps `urls`",
                "n.toml:6:1: credentials: contain a key already; nkey is for a key without a JWT",
                "n.toml:7:8: urls: expected 1 to 64 addresses",
                "n.toml:10:1: tls-cert: must be set together with tls-key",
                "n.toml:11:8: urls: the addresses of a hub must all be WebSocket addresses, or none",
                "n.toml:14:1: unknown key `leaf-remotes`; perhaps [[feed.leaf-remote]]",
            ]
        );
        assert!(said.hubs.is_empty());
    }

    #[test]
    fn f9_hubs_are_read() {
        let text = "[[feed.leaf-remote]]\nurls = [\"nats-leaf://u:p@a\", \"tls://b:9\"]\naccount = \"A\"\n\
                    credentials = \"/c\"\ntls-ca = \"/ca\"\ntls-cert = \"/e\"\ntls-key = \"/k\"\ntls-handshake-first = true\n\
                    deny-imports = [\"a.>\", \"b\"]\ndeny-exports = [\"c\"]\n";
        let (_, said, faults) = values("n.toml", text);
        assert_eq!(faults, []);
        let [hub] = &said.hubs[..] else { panic!("one hub") };
        assert_eq!(
            hub.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["nats-leaf://a:7422", "tls://b:9"]
        );
        let rows = super::rows_of_hub(hub);
        let keys: Vec<&str> = rows.iter().map(|(key, ..)| *key).collect();
        assert_eq!(
            keys,
            [
                "urls",
                "account",
                "credentials",
                "tls-ca",
                "tls-cert",
                "tls-key",
                "tls-handshake-first",
                "deny-imports",
                "deny-exports"
            ]
        );
        assert_eq!((rows[7].1.as_str(), rows[8].1.as_str()), ("a.>,b", "c"));
        assert_eq!(rows[0].1, "nats-leaf://u:***@a:7422,tls://b:9", "no password is shown");
    }
}
