//! Hubs to join: `leafnodes { remotes [ … ] }`. The feed does not accept leaf nodes, so the other options of
//! the block are ignored.

use super::{
    options::Reading,
    text::{Fault, LocatedValue},
    values::{Outcome, block, boolean, list, string, strings, unknown},
    words::{self, OF_LEAF_LISTENER, OF_LEAFNODES, OF_REMOTE, OF_REMOTE_HONOURED},
};
use crate::{
    accounts::identity::is_valid_pattern,
    leaf::{Address, Login, Remote, UserSeed},
};

/// Options of a remote that need no action: they only change how fast a hub is reached, or ask for what the
/// feed always does. Addresses are tried in order, and subscriptions of one hub are not announced to another.
const WITHOUT_EFFECT: [&str; 4] = ["no_randomize", "dont_randomize", "isolate_leafnode_interest", "isolate"];

impl Reading<'_> {
    pub(super) fn leafnodes(&mut self, value: &LocatedValue) -> Outcome {
        for entry in block(value)? {
            match entry.key.to_ascii_lowercase().as_str() {
                "remotes" => {
                    for remote in list(&entry.value)? {
                        let outcome = self.remote(remote);
                        self.note(outcome);
                    }
                }
                _ if entry.is_variable => {}
                word => {
                    if !OF_LEAF_LISTENER.contains(&word) {
                        let all = OF_LEAFNODES.iter().chain(OF_REMOTE_HONOURED).copied();
                        words::known(entry, word, "of leafnodes", OF_LEAFNODES, all)?;
                    }
                    self.pass_over(entry.line, format!("leafnodes.{}", entry.key));
                }
            }
        }
        Ok(())
    }

    fn remote(&mut self, value: &LocatedValue) -> Outcome {
        let mut remote = Remote::default();
        let mut is_disabled = false;
        let mut login_at = None;
        let entries = block(value)?;
        for entry in self.once(entries) {
            let value = &entry.value;
            let key = entry.key.to_ascii_lowercase();
            match key.as_str() {
                "url" | "urls" => {
                    let read = |text: String| {
                        text.parse::<Address>().map_err(|error| Fault::new(value.line, error.to_string()))
                    };
                    remote.addresses = strings(value)?.into_iter().map(read).collect::<Outcome<_>>()?;
                }
                "account" | "local" => remote.account = Some(string(value)?),
                "creds" | "credentials" | "nkey" | "seed" => {
                    if login_at.replace(entry.line).is_some() {
                        let message =
                            "a remote may have `credentials` or `nkey`, not both: credentials contain a key";
                        return Err(Fault::new(entry.line, message));
                    }
                    remote.login = login(&key, value)?;
                }
                "tls" => self.tls_of_remote(value, &mut remote)?,
                "deny_imports" | "deny_import" => remote.deny_imports = subjects(value)?,
                "deny_exports" | "deny_export" => remote.deny_exports = subjects(value)?,
                "disabled" => is_disabled = boolean(value)?,
                word if WITHOUT_EFFECT.contains(&word) => _ = boolean(value)?,
                _ if entry.is_variable => {}
                word => {
                    let all = OF_REMOTE.iter().chain(OF_REMOTE_HONOURED).chain(&WITHOUT_EFFECT).copied();
                    words::known(entry, word, "of a remote", OF_REMOTE, all)?;
                    self.pass_over(entry.line, format!("leafnodes.remotes.{}", entry.key));
                }
            }
        }
        if remote.addresses.is_empty() {
            let message =
                "a remote needs `url`, the hub's address, for instance nats-leaf://hub.example:7422";
            return Err(Fault::new(value.line, message));
        }
        if !is_disabled {
            self.options.hubs.push(remote);
        }
        Ok(())
    }

    fn tls_of_remote(&mut self, value: &LocatedValue, remote: &mut Remote) -> Outcome {
        let (mut certificate, mut key) = (None, None);
        for entry in block(value)? {
            let value = &entry.value;
            match entry.key.to_ascii_lowercase().as_str() {
                "cert_file" => certificate = Some(string(value)?.into()),
                "key_file" => key = Some(string(value)?.into()),
                "ca_file" => remote.tls_ca = Some(string(value)?.into()),
                "handshake_first" | "first" | "immediate" => remote.tls_handshake_first = boolean(value)?,
                // The hub's certificate is always verified.
                "verify" | "insecure" | "timeout" => {
                    self.pass_over(entry.line, format!("leafnodes.remotes.tls.{}", entry.key));
                }
                other => unknown(entry, other, "a remote's tls")?,
            }
        }
        remote.tls_pair = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(Fault::new(value.line, "`cert_file` and `key_file` must be set together")),
        };
        Ok(())
    }
}

fn login(key: &str, value: &LocatedValue) -> Outcome<Login> {
    let text = string(value)?;
    if matches!(key, "creds" | "credentials") {
        return Ok(Login::Credentials(text.into()));
    }
    // The value is not shown in the error, because it may be most of a seed.
    let wrong = || Fault::new(value.line, "invalid `nkey`: expected the seed of a user (SU…)");
    UserSeed::new(&text).map(Login::Seed).ok_or_else(wrong)
}

fn subjects(value: &LocatedValue) -> Outcome<Vec<String>> {
    let subjects = strings(value)?;
    match subjects.iter().find(|subject| !is_valid_pattern(subject)) {
        Some(wrong) => Err(Fault::new(
            value.line,
            format!("invalid subject pattern `{wrong}`; expected a pattern such as orders.>"),
        )),
        None => Ok(subjects),
    }
}
