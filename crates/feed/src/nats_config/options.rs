//! Options of the file and their meaning for the feed.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    mappings::mappings,
    text::{Entry, Fault, Files, Line, LocatedValue, Surroundings, parse},
    values::{
        Outcome, address, block, boolean, count, duration, host, limit, limit_or_none, once_each, port,
        some_duration, string, strings, unknown,
    },
    words,
};
use crate::{accounts::identity::Authorization, config::HandshakeFirst, leaf::Remote};

/// Values that the file sets, under NATS's names; times and sizes are already parsed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Address to listen on: `host`, or the host of `listen`.
    pub host: Option<IpAddr>,
    /// Port to listen on: `port`, or the port of `listen`.
    pub port: Option<u16>,
    /// Port for monitoring: `http_port`, `monitor_port`, or the port in `http`.
    pub http_port: Option<u16>,
    /// Address for monitoring: the host in `http`.
    pub http_host: Option<IpAddr>,
    /// Name of the server: `server_name`.
    pub server_name: Option<String>,
    /// Maximum number of connections: `max_connections`, `max_conn`. In this and the other limits,
    /// [`Options::NO_LIMIT`] means no limit.
    pub max_connections: Option<u64>,
    /// Maximum number of subscriptions per connection: `max_subscriptions`, `max_subs`.
    pub max_subscriptions: Option<u64>,
    /// Maximum size of a message in bytes: `max_payload`.
    pub max_payload: Option<u64>,
    /// Maximum length of a control line in bytes: `max_control_line`.
    pub max_control_line: Option<u64>,
    /// Maximum size of a client's backlog in bytes: `max_pending`.
    pub max_pending: Option<u64>,
    /// Period in which a client must read its backlog: `write_deadline`.
    pub write_deadline: Option<Duration>,
    /// Time of silence before a ping: `ping_interval`.
    pub ping_interval: Option<Duration>,
    /// Number of pings that may stay unanswered: `ping_max`.
    pub ping_max: Option<u64>,
    /// Time over which a stopping server closes its clients: `lame_duck_duration`.
    pub lame_duck_duration: Option<Duration>,
    /// Time before a stopping server closes the first client: `lame_duck_grace_period`.
    pub lame_duck_grace_period: Option<Duration>,
    /// Tags of the server: `server_tags`.
    pub server_tags: Vec<String>,
    /// Path of the log file: `log_file`.
    pub log_file: Option<PathBuf>,
    /// Path of the file for the process id: `pid_file`.
    pub pid_file: Option<PathBuf>,
    /// Enables debug lines in the log: `debug`.
    pub debug: Option<bool>,
    /// Enables protocol lines in the log: `trace`, `trace_verbose`.
    pub trace: Option<bool>,
    /// Messages may not have headers: `no_header_support`.
    pub no_header_support: Option<bool>,
    /// Connections begin with a PROXY protocol header: `proxy_protocol`.
    pub proxy_protocol: Option<bool>,
    /// Time limit for the login: `authorization.timeout`.
    pub auth_timeout: Option<Duration>,
    /// Users and accounts: `authorization`, `accounts`, `system_account`, `no_auth_user`.
    pub authorization: Authorization,
    /// TLS of the listener for clients: `tls`.
    pub tls: Option<Tls>,
    /// Listener for WebSocket: `websocket`.
    pub websocket: Option<WebSocket>,
    /// Hubs to join: `leafnodes.remotes`.
    pub hubs: Vec<Remote>,
}

impl Options {
    /// Value for `-1` in the file: this limit is off.
    pub const NO_LIMIT: u64 = super::values::NO_LIMIT;
}

/// Settings in a block `tls { … }`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificate file in PEM: `cert_file`.
    pub cert_file: PathBuf,
    /// Key file in PEM: `key_file`.
    pub key_file: PathBuf,
    /// PEM file with the CA certificates that sign clients' certificates: `ca_file`.
    pub ca_file: Option<PathBuf>,
    /// Clients must present a certificate: `verify`.
    pub verify: bool,
    /// The client's certificate identifies its user: `verify_and_map`, which implies `verify`.
    pub map: bool,
    /// Order of the TLS handshake and INFO: `handshake_first`.
    pub handshake_first: HandshakeFirst,
    /// Time limit for a handshake: `timeout`.
    pub timeout: Option<Duration>,
    /// Clients may connect without TLS: `allow_non_tls`.
    pub optional: bool,
}

/// Settings in a block `websocket { … }`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebSocket {
    /// Address to listen on: `host`.
    pub host: Option<IpAddr>,
    /// Port to listen on: `port`.
    pub port: u16,
    /// TLS of the listener: `tls`; `None` with `no_tls: true`.
    pub tls: Option<Tls>,
    /// Origins whose pages may connect: `allowed_origins`.
    pub allowed_origins: Vec<String>,
    /// A page may connect only to the host that it came from: `same_origin`.
    pub same_origin: bool,
}

