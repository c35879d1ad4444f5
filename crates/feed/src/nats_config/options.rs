//! Which words of the file mean what to us.

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

/// What the file says, where it says something. NATS's words; times and sizes in their types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// `host`, or the host of `listen`.
    pub host: Option<IpAddr>,
    /// `port`, or the port of `listen`.
    pub port: Option<u16>,
    /// `http_port`, `monitor_port`, or the port of `http`.
    pub http_port: Option<u16>,
    /// The host of `http`.
    pub http_host: Option<IpAddr>,
    /// `server_name`.
    pub server_name: Option<String>,
    /// `max_connections`, `max_conn`. Of this and the other limits [`Options::NO_LIMIT`] is none.
    pub max_connections: Option<u64>,
    /// `max_subscriptions`, `max_subs`: a connection.
    pub max_subscriptions: Option<u64>,
    /// `max_payload`, bytes.
    pub max_payload: Option<u64>,
    /// `max_control_line`, bytes.
    pub max_control_line: Option<u64>,
    /// `max_pending`, bytes.
    pub max_pending: Option<u64>,
    /// `write_deadline`.
    pub write_deadline: Option<Duration>,
    /// `ping_interval`.
    pub ping_interval: Option<Duration>,
    /// `ping_max`: unanswered.
    pub ping_max: Option<u64>,
    /// `lame_duck_duration`.
    pub lame_duck_duration: Option<Duration>,
    /// `lame_duck_grace_period`.
    pub lame_duck_grace_period: Option<Duration>,
    /// `server_tags`.
    pub server_tags: Vec<String>,
    /// `log_file`.
    pub log_file: Option<PathBuf>,
    /// `pid_file`.
    pub pid_file: Option<PathBuf>,
    /// `debug`.
    pub debug: Option<bool>,
    /// `trace`, `trace_verbose`.
    pub trace: Option<bool>,
    /// `no_header_support`.
    pub no_header_support: Option<bool>,
    /// `proxy_protocol`.
    pub proxy_protocol: Option<bool>,
    /// `authorization.timeout`.
    pub auth_timeout: Option<Duration>,
    /// `authorization`, `accounts`, `system_account`, `no_auth_user`.
    pub authorization: Authorization,
    /// `tls`.
    pub tls: Option<Tls>,
    /// `websocket`.
    pub websocket: Option<WebSocket>,
    /// `leafnodes.remotes`.
    pub hubs: Vec<Remote>,
}

impl Options {
    /// The file says `-1`: no limit of its own.
    pub const NO_LIMIT: u64 = super::values::NO_LIMIT;
}

/// `tls { … }`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// `cert_file`, in PEM.
    pub cert_file: PathBuf,
    /// `key_file`, in PEM.
    pub key_file: PathBuf,
    /// `ca_file`, in PEM: who signs clients.
    pub ca_file: Option<PathBuf>,
    /// `verify`: clients must have a certificate.
    pub verify: bool,
    /// `verify_and_map`: the certificate says which user a client is; implies `verify`.
    pub map: bool,
    /// `handshake_first`: TLS before INFO.
    pub handshake_first: HandshakeFirst,
    /// `timeout`: how long a handshake may take.
    pub timeout: Option<Duration>,
    /// `allow_non_tls`: clients may do without.
    pub optional: bool,
}

/// `websocket { … }`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebSocket {
    /// `host`.
    pub host: Option<IpAddr>,
    /// `port`.
    pub port: u16,
    /// `tls`; none with `no_tls: true`.
    pub tls: Option<Tls>,
    /// `allowed_origins`.
    pub allowed_origins: Vec<String>,
    /// `same_origin`.
    pub same_origin: bool,
}

/// A word that is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredOption {
    /// The file that it is in, if that is an included one.
    pub file: Option<PathBuf>,
    /// From 1.
    pub line: usize,
    /// The word.
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

/// How long the server waits for TLS to begin before it says INFO, where it is to find out (nats-server's
/// `DEFAULT_TLS_HANDSHAKE_FIRST_FALLBACK_DELAY`).
const HANDSHAKE_FIRST_AUTO: Duration = Duration::from_millis(50);

/// Reads the text of a file, which was found at `path`, and of those that it includes.
///
/// # Errors
/// Everything that is wrong in it; a torn file is one fault.
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

/// What was read so far.
pub(super) struct Reading<'a> {
    pub(super) options: Options,
    /// `allow_non_tls`, wherever it stands.
    allows_plain: bool,
    pub(super) around: &'a dyn Surroundings,
    files: Files,
    unhonoured: Vec<IgnoredOption>,
    pub(super) faults: Vec<Fault>,
}

impl Reading<'_> {
    /// Notes that a word is passed over.
    pub(super) fn pass_over(&mut self, line: Line, key: String) {
        self.unhonoured.push(IgnoredOption { file: self.files.name(line), line: line.number as usize, key });
    }

    /// The entries of which each key counts once; what another one overrules is named.
    pub(super) fn once<'e>(&mut self, entries: &'e [Entry]) -> Vec<&'e Entry> {
        let (once, overruled) = once_each(entries, true);
        self.name_overruled(overruled);
        once
    }

    /// The same where keys are names.
    pub(super) fn once_by_name<'e>(&mut self, entries: &'e [Entry]) -> Vec<&'e Entry> {
        let (once, overruled) = once_each(entries, false);
        self.name_overruled(overruled);
        once
    }

    fn name_overruled(&mut self, overruled: Vec<&Entry>) {
        for entry in overruled {
            self.pass_over(entry.line, format!("{}, said again below", entry.key));
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
                // Those that are spoken are strong, all of them, from TLS 1.2 on.
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
                "`verify` needs `ca_file`: who signs the clients' certificates",
            ));
        }
        Ok(tls)
    }
}

/// True, false, a time to wait for TLS before INFO is said, or `auto`: a usual time.
fn handshake_first(value: &LocatedValue) -> Outcome<HandshakeFirst> {
    match boolean(value) {
        Ok(true) => Ok(HandshakeFirst::Yes),
        Ok(false) => Ok(HandshakeFirst::No),
        Err(_) => match string(value)?.to_ascii_lowercase().as_str() {
            "auto" | "auto_fallback" => Ok(HandshakeFirst::After(HANDSHAKE_FIRST_AUTO)),
            text => duration(value).map(HandshakeFirst::After).map_err(|_| {
                Fault::new(
                    value.line,
                    format!("`{text}` is neither true, false, auto nor a time, such as 300ms"),
                )
            }),
        },
    }
}
