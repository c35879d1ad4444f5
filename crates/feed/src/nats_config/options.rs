//! Which words of the file mean what to us.

use std::{collections::BTreeSet, net::IpAddr, net::Ipv4Addr, path::PathBuf, time::Duration};

use super::text::{Entry, Fault, Located, Value, parse};
use crate::identity::{
    Account, Authorization, Entry as Pattern, Permissions, Responses, Rules, Secret, User,
};

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
    /// `max_connections`, `max_conn`.
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
    /// `no_header_support`.
    pub no_header_support: Option<bool>,
    /// `authorization.timeout`.
    pub auth_timeout: Option<Duration>,
    /// `authorization`, `accounts`, `system_account`, `no_auth_user`.
    pub authorization: Authorization,
    /// `tls`.
    pub tls: Option<Tls>,
    /// `websocket`.
    pub websocket: Option<WebSocket>,
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
    /// `handshake_first`: TLS before INFO.
    pub handshake_first: bool,
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
}

/// A line that is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhonoured {
    /// From 1.
    pub line: usize,
    /// The word on it.
    pub key: String,
}

impl std::fmt::Display for Unhonoured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: `{}` is not honoured", self.line, self.key)
    }
}

/// Without these words, what they guard would stand open.
const WITHOUT_WHICH_IT_IS_OPEN: [&str; 6] =
    ["operator", "operators", "trusted_keys", "trusted", "resolver", "resolver_preload"];

/// Reads a file.
///
/// # Errors
/// Everything that is wrong in it; a torn file is one fault.
pub fn read(text: &str) -> Result<(Options, Vec<Unhonoured>), Vec<Fault>> {
    let entries = parse(text).map_err(|fault| vec![fault])?;
    let mut reading = Reading::default();
    for entry in once_each(&entries, &mut reading.faults) {
        let outcome = reading.top(entry);
        reading.note(outcome);
    }
    if reading.faults.is_empty() { Ok((reading.options, reading.unhonoured)) } else { Err(reading.faults) }
}

#[derive(Default)]
struct Reading {
    options: Options,
    unhonoured: Vec<Unhonoured>,
    faults: Vec<Fault>,
}

type Outcome<T = ()> = Result<T, Fault>;

impl Reading {
    fn note(&mut self, outcome: Outcome) {
        if let Err(fault) = outcome {
            self.faults.push(fault);
        }
    }

    fn top(&mut self, entry: &Entry) -> Outcome {
        let options = &mut self.options;
        let value = &entry.value;
        let key = entry.key.to_ascii_lowercase();
        match key.as_str() {
            "listen" => {
                let (host, port) = address(value)?;
                options.host = host.or(options.host);
                options.port = Some(port);
            }
            "host" | "net" => options.host = Some(host(value)?),
            "port" => options.port = Some(port(value)?),
            "http" => {
                let (host, port) = address(value)?;
                options.http_host = host;
                options.http_port = Some(port);
            }
            "http_port" | "monitor_port" => options.http_port = Some(port(value)?),
            "server_name" => options.server_name = Some(string(value)?),
            "max_connections" | "max_conn" => options.max_connections = Some(count(value)?),
            "max_subscriptions" | "max_subs" => options.max_subscriptions = Some(count(value)?),
            "max_payload" => options.max_payload = Some(count(value)?),
            "max_control_line" => options.max_control_line = Some(count(value)?),
            "max_pending" => options.max_pending = Some(count(value)?),
            "write_deadline" => options.write_deadline = Some(duration(value)?),
            "ping_interval" => options.ping_interval = Some(duration(value)?),
            "ping_max" => options.ping_max = Some(count(value)?),
            "lame_duck_duration" => options.lame_duck_duration = Some(duration(value)?),
            "no_header_support" => options.no_header_support = Some(boolean(value)?),
            "authorization" => self.authorization(value)?,
            "accounts" => self.accounts(value)?,
            "system_account" => options.authorization.system_account = Some(string(value)?),
            "no_auth_user" => options.authorization.no_auth_user = Some(string(value)?),
            "tls" => options.tls = Some(tls(value)?),
            "websocket" | "ws" => self.options.websocket = Some(self.websocket(value)?),
            word if WITHOUT_WHICH_IT_IS_OPEN.contains(&word) => {
                return Err(Fault::new(
                    entry.line,
                    format!(
                        "`{word}`: JWT accounts are not supported; name users under `authorization` or `accounts`"
                    ),
                ));
            }
            _ => self.unhonoured.push(Unhonoured { line: entry.line, key: entry.key.clone() }),
        }
        Ok(())
    }

