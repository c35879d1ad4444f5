//! Settings of the transaction log.

use wire::transaction::Secrets;

use super::common::COMMON;
use crate::{
    log::transactions::{FileFormat, Rotate},
    settings::{
        Section, Setting, ValueAccess, ValueShape, list, one_or_more, optional, parse_path, path_text, plain,
        some_size, usize_size_text, value,
    },
};

const HEADING: &str = "Log";

const fn of_cache(
    key: &'static str,
    value_name: &'static str,
    help: &'static str,
    access: ValueAccess,
) -> Setting {
    Setting {
        key,
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: HEADING,
        value_name,
        help,
        access,
    }
}

/// Settings table of the log.
pub(crate) const LOG_SETTINGS: &[Setting] = &[
    Setting {
        key: "log-ring",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "SIZE",
        help: "Memory per loop for `nighttrain log`, allocated while a reader is attached; records beyond it are lost \
               and counted",
        access: value!(log_rules.ring_bytes, parse = some_size, show = usize_size_text),
    },
    of_cache(
        "access-log",
        "FILE",
        "File for the access log, one line per request, written off the loops; SIGUSR1 reopens it",
        optional!(log_rules.access_log, parse = parse_path, show = path_text),
    ),
    of_cache(
        "access-log-format",
        "FORMAT",
        "Format of the access log: combined or json",
        value!(
            log_rules.format,
            parse = FileFormat::parse,
            show = |format: FileFormat| format.text().to_owned()
        ),
    ),
    of_cache(
        "access-log-rotate",
        "SIZE|daily",
        "When to rotate the access log to FILE.1: a size or daily; unset: never",
        optional!(log_rules.rotate, parse = Rotate::parse, show = Rotate::text),
    ),
    Setting {
        shape: ValueShape::Count,
        ..of_cache(
            "access-log-keep",
            "N",
            "Rotated access log files to keep",
            value!(log_rules.keep, parse = one_or_more, show = plain),
        )
    },
    Setting {
        shape: ValueShape::Texts,
        ..of_cache(
            "log-hide-query",
            "NAMES",
            "Query parameters whose values are never logged; -: none",
            value!(cache.log_secrets, parse = parse_secrets, show = secrets_text),
        )
    },
];

fn parse_secrets(text: &str) -> Result<Secrets, String> {
    if text == "-" {
        return Ok(Secrets::of([]));
    }
    match list(text).find(|name| name.is_empty() || name.contains(['&', '=', '?', ';'])) {
        Some(name) => {
            Err(format!("invalid parameter name `{name}`; expected names such as token, separated by commas"))
        }
        None => Ok(Secrets::of(list(text))),
    }
}

fn secrets_text(secrets: Secrets) -> String {
    let names: Vec<_> = secrets.names().collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}
