//! Settings of the transaction log.

use std::path::PathBuf;

use wire::transaction::show::Format;

use crate::settings::units::{parse_size, size_text};

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

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            _ => Err("expected combined or json".to_owned()),
        }
    }

    pub(crate) fn text(self) -> &'static str {
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
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "daily" => Ok(Self::Daily),
            _ => match parse_size(text) {
                Ok(bytes @ ROTATE_BYTES_MIN..) => Ok(Self::Bytes(bytes)),
                _ => Err("expected daily, or a size of at least 4KiB, for instance 100MiB".to_owned()),
            },
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Daily => "daily".to_owned(),
            Self::Bytes(bytes) => size_text(*bytes),
        }
    }
}
