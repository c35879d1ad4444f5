//! What can be set of how an origin is asked: which of its servers, when one is left alone, and TLS with them.

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

/// The heading; each site may say all of it for itself.
pub(crate) const ORIGINS: &str = "Origins (each site may have its own)";

/// A row of the table: all are of the accelerator, and of a site.
const fn row(
    key: &'static str,
    shape: ValueShape,
    value_name: &'static str,
    help: &'static str,
    access: ValueAccess,
) -> Setting {
    Setting { key, section: Section::Cache, shape, heading: ORIGINS, value_name, help, access }
}

/// The settings of origins.
pub(crate) const ORIGIN_SETTINGS: &[Setting] = &[
    row(
        "balance",
        ValueShape::Text,
        "WAY",
        "Which server of an origin is asked: round-robin, random, least-busy, or hash (the same one for the same page, as long as \
         it is not much busier than the others)",
        ValueAccess {
            set: |settings, text| {
                let found = Balance::ALL.iter().find(|(name, _)| *name == text);
                let balance = found.ok_or("the ways are round-robin, random, least-busy and hash")?.1;
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
        "Keeps a visitor whose requests are passed with one server, by a cookie of this name that is set for it",
        optional!(cache.rules.origin.sticky, parse = cookie_name, show = ToString::to_string),
    ),
    row(
        "origin-tries",
        ValueShape::Count,
        "N",
        "Servers that are asked for one answer, one after the other, where one cannot be reached or ends a request that may be \
         repeated without an answer",
        value!(cache.rules.origin.tries, parse = small, show = u32_text),
    ),
    row(
        "eject-after",
        ValueShape::Count,
        "N",
        "Requests that fail one after the other before a server is left alone for a while; 0: never",
        value!(cache.rules.origin.server.eject_after, parse = any_small, show = u32_text),
    ),
    row(
        "eject-time",
        ValueShape::Text,
        "TIME",
        "For how long it is; twice as long each time that it fails again at once, up to 32 times",
        value!(cache.rules.origin.server.eject_time, parse = some_time, show = duration_text),
    ),
    row(
        "slow-start",
        ValueShape::Text,
        "TIME",
        "Over what time a server that is back is given its part of the work again; 0s: at once",
        value!(cache.rules.origin.server.slow_start, parse = parse_duration, show = duration_text),
    ),
    row(
        "probe",
        ValueShape::Text,
        "PATH",
        "Asks each server for this path, to know whether it is well; unset: only how it fares with requests counts",
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
        "Within what time it has to answer",
        value!(cache.rules.origin.server.probe.time_max, parse = some_time, show = duration_text),
    ),
    row(
        "probe-status",
        ValueShape::Text,
        "STATUS",
        "The status of a good answer, or from which to which",
        value!(cache.rules.origin.server.probe.status, parse = statuses, show = statuses_text),
    ),
    row(
        "probe-body",
        ValueShape::Text,
        "TEXT",
        "What the content of a good answer has in it, in its first 64KiB; unset: anything",
        optional!(cache.rules.origin.server.probe.body, parse = some_text, show = ToString::to_string),
    ),
    row(
        "probe-window",
        ValueShape::Count,
        "N",
        "Of so many of the last probes (64 at most) ...",
        value!(cache.rules.origin.server.probe.window, parse = window, show = u32_text),
    ),
    row(
        "probe-threshold",
        ValueShape::Count,
        "N",
        "... so many have to be good, or the server is not asked",
        value!(cache.rules.origin.server.probe.threshold, parse = window, show = u32_text),
    ),
    row(
        "origin-protocol",
        ValueShape::Text,
        "PROTOCOL",
        "What is spoken with servers: auto (HTTP/2 where one is asked by https and offers it), http1, or http2 (in the clear, too, \
         where a server has to be known to speak it)",
        ValueAccess {
            set: |settings, text| {
                let found = Protocol::ALL.iter().find(|(name, _)| *name == text);
                let protocol = found.ok_or("the protocols are auto, http1 and http2")?.1;
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
        "Who vouches for servers that are asked by https (PEM); unset: whom the system trusts",
        optional!(cache.rules.origin.server.tls.ca, parse = parse_path, show = path_text),
    ),
    row(
        "origin-tls-name",
        ValueShape::Text,
        "NAME",
        "The name that such a server is asked for (SNI), and that its certificate has; unset: its host",
        optional!(cache.rules.origin.server.tls.name, parse = some_text, show = ToString::to_string),
    ),
    row(
        "origin-tls-cert",
        ValueShape::Text,
        "FILE",
        "The certificate that such a server is shown (PEM); goes with origin-tls-key",
        optional!(cache.rules.origin.server.tls.certificate, parse = parse_path, show = path_text),
    ),
    row(
        "origin-tls-key",
        ValueShape::Text,
        "FILE",
        "Its private key (PEM)",
        optional!(cache.rules.origin.server.tls.key, parse = parse_path, show = path_text),
    ),
];

/// An origin's servers.
pub(crate) fn parse_origin(text: &str) -> Result<Origin, String> {
    text.parse().map_err(|error: InvalidOrigin| error.to_string())
}

fn u32_text(number: u32) -> String {
    number.to_string()
}

fn any_small(text: &str) -> Result<u32, String> {
    u32::try_from(any_count(text)?).map_err(|_| "it is too many".to_owned())
}

fn small(text: &str) -> Result<u32, String> {
    u32::try_from(one_or_more(text)?).map_err(|_| "it is too many".to_owned())
}

fn window(text: &str) -> Result<u32, String> {
    match small(text)? {
        probes @ 1..=64 => Ok(probes),
        _ => Err("from 1 to 64 probes are remembered".to_owned()),
    }
}

fn some_text(text: &str) -> Result<Box<str>, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.into()) }
}

fn probe_path(text: &str) -> Result<Box<str>, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path { Ok(text.into()) } else { Err(format!("`{text}` is no path, such as /healthz")) }
}

/// `200`, or `200-399`.
fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from @ 100..=599), Ok(to @ 100..=599)) if from <= to => Ok((from, to)),
        _ => Err(format!("`{text}` is no status such as 200, and not from one to another such as 200-399")),
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
