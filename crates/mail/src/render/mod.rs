//! A mail's bytes as what people and programs read. On request, never on arrival.
//!
//! ```text
//!  raw bytes ─▶ guard (bounds on structure) ─▶ mail-parser ─▶ Reading ─┬▶ text, headers, attachments
//!                                                                      ├▶ html: its cost counted, cleaned
//!                                                                      └▶ links, one-time codes
//! ```
//! Everything here is a function from bytes to a value: no socket, no clock, nothing is kept. What a hostile mail may
//! cost is bounded by the constants below and in [`cost`]; what a bound cuts off is said in a [`Notice`] beside what is
//! shown. Callers with a clock, or with a client that may go, set the limit [`Until`]: each loop pays it for its steps.

pub mod cost;
pub mod css;
pub mod fields;
pub mod findings;
mod guard;
mod heads;
pub mod html;
mod lists;
mod parts;
mod plain;
mod sources;
mod transfer;
mod tree;
pub mod until;

use std::borrow::Cow;

use mail_parser::{HeaderName, Message, MessageParser, PartType};

use self::{fields::Address, guard::Guarded};
pub use self::{
    parts::{Attachment, Piece},
    until::{Enough, Until},
};

/// Of a larger mail only the beginning is taken apart; its source is whole. Less than half of `http-bytes-max`, which is
/// what one client may hold.
pub const PARSED_BYTES_MAX: usize = 28 * 1024 * 1024;
/// Of a longer text only the beginning is shown.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Fields of the head that are shown.
pub const HEADERS_MAX: usize = 1000;
/// Attachments that are listed and can be fetched.
pub const ATTACHMENTS_MAX: usize = 1000;
/// Bodies in one mail that are shown one after the other.
const BODIES_MAX: usize = 100;

/// What is not as the sender meant it, or not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// Beyond [`PARSED_BYTES_MAX`].
    #[error(
        "This mail is too large to be shown whole: its first 28 MiB are, and what is attached within them. The source has all of it."
    )]
    MailCut,
    /// Beyond [`TEXT_BYTES_MAX`].
    #[error("The text is too long to be shown whole. The source has all of it.")]
    TextCut,
    /// Beyond [`HEADERS_MAX`].
    #[error("There are too many header fields to show them all. The source has all of them.")]
    HeadersCut,
    /// A head is beyond the bounds of `render::heads`.
    #[error(
        "The head of this mail, or of a part of it, is too long to be read whole. The source has all of it."
    )]
    HeadCut,
    /// The limit [`Until`] has ended.
    #[error(
        "This mail takes too long to be taken apart, so that not all of it is shown. The source has all of it."
    )]
    TimeOver,
    /// Beyond [`ATTACHMENTS_MAX`].
    #[error("There are too many attachments to list them all. The source has all of them.")]
    AttachmentsCut,
    /// More levels than `guard::NESTED_MAX`.
    #[error("This mail contains mails within mails, too deep to be taken apart. The source has all of it.")]
    TooDeep,
    /// More than `guard::CONTINUATIONS_MAX`.
    #[error("There are too many parameters to read them all. The source has all of them.")]
    ParametersCut,
    /// Neither head nor body could be told.
    #[error("This is not a mail as the standards describe it. The source shows what came.")]
    NotAMail,
}

/// A mail taken apart.
pub struct Reading<'a> {
    message: Message<'a>,
    attachments: Vec<Attachment>,
    notices: Vec<Notice>,
    until: &'a Until,
}

/// The bytes as the parser may see them; a [`Reading`] borrows from it.
pub struct Prepared<'a> {
    guarded: Guarded<'a>,
    granted: Granted<'a>,
}

/// The limit of the work for a mail.
enum Granted<'a> {
    /// No limit of time: only the bounds of a mail hold.
    Always(Until),
    Within(&'a Until),
}

impl Granted<'_> {
    fn until(&self) -> &Until {
        match self {
            Self::Always(until) => until,
            Self::Within(until) => until,
        }
    }
}

impl<'a> Prepared<'a> {
    /// Prepares a mail without a limit of time, for callers that have neither a client nor a clock; others use
    /// [`Self::within`].
    #[must_use]
    pub fn new(raw: &'a [u8]) -> Self {
        Self::granted(raw, Granted::Always(Until::default()))
    }

