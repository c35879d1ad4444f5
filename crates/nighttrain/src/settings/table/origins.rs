//! Settings of the connections to an origin: load balancing, ejection of failing servers, and TLS.

use std::ops::RangeInclusive;

use cache::{
    Origin,
    config::{Balance, InvalidOrigin, Protocol, cookie_name},
};

use crate::settings::{
    Group, Section, Setting, any_count, named, one_or_more, optional, optional_path, plain, some_time,
    units::{duration_text, parse_duration},
    value,
};

/// Group of the origin settings, which each site may override.
pub(crate) const ORIGINS: Group =
    Group { section: Section::Cache, heading: "Origins (each site may have its own)" };

/// Settings table of origins.
pub(crate) const ORIGIN_SETTINGS: &[Setting] = &[
    ORIGINS.text(
        "balance",
        "WAY",
        "How a server of an origin is chosen: round-robin, random, least-busy, or hash (the same one for the \
         same page, unless it is much busier than the others)",
        named!(cache.rules.origin.balance, Balance::ALL),
    ),
    ORIGINS.text(
        "sticky-cookie",
        "NAME",
        "Name of a cookie to keep a visitor whose requests are passed with one server; unset: none",
        optional!(cache.rules.origin.sticky, parse = cookie_name, show = ToString::to_string),
    ),
    ORIGINS.count(
        "origin-tries",
        "N",
        "Servers tried for one answer, one after the other, if one is unreachable or ends a repeatable \
         request without an answer",
        value!(cache.rules.origin.tries, parse = small, show = plain),
    ),
    ORIGINS.count(
        "eject-after",
        "N",
        "Consecutive failures after which a server is ejected; 0: never",
        value!(cache.rules.origin.server.eject_after, parse = any_small, show = plain),
    ),
    ORIGINS.text(
        "eject-time",
        "TIME",
        "Time that an ejected server is out of rotation, doubled for each further ejection, up to 32 times",
        value!(cache.rules.origin.server.eject_time, parse = some_time, show = duration_text),
    ),
    ORIGINS.text(
        "slow-start",
        "TIME",
        "Time over which a returning server gets its full share of requests; 0s: at once",
        value!(cache.rules.origin.server.slow_start, parse = parse_duration, show = duration_text),
    ),
    ORIGINS.text(
        "probe",
        "PATH",
        "Path of health probes; unset: no probes, only failed requests count",
        optional!(cache.rules.origin.server.probe.path, parse = probe_path, show = ToString::to_string),
    ),
    ORIGINS.text(
        "probe-interval",
        "TIME",
        "How often",
        value!(cache.rules.origin.server.probe.every, parse = some_time, show = duration_text),
    ),
    ORIGINS.text(
        "probe-time-max",
        "TIME",
        "Timeout of a health probe",
        value!(cache.rules.origin.server.probe.time_max, parse = some_time, show = duration_text),
    ),
    ORIGINS.text(
        "probe-status",
        "STATUS",
        "Status of a healthy answer, or a range such as 200-399",
        value!(cache.rules.origin.server.probe.status, parse = statuses, show = statuses_text),
    ),
    ORIGINS.text(
        "probe-body",
        "TEXT",
        "Text that the first 64KiB of a healthy answer contain; unset: any",
        optional!(cache.rules.origin.server.probe.body, parse = some_text, show = ToString::to_string),
    ),
    ORIGINS.count(
        "probe-window",
        "N",
        "Number of recent probes that count, at most 64",
        value!(cache.rules.origin.server.probe.window, parse = window, show = plain),
    ),
    ORIGINS.count(
        "probe-threshold",
        "N",
        "Good probes among them that a server needs to stay in rotation",
        value!(cache.rules.origin.server.probe.threshold, parse = window, show = plain),
    ),
    ORIGINS.text(
        "origin-protocol",
        "PROTOCOL",
        "Protocol to the origin: auto (HTTP/2 if the server offers it over https), http1, or http2 (also in \
         the clear, with a server known to support it)",
        named!(cache.rules.origin.server.protocol, Protocol::ALL),
    ),
    ORIGINS.text(
        "origin-tls-ca",
        "FILE",
        "CA certificates to trust for https origins (PEM); unset: the system's",
        optional_path!(cache.rules.origin.server.tls.ca),
    ),
    ORIGINS.text(
        "origin-tls-name",
        "NAME",
        "Name for SNI and the certificate of https origins; unset: the origin's host",
        optional!(cache.rules.origin.server.tls.name, parse = some_text, show = ToString::to_string),
    ),
    ORIGINS.text(
        "origin-tls-cert",
        "FILE",
        "Client certificate for https origins (PEM); needs origin-tls-key",
        optional_path!(cache.rules.origin.server.tls.certificate),
    ),
    ORIGINS.text(
        "origin-tls-key",
        "FILE",
        "Private key of origin-tls-cert (PEM)",
        optional_path!(cache.rules.origin.server.tls.key),
    ),
];

/// Parses an origin's servers.
pub(crate) fn parse_origin(text: &str) -> Result<Origin, String> {
    text.parse().map_err(|error: InvalidOrigin| error.to_string())
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
fn statuses(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from @ 100..=599), Ok(to @ 100..=599)) if from <= to => Ok(from..=to),
        _ => Err(format!("invalid status `{text}`: expected 200, or a range such as 200-399")),
    }
}

fn statuses_text(range: RangeInclusive<u16>) -> String {
    let (from, to) = range.into_inner();
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_or_from_one_to_another() {
        for (text, range) in [("200", 200..=200), ("200-399", 200..=399)] {
            assert_eq!(statuses(text), Ok(range.clone()));
            assert_eq!(statuses_text(range), text);
        }
        for wrong in ["", "ok", "99", "600", "399-200", "200-", "200-299-300"] {
            assert!(statuses(wrong).is_err(), "{wrong}");
        }
        assert!(window("0").is_err() && window("65").is_err() && window("64") == Ok(64));
        assert!(probe_path("healthz").is_err() && probe_path("/a b").is_err() && probe_path("/a?b").is_ok());
    }
}
