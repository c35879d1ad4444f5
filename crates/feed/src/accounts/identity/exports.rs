//! Exports and imports of an account as configured, and the error of an invalid one.

use std::time::Duration;

/// Default time for a service to answer a request; the export may set another (nats-server's
/// `DEFAULT_SERVICE_EXPORT_RESPONSE_THRESHOLD`).
pub const ANSWER_TIME: Duration = Duration::from_secs(120);

/// A stream or service that other accounts may import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Pattern of the exported subjects.
    pub subject: String,
    /// Settings of an exported service; `None` for a stream.
    pub service: Option<ServiceExport>,
    /// Names of the accounts that may import this. An empty list allows every account.
    pub accounts: Vec<String>,
    /// Position, counted from 1, of the subject token that must be the importing account's name. The export's
    /// pattern has a wildcard at this position.
    pub account_token_position: Option<usize>,
}

/// Settings for the answers of an exported service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceExport {
    /// Number of answers that the service sends to a request.
    pub response: Response,
    /// Time limit for an answer, counted from the request or from the previous answer.
    pub threshold: Duration,
}

impl Default for ServiceExport {
    fn default() -> Self {
        Self { response: Response::Singleton, threshold: ANSWER_TIME }
    }
}

/// Number of answers to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// A single answer.
    Singleton,
    /// Many answers; an empty one is the last.
    Stream,
    /// A single answer in several messages; an empty one is the last.
    Chunked,
}

/// A stream or service that an account imports from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Name of the exporting account.
    pub account: String,
    /// Pattern of the subjects in the exporting account.
    pub subject: String,
    /// Pattern of the subjects in the importing account; `None`: the same as in the exporting account.
    pub to: Option<String>,
    /// Prefix of the subjects in the importing account.
    pub prefix: Option<String>,
    /// True for a service, false for a stream.
    pub is_service: bool,
    /// The service receives details about the requesting client (`Nats-Request-Info`).
    pub share: bool,
}

/// Error of an export or import, with its position in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("account `{name}`: {why}")]
pub struct ExchangeFault {
    /// Name of the account.
    pub name: String,
    /// Index of the account in the configuration.
    pub account: usize,
    /// Index of the export or import within the account.
    pub part: Part,
    /// Describes the error and what would be valid instead.
    pub why: String,
}

/// Index of one of an account's exports or imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Index among the exports.
    Export(usize),
    /// Index among the imports.
    Import(usize),
}
