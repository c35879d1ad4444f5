//! Commands that query a running server over its admin port: `stat`, `purge`, `explain`, `objects`, `origins`
//! and `log`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use engine::{
    journal::JournalAddress,
    tls::{client::trusted, provider},
};
use ureq::{
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::{DefaultConnector, NextTimeout},
    },
};

use crate::{
    admin::{Token, explained, objects_table, origins_table, read_token},
    cli::{ExplainTask, ObjectsTask, OriginsTask, PurgeTask},
    failure::{Failure, fault},
    settings::Settings,
};

/// Timeout for an answer. The server answers from its own memory, so a longer wait means that it hangs.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Timeout for a cluster-wide purge: the server may wait for twice the longest lease of the cluster.
const EVERYWHERE_TIME_MAX: Duration = Duration::from_secs(150);

/// Fetches the server's counters as JSON or as a table.
pub(crate) fn stat(settings: &Settings, json: bool) -> Result<String, Failure> {
    let server = Server::new(settings)?;
    let kind = if json { "application/json" } else { "text/plain" };
    let request = server.agent.get(server.url("/stat")).header("accept", kind);
    let (status, text) = server.answer(server.authorized(request).call())?;
    if status != 200 {
        return Err(server.unexpected(status, &text));
    }
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Fetches the address of the server's transaction log.
pub(crate) fn journal(settings: &Settings) -> Result<JournalAddress, Failure> {
    let server = Server::new(settings)?;
    let (said, text) = server.said(server.authorized(server.agent.get(server.url("/log"))).call())?;
    let number = |name: &str| said[name].as_i64().and_then(|number| i32::try_from(number).ok());
    let pid = number("pid").and_then(|pid| u32::try_from(pid).ok());
    let token = said["token"].as_str().and_then(|token| u64::from_str_radix(token, 16).ok());
    match (pid, number("rings_fd"), number("lease_fd"), token) {
        (Some(pid), Some(rings_fd), Some(lease_fd), Some(token)) => {
            Ok(JournalAddress { pid, rings_fd, lease_fd, token })
        }
        _ => Err(server.unexpected(200, &text)),
    }
}

/// Purges a URL, tags or everything, and returns a report.
pub(crate) fn purge(settings: &Settings, task: &PurgeTask) -> Result<String, Failure> {
    let PurgeTask { url, tags, ban, all, soft, list, everywhere, local, .. } = task;
    let server = Server::new(settings)?;
    if *list {
        return bans(&server);
    }
    let named = url.iter().map(|url| ("url", url)).chain(tags.iter().map(|tag| ("tag", tag)));
    let named = named.chain(ban.iter().map(|ban| ("ban", ban)));
    let knobs = [("all", all), ("soft", soft), ("everywhere", everywhere), ("local", local)]
        .into_iter()
        .filter(|(_, is_said)| **is_said);
    let request = server.agent.post(server.url("/purge")).query_pairs(named);
    let request = request.query_pairs(knobs.map(|(name, _)| (name, "")));
    let within = if *everywhere { EVERYWHERE_TIME_MAX } else { ANSWER_TIME_MAX };
    let request = request.config().timeout_global(Some(within)).build();
    let (said, text) = server.said(server.authorized(request).send_empty())?;
    let what = match (url, ban) {
        (Some(url), _) => url.clone(),
        (None, Some(ban)) => format!("all objects that match {ban}"),
        (None, None) if *all => "everything".to_owned(),
        (None, None) => format!("all objects with the tag {}", tags.join(" or ")),
    };
    let mut done = match (said["invalidated"].as_bool(), said["dropped"].as_bool()) {
        (Some(true), _) if *soft => format!("Made stale: {what}\n"),
        (Some(true), _) => format!("Purged {what}\n"),
        (_, Some(true)) => {
            let found = said["found"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
            let found: Vec<_> = found.map(explained::plain).collect();
            let found = if found.is_empty() { what } else { found.join(" and ") };
            format!("Dropped {found}\n")
        }
        (_, Some(false)) => format!("No stored object: {what}, by http or by https\n"),
        _ => return Err(server.unexpected(200, &text)),
    };
    for told in said["instances"].as_array().into_iter().flatten() {
        let name = explained::plain(told["name"].as_str().unwrap_or_default());
        let standing = match told["standing"].as_str().unwrap_or_default() {
            "applied" => "has applied the purge",
            "lease-out" => "is cut off, and serves no stored object until it has applied the purge",
            "left" => "has stopped",
            "serves-on" => {
                "has not applied the purge: configured to serve on, it may still serve the objects"
            }
            "serves-on-applied" => {
                "has applied the purge, but is configured to serve on when cut off: next time it may serve purged objects"
            }
            _ => "has not applied the purge",
        };
        done.push_str(&format!("{name} {standing}\n"));
    }
    Ok(done)
}

/// Lists the server's bans, one per line: when it was added, how far the ban lurker has come, and the
/// expression.
fn bans(server: &Server) -> Result<String, Failure> {
    let (said, text) = server.said(server.authorized(server.agent.get(server.url("/purge"))).call())?;
    let bans = said.as_array().ok_or_else(|| server.unexpected(200, &text))?;
    let line = |ban: &serde_json::Value| {
        let soft = if ban["soft"] == true { "soft" } else { "hard" };
        let done = match ban["cores_done"].as_u64() {
            Some(cores) => format!("done on {cores} cores"),
            None => "stays".to_owned(),
        };
        format!("{}  {soft}  {done}  {}\n", ban["number"], ban["ban"].as_str().unwrap_or_default())
    };
    Ok(if bans.is_empty() { "No bans\n".to_owned() } else { bans.iter().map(line).collect() })
}

/// Fetches the server's explanation of how it would handle a request, as JSON or as readable text.
pub(crate) fn explain(settings: &Settings, task: &ExplainTask) -> Result<String, Failure> {
    let server = Server::new(settings)?;
    let headers = task.headers.iter().map(|line| ("header", line));
    let request =
        server.agent.get(server.url("/explain")).query("url", &task.url).query("method", &task.method);
    let (said, text) = server.said(server.authorized(request.query_pairs(headers)).call())?;
    if !said["steps"].is_array() {
        return Err(server.unexpected(200, &text));
    }
    Ok(if task.json { text + "\n" } else { explained::text(&said) })
}

/// Lists the stored objects as the server's JSON or as a table.
pub(crate) fn objects(settings: &Settings, task: &ObjectsTask) -> Result<String, Failure> {
    let server = Server::new(settings)?;
    let expression = task.expression.iter().map(|expression| ("match", expression));
    let request = server.agent.get(server.url("/objects")).query("limit", task.limit.to_string());
    let (said, text) = server.said(server.authorized(request.query_pairs(expression)).call())?;
    if !said["objects"].is_array() {
        return Err(server.unexpected(200, &text));
    }
    Ok(if task.json { text + "\n" } else { objects_table::text(&said) })
}

/// Lists the state of the origins' servers as the server's JSON or as a table, or sets the state of one
/// server.
pub(crate) fn origins(settings: &Settings, task: &OriginsTask) -> Result<String, Failure> {
    let server = Server::new(settings)?;
    if let Some((name, state)) = task.server.as_ref().zip(task.set.as_ref()) {
        let request = server.agent.post(server.url("/origins")).query("server", name).query("set", state);
        let (said, text) = server.said(server.authorized(request).send_empty())?;
        return match said["set"].as_bool() {
            Some(true) => Ok(format!("{name} set to {state}\n")),
            _ => Err(server.unexpected(200, &text)),
        };
    }
    let (said, text) = server.said(server.authorized(server.agent.get(server.url("/origins"))).call())?;
    if !said["origins"].is_array() {
        return Err(server.unexpected(200, &text));
    }
    Ok(if task.json { text + "\n" } else { origins_table::text(&said) })
}

struct Server {
    agent: ureq::Agent,
    address: SocketAddr,
    /// URL prefix of every request: the scheme, and the name or address of the server.
    base: String,
    token: Option<Token>,
}

impl Server {
    fn new(settings: &Settings) -> Result<Self, Failure> {
        let token = match &settings.admin_token_file {
            Some(path) => Some(
                read_token("admin-token-file", path).map_err(|message| fault("admin-token-file", message))?,
            ),
            None => None,
        };
        let address = reachable(settings.admin);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // The admin port belongs to this machine or is reached through a tunnel: a web proxy must not see
            // its token.
            .proxy(None)
            .timeout_global(Some(ANSWER_TIME_MAX));
        if !settings.admin_tls {
            let base = format!("http://{address}");
            return Ok(Self { agent: config.build().into(), address, base, token });
        }
        let trusted = trusted(settings.admin_ca_file.as_deref())
            .map_err(|error| fault("admin-ca-file", error.to_string()))?;
        let roots: Vec<_> = trusted.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(provider())
            .root_certs(RootCerts::new_with_certs(&roots))
            .build();
        let config = config.tls_config(tls).build();
        let base = match &settings.admin_name {
            Some(name) => format!("https://{name}:{}", address.port()),
            None => format!("https://{address}"),
        };
        let agent = ureq::Agent::with_parts(config, DefaultConnector::default(), FixedAddress(address));
        Ok(Self { agent, address, base, token })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        // The `Host` field holds the IP address even if the certificate has a name, because the server does
        // not trust names.
        let request = request.header("host", self.address.to_string());
        match &self.token {
            Some(token) => request.header("authorization", token.as_bearer()),
            None => request,
        }
    }

    fn answer(
        &self,
        answer: Result<axum::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(u16, String), Failure> {
        let address = self.address;
        let mut answer = answer.map_err(|error| {
            let refused = match &error {
                ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
                _ => matches!(error, ureq::Error::ConnectionFailed),
            };
            Failure::Failed(if refused {
                format!(
                    "cannot connect to {address}: is `nighttrain cache` running, with its admin server elsewhere? Then \
                     set --admin ADDRESS"
                )
            } else {
                format!("no answer from the admin server at {address}: {error}")
            })
        })?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().map_err(|error| {
            Failure::Failed(format!("the answer of the admin server at {address} was cut short: {error}"))
        })?;
        Ok((status, text))
    }

    /// Parses a JSON answer and returns it with its text. An `error` field in the JSON becomes a [`Failure`].
    fn said(
        &self,
        answer: Result<axum::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(serde_json::Value, String), Failure> {
        let (status, text) = self.answer(answer)?;
        let said: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        match (status, said["error"].as_str()) {
            (_, Some(error)) => Err(Failure::Failed(error.to_owned())),
            (200, None) => Ok((said, text)),
            (_, None) => Err(self.unexpected(status, &text)),
        }
    }

    fn unexpected(&self, status: u16, text: &str) -> Failure {
        let address = self.address;
        Failure::Failed(match status {
            401 if self.token.is_none() => {
                format!("the admin server at {address} requires a token: set --admin-token-file FILE")
            }
            401 => format!("the admin server at {address} rejected the token in the file"),
            _ => {
                let said: String = text.chars().filter(|c| !c.is_control()).take(120).collect();
                format!("{address} is not a Nighttrain admin server; it answered {status}: {said}")
            }
        })
    }
}

/// Resolver that returns the configured address for every name.
#[derive(Debug)]
struct FixedAddress(SocketAddr);

impl Resolver for FixedAddress {
    fn resolve(
        &self,
        _: &ureq::http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(self.0);
        Ok(addresses)
    }
}

/// Returns the address to connect to: loopback for a server that listens on every address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
