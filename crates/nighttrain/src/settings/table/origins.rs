//! Settings of the connections to an origin: load balancing, ejection of failing servers, and TLS.

use cache::{
    Origin,
    config::{Balance, InvalidOrigin, Protocol, cookie_name},
};

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, any_count, one_or_more, optional, parse_path, path_text,
    some_time,
    units::{duration_text, parse_duration},
    value,
};

/// Heading of the origin settings in `--help`; each site may override them.
pub(crate) const ORIGINS: &str = "Origins (each site may have its own)";

/// Returns a row of the table; every row is a setting of the accelerator, and of a site.
const fn row(
    key: &'static str,
    shape: ValueShape,
    value_name: &'static str,
    help: &'static str,
    access: ValueAccess,
) -> Setting {
    Setting { key, section: Section::Cache, shape, heading: ORIGINS, value_name, help, access }
}

/// Settings table of origins.
pub(crate) const ORIGIN_SETTINGS: &[Setting] = &[
    row(
        "balance",
        ValueShape::Text,
        "WAY",
        "How a server of an origin is chosen: round-robin, random, least-busy, or hash (the same one for the same \
         page, unless it is much busier than the others)",
        ValueAccess {
            set: |settings, text| {
                let found = Balance::ALL.iter().find(|(name, _)| *name == text);
                let balance = found.ok_or("expected round-robin, random, least-busy or hash")?.1;
                settings.cache.rules.origin.balance = balance;
                Ok(())
            },
            text: |settings| {
                let balance = settings.cache.rules.origin.balance;
                Balance::ALL.iter().find(|(_, of)| *of == balance).map(|(name, _)| (*name).to_owned())
            },
        },
    ),
    row(
        "sticky-cookie",
        ValueShape::Text,
        "NAME",
        "Name of a cookie to keep a visitor whose requests are passed with one server; unset: none",
        optional!(cache.rules.origin.sticky, parse = cookie_name, show = ToString::to_string),
    ),
    row(
        "origin-tries",
        ValueShape::Count,
        "N",
        "Servers tried for one answer, one after the other, if one is unreachable or ends a repeatable request without \
         an answer",
        value!(cache.rules.origin.tries, parse = small, show = u32_text),
    ),
    row(
        "eject-after",
        ValueShape::Count,
        "N",
        "Consecutive failures after which a server is ejected; 0: never",
        value!(cache.rules.origin.server.eject_after, parse = any_small, show = u32_text),
    ),
    row(
        "eject-time",
        ValueShape::Text,
        "TIME",
        "Time that an ejected server is out of rotation, doubled for each further ejection, up to 32 times",
        value!(cache.rules.origin.server.eject_time, parse = some_time, show = duration_text),
    ),
    row(
        "slow-start",
        ValueShape::Text,
        "TIME",
        "Time over which a returning server gets its full share of requests; 0s: at once",
        value!(cache.rules.origin.server.slow_start, parse = parse_duration, show = duration_text),
    ),
    row(
        "probe",
        ValueShape::Text,
        "PATH",
        "Path of health probes; unset: no probes, only failed requests count",
        optional!(cache.rules.origin.server.probe.path, parse = probe_path, show = ToString::to_string),
    ),
    row(
        "probe-interval",
        ValueShape::Text,
        "TIME",
        "How often",
        value!(cache.rules.origin.server.probe.every, parse = some_time, show = duration_text),
    ),
    row(
        "probe-time-max",
        ValueShape::Text,
        "TIME",
        "Timeout of a health probe",
        value!(cache.rules.origin.server.probe.time_max, parse = some_time, show = duration_text),
    ),
    row(
        "probe-status",
        ValueShape::Text,
        "STATUS",
        "Status of a healthy answer, or a range such as 200-399",
        value!(cache.rules.origin.server.probe.status, parse = statuses, show = statuses_text),
    ),
    row(
        "probe-body",
        ValueShape::Text,
        "TEXT",
        "Text that the first 64KiB of a healthy answer contain; unset: any",
        optional!(cache.rules.origin.server.probe.body, parse = some_text, show = ToString::to_string),
    ),
    row(
        "probe-window",
        ValueShape::Count,
        "N",
        "Number of recent probes that count, at most 64",
        value!(cache.rules.origin.server.probe.window, parse = window, show = u32_text),
    ),
    row(
        "probe-threshold",
        ValueShape::Count,
        "N",
        "Good probes among them that a server needs to stay in rotation",
        value!(cache.rules.origin.server.probe.threshold, parse = window, show = u32_text),
    ),
    row(
        "origin-protocol",
        ValueShape::Text,
        "PROTOCOL",
        "Protocol to the origin: auto (HTTP/2 if the server offers it over https), http1, or http2 (also in the clear, \
         with a server known to support it)",
        ValueAccess {
            set: |settings, text| {
                let found = Protocol::ALL.iter().find(|(name, _)| *name == text);
                let protocol = found.ok_or("expected auto, http1 or http2")?.1;
                settings.cache.rules.origin.server.protocol = protocol;
                Ok(())
            },
            text: |settings| {
                let protocol = settings.cache.rules.origin.server.protocol;
                Protocol::ALL.iter().find(|(_, of)| *of == protocol).map(|(name, _)| (*name).to_owned())
            },
        },
    ),
    row(
        "origin-tls-ca",
        ValueShape::Text,
        "FILE",
        "CA certificates to trust for https origins (PEM); unset: the system's",
        optional!(cache.rules.origin.server.tls.ca, parse = parse_path, show = path_text),
    ),
    row(
        "origin-tls-name",
        ValueShape::Text,
        "NAME",
        "Name for SNI and the certificate of https origins; unset: the origin's host",
        optional!(cache.rules.origin.server.tls.name, parse = some_text, show = ToString::to_string),
    ),
    row(
        "origin-tls-cert",
        ValueShape::Text,
        "FILE",
        "Client certificate for https origins (PEM); needs origin-tls-key",
        optional!(cache.rules.origin.server.tls.certificate, parse = parse_path, show = path_text),
    ),
    row(
        "origin-tls-key",
        ValueShape::Text,
        "FILE",
        "Private key of origin-tls-cert (PEM)",
        optional!(cache.rules.origin.server.tls.key, parse = parse_path, show = path_text),
    ),
];

