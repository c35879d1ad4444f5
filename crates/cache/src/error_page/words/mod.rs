//! Faults of an exchange and their texts: one table gives every fault a status, the side at fault and advice,
//! and a new fault cannot be added without them.

mod texts;

use std::fmt;

use wire::{
    http1::{
        framing::{BodyError, BodyRule, FramingError},
        head::{HeadError, HeadRule},
    },
    http2::error::ErrorCode,
};

use crate::config::Methods;

use texts::{
    BAD_REQUEST, BODY_TOO_LARGE, CERTIFICATE_WANTED, EXPECTATION_FAILED, HEAD_TOO_LARGE, LOOP_DETECTED,
    METHOD_NOT_ALLOWED, METHOD_NOT_IMPLEMENTED, METHOD_NOT_TAKEN, MISDIRECTED, ONLY_IF_CACHED,
    ORIGIN_CLOSED_EARLY, ORIGIN_CONNECT_TIMEOUT, ORIGIN_DOWN, ORIGIN_HEAD_TOO_LARGE, ORIGIN_INVALID,
    ORIGIN_REFUSED, ORIGIN_RESET, ORIGIN_STALLED, ORIGIN_UNRESOLVED, ORIGIN_UNTRUSTED, OVERLOADED,
    PURGE_FORBIDDEN, RANGE_NOT_SATISFIABLE, REQUEST_TIMEOUT, TOO_MANY_CONNECTIONS, TOO_MANY_REQUESTS,
    TRANSFER_CODING_NOT_IMPLEMENTED, UNSUPPORTED_VERSION, URI_TOO_LONG, WORK_TOO_MUCH,
};

/// Rule of HTTP that a message broke, displayed as plain words with the RFC's section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A rule about the first line or the headers.
    Head(HeadRule),
    /// A rule about the framing, which determines the end of the body.
    Framing(FramingError),
    /// A rule about the body itself.
    Body(BodyRule),
    /// The origin switched protocols (101) although the request had not asked for it, or switched to another
    /// protocol.
    Switched,
    /// The origin answered 304 to a request without conditions.
    UnaskedNotModified,
    /// A rule of HTTP/2, of which only the error code is known.
    Http2(ErrorCode),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Head(rule) => write!(f, "{rule} ({})", rule.section()),
            // The text of a framing error already names the section.
            Rule::Framing(rule) => rule.fmt(f),
            Rule::Body(rule) => write!(f, "{rule} ({})", rule.section()),
            Rule::Switched => f.write_str(
                "101 Switching Protocols, to a protocol that was not asked for (RFC 9110 §15.2.2)",
            ),
            Rule::UnaskedNotModified => {
                f.write_str("304 Not Modified, to a request without conditions (RFC 9110 §15.4.5)")
            }
            Rule::Http2(code) => write!(f, "not a message of HTTP/2 (RFC 9113 §8.1.1, error {:#x})", code.0),
        }
    }
}

/// Side that is at fault, as the visitor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client side: the request, and the browser or program that sent it.
    Yours,
    /// The web server behind this accelerator.
    Website,
    /// This accelerator.
    Accelerator,
}

impl Side {
    /// Returns a stable name, for JSON and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Yours => "client",
            Side::Website => "origin",
            Side::Accelerator => "accelerator",
        }
    }
}

