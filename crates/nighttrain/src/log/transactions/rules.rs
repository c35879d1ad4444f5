//! What can be set of the log of transactions.

use std::path::PathBuf;

use wire::transaction::{Secrets, show::Format};

use crate::settings::{
    COMMON, Section, Setting, ValueAccess, ValueShape, list, one_or_more, optional, parse_path, path_text,
    plain, some_size,
    units::{parse_size, size_text},
    usize_size_text, value,
};

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogRules {
    /// What each loop's ring holds.
    pub ring_bytes: usize,
    /// The file of the access log.
    pub access_log: Option<PathBuf>,
    /// How its lines look.
    pub format: FileFormat,
    /// When it begins a new file.
    pub rotate: Option<Rotate>,
    /// How many earlier files are kept.
    pub keep: usize,
}

impl Default for LogRules {
    fn default() -> Self {
        Self { ring_bytes: 4 << 20, access_log: None, format: FileFormat::default(), rotate: None, keep: 7 }
    }
}

/// How lines of the access log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FileFormat {
    /// As most web servers write them.
    #[default]
    Combined,
    /// An object a line.
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
            _ => Err("combined or json is wanted".to_owned()),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Json => "json",
        }
    }
}

/// When a file is set aside and a new one is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotate {
    /// With each day of UTC.
    Daily,
    /// When it has so many bytes.
    Bytes(u64),
}

/// A smaller file would be set aside again and again.
const ROTATE_BYTES_MIN: u64 = 4096;

impl Rotate {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "daily" => Ok(Self::Daily),
            _ => match parse_size(text) {
                Ok(bytes @ ROTATE_BYTES_MIN..) => Ok(Self::Bytes(bytes)),
                _ => Err("daily or a size of 4KiB or more is wanted, for instance 100MiB".to_owned()),
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

/// The settings of the log.
pub(crate) const LOG_SETTINGS: &[Setting] = &[
    Setting {
        key: "log-ring",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "SIZE",
        help: "Memory of each loop for `nighttrain log`, taken while somebody reads; records beyond it are lost and counted",
        access: value!(log_rules.ring_bytes, parse = some_size, show = usize_size_text),
    },
    of_cache(
        "access-log",
        "FILE",
        "A file that each request is appended to, off the loops; SIGUSR1 opens it again",
        optional!(log_rules.access_log, parse = parse_path, show = path_text),
    ),
    of_cache(
        "access-log-format",
        "FORMAT",
        "How its lines look: combined or json",
        value!(
            log_rules.format,
            parse = FileFormat::parse,
            show = |format: FileFormat| format.text().to_owned()
        ),
    ),
    of_cache(
        "access-log-rotate",
        "SIZE|daily",
        "When it is set aside as FILE.1, and a new one begun; unset: never",
        optional!(log_rules.rotate, parse = Rotate::parse, show = Rotate::text),
    ),
    Setting {
        shape: ValueShape::Count,
        ..of_cache(
            "access-log-keep",
            "N",
            "How many files that were set aside are kept",
            value!(log_rules.keep, parse = one_or_more, show = plain),
        )
    },
    Setting {
        shape: ValueShape::Texts,
        ..of_cache(
            "log-hide-query",
            "NAMES",
            "Parameters of queries whose values are never logged; - for none",
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
            Err(format!("`{name}` is no name of a parameter, such as token; they stand between commas"))
        }
        None => Ok(Secrets::of(list(text))),
    }
}

fn secrets_text(secrets: Secrets) -> String {
    let names: Vec<_> = secrets.names().collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}
