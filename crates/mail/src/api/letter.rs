//! JSON of a mail in Mailinator's API.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::Value;

use crate::{
    mailbox::mailboxes::{Mail, MailId, Summary},
    render::{DecodedMail, ParsedMail, StepLimit, fields, findings, html::HTML_BYTES_MAX},
};

/// A mail in a list, borrowed from its summary.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    pub(super) id: MailId,
    pub(super) subject: Cow<'a, str>,
    /// The sender's name, or the address if there is no name.
    pub(super) from: Cow<'a, str>,
    /// The sender's address.
    pub(super) fromfull: Cow<'a, str>,
    /// Sender address from MAIL FROM.
    pub(super) origfrom: Cow<'a, str>,
    /// Local part of the inbox, quoted if needed.
    pub(super) to: Cow<'a, str>,
    pub(super) domain: Cow<'a, str>,
    /// Time of arrival in milliseconds since 1970.
    pub(super) time: u64,
    pub(super) seconds_ago: u64,
    pub(super) size: u64,
    pub(super) stream: &'static str,
    pub(super) msg_type: &'static str,
    pub(super) source: &'static str,
    pub(super) mrid: MailId,
    pub(super) is_first_exchange: bool,
}

impl<'a> Entry<'a> {
    /// Builds an entry. With `decode` the subject's encoded words are decoded, as the client requested.
    pub(super) fn new(summary: &'a Summary, decode: bool, now_ms: u64) -> Self {
        let sender = fields::decode_address(&summary.from);
        let envelope_from = || Cow::Borrowed(&*summary.envelope_from);
        let fromfull = if sender.address.is_empty() { envelope_from() } else { sender.address.clone() };
        Self {
            id: summary.id,
            subject: if decode {
                fields::decode(&summary.subject)
            } else {
                fields::printable_lossy(&summary.subject)
            },
            from: if sender.name.is_empty() { fromfull.clone() } else { sender.name },
            fromfull,
            origfrom: envelope_from(),
            to: summary.inbox.name(),
            domain: (&*summary.inbox.domain).into(),
            time: summary.arrived_ms,
            seconds_ago: now_ms.saturating_sub(summary.arrived_ms) / 1000,
            size: summary.size_bytes,
            stream: "email",
            msg_type: "email",
            source: "smtp",
            mrid: summary.id,
            is_first_exchange: false,
        }
    }

    /// Returns an entry that does not borrow from the summary.
    fn into_owned(self) -> Entry<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Entry {
            subject: own(self.subject),
            from: own(self.from),
            fromfull: own(self.fromfull),
            origfrom: own(self.origfrom),
            to: own(self.to),
            domain: own(self.domain),
            ..self
        }
    }
}

/// A part of the body.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    headers: BTreeMap<&'static str, String>,
    body: String,
}

/// A mail with its content.
#[derive(Debug, Serialize)]
pub(super) struct Letter {
    #[serde(flatten)]
    pub(super) entry: Entry<'static>,
    headers: BTreeMap<String, Value>,
    parts: Vec<Part>,
    text: String,
}

impl Letter {
    pub(super) fn new(mail: &Mail, now_ms: u64, until: &StepLimit) -> Self {
        let prepared = ParsedMail::within(&mail.raw, until);
        Self::of(mail, &prepared.read(), now_ms)
    }

    fn of(mail: &Mail, reading: &DecodedMail<'_>, now_ms: u64) -> Self {
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
        Self {
            entry: Entry::new(&mail.summary, true, now_ms).into_owned(),
            headers: headers(reading),
            parts,
            text,
        }
    }
}

/// A mail with its content, and the codes and links that test suites look for.
#[derive(Debug, Serialize)]
pub(super) struct MailWithFindings {
    #[serde(flatten)]
    letter: Letter,
    /// One-time codes, the likeliest first.
    codes: Vec<String>,
    /// URLs that the links of the mail point to.
    links: Vec<String>,
}

impl MailWithFindings {
    pub(super) fn new(mail: &Mail, now_ms: u64, until: &StepLimit) -> Self {
        let prepared = ParsedMail::within(&mail.raw, until);
        let reading = prepared.read();
        let letter = Letter::of(mail, &reading, now_ms);
        Self {
            codes: findings::codes(
                &letter.entry.subject,
                &reading.with_html_text(letter.text.clone()),
                until,
            ),
            links: findings::links(&reading, until).into_iter().map(|link| link.link).collect(),
            letter,
        }
    }
}

/// Returns the header fields with names in lower case; a repeated field has a list of values.
pub(super) fn headers(reading: &DecodedMail<'_>) -> BTreeMap<String, Value> {
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