/// A fault of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The origin's name has no address.
    OriginUnresolved,
    /// The origin refused the connection.
    OriginRefused,
    /// TLS with the origin failed: its certificate is for another name, or no trusted authority has signed it.
    OriginUntrusted,
    /// The client, or its network, sends too many requests.
    TooManyRequests,
    /// The object is not stored, and the budget of origin requests for this class of visitors is spent.
    WorkTooMuch,
    /// No server of the origin may be used: their probes fail, or an operator has disabled them.
    OriginDown,
    /// The origin reset the connection before its answer was complete.
    OriginReset,
    /// A connection to the origin took longer than `origin_connect_time_max`.
    OriginConnectTimeout,
    /// The origin did not begin its answer within `origin_first_byte_time_max`.
    OriginStalled,
    /// The origin's answer is not HTTP, or is ambiguous.
    OriginInvalid(Rule),
    /// The head of the origin's answer is larger than `response_head_bytes_max`.
    OriginHeadTooLarge,
    /// The origin closed the connection before it had answered.
    OriginClosedEarly,
    /// The request breaks a rule of HTTP.
    BadRequest(Rule),
    /// The request's head is larger than `request_head_bytes_max`.
    HeadTooLarge,
    /// The request's first line is too long.
    UriTooLong,
    /// The request's body is larger than `request_body_bytes_max`.
    BodyTooLarge,
    /// The request's head did not arrive within `request_head_time_max`.
    RequestTimeout,
    /// TRACE, which is always refused.
    MethodNotAllowed,
    /// The site does not accept the method.
    MethodNotTaken {
        /// Methods that the site accepts.
        taken: Methods,
    },
    /// No site serves the host.
    Misdirected,
    /// The site requires a client certificate, and the connection has no valid one.
    CertificateWanted,
    /// CONNECT, which only a forward proxy supports.
    MethodNotImplemented,
    /// `PURGE` from an address that may not purge.
    PurgeForbidden,
    /// The transfer coding is unknown.
    TransferCodingNotImplemented,
    /// `Expect` has a value other than `100-continue`.
    ExpectationFailed,
    /// No byte of the requested range exists.
    RangeNotSatisfiable {
        /// Length of the whole content.
        complete: u64,
    },
    /// The request has a version of HTTP other than 1.0 and 1.1.
    UnsupportedVersion,
    /// The request has `only-if-cached`, and nothing suitable is stored.
    OnlyIfCached,
    /// The number of connections exceeds `connections_max`.
    TooManyConnections,
    /// Requests for the origin exceed `origin_connections_max` and its queue.
    Overloaded,
    /// The request has passed through this accelerator before.
    LoopDetected,
}

/// Texts and status of an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The status code.
    pub status: u16,
    /// A stable name, for JSON and counters.
    pub code: &'static str,
    /// The side that is at fault.
    pub side: Side,
    /// Heading: one short sentence without a full stop.
    pub title: &'static str,
    /// Description of the fault, in plain words.
    pub what: &'static str,
    /// Advice for the visitor.
    pub visitor: &'static str,
    /// Advice for the operator of the website, or the author of the program that sent the request.
    pub operator: &'static str,
}

/// Seconds after which a refused visitor may retry, sent as `Retry-After`.
pub const RETRY_AFTER_S: u32 = 5;

const RETRY: &str = "Reload the page in a minute. If it keeps failing, tell the people who run the website and \
                     give them the request number below.";
const NOT_YOUR_DOING: &str = "A browser does not normally send this, so something between you and this server may \
                              have changed the request. Reload the page; if it stays, try another network or browser.";

impl Fault {
    /// One example of every kind of fault, for tests and for the list of counters.
    pub const ALL: [Fault; 31] = [
        Fault::OriginUnresolved,
        Fault::OriginRefused,
        Fault::OriginUntrusted,
        Fault::OriginDown,
        Fault::OriginReset,
        Fault::OriginConnectTimeout,
        Fault::OriginStalled,
        Fault::OriginInvalid(Rule::Head(HeadRule::StatusCode)),
        Fault::OriginHeadTooLarge,
        Fault::OriginClosedEarly,
        Fault::BadRequest(Rule::Head(HeadRule::BareLf)),
        Fault::HeadTooLarge,
        Fault::UriTooLong,
        Fault::BodyTooLarge,
        Fault::RequestTimeout,
        Fault::MethodNotAllowed,
        Fault::MethodNotTaken { taken: Methods::GET_AND_HEAD },
        Fault::Misdirected,
        Fault::CertificateWanted,
        Fault::MethodNotImplemented,
        Fault::PurgeForbidden,
        Fault::TransferCodingNotImplemented,
        Fault::ExpectationFailed,
        Fault::RangeNotSatisfiable { complete: 0 },
        Fault::UnsupportedVersion,
        Fault::OnlyIfCached,
        Fault::TooManyRequests,
        Fault::WorkTooMuch,
        Fault::TooManyConnections,
        Fault::Overloaded,
        Fault::LoopDetected,
    ];

