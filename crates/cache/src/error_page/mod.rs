//! Error pages: what failed, on which side, what to do, and the number of the request, for people (HTML,
//! plain text) and programs (JSON, RFC 9457).
//!
//! ```text
//!  Fault ──words──> status · side · title · what · advice ─┐
//!  Accept ──choose──> Form ────────────────────────────────┴─ render ──> Page { status, type, headers, body }
//! ```
//!
//! Errors are rare, so a page is rendered when it is needed and may allocate. Text from a client or an origin
//! is escaped.
use std::borrow::Cow;

mod accept;
mod words;

use crate::config::{OwnPage, Part, Place};

pub use accept::Form;
pub use words::{Fault, RETRY_AFTER_S, Rule, Side, Words};

/// Style of a page: the project's colours and sizes (`look.md`), both themes, no external resources.
const STYLE: &str = include_str!("page.css");

/// A rendered page; the caller adds the framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// Further header lines, each ended by CRLF: `Cache-Control`, and the fields that the status requires
    /// (`Retry-After`, `Allow`, `Content-Range`).
    pub headers: Cow<'static, str>,
    /// The body; its length is the `Content-Length`, also for HEAD.
    pub body: Vec<u8>,
}

/// Renders the page for a fault. `request_id` is shown to the visitor; `accept` is the value of `Accept`, if
/// the request has a readable one. `own` is the site's own HTML page.
pub fn render(fault: Fault, request_id: &str, accept: Option<&[u8]>, own: Option<&OwnPage>) -> Page {
    let words = fault.words();
    let form = accept::choose(accept);
    let own = own.filter(|_| form == Form::Html);
    let mut body = String::with_capacity(8 << 10);
    match (form, own) {
        (Form::Html, Some(own)) => fill(&mut body, own, &words, request_id),
        (Form::Html, None) => html(&mut body, &fault, &words, request_id),
        (Form::Plain, _) => plain(&mut body, &fault, &words, request_id),
        (Form::Json | Form::ProblemJson, _) => json(&mut body, &fault, &words, request_id),
    }
    let headers = match fault {
        // RFC 9110 §15.5.17: the client learns which ranges it could request.
        Fault::RangeNotSatisfiable { complete } => {
            Cow::Owned(format!("{}Content-Range: bytes */{complete}\r\n", headers(words.status)))
        }
        // RFC 9110 §15.5.6.
        Fault::MethodNotTaken { taken } => {
            let names = taken.names().collect::<Vec<_>>().join(", ");
            Cow::Owned(format!("{COMMON_HEADERS}Allow: {names}\r\n"))
        }
        _ => Cow::Borrowed(headers(words.status)),
    };
    Page {
        status: words.status,
        reason: words::reason(words.status),
        content_type: form.content_type(),
        // A site's own page may load pictures and styles from anywhere.
        headers: if own.is_some() { Cow::Owned(headers.replace(POLICY, "")) } else { headers },
        body: body.into_bytes(),
    }
}

/// Content security policy of the built-in page: it may load nothing.
const POLICY: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n";

/// Fills the placeholders of a site's own page.
fn fill(out: &mut String, page: &OwnPage, words: &Words, request_id: &str) {
    for part in page.parts() {
        match part {
            Part::Html(text) => out.push_str(text),
            Part::Place(Place::Status) => out.push_str(itoa::Buffer::new().format(words.status)),
            Part::Place(Place::Reason) => push_html(out, words::reason(words.status)),
            Part::Place(Place::Message) => push_html(out, words.what),
            Part::Place(Place::RequestId) => push_html(out, request_id),
        }
    }
}

macro_rules! with_common_headers {
    ($($own:literal)?) => {
        concat!(
            // An error must not be stored, and its form depends on Accept.
            "Cache-Control: no-store\r\n",
            "Vary: Accept\r\n",
            "X-Content-Type-Options: nosniff\r\n",
            "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n",
            $($own)?
        )
    };
}

const COMMON_HEADERS: &str = with_common_headers!();

const fn headers(status: u16) -> &'static str {
    const _: () = assert!(RETRY_AFTER_S == 5, "the literal below says 5");
    match status {
        // RFC 9110 §15.5.6: a 405 must list the allowed methods.
        405 => with_common_headers!("Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"),
        // RFC 9110 §15.6.4, §10.2.3; RFC 6585 §4.
        429 | 503 => with_common_headers!("Retry-After: 5\r\n"),
        _ => COMMON_HEADERS,
    }
}

const fn operator_heading(side: Side) -> &'static str {
    match side {
        Side::Yours => "If you run the website, or wrote the program that sent the request",
        Side::Website => "If you run the website",
        Side::Accelerator => "If you run this accelerator",
    }
}

fn side_in_words(side: Side) -> &'static str {
    match side {
        Side::Yours => "the request; the website and this accelerator are working",
        Side::Website => "the website’s server; the request and this accelerator are fine",
        Side::Accelerator => "this accelerator; the request is fine",
    }
}

