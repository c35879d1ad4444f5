//! Requests for an explanation of why a request is, or is not, answered from the store, and the answers to
//! them.

use engine::store::Hash;
use tokio::sync::oneshot;
use wire::http1::{
    framing::request_framing,
    head::{HeadLimits, HeadRule, HeaderSlots, Progress, RequestHead, parse_request},
    url::{Authority, Scheme, Target},
};

use crate::error_page::{Fault, Rule};

/// A request to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOf {
    /// The method, such as `GET`.
    pub method: String,
    /// The URL as visitors ask for it, `http://host/path`.
    pub url: String,
    /// Header lines, `Name: value`. A `Host` line overrides the URL's host.
    pub headers: Vec<String>,
}

/// Reason why an explanation cannot be given.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExplainError {
    /// The text is not a URL of this accelerator.
    #[error("not a URL: {0:?}; it should look like http://www.example.org/path")]
    NotAUrl(String),
    /// A line is not a valid header field.
    #[error("not a header: {0:?}; it should look like Accept-Language: de")]
    NotAHeader(String),
    /// The accelerator refuses this request.
    #[error("the request would be refused with {status}: {why}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// Reason for the refusal.
        why: String,
    },
    /// The core that owns the key did not answer in time.
    #[error("the core that owns the object did not answer: it is overloaded, or the server is stopping")]
    NoAnswer,
}

/// A number or text that belongs to a step, in a form for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// A number; the name of the figure contains the unit.
    Number(u64),
    /// A text value.
    Text(String),
}

/// The decision that one state makes about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Name of the state: `site`, `recv`, `key`, `owner`, `variant`, `store`, `head`, `purges`, `freshness`,
    /// `stale`, `coding`, `note`, `asked`, `now`.
    pub state: &'static str,
    /// The decision, as a token.
    pub decision: &'static str,
    /// The decision in words.
    pub words: String,
    /// The rule behind the decision, an RFC section or an option; empty if there is none.
    pub section: &'static str,
    /// The numbers and texts on which the decision is based.
    pub figures: Vec<(&'static str, Figure)>,
}

impl Step {
    /// Adds a number.
    pub(crate) fn number(&mut self, name: &'static str, number: impl Into<u64>) -> &mut Self {
        self.figures.push((name, Figure::Number(number.into())));
        self
    }

    /// Adds a text value.
    pub(crate) fn text(&mut self, name: &'static str, text: impl Into<String>) -> &mut Self {
        self.figures.push((name, Figure::Text(text.into())));
        self
    }
}

/// A request's path through the states. The last step is the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// The steps, in the order in which a request passes them.
    pub steps: Vec<Step>,
}

/// Explanation produced by the core that owns the key.
pub(crate) struct OwnerExplanation {
    pub(crate) explanation: Explanation,
    /// Hash of the object stored for the request, if it is in memory.
    pub(crate) object: Option<Hash>,
}

/// Head of a request to be explained, and its scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeadOf {
    bytes: Vec<u8>,
    scheme: Scheme,
}

/// An explanation request on its way to the core that owns the key.
pub(crate) struct Question {
    pub(crate) head: HeadOf,
    pub(crate) limits: HeadLimits,
    pub(crate) reply: oneshot::Sender<OwnerExplanation>,
}

