//! What can go wrong in one exchange, and the words for it: one table, so that every failure has its status, its
//! side and its advice, and a new one cannot be added without them.

use std::fmt;

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

const ORIGIN_UNRESOLVED: Words = Words {
    status: 502,
    code: "origin-unresolved",
    side: Side::Website,
    title: "The website’s server cannot be found",
    what: "This accelerator passes requests on to the website’s own server, but the name of that server \
           has no address at the moment.",
    visitor: RETRY,
    operator: "Check the host name in --origin, and that it resolves on this machine.",
};

const ORIGIN_REFUSED: Words = Words {
    status: 502,
    code: "origin-refused",
    side: Side::Website,
    title: "The website’s server is not accepting connections",
    what: "This accelerator asked the website’s own server for the page, and that server refused the \
           connection. It may be restarting.",
    visitor: RETRY,
    operator: "Check that the server named in --origin is running and listens on that port.",
};

const ORIGIN_UNTRUSTED: Words = Words {
    status: 502,
    code: "origin-untrusted",
    side: Side::Website,
    title: "The website’s server could not be trusted",
    what: "This accelerator asked the website’s own server for the page under TLS, and the two did not agree: the \
           server’s certificate may have expired, or be for another name.",
    visitor: RETRY,
    operator: "The log says what TLS failed at. Check the certificate of the server named in --origin, the name in it, \
               and the authorities that are trusted.",
};

const ORIGIN_DOWN: Words = Words {
    status: 502,
    code: "origin-down",
    side: Side::Website,
    title: "All of the website’s servers are down",
    what: "The website has servers of its own, of which this accelerator knows that none is well at the moment.",
    visitor: RETRY,
    operator: "nighttrain origins shows how each of them is, and what its probes found.",
};

const ORIGIN_RESET: Words = Words {
    status: 502,
    code: "origin-reset",
    side: Side::Website,
    title: "The website’s server broke off the connection",
    what: "The website’s own server accepted the request and then reset the connection before it had \
           answered. The program behind it may have crashed.",
    visitor: RETRY,
    operator: "Look in the origin’s error log for this moment.",
};

const ORIGIN_CONNECT_TIMEOUT: Words = Words {
    status: 504,
    code: "origin-connect-timeout",
    side: Side::Website,
    title: "The website’s server cannot be reached",
    what: "This accelerator tried to connect to the website’s own server and had no reply in time.",
    visitor: RETRY,
    operator: "Check the network between this accelerator and the origin, and firewalls that drop packets.",
};

const ORIGIN_STALLED: Words = Words {
    status: 504,
    code: "origin-stalled",
    side: Side::Website,
    title: "The website’s server took too long",
    what: "The website’s own server accepted the request but did not begin to answer in time. \
           It may be overloaded.",
    visitor: RETRY,
    operator: "Find out why the origin is slow, or raise its first-byte limit if this page needs longer.",
};

const ORIGIN_INVALID: Words = Words {
    status: 502,
    code: "origin-invalid",
    side: Side::Website,
    title: "The website’s server sent a broken answer",
    what: "The website’s own server answered, but the answer does not follow the rules of HTTP, and \
           guessing what was meant would be unsafe.",
    visitor: RETRY,
    operator: "Ask the origin for the page directly and compare what it sends with the rule above.",
};

const ORIGIN_HEAD_TOO_LARGE: Words = Words {
    status: 502,
    code: "origin-head-too-large",
    side: Side::Website,
    title: "The website’s server sent too many headers",
    what: "The website’s own server answered with more header data than this accelerator accepts.",
    visitor: "Delete this website’s cookies and reload the page. If it keeps failing, tell the people who \
              run the website and give them the request number below.",
    operator: "Find the header that grew (often Set-Cookie), or raise the limit on response heads.",
};

const ORIGIN_CLOSED_EARLY: Words = Words {
    status: 502,
    code: "origin-closed-early",
    side: Side::Website,
    title: "The website’s server hung up without an answer",
    what: "The website’s own server accepted the request and closed the connection before it had answered.",
    visitor: RETRY,
    operator: "Look in the origin’s error log for this moment; a limit on its side may have been hit.",
};