    /// Returns the broken rule, if the fault has one.
    pub const fn rule(&self) -> Option<Rule> {
        match self {
            Fault::OriginInvalid(rule) | Fault::BadRequest(rule) => Some(*rule),
            _ => None,
        }
    }

    /// Returns the status code (RFC 9110 §15, RFC 6585).
    pub const fn status(&self) -> u16 {
        self.words().status
    }

    /// Returns the texts for the fault.
    pub const fn words(&self) -> Words {
        match self {
            Fault::OriginUnresolved => ORIGIN_UNRESOLVED,
            Fault::OriginRefused => ORIGIN_REFUSED,
            Fault::OriginUntrusted => ORIGIN_UNTRUSTED,
            Fault::OriginDown => ORIGIN_DOWN,
            Fault::OriginReset => ORIGIN_RESET,
            Fault::OriginConnectTimeout => ORIGIN_CONNECT_TIMEOUT,
            Fault::OriginStalled => ORIGIN_STALLED,
            Fault::OriginInvalid(_) => ORIGIN_INVALID,
            Fault::OriginHeadTooLarge => ORIGIN_HEAD_TOO_LARGE,
            Fault::OriginClosedEarly => ORIGIN_CLOSED_EARLY,
            Fault::BadRequest(_) => BAD_REQUEST,
            Fault::HeadTooLarge => HEAD_TOO_LARGE,
            Fault::UriTooLong => URI_TOO_LONG,
            Fault::BodyTooLarge => BODY_TOO_LARGE,
            Fault::RequestTimeout => REQUEST_TIMEOUT,
            Fault::MethodNotAllowed => METHOD_NOT_ALLOWED,
            Fault::MethodNotTaken { .. } => METHOD_NOT_TAKEN,
            Fault::Misdirected => MISDIRECTED,
            Fault::CertificateWanted => CERTIFICATE_WANTED,
            Fault::MethodNotImplemented => METHOD_NOT_IMPLEMENTED,
            Fault::PurgeForbidden => PURGE_FORBIDDEN,
            Fault::TransferCodingNotImplemented => TRANSFER_CODING_NOT_IMPLEMENTED,
            Fault::ExpectationFailed => EXPECTATION_FAILED,
            Fault::RangeNotSatisfiable { .. } => RANGE_NOT_SATISFIABLE,
            Fault::UnsupportedVersion => UNSUPPORTED_VERSION,
            Fault::OnlyIfCached => ONLY_IF_CACHED,
            Fault::TooManyRequests => TOO_MANY_REQUESTS,
            Fault::WorkTooMuch => WORK_TOO_MUCH,
            Fault::TooManyConnections => TOO_MANY_CONNECTIONS,
            Fault::Overloaded => OVERLOADED,
            Fault::LoopDetected => LOOP_DETECTED,
        }
    }
}

/// Converts the error of a refused request head.
impl From<&HeadError> for Fault {
    fn from(error: &HeadError) -> Self {
        match error.rule {
            HeadRule::LineTooLong => Fault::UriTooLong,
            HeadRule::HeadersTooLarge | HeadRule::TooManyHeaders => Fault::HeadTooLarge,
            HeadRule::UnsupportedVersion => Fault::UnsupportedVersion,
            rule => Fault::BadRequest(Rule::Head(rule)),
        }
    }
}

/// Converts the error of a request whose framing does not determine the end of its body.
impl From<FramingError> for Fault {
    fn from(error: FramingError) -> Self {
        match error {
            // RFC 9112 §6.1: an unknown transfer coding is answered 501.
            FramingError::UnsupportedCoding => Fault::TransferCodingNotImplemented,
            error => Fault::BadRequest(Rule::Framing(error)),
        }
    }
}

/// Converts the error of a refused request body.
impl From<&BodyError> for Fault {
    fn from(error: &BodyError) -> Self {
        Fault::BadRequest(Rule::Body(error.rule))
    }
}

/// Returns the reason phrase of a status that a page can have (RFC 9110 §15).
pub(super) const fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "Error",
    }
}