impl RequestOf {
    /// Builds the head of the request as a client would send it.
    ///
    /// # Errors
    /// [`ExplainError`] if the URL or a header is invalid, or the request would be refused.
    pub(crate) fn head(&self, limits: &HeadLimits) -> Result<HeadOf, ExplainError> {
        let not_a_url = || ExplainError::NotAUrl(self.url.clone());
        let is_text = |text: &str| !text.bytes().any(|b| b.is_ascii_control() && b != b'\t');
        let (_, target) =
            Target::parse("GET", &self.url).filter(|_| is_text(&self.url)).ok_or_else(not_a_url)?;
        let Target { scheme: Some(scheme), authority: Some(Authority { host, port }), path_and_query } =
            target
        else {
            return Err(not_a_url());
        };
        if path_and_query.contains([' ', '#']) {
            return Err(not_a_url());
        }
        if let Some(wrong) = self.headers.iter().find(|line| !line.contains(':') || !is_text(line)) {
            return Err(ExplainError::NotAHeader(wrong.clone()));
        }
        if self.method.is_empty() || !self.method.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(refused(&Fault::BadRequest(Rule::Head(HeadRule::Method))));
        }
        let says = |name: &str| {
            self.headers.iter().any(|line| {
                line.split_once(':').is_some_and(|(said, _)| said.trim().eq_ignore_ascii_case(name))
            })
        };
        let slash = if path_and_query.starts_with('/') { "" } else { "/" };
        let mut head = format!("{} {slash}{path_and_query} HTTP/1.1\r\n", self.method);
        if !says("host") {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            head.push_str(&format!("Host: {host}{port}\r\n"));
        }
        self.headers.iter().for_each(|line| head.push_str(&format!("{}\r\n", line.trim())));
        head.push_str("\r\n");
        let head = HeadOf { bytes: head.into_bytes(), scheme };
        head.with(limits, |_| ())?;
        Ok(head)
    }
}

impl HeadOf {
    /// Calls `look` with the parsed head.
    ///
    /// # Errors
    /// [`ExplainError::Refused`] if the accelerator refuses the head.
    pub(crate) fn with<T>(
        &self,
        limits: &HeadLimits,
        look: impl FnOnce(&RequestHead<'_, '_>) -> T,
    ) -> Result<T, ExplainError> {
        let mut slots = HeaderSlots::new();
        match parse_request(&self.bytes, &mut slots, limits) {
            Ok(Progress::Complete((head, _))) => match request_framing(&head) {
                Ok(_) => Ok(look(&RequestHead { scheme: Some(self.scheme), ..head })),
                Err(error) => Err(refused(&Fault::from(error))),
            },
            Ok(Progress::NeedMore) => Err(refused(&Fault::HeadTooLarge)),
            Err(error) => Err(refused(&Fault::from(&error))),
        }
    }
}

fn refused(fault: &Fault) -> ExplainError {
    let why = fault.rule().map_or_else(|| fault.words().title.to_owned(), |rule| rule.to_string());
    ExplainError::Refused { status: fault.status(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, url: &str, headers: &[&str]) -> Result<String, ExplainError> {
        let headers = headers.iter().map(|&line| line.to_owned()).collect();
        let request = RequestOf { method: method.to_owned(), url: url.to_owned(), headers };
        request.head(&HeadLimits::default()).map(|head| String::from_utf8(head.bytes).expect("text"))
    }

    #[test]
    fn a_url_becomes_a_client_request() {
        for (url, headers, want) in [
            ("http://a.example", &[][..], "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            ("http://a:81/x?y", &["A: b"], "GET /x?y HTTP/1.1\r\nHost: a:81\r\nA: b\r\n\r\n"),
            ("http://a?y", &["host: B"], "GET /?y HTTP/1.1\r\nhost: B\r\n\r\n"),
            ("https://a/", &[], "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ] {
            assert_eq!(head("GET", url, headers).as_deref(), Ok(want));
        }
    }

    #[test]
    fn an_invalid_url_or_header_is_refused() {
        for url in ["", "/path", "a.example", "ftp://a/", "http://a/x y", "http://a/#x", "http://a/\r\nX: y"]
        {
            assert_eq!(head("GET", url, &[]), Err(ExplainError::NotAUrl(url.to_owned())));
        }
        for line in ["", "name", "A: b\r\nC: d", "A: b\n"] {
            assert_eq!(head("GET", "http://a/", &[line]), Err(ExplainError::NotAHeader(line.to_owned())));
        }
        let long = format!("A: {}", "x".repeat(40_000));
        for (method, line, want) in [
            ("", "A: b", 400),
            ("GET /x", "A: b", 400),
            ("GET", "A b: c", 400),
            ("GET", ": c", 400),
            ("POST", "Content-Length: many", 400),
            ("GET", &long, 431),
        ] {
            let refused = head(method, "http://a/", &[line]).expect_err(method);
            assert!(matches!(refused, ExplainError::Refused { status, .. } if status == want), "{refused}");
        }
    }
}