    fn authorization(&mut self, value: &Located) -> Outcome {
        let (mut name, mut password) = (None, None);
        let entries = block(value)?;
        for entry in once_each(entries, &mut self.faults) {
            let value = &entry.value;
            let authorization = &mut self.options.authorization;
            match entry.key.to_ascii_lowercase().as_str() {
                "user" | "username" => name = Some(string(value)?),
                "pass" | "password" => password = Some(Secret::new(&string(value)?)),
                "token" => authorization.token = Some(Secret::new(&string(value)?)),
                "timeout" => self.options.auth_timeout = Some(duration(value)?),
                "users" => authorization.users.extend(users(value)?),
                "default_permissions" | "default_permission" | "permissions" => {
                    authorization.default_permissions = Some(permissions(value)?);
                }
                other => return Err(unknown(entry, other, "authorization")),
            }
        }
        if name.is_some() || password.is_some() {
            let user = User { user: name, password, ..User::default() };
            self.options.authorization.users.push(user);
        }
        Ok(())
    }

    fn accounts(&mut self, value: &Located) -> Outcome {
        for entry in block(value)? {
            let mut account = Account { name: entry.key.clone(), users: Vec::new() };
            for inner in block(&entry.value)? {
                match inner.key.to_ascii_lowercase().as_str() {
                    "users" => account.users.extend(users(&inner.value)?),
                    "exports" | "imports" | "mappings" | "jetstream" => {
                        // Less comes through than the file wants, never more.
                        let key = format!("accounts.{}.{}", entry.key, inner.key);
                        self.unhonoured.push(Unhonoured { line: inner.line, key });
                    }
                    other => return Err(unknown(inner, other, "an account")),
                }
            }
            self.options.authorization.accounts.push(account);
        }
        Ok(())
    }

    fn websocket(&mut self, value: &Located) -> Outcome<WebSocket> {
        let mut websocket = WebSocket::default();
        let mut plain = false;
        for entry in block(value)? {
            let value = &entry.value;
            match entry.key.to_ascii_lowercase().as_str() {
                "listen" => {
                    let (host, port) = address(value)?;
                    websocket.host = host;
                    websocket.port = port;
                }
                "host" | "net" => websocket.host = Some(host(value)?),
                "port" => websocket.port = port(value)?,
                "no_tls" => plain = boolean(value)?,
                "tls" => websocket.tls = Some(tls(value)?),
                "allowed_origins" | "allowed_origin" => {
                    // One may stand without brackets.
                    websocket.allowed_origins = match list(value) {
                        Ok(origins) => origins.iter().map(string).collect::<Outcome<_>>()?,
                        Err(_) => vec![string(value)?],
                    };
                }
                "compression" | "handshake_timeout" => {
                    let key = format!("websocket.{}", entry.key);
                    self.unhonoured.push(Unhonoured { line: entry.line, key });
                }
                other => return Err(unknown(entry, other, "websocket")),
            }
        }
        if websocket.tls.is_none() && !plain {
            return Err(Fault::new(value.line, "websocket needs `tls { … }`, or `no_tls: true`"));
        }
        Ok(websocket)
    }
}

/// The entries whose key has not come before; the others are faults.
fn once_each<'a>(entries: &'a [Entry], faults: &mut Vec<Fault>) -> Vec<&'a Entry> {
    let mut seen = BTreeSet::new();
    let mut once = Vec::new();
    for entry in entries {
        if seen.insert(entry.key.to_ascii_lowercase()) {
            once.push(entry);
        } else {
            faults.push(Fault::new(entry.line, format!("`{}` is there twice", entry.key)));
        }
    }
    once
}

fn unknown(entry: &Entry, key: &str, of: &str) -> Fault {
    Fault::new(
        entry.line,
        format!("`{key}` is not supported in {of}, and passing over it could let in what it keeps out"),
    )
}

