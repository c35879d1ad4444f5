//! Settings of the transaction log.

use std::path::PathBuf;

use wire::transaction::{Secrets, show::Format};

use crate::settings::{
    COMMON, Section, Setting, ValueAccess, ValueShape, list, one_or_more, optional, parse_path, path_text,
    plain, some_size,
    units::{parse_size, size_text},
    usize_size_text, value,
};

/// Active settings of the transaction log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogRules {
    /// Size of each loop's ring.
    pub ring_bytes: usize,
    /// Path of the access log.
    pub access_log: Option<PathBuf>,
    /// Format of the access log's lines.
    pub format: FileFormat,
    /// Condition for rotating the access log.
    pub rotate: Option<Rotate>,
    /// Number of rotated files that are kept.
    pub keep: usize,
}

impl Default for LogRules {
    fn default() -> Self {
        Self { ring_bytes: 4 << 20, access_log: None, format: FileFormat::default(), rotate: None, keep: 7 }
    }
}

/// Format of the access log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FileFormat {
    /// The combined format that most web servers write.
    #[default]
    Combined,
    /// A JSON object per line.
    Json,
}

impl FileFormat {
    pub(crate) const fn format(self) -> Format {
        match self {
            Self::Combined => Format::Combined,
            Self::Json => Format::Json,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            _ => Err("expected combined or json".to_owned()),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Json => "json",
        }
    }
}

/// Condition that causes a rotation of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotate {
    /// Daily rotation, before the first line of a UTC day.
    Daily,
    /// Rotation before the file would exceed this number of bytes.
    Bytes(u64),
}

/// Minimum size for rotation; a smaller file would rotate constantly.
const ROTATE_BYTES_MIN: u64 = 4096;

impl Rotate {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "daily" => Ok(Self::Daily),
            _ => match parse_size(text) {
                Ok(bytes @ ROTATE_BYTES_MIN..) => Ok(Self::Bytes(bytes)),
                _ => Err("expected daily, or a size of at least 4KiB, for instance 100MiB".to_owned()),
            },
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Daily => "daily".to_owned(),
            Self::Bytes(bytes) => size_text(*bytes),
        }
    }
}

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
