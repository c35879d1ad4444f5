//! Settings of the transaction log.

use wire::transaction::Secrets;

use super::common::COMMON;
use crate::{
    log::transactions::{FileFormat, Rotate},
    settings::{
        Group, Section, Setting, list, one_or_more, optional, optional_path, plain, some_size,
        usize_size_text, value,
    },
};

const LOG: Group = Group { section: Section::Cache, heading: "Log" };

/// Settings table of the log.
pub(crate) const LOG_SETTINGS: &[Setting] = &[
    COMMON.text(
        "log-ring",
        "SIZE",
        "Memory per loop for `nighttrain log`, allocated while a reader is attached; records beyond it are \
         lost and counted",
        value!(log_rules.ring_bytes, parse = some_size, show = usize_size_text),
    ),
    LOG.text(
        "access-log",
        "FILE",
        "File for the access log, one line per request, written off the loops; SIGUSR1 reopens it",
        optional_path!(log_rules.access_log),
    ),
    LOG.text(
        "access-log-format",
        "FORMAT",
        "Format of the access log: combined or json",
        value!(
            log_rules.format,
            parse = FileFormat::parse,
            show = |format: FileFormat| format.text().to_owned()
        ),
    ),
    LOG.text(
        "access-log-rotate",
        "SIZE|daily",
        "When to rotate the access log to FILE.1: a size or daily; unset: never",
        optional!(log_rules.rotate, parse = Rotate::parse, show = Rotate::text),
    ),
    LOG.count(
        "access-log-keep",
        "N",
        "Rotated access log files to keep",
        value!(log_rules.keep, parse = one_or_more, show = plain),
    ),
    LOG.texts(
        "log-hide-query",
        "NAMES",
        "Query parameters whose values are never logged; -: none",
        value!(cache.log_secrets, parse = parse_secrets, show = secrets_text),
    ),
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