const BAD_REQUEST: Words = Words {
    status: 400,
    code: "bad-request",
    side: Side::Yours,
    title: "The request does not follow the rules of HTTP",
    what: "The request was refused before it reached the website, because servers could understand it in \
           different ways.",
    visitor: NOT_YOUR_DOING,
    operator: "The rule above says what to change.",
};

const HEAD_TOO_LARGE: Words = Words {
    status: 431,
    code: "head-too-large",
    side: Side::Yours,
    title: "The request’s headers are too large",
    what: "The browser sent more header data than this accelerator accepts. Usually this is too many \
           cookies for one website.",
    visitor: "Delete this website’s cookies and reload the page.",
    operator: "Set fewer or smaller cookies, or raise the limit on request heads.",
};

const URI_TOO_LONG: Words = Words {
    status: 414,
    code: "uri-too-long",
    side: Side::Yours,
    title: "The address is too long",
    what: "The address that was asked for is longer than this accelerator accepts.",
    visitor: "Check the address for text that was pasted twice. If a form led here, tell the people who \
              run the website.",
    operator: "Send long data in a request body (POST) and not in the address.",
};

const BODY_TOO_LARGE: Words = Words {
    status: 413,
    code: "body-too-large",
    side: Side::Yours,
    title: "The upload is too large",
    what: "The request carries more data than this accelerator passes on to the website.",
    visitor: "Send a smaller file, or several parts.",
    operator: "Raise the limit on request bodies if uploads of this size are meant to work.",
};

const REQUEST_TIMEOUT: Words = Words {
    status: 408,
    code: "request-timeout",
    side: Side::Yours,
    title: "The request did not arrive in time",
    what: "The connection was opened, but the request on it was not complete when the time for it was over.",
    visitor: "Check your network connection and reload the page.",
    operator: "Send the whole head of a request at once.",
};

const METHOD_NOT_ALLOWED: Words = Words {
    status: 405,
    code: "method-not-allowed",
    side: Side::Yours,
    title: "This kind of request is not allowed here",
    what: "TRACE would send the request’s headers back, and with them cookies and passwords. It is \
           refused here.",
    visitor: "Go back and follow a link instead.",
    operator: "Use another method, such as GET.",
};

const METHOD_NOT_TAKEN: Words = Words {
    status: 405,
    code: "method-not-taken",
    side: Side::Yours,
    title: "This kind of request is not taken here",
    what: "The website takes requests of other methods only at this address.",
    visitor: "Go back and follow a link instead.",
    operator: "Allow in this answer names the methods that are taken; the setting methods says so.",
};

const MISDIRECTED: Words = Words {
    status: 421,
    code: "misdirected",
    side: Side::Yours,
    title: "No website of this name is served here",
    what: "The request came to this accelerator, but what it asks for is not served over this connection: no website \
           of that name is, or not by https.",
    visitor: "Check the address for a mistake in writing. If it is right, tell the people who run the website \
              and give them the request number below.",
    operator: "List the name in the hosts of a site, or set an origin for all other names; https takes a \
               certificate for the name, on the port of tls-listen.",
};

const CERTIFICATE_WANTED: Words = Words {
    status: 421,
    code: "certificate-wanted",
    side: Side::Yours,
    title: "This website asks for a certificate",
    what: "The website asks its visitors for a certificate, and this connection was made without one that counts for it.",
    visitor: "Close the browser, open it again, and choose the certificate that you were given for this website.",
    operator: "A client has to ask for the website by its name when it connects (SNI), over https to this accelerator \
               itself, with a certificate that those in tls-client-ca have signed and that has not expired.",
};

const METHOD_NOT_IMPLEMENTED: Words = Words {
    status: 501,
    code: "method-not-implemented",
    side: Side::Yours,
    title: "This server is not a proxy for other addresses",
    what: "CONNECT asks for a tunnel to another server. This accelerator serves one website only.",
    visitor: "Check the proxy settings of your browser or system.",
    operator: "Send requests for this website directly.",
};

const PURGE_FORBIDDEN: Words = Words {
    status: 403,
    code: "purge-forbidden",
    side: Side::Yours,
    title: "PURGE is not allowed from this address",
    what: "Removing a page from the store is allowed from listed networks only, and this address is in none.",
    visitor: "Nothing was removed. Reload the page to see it as usual.",
    operator: "Run nighttrain purge on the machine itself, or list the address in the setting purge-from.",
};