    /// Prepares a mail that is read until `until` ends. Where it has ended already, nothing of the mail is read.
    #[must_use]
    pub fn within(raw: &'a [u8], until: &'a Until) -> Self {
        Self::granted(raw, Granted::Within(until))
    }

    fn granted(raw: &'a [u8], granted: Granted<'a>) -> Self {
        let guarded = guard::guard(raw, granted.until())
            .unwrap_or_else(|Enough| Guarded { bytes: Cow::Borrowed(&[]), notices: vec![Notice::TimeOver] });
        Self { guarded, granted }
    }

    /// Takes the mail apart.
    #[must_use]
    pub fn read(&self) -> Reading<'_> {
        Reading::new(&self.guarded, self.granted.until())
    }
}

impl<'a> Reading<'a> {
    fn new(guarded: &'a Guarded<'_>, until: &'a Until) -> Self {
        let mut notices = guarded.notices.clone();
        // The parser cannot be interrupted. Bounds limit what it makes of heads, and how often it goes over multiparts.
        let is_granted = until.pay(guarded.bytes.len()).is_ok();
        if !is_granted && !notices.contains(&Notice::TimeOver) {
            notices.push(Notice::TimeOver);
        }
        // A blank line in front makes a body of what has no head at all.
        let message = MessageParser::default()
            .parse(if is_granted { &*guarded.bytes } else { &[] })
            .filter(|message| !message.parts.is_empty())
            .unwrap_or_else(|| {
                if is_granted && !notices.contains(&Notice::TimeOver) {
                    notices.push(Notice::NotAMail);
                }
                Message {
                    parts: vec![mail_parser::MessagePart::default()],
                    raw_message: Cow::Borrowed(&guarded.bytes),
                    ..Message::default()
                }
            });
        let (mut attachments, cut) = parts::attachments(&message);
        if notices.contains(&Notice::MailCut) {
            // The one that goes to the end is not all there.
            attachments.retain(|attachment| !parts::is_last(&message, attachment));
        }
        if cut {
            notices.push(Notice::AttachmentsCut);
        }
        if message.headers().len() > HEADERS_MAX {
            notices.push(Notice::HeadersCut);
        }
        Self { message, attachments, notices, until }
    }

    /// Returns whether the limit has not ended, so that nothing is missing for lack of time.
    #[must_use]
    pub fn is_in_time(&self) -> bool {
        !self.until.has_ended()
    }

    /// What is not shown, and why.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The subject, decoded; empty if there is none.
    #[must_use]
    pub fn subject(&self) -> String {
        fields::printable(self.message.subject().unwrap_or_default()).into_owned()
    }

