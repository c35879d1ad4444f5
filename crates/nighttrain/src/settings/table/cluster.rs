//! Settings of the cluster through which several accelerators share their purges.

use std::time::Duration;

use cluster::{LEASE_MAX, LEASE_MIN, Name, WhenCutOff};

use crate::settings::{
    Group, Section, Setting, access, list, list_text, named, one_or_more, optional, optional_path, plain,
    some_time, units::duration_text, value,
};

const CLUSTER: Group =
    Group { section: Section::Cache, heading: "Cluster of accelerators (NATS with JetStream)" };
/// Maximum number of servers that can be named.
const SERVERS_MAX: usize = 64;
/// Maximum number of replicas that JetStream allows.
const REPLICAS_MAX: usize = 5;

/// Settings table of the cluster.
pub(crate) const CLUSTER_SETTINGS: &[Setting] = &[
    CLUSTER.texts(
        "cluster",
        "URL,…",
        "NATS servers with JetStream through which accelerators share purges, such as \
         nats://nats-1.internal:4222 (also tls://, and USER:PASSWORD@ or TOKEN@ before the host), tried in \
         turn",
        access!(cluster.servers, parse = servers, show = servers_text),
    ),
    CLUSTER.text(
        "cluster-name",
        "NAME",
        "Name of this instance, unique in the cluster; unset: the machine's name",
        optional!(cluster.name, parse = name, show = ToString::to_string),
    ),
    CLUSTER.text(
        "cluster-lease",
        "TIME",
        "Lease: how long an instance may serve stored objects without contact to the cluster, and how long a \
         purge waits for an instance that is cut off",
        value!(cluster.lease, parse = lease, show = duration_text),
    ),
    CLUSTER.text(
        "cluster-when-cut-off",
        "HOW",
        "When the lease has run out: revalidate (stored objects are revalidated with the origin before use) \
         or serve (they are served, perhaps after a purge; purges do not wait for this instance)",
        named!(cluster.when_cut_off, [("revalidate", WhenCutOff::Revalidate), ("serve", WhenCutOff::Serve)]),
    ),
    CLUSTER.text(
        "cluster-credentials",
        "FILE",
        "Credentials file for the NATS cluster (.creds: a user's JWT and seed), read at each connection",
        optional_path!(cluster.credentials),
    ),
    CLUSTER.text(
        "cluster-nkey",
        "FILE",
        "nkey seed file for the NATS cluster, read at each connection",
        optional_path!(cluster.nkey),
    ),
    CLUSTER.text(
        "cluster-tls-ca",
        "FILE",
        "CA certificates to trust for the NATS cluster (PEM); unset: the system's",
        optional_path!(cluster.tls_ca),
    ),
    CLUSTER.text(
        "cluster-tls-cert",
        "FILE",
        "Client certificate for the NATS cluster (PEM), if it requires one",
        optional_path!(cluster.tls_cert),
    ),
    CLUSTER.text(
        "cluster-tls-key",
        "FILE",
        "Private key of cluster-tls-cert (PEM)",
        optional_path!(cluster.tls_key),
    ),
    CLUSTER.count(
        "cluster-replicas",
        "COUNT",
        "Replicas of the purge stream if it is created here; 1 for a single NATS server",
        value!(cluster.replicas, parse = replicas, show = plain),
    ),
    CLUSTER.text(
        "cluster-stream",
        "NAME",
        "Name and subject of the purge stream; created if missing",
        value!(cluster.stream, parse = name, show = plain),
    ),
    CLUSTER.text(
        "cluster-bucket",
        "NAME",
        "Key-value bucket of the instances' heartbeats; created if missing",
        value!(cluster.bucket, parse = name, show = plain),
    ),
    CLUSTER.text(
        "cluster-secret",
        "FILE",
        "File with a secret shared by all instances, to share certificates of acme-directory, their keys and \
         the account, sealed; the first line seals, each line opens; unset: each instance obtains its own",
        optional_path!(cluster.secret),
    ),
    CLUSTER.text(
        "cluster-certificates",
        "NAME",
        "Key-value bucket of the shared certificates; created if missing",
        value!(cluster.vault, parse = name, show = plain),
    ),
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

/// Formats the servers without passwords and tokens; `None` if there are none.
fn servers_text(servers: &[String]) -> Option<String> {
    let shown: Vec<_> = servers.iter().map(|server| cluster::without_secret(server)).collect();
    list_text(&shown)
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
    use crate::settings::Settings;

    #[test]
    fn a38_a_password_is_not_shown() {
        let mut settings = Settings::default();
        CLUSTER_SETTINGS[0].set(&mut settings, "nats://u:p@a:1").expect("an address");
        assert_eq!(CLUSTER_SETTINGS[0].text(&settings).as_deref(), Some("nats://***@a:1"));
    }
}