fn users(value: &Located) -> Outcome<Vec<User>> {
    list(value)?.iter().map(user).collect()
}

fn user(value: &Located) -> Outcome<User> {
    let mut user = User::default();
    for entry in block(value)? {
        let value = &entry.value;
        match entry.key.to_ascii_lowercase().as_str() {
            "user" | "username" => user.user = Some(string(value)?),
            "pass" | "password" => user.password = Some(Secret::new(&string(value)?)),
            "nkey" => user.nkey = Some(string(value)?),
            "permissions" | "permission" | "authorization" => user.permissions = Some(permissions(value)?),
            other => return Err(unknown(entry, other, "a user")),
        }
    }
    Ok(user)
}

fn permissions(value: &Located) -> Outcome<Permissions> {
    let mut permissions = Permissions::default();
    for entry in block(value)? {
        let value = &entry.value;
        match entry.key.to_ascii_lowercase().as_str() {
            "pub" | "publish" | "import" => permissions.publish = rules(value)?,
            "sub" | "subscribe" | "export" => permissions.subscribe = rules(value)?,
            "allow_responses" | "allow_response" | "publish_allow_responses" => {
                permissions.responses = responses(value)?;
            }
            other => return Err(unknown(entry, other, "permissions")),
        }
    }
    Ok(permissions)
}

fn rules(value: &Located) -> Outcome<Rules> {
    let Value::Block(entries) = &value.value else {
        return Ok(Rules { allow: Some(patterns(value)?), deny: Vec::new() });
    };
    let mut rules = Rules::default();
    for entry in entries {
        match entry.key.to_ascii_lowercase().as_str() {
            "allow" => rules.allow = Some(patterns(&entry.value)?),
            "deny" => rules.deny = patterns(&entry.value)?,
            other => return Err(unknown(entry, other, "permissions")),
        }
    }
    Ok(rules)
}

/// One pattern, or a list of them; behind a blank may stand the queue group.
fn patterns(value: &Located) -> Outcome<Vec<Pattern>> {
    let one = |value: &Located| {
        let text = string(value)?;
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(subject), queue, None) => {
                Ok(Pattern { subject: subject.to_owned(), queue: queue.map(str::to_owned) })
            }
            _ => Err(Fault::new(
                value.line,
                format!("`{text}` is neither a subject nor a subject and a queue"),
            )),
        }
    };
    match &value.value {
        Value::List(list) => list.iter().map(one).collect(),
        _ => Ok(vec![one(value)?]),
    }
}

fn responses(value: &Located) -> Outcome<Option<Responses>> {
    if !matches!(value.value, Value::Block(_)) {
        return Ok(boolean(value)?.then(Responses::default));
    }
    let mut responses = Responses::default();
    for entry in block(value)? {
        match entry.key.to_ascii_lowercase().as_str() {
            "max" | "max_msgs" | "max_messages" | "max_responses" => {
                // As nats-server: 0 is the default, below is any number.
                let text = string(&entry.value)?;
                responses.messages_max = match text.parse::<i64>() {
                    Ok(0) => Responses::default().messages_max,
                    Ok(any) if any < 0 => None,
                    Ok(some) => Some(u32::try_from(some).unwrap_or(u32::MAX)),
                    Err(_) => return Err(Fault::new(entry.line, format!("`{text}` is no whole number"))),
                };
            }
            "expires" | "expiration" | "ttl" => {
                responses.expires = if string(&entry.value)?.starts_with('-') {
                    None
                } else {
                    Some(duration(&entry.value)?).filter(|some| !some.is_zero()).or(responses.expires)
                };
            }
            other => return Err(unknown(entry, other, "allow_responses")),
        }
    }
    Ok(Some(responses))
}