/// An option in the file that is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredOption {
    /// Included file that contains the option; `None` for the main file.
    pub file: Option<PathBuf>,
    /// Line of the option, counted from 1.
    pub line: usize,
    /// Name of the option.
    pub key: String,
}

impl std::fmt::Display for IgnoredOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.file {
            Some(file) => write!(f, "`{}` ({}, line {})", self.key, file.display(), self.line),
            None => write!(f, "`{}` (line {})", self.key, self.line),
        }
    }
}

/// Time for which the server waits for a TLS handshake before it sends INFO, with `handshake_first: auto`
/// (nats-server's `DEFAULT_TLS_HANDSHAKE_FIRST_FALLBACK_DELAY`).
const HANDSHAKE_FIRST_AUTO: Duration = Duration::from_millis(50);

/// Parses the text of the file at `path`, and the files that it includes.
///
/// # Errors
/// All [`Fault`]s in the files. If there is a syntax error, only that one is returned.
pub fn read(
    text: &str,
    path: &Path,
    around: &dyn Surroundings,
) -> Result<(Options, Vec<IgnoredOption>), Vec<Fault>> {
    let (entries, files) = parse(text, path, around);
    let entries = entries.map_err(|fault| vec![fault.placed(&files)])?;
    let mut reading = Reading {
        options: Options::default(),
        allows_plain: false,
        around,
        files,
        unhonoured: Vec::new(),
        faults: Vec::new(),
    };
    for entry in reading.once(&entries) {
        let outcome = reading.top(entry);
        reading.note(outcome);
    }
    if let (Some(tls), true) = (&mut reading.options.tls, reading.allows_plain) {
        tls.optional = true;
    }
    let Reading { options, files, unhonoured, faults, .. } = reading;
    if faults.is_empty() {
        Ok((options, unhonoured))
    } else {
        Err(faults.into_iter().map(|fault| fault.placed(&files)).collect())
    }
}

/// State of reading the options from a parsed file.
pub(super) struct Reading<'a> {
    pub(super) options: Options,
    /// `allow_non_tls`, which may be outside of the `tls` block.
    allows_plain: bool,
    pub(super) around: &'a dyn Surroundings,
    files: Files,
    unhonoured: Vec<IgnoredOption>,
    pub(super) faults: Vec<Fault>,
}

