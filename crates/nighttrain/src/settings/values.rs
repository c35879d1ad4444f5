//! Parsers and formatters of setting values: addresses, paths, counts and sizes.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
    time::Duration,
};

use cache::{InvalidNetwork, Network};
use wire::http1::fields::is_token;

use crate::settings::units::{parse_duration, parse_size, size_text};

pub(crate) fn host_name(text: &str) -> Result<String, String> {
    let name: acme::Name = text.parse().map_err(|wrong: acme::InvalidName| wrong.to_string())?;
    Ok(name.to_string())
}

pub(crate) fn parse_address(text: &str, usual_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let right = format!("expected IP:PORT, for instance 127.0.0.1:{usual_port} or [::1]:{usual_port}");
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Err(format!("missing port: {right}; perhaps {}", SocketAddr::new(ip, usual_port)));
    }
    if let Some(port) =
        text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok().filter(|_| !text.is_empty())
    {
        return Err(format!("missing IP address: {right}; perhaps 127.0.0.1:{port}"));
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse::<u16>()),
        None => (text, Ok(usual_port)),
    };
    let Ok(port) = port else { return Err(right) };
    match name {
        "*" => Err(format!(
            "invalid address *: {right}; for all addresses of this machine 0.0.0.0:{port} or [::]:{port}"
        )),
        "localhost" => {
            Err(format!("a name may stand for several addresses: {right}; perhaps 127.0.0.1:{port}"))
        }
        name if is_host_name(name) => Err(format!(
            "`{name}` is a name, which may stand for several addresses: {right}; for all addresses of this machine \
             0.0.0.0:{port}"
        )),
        _ => Err(right),
    }
}

/// Returns whether a text looks like a host's name.
fn is_host_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// Resolves a host's name. The first IPv4 address is preferred, as in nats-server (Go's listener does so).
pub(crate) fn resolve(name: &str) -> Result<IpAddr, String> {
    let found: Vec<SocketAddr> =
        (name, 0).to_socket_addrs().map_err(|why| format!("`{name}` has no address: {why}"))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.map(SocketAddr::ip).ok_or_else(|| format!("`{name}` has no address"))
}

/// Parses an address as [`parse_address`] does, or a host's name and a port.
pub(crate) fn parse_host_and_port(text: &str, usual_port: u16) -> Result<SocketAddr, String> {
    match text.rsplit_once(':') {
        Some((name, port)) if is_host_name(name) => {
            let port = port
                .parse()
                .map_err(|_| format!("invalid port `{port}`; expected one such as {usual_port}"))?;
            resolve(name).map(|ip| SocketAddr::new(ip, port))
        }
        _ => parse_address(text, usual_port),
    }
}

pub(crate) fn parse_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("missing path".to_owned()) } else { Ok(PathBuf::from(text)) }
}

pub(crate) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Parses the members of a list.
pub(crate) fn list_of<T>(text: &str, member: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    list(text).map(member).collect()
}

/// Formats a list; `None` if it is empty.
pub(crate) fn list_text(members: &[impl ToString]) -> Option<String> {
    let members: Vec<_> = members.iter().map(ToString::to_string).collect();
    (!members.is_empty()).then(|| members.join(","))
}

/// Returns the value of a name. The error lists the names.
pub(crate) fn value_of<T: Copy>(names: &[(&str, T)], text: &str) -> Result<T, String> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        match names.rsplit_once(", ") {
            Some((others, last)) => format!("expected {others} or {last}"),
            None => format!("expected {names}"),
        }
    })
}

/// Returns the name of a value; `None` if it has none.
pub(crate) fn name_of<T: PartialEq>(names: &[(&str, T)], value: &T) -> Option<String> {
    names.iter().find(|(_, named)| named == value).map(|(name, _)| (*name).to_owned())
}

/// Parses a network.
pub(crate) fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|error: InvalidNetwork| error.to_string())
}

/// Parses a field name (RFC 9110 §5.6.2).
pub(crate) fn field_name(text: &str) -> Result<Box<str>, String> {
    if is_token(text.as_bytes()) {
        Ok(text.into())
    } else {
        Err(format!("invalid field name `{text}`; expected one such as Surrogate-Key"))
    }
}

pub(crate) fn any_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number, for instance 100".to_owned())
}

pub(crate) fn one_or_more(text: &str) -> Result<usize, String> {
    match any_count(text)? {
        0 => Err("expected at least 1".to_owned()),
        count => Ok(count),
    }
}

/// Parses a size that is not zero.
pub(crate) fn some_size(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(0) | Err(_) => Err("expected a size above zero, for instance 1MiB".to_owned()),
        Ok(bytes) => Ok(bytes),
    }
}

pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("expected a time above zero, for instance 10s".to_owned()),
        time => Ok(time),
    }
}

pub(crate) fn plain(value: impl ToString) -> String {
    value.to_string()
}

pub(crate) fn usize_size_text(bytes: usize) -> String {
    size_text(bytes as u64)
}

pub(crate) fn path_text(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

pub(crate) fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "expected true or false".to_owned())
}
