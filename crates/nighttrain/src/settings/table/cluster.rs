//! Settings of the cluster through which several accelerators share their purges.

use std::time::Duration;

use cluster::{LEASE_MAX, LEASE_MIN, Name, WhenCutOff};

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, list, one_or_more, optional, parse_path, path_text, plain,
    some_time, units::duration_text, value,
};

const CLUSTER: &str = "Cluster of accelerators (NATS with JetStream)";
/// Maximum number of servers that can be named.
const SERVERS_MAX: usize = 64;
/// Maximum number of replicas that JetStream allows.
const REPLICAS_MAX: usize = 5;

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
    use crate::settings::Settings;

    #[test]
    fn a38_a_password_is_not_shown() {
        let mut settings = Settings::default();
        CLUSTER_SETTINGS[0].set(&mut settings, "nats://u:p@a:1").expect("an address");
        assert_eq!(CLUSTER_SETTINGS[0].text(&settings).as_deref(), Some("nats://***@a:1"));
    }
}
