//! A mail as Mailinator's clients see it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    mailboxes::{Mail, Summary},
    render::{Prepared, Reading, fields, findings, html::HTML_BYTES_MAX},
};

/// A mail in a list.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) subject: String,
    /// The sender's name, or the address where there is none.
    pub(super) from: String,
    /// The sender's address.
    pub(super) fromfull: String,
    /// MAIL FROM.
    pub(super) origfrom: String,
    /// The local part.
    pub(super) to: String,
    pub(super) domain: String,
    /// Milliseconds since 1970.
    pub(super) time: u64,
    pub(super) seconds_ago: u64,
    pub(super) size: u64,
    pub(super) stream: &'static str,
    pub(super) msg_type: &'static str,
    pub(super) source: &'static str,
    pub(super) mrid: String,
    pub(super) is_first_exchange: bool,
}

impl Entry {
    /// `decode`: the subject's encoded words are decoded, as the client asked.
    pub(super) fn new(summary: &Summary, decode: bool, now_ms: u64) -> Self {
        let from = fields::decode_address(&summary.from);
        let id = summary.id.to_string();
        Self {
            subject: if decode {
                fields::decode(&summary.subject)
            } else {
                fields::printable(&String::from_utf8_lossy(&summary.subject))
            },
            from: if from.label().is_empty() {
                summary.envelope_from.to_string()
            } else {
                from.label().to_owned()
            },
            fromfull: if from.address.is_empty() { summary.envelope_from.to_string() } else { from.address },
            origfrom: summary.envelope_from.to_string(),
            to: summary.inbox.local.to_string(),
            domain: summary.inbox.domain.to_string(),
            time: summary.arrived_ms,
            seconds_ago: now_ms.saturating_sub(summary.arrived_ms) / 1000,
            size: summary.size_bytes,
            stream: "email",
            msg_type: "email",
            source: "smtp",
            mrid: id.clone(),
            is_first_exchange: false,
            id,
        }
    }
}

/// A piece of the body.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    headers: BTreeMap<&'static str, String>,
    body: String,
}

/// A mail with its content.
#[derive(Debug, Serialize)]
pub(super) struct Letter {
    #[serde(flatten)]
    pub(super) entry: Entry,
    headers: BTreeMap<String, Value>,
    parts: Vec<Part>,
    text: String,
}

impl Letter {
    pub(super) fn new(mail: &Mail, now_ms: u64) -> Self {
        let prepared = Prepared::new(&mail.raw);
        Self::of(mail, &prepared.read(), now_ms)
    }

    fn of(mail: &Mail, reading: &Reading<'_>, now_ms: u64) -> Self {
        let mut parts = Vec::new();
        let mut part = |kind: &str, body: String| {
            parts.push(Part { headers: [("content-type", kind.to_owned())].into(), body });
        };
        let (text, _) = reading.text();
        if reading.has_own_text() {
            part("text/plain; charset=UTF-8", text.clone());
        }
        if let Some(html) = reading.html_source() {
            part("text/html; charset=UTF-8", crate::render::cut(&html, HTML_BYTES_MAX).to_owned());
        }
        for attachment in reading.attachments() {
            part(&format!("{}; name=\"{}\"", attachment.content_type, attachment.filename), String::new());
        }
        Self { entry: Entry::new(&mail.summary, true, now_ms), headers: headers(reading), parts, text }
    }
}

/// A mail with its content and what test suites look for in it.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    #[serde(flatten)]
    letter: Letter,
    /// One-time codes, the likeliest first.
    codes: Vec<String>,
    /// True targets.
    links: Vec<String>,
}

impl Found {
    pub(super) fn new(mail: &Mail, now_ms: u64) -> Self {
        let prepared = Prepared::new(&mail.raw);
        let reading = prepared.read();
        let letter = Letter::of(mail, &reading, now_ms);
        Self {
            codes: findings::codes(&letter.entry.subject, &letter.text),
            links: findings::links(&reading).into_iter().map(|link| link.link).collect(),
            letter,
        }
    }
}

/// Names in lower case; a field that is there more than once is a list.
pub(super) fn headers(reading: &Reading<'_>) -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for (name, value) in reading.headers() {
        match all.entry(name.to_ascii_lowercase()).or_insert(Value::Null) {
            empty @ Value::Null => *empty = Value::String(value),
            Value::Array(values) => values.push(Value::String(value)),
            one => *one = Value::Array(vec![one.take(), Value::String(value)]),
        }
    }
    all
}