    /// The mailboxes in a field.
    #[must_use]
    pub fn addresses(&self, field: HeaderName<'static>) -> Vec<Address<'_>> {
        let mut all = Vec::new();
        for value in self.message.header_values(field) {
            if let Some(addresses) = value.as_address() {
                let granted = addresses.iter().take(HEADERS_MAX - all.len());
                all.extend(granted.map(fields::address).take_while(|address| self.grants(address.bytes())));
            }
            if all.len() >= HEADERS_MAX || !self.is_in_time() {
                break;
            }
        }
        all
    }

    /// Pays for `steps` steps and returns whether they are granted.
    fn grants(&self, steps: usize) -> bool {
        self.until.pay(steps).is_ok()
    }

    /// The Date field in milliseconds since 1970; nothing if it is missing or none.
    #[must_use]
    pub fn date_ms(&self) -> Option<i64> {
        let date = self.message.date()?;
        date.is_valid().then(|| date.to_timestamp().saturating_mul(1000))
    }

    /// The Message-ID, without its angle brackets; empty if there is none.
    #[must_use]
    pub fn message_id(&self) -> String {
        fields::printable(self.message.message_id().unwrap_or_default()).into_owned()
    }

    /// Name and value of each field, unfolded, encoded words decoded; at most [`HEADERS_MAX`].
    #[must_use]
    pub fn headers(&self) -> Vec<(String, String)> {
        let raw = &*self.message.raw_message;
        self.message
            .headers()
            .iter()
            .take(HEADERS_MAX)
            .map_while(|header| {
                let value =
                    raw.get(header.offset_start as usize..header.offset_end as usize).unwrap_or_default();
                self.until.pay(header.name().len() + value.len()).ok()?;
                Some((fields::printable(header.name()).into_owned(), fields::decode(value).into_owned()))
            })
            .collect()
    }

    /// The plain text: as sent, or made from the HTML if that is all there is.
    #[must_use]
    pub fn text(&self) -> (String, Option<Notice>) {
        let mut whole = String::new();
        for position in 0..self.message.text_body_count().min(BODIES_MAX) {
            // The bytes of a part are paid for before they are copied or converted.
            let bytes = self.message.text_part(position as u32).map_or(0, |part| match &part.body {
                PartType::Text(text) => text.len().min(TEXT_BYTES_MAX),
                PartType::Html(html) => html.len().min(html::HTML_BYTES_MAX),
                _ => 0,
            });
            if whole.len() > TEXT_BYTES_MAX || !self.grants(bytes) {
                break;
            }
            if let Some(part) = self.message.text_part(position as u32) {
                if !whole.is_empty() && !whole.ends_with('\n') {
                    whole.push('\n');
                }
                // One more than is shown says that it is not all.
                let room = (TEXT_BYTES_MAX + 4).saturating_sub(whole.len());
                match &part.body {
                    PartType::Text(text) => whole.push_str(cut(text, room)),
                    PartType::Html(html) => {
                        let html = cut(html, html::HTML_BYTES_MAX);
                        whole.push_str(&plain::of_html(html, self.until));
                    }
                    _ => {}
                }
            }
        }
        if whole.len() > TEXT_BYTES_MAX {
            let end = cut(&whole, TEXT_BYTES_MAX).len();
            whole.truncate(end);
            return (whole, Some(Notice::TextCut));
        }
        (whole, None)
    }

    /// Whether the sender wrote a plain text.
    #[must_use]
    pub fn has_own_text(&self) -> bool {
        self.message.text_bodies().take(BODIES_MAX).any(|part| matches!(part.body, PartType::Text(_)))
    }

    /// The HTML as sent, if there is any; of more than [`html::HTML_BYTES_MAX`] the beginning, and a byte at least of
    /// what follows.
    #[must_use]
    pub fn html_source(&self) -> Option<String> {
        let mut whole: Option<String> = None;
        for part in self.message.html_bodies().take(BODIES_MAX) {
            // One more than is shown says that it is not all.
            let room = (html::HTML_BYTES_MAX + 4).saturating_sub(whole.as_ref().map_or(0, String::len));
            let bytes = match &part.body {
                PartType::Html(text) | PartType::Text(text) => text.len().min(room),
                _ => 0,
            };
            if !self.grants(bytes) {
                break;
            }
            match (&part.body, &mut whole) {
                (PartType::Html(html), whole) => {
                    whole.get_or_insert_default().push_str(cut(html, room));
                }
                // A text between two pieces of HTML belongs where it stands.
                (PartType::Text(text), Some(whole)) => {
                    whole.push_str(cut(&mail_parser::decoders::html::text_to_html(cut(text, room)), room));
                }
                _ => {}
            }
        }
        whole
    }

    /// Where links and pictures of the HTML lead, as it says it, for a search; at most [`findings::LINKS_MAX`].
    #[must_use]
    pub fn link_targets(&self) -> Vec<String> {
        self.html_source().map_or_else(Vec::new, |html| findings::targets(&html, self.until))
    }

    /// Whether there is any HTML.
    #[must_use]
    pub fn has_html(&self) -> bool {
        self.message.html_bodies().take(BODIES_MAX).any(|part| matches!(part.body, PartType::Html(_)))
    }

    /// The HTML as a document for a sandboxed frame; nothing if there is none. What is over a bound is its text instead.
    #[must_use]
    pub fn html(&self, how: &html::Showing<'_>, until: &Until) -> Option<html::Clean> {
        let source = self.html_source()?;
        let pictures = html::pictures(self.attachments.iter(), how.pictures);
        let mut clean = html::clean(&source, how, pictures, until);
        if clean.over.is_some() {
            clean.html = html::of_text(&self.text().0);
        }
        Some(clean)
    }

    /// What can be fetched by itself.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// The mail as it stands there, part by part.
    #[must_use]
    pub fn pieces(&self) -> Piece<'_> {
        parts::piece(&self.message, 0)
    }

    /// The decoded bytes of an attachment.
    #[must_use]
    pub fn attachment_bytes(&self, attachment: &Attachment) -> Cow<'_, [u8]> {
        parts::bytes(&self.message, attachment)
    }
}

/// At most so many bytes of the beginning, never half a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod law_tests;
#[cfg(test)]
mod style_tests;
#[cfg(test)]
mod tests;