fn tls(value: &Located) -> Outcome<Tls> {
    let mut tls = Tls::default();
    for entry in block(value)? {
        let value = &entry.value;
        match entry.key.to_ascii_lowercase().as_str() {
            "cert_file" => tls.cert_file = string(value)?.into(),
            "key_file" => tls.key_file = string(value)?.into(),
            "ca_file" => tls.ca_file = Some(string(value)?.into()),
            "verify" => tls.verify = boolean(value)?,
            "handshake_first" | "first" => tls.handshake_first = boolean(value)?,
            // How long a handshake may take: ours has a bound of its own.
            "timeout" => _ = duration(value)?,
            other => return Err(unknown(entry, other, "tls")),
        }
    }
    if tls.cert_file.as_os_str().is_empty() || tls.key_file.as_os_str().is_empty() {
        return Err(Fault::new(value.line, "tls needs `cert_file` and `key_file`"));
    }
    if tls.verify && tls.ca_file.is_none() {
        return Err(Fault::new(value.line, "`verify` needs `ca_file`: who signs the clients' certificates"));
    }
    Ok(tls)
}

fn block(value: &Located) -> Outcome<&[Entry]> {
    match &value.value {
        Value::Block(entries) => Ok(entries),
        _ => Err(Fault::new(value.line, "a block { … } is wanted")),
    }
}

fn list(value: &Located) -> Outcome<&[Located]> {
    match &value.value {
        Value::List(list) => Ok(list),
        _ => Err(Fault::new(value.line, "a list [ … ] is wanted")),
    }
}

fn string(value: &Located) -> Outcome<String> {
    match &value.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(Fault::new(value.line, "one value is wanted, not a block or list")),
    }
}

fn boolean(value: &Located) -> Outcome<bool> {
    match string(value)?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        other => Err(Fault::new(value.line, format!("`{other}` is neither true nor false"))),
    }
}

/// A whole number, perhaps with a size behind it: k, m, g, t are powers of 1000, kb, mb … and ki, kib … of 1024
/// (nats-server's own rule).
fn count(value: &Located) -> Outcome<u64> {
    let text = string(value)?;
    let wrong = || Fault::new(value.line, format!("`{text}` is no whole number, such as 65536 or 64KB"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].to_ascii_lowercase();
    let (power, binary) = match unit.as_str() {
        "" => (0, false),
        "k" => (1, false),
        "m" => (2, false),
        "g" => (3, false),
        "t" => (4, false),
        "kb" | "ki" | "kib" => (1, true),
        "mb" | "mi" | "mib" => (2, true),
        "gb" | "gi" | "gib" => (3, true),
        "tb" | "ti" | "tib" => (4, true),
        _ => return Err(wrong()),
    };
    let base: u64 = if binary { 1024 } else { 1000 };
    number.checked_mul(base.pow(power)).ok_or_else(wrong)
}

/// A time as Go writes it (`1m30s`, `250ms`); a bare number is seconds, also with a fraction.
fn duration(value: &Located) -> Outcome<Duration> {
    let text = string(value)?;
    let wrong = || Fault::new(value.line, format!("`{text}` is no time, such as 10s, 2m or 250ms"));
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| wrong());
    }
    let mut total = Duration::ZERO;
    let mut left = text.as_str();
    while !left.is_empty() {
        let digits = left.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, rest) = left.split_at(digits);
        let letters = rest.chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum();
        let (unit, rest) = rest.split_at(letters);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        left = rest;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

fn port(value: &Located) -> Outcome<u16> {
    let text = string(value)?;
    match text.parse::<i32>() {
        // nats-server: -1 takes a free one.
        Ok(-1) => Ok(0),
        Ok(port) if (0..=65_535).contains(&port) => Ok(u16::try_from(port).unwrap_or(0)),
        _ => Err(Fault::new(value.line, format!("`{text}` is no port"))),
    }
}

fn host(value: &Located) -> Outcome<IpAddr> {
    let text = string(value)?;
    match text.as_str() {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.trim_matches(['[', ']']).parse().map_err(|_| {
            Fault::new(value.line, format!("`{text}` is no address, such as 127.0.0.1 or 0.0.0.0"))
        }),
    }
}

/// `HOST:PORT` or `PORT`.
fn address(value: &Located) -> Outcome<(Option<IpAddr>, u16)> {
    let text = string(value)?;
    let part = |text: &str| Located { line: value.line, value: Value::Text(text.to_owned()) };
    match text.rsplit_once(':') {
        Some((name, number)) => {
            let host = if name.is_empty() { None } else { Some(host(&part(name))?) };
            Ok((host, port(&part(number))?))
        }
        None => Ok((None, port(value)?)),
    }
}
