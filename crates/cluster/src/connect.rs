//! Connection to the cluster. This module reconnects by itself instead of leaving that to the library, so
//! that each failure is reported with its cause, and a silent connection is dropped when an expected answer
//! is overdue, not when TCP times out.

use std::{fs, sync::Arc, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use engine::cores::clock;
use tokio::sync::Notify;
use wire::nats::credentials::{expires, parts};

use crate::{
    config::{Config, Login},
    keeper::Fault,
};

/// Shortest and longest time limit of a connection attempt.
const WITHIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// A connection, and a signal for its end.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) gone: Arc<Notify>,
}

/// Connects to the first server that accepts, beginning at a random one, so that many instances do not all
/// use the same server.
pub(crate) async fn connect(config: &Config) -> Result<Connection, Fault> {
    let first = engine::random::number().map_or(0, |number| number as usize % config.servers.len().max(1));
    let (before, behind) = config.servers.split_at(first);
    let mut fault = Fault::Cannot("no server is configured".to_owned());
    for server in behind.iter().chain(before) {
        match connect_to(server, config).await {
            Ok(connection) => return Ok(connection),
            Err(Fault::Cannot(why)) => fault = Fault::Cannot(format!("{}: {why}", without_secret(server))),
            Err(other) => fault = other,
        }
    }
    Err(fault)
}

async fn connect_to(server: &str, config: &Config) -> Result<Connection, Fault> {
    let gone = Arc::new(Notify::new());
    let of_events = Arc::clone(&gone);
    // The library makes a single attempt; reconnecting is done here.
    let mut options = ConnectOptions::new()
        .name(format!("nighttrain {}", config.name))
        .connection_timeout((config.lease / 3).clamp(WITHIN.0, WITHIN.1))
        .ping_interval(config.lease.max(Duration::from_secs(1)))
        .max_reconnects(1)
        .reconnect_delay_callback(|_| Duration::ZERO)
        .ignore_discovered_servers()
        .event_callback(move |event| {
            let gone = Arc::clone(&of_events);
            async move {
                if matches!(event, Event::Disconnected | Event::Closed | Event::LameDuckMode) {
                    gone.notify_one();
                }
            }
        });
    let address: ServerAddr =
        server.parse().map_err(|error| Fault::Cannot(format!("invalid address: {error}")))?;
    options = match (address.username(), address.password()) {
        (Some(user), Some(password)) => options.user_and_password(user.to_owned(), password.to_owned()),
        (Some(token), None) => options.token(token.to_owned()),
        _ => options,
    };
    let read = |path: &std::path::Path| {
        fs::read_to_string(path).map_err(|error| Fault::Cannot(format!("{}: {error}", path.display())))
    };
    match &config.login {
        Login::None => {}
        Login::Credentials(path) => {
            let text = read(path)?;
            let wrong = |error: &dyn std::fmt::Display| Fault::Cannot(format!("{}: {error}", path.display()));
            // A server refuses an expired JWT without giving the reason.
            let expired = parts(&text).next().and_then(expires).filter(|at| *at <= clock::now_system());
            if let Some(at) = expired {
                let at = humantime::format_rfc3339_seconds(at);
                return Err(wrong(&format!("the user's JWT expired at {at}: a new one is needed")));
            }
            options = options.credentials(&text).map_err(|error| wrong(&error))?;
        }
        Login::Nkey(path) => {
            let text = read(path)?;
            let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
            let none = || Fault::Cannot(format!("{}: no user nkey seed in the file", path.display()));
            options = options.nkey(seed.ok_or_else(none)?.to_owned());
        }
    }
    if let Some(path) = &config.tls_ca {
        options = options.add_root_certificates(path.clone());
    }
    if let Some((certificate, key)) = &config.tls_pair {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    options = options.require_tls(config.tls_ca.is_some() || server.starts_with("tls://"));
    let client = options.connect(address).await.map_err(|error| {
        Fault::Cannot(match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                format!("authorization violation: {error}")
            }
            _ => format!("unreachable: {error}"),
        })
    })?;
    Ok(Connection { client, gone })
}

/// Hides the credentials in a server address for display.
#[must_use]
pub fn without_secret(server: &str) -> String {
    match server.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://***@{host}"),
        None => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        for (server, shown) in [
            ("nats://a:4222", "nats://a:4222"),
            ("nats://u:p@a:4222", "nats://***@a:4222"),
            ("tls://to@ken@a", "tls://***@a"),
        ] {
            assert_eq!(without_secret(server), shown);
        }
    }
}