impl Reading<'_> {
    /// Records an option that is ignored.
    pub(super) fn pass_over(&mut self, line: Line, key: String) {
        self.unhonoured.push(IgnoredOption { file: self.files.name(line), line: line.number as usize, key });
    }

    /// Returns the last entry for each key, ignoring case; earlier entries with the same key are reported as
    /// ignored.
    pub(super) fn once<'e>(&mut self, entries: &'e [Entry]) -> Vec<&'e Entry> {
        let (once, overruled) = once_each(entries, true);
        self.name_overruled(overruled);
        once
    }

    /// Returns the last entry for each key, where keys are names with exact case; earlier entries are
    /// reported as ignored.
    pub(super) fn once_by_name<'e>(&mut self, entries: &'e [Entry]) -> Vec<&'e Entry> {
        let (once, overruled) = once_each(entries, false);
        self.name_overruled(overruled);
        once
    }

    fn name_overruled(&mut self, overruled: Vec<&Entry>) {
        for entry in overruled {
            self.pass_over(entry.line, format!("{}, set again below", entry.key));
        }
    }

    pub(super) fn note(&mut self, outcome: Outcome) {
        if let Err(fault) = outcome {
            self.faults.push(fault);
        }
    }

    fn top(&mut self, entry: &Entry) -> Outcome {
        let (options, around) = (&mut self.options, self.around);
        let value = &entry.value;
        let key = entry.key.to_ascii_lowercase();
        match key.as_str() {
            "listen" => {
                let (host, port) = address(value, around)?;
                options.host = host.or(options.host);
                options.port = Some(port);
            }
            "host" | "net" => options.host = Some(host(value, around)?),
            "port" => options.port = Some(port(value)?),
            "http" => {
                let (host, port) = address(value, around)?;
                options.http_host = host;
                options.http_port = Some(port);
            }
            "http_port" | "monitor_port" => options.http_port = Some(port(value)?),
            "server_name" => options.server_name = Some(string(value)?),
            "max_connections" | "max_conn" => options.max_connections = Some(limit_or_none(value)?),
            "max_subscriptions" | "max_subs" => options.max_subscriptions = Some(limit_or_none(value)?),
            "max_payload" => options.max_payload = limit(value)?,
            "max_control_line" => options.max_control_line = limit(value)?,
            "max_pending" => options.max_pending = limit(value)?,
            "write_deadline" => options.write_deadline = some_duration(value)?,
            "ping_interval" => options.ping_interval = some_duration(value)?,
            "ping_max" => options.ping_max = Some(count(value)?).filter(|pings| *pings > 0),
            "lame_duck_duration" => options.lame_duck_duration = some_duration(value)?,
            "lame_duck_grace_period" => options.lame_duck_grace_period = some_duration(value)?,
            "server_tags" => options.server_tags = strings(value)?,
            "log_file" | "logfile" => options.log_file = Some(string(value)?.into()),
            "pid_file" | "pidfile" => options.pid_file = Some(string(value)?.into()),
            "debug" => options.debug = Some(boolean(value)?),
            "trace" | "trace_verbose" => {
                options.trace = Some(boolean(value)? || options.trace.unwrap_or(false));
            }
            "no_header_support" => options.no_header_support = Some(boolean(value)?),
            "proxy_protocol" => options.proxy_protocol = Some(boolean(value)?),
            "authorization" => self.authorization(value)?,
            "accounts" => self.accounts(value)?,
            "mappings" | "maps" => options.authorization.mappings = mappings(value)?,
            "system_account" | "system" => options.authorization.system_account = Some(string(value)?),
            "no_auth_user" => options.authorization.no_auth_user = Some(string(value)?),
            "tls" => self.options.tls = Some(self.tls(value, "tls")?),
            "allow_non_tls" => self.allows_plain = boolean(value)?,
            "websocket" | "ws" => self.options.websocket = Some(self.websocket(value)?),
            "leafnodes" | "leaf" => self.leafnodes(value)?,
            _ if entry.is_variable => {}
            word => {
                words::of_top(entry, word)?;
                self.pass_over(entry.line, entry.key.clone());
            }
        }
        Ok(())
    }

    fn websocket(&mut self, value: &LocatedValue) -> Outcome<WebSocket> {
        let around = self.around;
        let mut websocket = WebSocket::default();
        let mut plain = false;
        for entry in block(value)? {
            let value = &entry.value;
            match entry.key.to_ascii_lowercase().as_str() {
                "listen" => {
                    let (host, port) = address(value, around)?;
                    websocket.host = host;
                    websocket.port = port;
                }
                "host" | "net" => websocket.host = Some(host(value, around)?),
                "port" => websocket.port = port(value)?,
                "no_tls" => plain = boolean(value)?,
                "tls" => websocket.tls = Some(self.tls(value, "websocket.tls")?),
                "allowed_origins" | "allowed_origin" | "allow_origins" | "allow_origin" | "origins"
                | "origin" => {
                    websocket.allowed_origins = strings(value)?;
                }
                "same_origin" => websocket.same_origin = boolean(value)?,
                "compression" | "compress" | "handshake_timeout" | "advertise" | "headers"
                | "ping_interval" => {
                    self.pass_over(entry.line, format!("websocket.{}", entry.key));
                }
                other => unknown(entry, other, "websocket")?,
            }
        }
        if websocket.tls.is_none() && !plain {
            return Err(Fault::new(value.line, "websocket needs `tls { … }`, or `no_tls: true`"));
        }
        Ok(websocket)
    }

    fn tls(&mut self, value: &LocatedValue, place: &str) -> Outcome<Tls> {
        let mut tls = Tls::default();
        for entry in block(value)? {
            let value = &entry.value;
            match entry.key.to_ascii_lowercase().as_str() {
                "cert_file" => tls.cert_file = string(value)?.into(),
                "key_file" => tls.key_file = string(value)?.into(),
                "ca_file" => tls.ca_file = Some(string(value)?.into()),
                "verify" => tls.verify = boolean(value)?,
                "verify_and_map" => tls.map = boolean(value)?,
                "handshake_first" | "first" | "immediate" => tls.handshake_first = handshake_first(value)?,
                "timeout" => tls.timeout = some_duration(value)?,
                // Ignoring these options is safe: all supported cipher suites are strong, and TLS 1.2 is the
                // lowest version.
                "cipher_suites"
                | "curve_preferences"
                | "allow_insecure_cipher_suites"
                | "connection_rate_limit" => self.pass_over(entry.line, format!("{place}.{}", entry.key)),
                other => unknown(entry, other, "tls")?,
            }
        }
        if tls.cert_file.as_os_str().is_empty() || tls.key_file.as_os_str().is_empty() {
            return Err(Fault::new(value.line, "tls needs `cert_file` and `key_file`"));
        }
        tls.verify |= tls.map;
        if tls.verify && tls.ca_file.is_none() {
            return Err(Fault::new(
                value.line,
                "`verify` needs `ca_file`, the CA certificates that sign clients' certificates",
            ));
        }
        Ok(tls)
    }
}

/// Reads `handshake_first`: true, false, a time to wait for TLS before INFO, or `auto` for a default time.
fn handshake_first(value: &LocatedValue) -> Outcome<HandshakeFirst> {
    match boolean(value) {
        Ok(true) => Ok(HandshakeFirst::Yes),
        Ok(false) => Ok(HandshakeFirst::No),
        Err(_) => match string(value)?.to_ascii_lowercase().as_str() {
            "auto" | "auto_fallback" => Ok(HandshakeFirst::After(HANDSHAKE_FIRST_AUTO)),
            text => duration(value).map(HandshakeFirst::After).map_err(|_| {
                Fault::new(
                    value.line,
                    format!("invalid value `{text}`: expected true, false, auto or a time, such as 300ms"),
                )
            }),
        },
    }
}
