//! Conversion of the file's values to types.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use super::text::{Entry, Fault, LocatedValue, Surroundings, Value};

/// Result of reading a value.
pub(super) type Outcome<T = ()> = Result<T, Fault>;

/// Returns the last entry for each key and, as the second list, the entries that were overridden in the same
/// file. As in nats-server the last entry counts, even if it is a block. `fold`: keys are option names,
/// compared without regard to case.
pub(super) fn once_each(entries: &[Entry], fold: bool) -> (Vec<&Entry>, Vec<&Entry>) {
    let mut places = HashMap::new();
    let mut once: Vec<&Entry> = Vec::new();
    let mut overruled = Vec::new();
    for entry in entries {
        let key = if fold { entry.key.to_ascii_lowercase() } else { entry.key.clone() };
        let place = *places.entry(key).or_insert(once.len());
        let Some(before) = once.get_mut(place) else {
            once.push(entry);
            continue;
        };
        // `PORT: 4222` may only define a variable for `port: $PORT`, and a file may override what it
        // includes.
        let is_for_it = before.is_variable && before.key != entry.key;
        if !is_for_it && before.line.file == entry.line.file {
            overruled.push(*before);
        }
        *before = entry;
    }
    (once, overruled)
}

/// Rejects an unknown option where ignoring it could allow access that the option restricts.
pub(super) fn unknown(entry: &Entry, key: &str, of: &str) -> Outcome {
    // The entry is used as a variable, so its key need not be an option.
    if entry.is_variable {
        return Ok(());
    }
    let message = format!("`{key}` is not supported in {of}, and ignoring it could allow what it forbids");
    Err(Fault::new(entry.line, message))
}

pub(super) fn block(value: &LocatedValue) -> Outcome<&[Entry]> {
    match &value.value {
        Value::Block(entries) => Ok(entries),
        _ => Err(Fault::new(value.line, "expected a block { … }")),
    }
}

pub(super) fn list(value: &LocatedValue) -> Outcome<&[LocatedValue]> {
    match &value.value {
        Value::List(list) => Ok(list),
        _ => Err(Fault::new(value.line, "expected a list [ … ]")),
    }
}

pub(super) fn string(value: &LocatedValue) -> Outcome<String> {
    match &value.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(Fault::new(value.line, "expected one value, not a block or list")),
    }
}

/// Reads a string, or a list of strings.
pub(super) fn strings(value: &LocatedValue) -> Outcome<Vec<String>> {
    match &value.value {
        Value::List(list) => list.iter().map(string).collect(),
        _ => Ok(vec![string(value)?]),
    }
}

pub(super) fn boolean(value: &LocatedValue) -> Outcome<bool> {
    match string(value)?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        other => Err(Fault::new(value.line, format!("invalid value `{other}`: expected true or false"))),
    }
}

/// Reads a whole number with an optional unit: k, m, g, t are powers of 1000; kb, mb … and ki, kib … are
/// powers of 1024 (nats-server's rule).
pub(super) fn count(value: &LocatedValue) -> Outcome<u64> {
    let text = string(value)?;
    let wrong = || Fault::new(value.line, format!("invalid whole number `{text}`; expected 65536 or 64KB"));
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

/// Value of a limit that is turned off; the bounds on all clients together still apply.
pub(super) const NO_LIMIT: u64 = u64::MAX;

/// Reads a limit: 0 means the default (nats-server's `setBaselineOptions`), a negative number means no limit.
pub(super) fn limit(value: &LocatedValue) -> Outcome<Option<u64>> {
    let text = string(value)?;
    if text.parse::<i64>().is_ok_and(|number| number < 0) {
        return Ok(Some(NO_LIMIT));
    }
    Ok(Some(count(value)?).filter(|limit| *limit > 0))
}

/// Reads a limit for which 0, too, means no limit.
pub(super) fn limit_or_none(value: &LocatedValue) -> Outcome<u64> {
    Ok(limit(value)?.unwrap_or(NO_LIMIT))
}

/// Reads a time; 0 means the default.
pub(super) fn some_duration(value: &LocatedValue) -> Outcome<Option<Duration>> {
    Ok(Some(duration(value)?).filter(|time| !time.is_zero()))
}

/// Reads a time in Go's format (`1m30s`, `250ms`); a bare number, possibly with a fraction, is in seconds.
pub(super) fn duration(value: &LocatedValue) -> Outcome<Duration> {
    let text = string(value)?;
    let wrong = || Fault::new(value.line, format!("invalid time `{text}`; expected 10s, 2m or 250ms"));
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

pub(super) fn port(value: &LocatedValue) -> Outcome<u16> {
    let text = string(value)?;
    match text.parse::<i32>() {
        // Port -1 means any free port, as in nats-server.
        Ok(-1) => Ok(0),
        Ok(port) if (0..=65_535).contains(&port) => Ok(u16::try_from(port).unwrap_or(0)),
        _ => Err(Fault::new(value.line, format!("invalid port `{text}`"))),
    }
}

/// Reads an IP address, or a host name that resolves to one.
pub(super) fn host(value: &LocatedValue, around: &dyn Surroundings) -> Outcome<IpAddr> {
    let text = string(value)?;
    let name = text.trim_matches(['[', ']']);
    match (name, name.parse()) {
        (_, Ok(address)) => Ok(address),
        ("localhost", _) => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => around
            .address_of(name)
            .map_err(|why| Fault::new(value.line, format!("invalid address `{text}`: {why}"))),
    }
}

/// Reads `HOST:PORT` or `PORT`.
pub(super) fn address(value: &LocatedValue, around: &dyn Surroundings) -> Outcome<(Option<IpAddr>, u16)> {
    let text = string(value)?;
    let part = |text: &str| LocatedValue { line: value.line, value: Value::Text(text.to_owned()) };
    match text.rsplit_once(':') {
        Some((name, number)) => {
            let host = if name.is_empty() { None } else { Some(host(&part(name), around)?) };
            Ok((host, port(&part(number))?))
        }
        None => Ok((None, port(value)?)),
    }
}