/// Parses an origin's servers.
pub(crate) fn parse_origin(text: &str) -> Result<Origin, String> {
    text.parse().map_err(|error: InvalidOrigin| error.to_string())
}

fn u32_text(number: u32) -> String {
    number.to_string()
}

fn any_small(text: &str) -> Result<u32, String> {
    u32::try_from(any_count(text)?).map_err(|_| "the number is too large".to_owned())
}

fn small(text: &str) -> Result<u32, String> {
    u32::try_from(one_or_more(text)?).map_err(|_| "the number is too large".to_owned())
}

fn window(text: &str) -> Result<u32, String> {
    match small(text)? {
        probes @ 1..=64 => Ok(probes),
        _ => Err("expected 1 to 64 probes".to_owned()),
    }
}

fn some_text(text: &str) -> Result<Box<str>, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.into()) }
}

fn probe_path(text: &str) -> Result<Box<str>, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path {
        Ok(text.into())
    } else {
        Err(format!("invalid path `{text}`; expected one such as /healthz"))
    }
}

/// Parses a status or a range of statuses: `200`, or `200-399`.
fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from @ 100..=599), Ok(to @ 100..=599)) if from <= to => Ok((from, to)),
        _ => Err(format!("invalid status `{text}`: expected 200, or a range such as 200-399")),
    }
}

fn statuses_text((from, to): (u16, u16)) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_or_from_one_to_another() {
        for (text, range) in [("200", (200, 200)), ("200-399", (200, 399))] {
            assert_eq!(statuses(text), Ok(range));
            assert_eq!(statuses_text(range), text);
        }
        for wrong in ["", "ok", "99", "600", "399-200", "200-", "200-299-300"] {
            assert!(statuses(wrong).is_err(), "{wrong}");
        }
        assert!(window("0").is_err() && window("65").is_err() && window("64") == Ok(64));
        assert!(probe_path("healthz").is_err() && probe_path("/a b").is_err() && probe_path("/a?b").is_ok());
    }
}