/// Returns the three stations that a request passes (the request itself, this accelerator, the website's
/// server), each with its state.
fn stations(side: Side) -> [(&'static str, &'static str, &'static str); 3] {
    const ARRIVED: (&str, &str) = ("well", "arrived");
    const WELL: (&str, &str) = ("well", "works");
    const FAULT: (&str, &str) = ("fault", "the fault is here");
    const UNASKED: (&str, &str) = ("unasked", "was not asked");
    let (you, us, website) = match side {
        Side::Yours => (FAULT, WELL, UNASKED),
        Side::Website => (ARRIVED, WELL, FAULT),
        Side::Accelerator => (ARRIVED, FAULT, UNASKED),
    };
    [
        ("Your request", you.0, you.1),
        ("This accelerator", us.0, us.1),
        ("The website’s server", website.0, website.1),
    ]
}

fn html(out: &mut String, fault: &Fault, words: &Words, request_id: &str) {
    let status = itoa::Buffer::new().format(words.status).to_owned();
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    push_html(out, &status);
    out.push_str(" · ");
    push_html(out, words.title);
    out.push_str("</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str("<meta name=\"robots\" content=\"noindex\">\n<style>");
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n<body>\n<main>\n<p class=\"status\">");
    push_html(out, &status);
    out.push(' ');
    push_html(out, words::reason(words.status));
    out.push_str("</p>\n<h1>");
    push_html(out, words.title);
    out.push_str("</h1>\n<p class=\"what\">");
    push_html(out, words.what);
    out.push_str("</p>\n");
    if let Some(rule) = fault.rule() {
        out.push_str("<p class=\"rule\">The rule: ");
        push_html(out, &rule.to_string());
        out.push_str(".</p>\n");
    }
    out.push_str("<ol aria-label=\"Where it failed\">\n");
    for (name, class, state) in stations(words.side) {
        out.push_str("<li class=\"");
        out.push_str(class);
        out.push_str("\"><b>");
        push_html(out, name);
        out.push_str("</b> <span>");
        push_html(out, state);
        out.push_str("</span></li>\n");
    }
    out.push_str("</ol>\n<h2>What you can do</h2>\n<p>");
    push_html(out, words.visitor);
    out.push_str("</p>\n<h2>");
    push_html(out, operator_heading(words.side));
    out.push_str("</h2>\n<p>");
    push_html(out, words.operator);
    out.push_str("</p>\n</main>\n<footer>\n<p>Request number <code>");
    push_html(out, request_id);
    out.push_str("</code></p>\n</footer>\n</body>\n</html>\n");
}

fn plain(out: &mut String, fault: &Fault, words: &Words, request_id: &str) {
    out.push_str(itoa::Buffer::new().format(words.status));
    out.push(' ');
    out.push_str(words::reason(words.status));
    out.push_str("\n\n");
    for line in [words.title, ".\n\n", words.what, "\n"] {
        out.push_str(line);
    }
    if let Some(rule) = fault.rule() {
        out.push_str("The rule: ");
        push_plain(out, &rule.to_string());
        out.push_str(".\n");
    }
    for line in [
        "\nThe fault is with: ",
        side_in_words(words.side),
        ".\nWhat you can do: ",
        words.visitor,
        "\n",
        operator_heading(words.side),
        ": ",
        words.operator,
        "\nRequest number: ",
    ] {
        out.push_str(line);
    }
    push_plain(out, request_id);
    out.push('\n');
}

/// Writes a problem document (RFC 9457 §3) with extension members: `code`, `side`, `rule`, `advice`,
/// `operator_advice`, `request_id`. `type` is omitted: it then means `about:blank`, and `title` should be the
/// status's phrase (§4.2.1).
fn json(out: &mut String, fault: &Fault, words: &Words, request_id: &str) {
    out.push_str("{\"status\":");
    out.push_str(itoa::Buffer::new().format(words.status));
    let rule = fault.rule().map(|rule| rule.to_string());
    let members = [
        ("title", Some(words::reason(words.status))),
        ("detail", Some(words.what)),
        ("code", Some(words.code)),
        ("side", Some(words.side.name())),
        ("summary", Some(words.title)),
        ("rule", rule.as_deref()),
        ("advice", Some(words.visitor)),
        ("operator_advice", Some(words.operator)),
        ("request_id", Some(request_id)),
    ];
    for (name, value) in members {
        let Some(value) = value else { continue };
        out.push_str(",\"");
        out.push_str(name);
        out.push_str("\":\"");
        push_json(out, value);
        out.push('"');
    }
    out.push_str("}\n");
}

/// Escapes text for HTML content and quoted attributes.
fn push_html(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in HTML text, and NUL not even as a reference.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Writes text for a terminal: without control characters, so that a client's text cannot move the cursor.
fn push_plain(out: &mut String, text: &str) {
    out.extend(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
}

/// Escapes text for a JSON string (RFC 8259 §7).
fn push_json(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                out.push_str("\\u00");
                out.push(char::from(HEX[(c as usize) >> 4]));
                out.push(char::from(HEX[(c as usize) & 15]));
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests;