const TRANSFER_CODING_NOT_IMPLEMENTED: Words = Words {
    status: 501,
    code: "transfer-coding-not-implemented",
    side: Side::Yours,
    title: "The request’s body is coded in an unknown way",
    what: "The request’s Transfer-Encoding names a coding other than chunked.",
    visitor: NOT_YOUR_DOING,
    operator: "Send the body with a Content-Length, or with Transfer-Encoding: chunked alone.",
};

const EXPECTATION_FAILED: Words = Words {
    status: 417,
    code: "expectation-failed",
    side: Side::Yours,
    title: "The request expects something unknown",
    what: "The request’s Expect header asks for something other than 100-continue.",
    visitor: NOT_YOUR_DOING,
    operator: "Leave out Expect, or send Expect: 100-continue.",
};

const RANGE_NOT_SATISFIABLE: Words = Words {
    status: 416,
    code: "range-not-satisfiable",
    side: Side::Yours,
    title: "That part of the file does not exist",
    what: "The request asks for a range of bytes beyond the end of the file. The file may have become \
           shorter since a download began.",
    visitor: "Start the download again from the beginning.",
    operator: "Content-Range in this answer gives the present length.",
};

const UNSUPPORTED_VERSION: Words = Words {
    status: 505,
    code: "unsupported-version",
    side: Side::Yours,
    title: "This version of HTTP is not spoken here",
    what: "The request names a version of HTTP other than 1.0 and 1.1.",
    visitor: NOT_YOUR_DOING,
    operator: "Send HTTP/1.1 on this port.",
};

const ONLY_IF_CACHED: Words = Words {
    status: 504,
    code: "only-if-cached",
    side: Side::Yours,
    title: "The page is not in the store",
    what: "The request asks for a stored copy only (Cache-Control: only-if-cached), and there is none that \
           may be used.",
    visitor: "Reload the page; your browser may be in offline mode.",
    operator: "Leave out only-if-cached to have the page fetched.",
};

const TOO_MANY_REQUESTS: Words = Words {
    status: 429,
    code: "too-many-requests",
    side: Side::Yours,
    title: "Too many requests at once",
    what: "More requests came from your address, or from its network, than this website takes in so short a time.",
    visitor: "Reload the page in a few seconds. If you share your address with many others, it may have been them.",
    operator: "The settings client-requests-per-second-max and network-requests-per-second-max say how many; an \
               operator’s proxy in front has to be listed in trusted-proxies, or all come from its address.",
};

const WORK_TOO_MUCH: Words = Words {
    status: 429,
    code: "work-too-much",
    side: Side::Yours,
    title: "This page cannot be made for you just now",
    what: "It would have to be made by the website’s server, which does that for known visitors first.",
    visitor: "Reload the page in a few seconds.",
    operator: "The settings bots and strangers say how much crawlers, and visitors without a cookie, may cost it.",
};

const TOO_MANY_CONNECTIONS: Words = Words {
    status: 503,
    code: "too-many-connections",
    side: Side::Accelerator,
    title: "Too many visitors at this moment",
    what: "This accelerator has as many connections open as it is allowed to.",
    visitor: "Reload the page in a few seconds.",
    operator: "If this lasts, raise the limit on connections or add a core.",
};

const OVERLOADED: Words = Words {
    status: 503,
    code: "overloaded",
    side: Side::Accelerator,
    title: "Too many requests are waiting",
    what: "This accelerator already has as many requests waiting for the website’s own server as it is \
           allowed to.",
    visitor: "Reload the page in a few seconds.",
    operator: "See whether the origin has become slow; if not, raise the limit on origin connections.",
};

const LOOP_DETECTED: Words = Words {
    status: 508,
    code: "loop",
    side: Side::Accelerator,
    title: "This request goes round in a circle",
    what: "This accelerator passed the request on, and got it back: the server that it was told to ask is \
           itself, or asks it in turn.",
    visitor: RETRY,
    operator: "Check --origin: it must name the website’s own server, not this accelerator’s --listen nor \
               what leads back to it.",
};
