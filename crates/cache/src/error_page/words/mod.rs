//! What can go wrong in one exchange, and the words for it: one table, so that every failure has its status, its
//! side and its advice, and a new one cannot be added without them.

mod texts;

use std::fmt;
use texts::{
    BAD_REQUEST, BODY_TOO_LARGE, CERTIFICATE_WANTED, EXPECTATION_FAILED, HEAD_TOO_LARGE, LOOP_DETECTED,
    METHOD_NOT_ALLOWED, METHOD_NOT_IMPLEMENTED, METHOD_NOT_TAKEN, MISDIRECTED, ONLY_IF_CACHED,
    ORIGIN_CLOSED_EARLY, ORIGIN_CONNECT_TIMEOUT, ORIGIN_DOWN, ORIGIN_HEAD_TOO_LARGE, ORIGIN_INVALID,
    ORIGIN_REFUSED, ORIGIN_RESET, ORIGIN_STALLED, ORIGIN_UNRESOLVED, ORIGIN_UNTRUSTED, OVERLOADED,
    PURGE_FORBIDDEN, RANGE_NOT_SATISFIABLE, REQUEST_TIMEOUT, TOO_MANY_CONNECTIONS, TOO_MANY_REQUESTS,
    TRANSFER_CODING_NOT_IMPLEMENTED, UNSUPPORTED_VERSION, URI_TOO_LONG, WORK_TOO_MUCH,
};

use crate::config::Methods;
use wire::{
    http1::{
        framing::{BodyError, BodyRule, FramingError},
        head::{HeadError, HeadRule},
    },
    http2::error::ErrorCode,
};

/// The rule of HTTP that a message broke. It displays as plain words with the RFC's section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A rule for the first line and the headers.
    Head(HeadRule),
    /// A rule for where the body ends.
    Framing(FramingError),
    /// A rule for the body itself.
    Body(BodyRule),
    /// The origin switched protocols (101) without having been asked, or to another protocol.
    Switched,
    /// The origin answered 304 to a request without conditions.
    UnaskedNotModified,
    /// A rule of HTTP/2; whoever found it says no more than a code.
    Http2(ErrorCode),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Head(rule) => write!(f, "{rule} ({})", rule.section()),
            // Its own words name the section.
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

/// Whose side the fault is on, as the visitor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The request, and so the browser or program that sent it.
    Yours,
    /// The web server that this accelerator stands in front of.
    Website,
    /// This accelerator.
    Accelerator,
}

impl Side {
    /// A stable name, for JSON and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Yours => "client",
            Side::Website => "origin",
            Side::Accelerator => "accelerator",
        }
    }
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The origin's name has no address.
    OriginUnresolved,
    /// The origin refused the connection.
    OriginRefused,
    /// TLS with the origin failed: its certificate is for another name, or no trusted authority has signed it.
    OriginUntrusted,
    /// The client, or its network, asks too often.
    TooManyRequests,
    /// What is asked for is not stored, and visitors of its class may not cost the origin more now.
    WorkTooMuch,
    /// None of the origin's servers may be asked: their probes fail, or an operator has taken them away.
    OriginDown,
    /// The origin reset the connection before its answer was whole.
    OriginReset,
    /// Connecting to the origin took longer than `origin_connect_time_max`.
    OriginConnectTimeout,
    /// The origin did not begin its answer within `origin_first_byte_time_max`.
    OriginStalled,
    /// What the origin sent is not HTTP, or is ambiguous.
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
    /// TRACE, which is refused here.
    MethodNotAllowed,
    /// A method that the site does not take.
    MethodNotTaken {
        /// Those that it takes.
        taken: Methods,
    },
    /// A host that nothing here serves.
    Misdirected,
    /// The site asks for a client's certificate, and the connection was made without one that counts for it.
    CertificateWanted,
    /// CONNECT, which only a forward proxy serves.
    MethodNotImplemented,
    /// `PURGE` from an address that may not.
    PurgeForbidden,
    /// A transfer coding that is not known here.
    TransferCodingNotImplemented,
    /// `Expect` asks for something other than `100-continue`.
    ExpectationFailed,
    /// No byte of the asked range exists.
    RangeNotSatisfiable {
        /// The length of the whole.
        complete: u64,
    },
    /// A version of HTTP other than 1.0 and 1.1.
    UnsupportedVersion,
    /// `only-if-cached`, and nothing suitable is stored.
    OnlyIfCached,
    /// More connections than `connections_max`.
    TooManyConnections,
    /// More requests wait for the origin than `origin_connections_max` and its queue take.
    Overloaded,
    /// The request has passed through this accelerator before.
    LoopDetected,
}

/// Everything that a page says about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The status code.
    pub status: u16,
    /// A stable name, for JSON and counters.
    pub code: &'static str,
    /// Whose side it is on.
    pub side: Side,
    /// The heading: one short sentence without a full stop.
    pub title: &'static str,
    /// What happened, in plain words.
    pub what: &'static str,
    /// What a visitor can do.
    pub visitor: &'static str,
    /// What those who run the website, or who wrote the program that asked, can do.
    pub operator: &'static str,
}

/// Seconds after which a visitor who was turned away may come back.
pub const RETRY_AFTER_S: u32 = 5;

const RETRY: &str = "Reload the page in a minute. If it keeps failing, tell the people who run the website and \
                     give them the request number below.";
const NOT_YOUR_DOING: &str = "A browser does not normally send this, so something between you and this server may \
                              have changed the request. Reload the page; if it stays, try another network or browser.";

impl Fault {
    /// Every kind of fault once, for tests and for the list of counters.
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

    /// The rule that was broken, where the fault is about one.
    pub const fn rule(&self) -> Option<Rule> {
        match self {
            Fault::OriginInvalid(rule) | Fault::BadRequest(rule) => Some(*rule),
            _ => None,
        }
    }

    /// The status code (RFC 9110 §15, RFC 6585).
    pub const fn status(&self) -> u16 {
        self.words().status
    }

    /// The words for it.
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

/// A request's head that was refused.
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

/// A request whose body's end is not certain.
impl From<FramingError> for Fault {
    fn from(error: FramingError) -> Self {
        match error {
            // RFC 9112 §6.1.
            FramingError::UnsupportedCoding => Fault::TransferCodingNotImplemented,
            error => Fault::BadRequest(Rule::Framing(error)),
        }
    }
}

/// A request's body that was refused.
impl From<&BodyError> for Fault {
    fn from(error: &BodyError) -> Self {
        Fault::BadRequest(Rule::Body(error.rule))
    }
}

/// The reason phrase of a status that a page can have (RFC 9110 §15).
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
