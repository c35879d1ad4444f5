//! Renders a mail's bytes for people and programs, on request, never on arrival.
//!
//! ```text
//!  raw bytes ─▶ tree of parts (bounded) ─▶ bodies chosen ─▶ DecodedMail ────┬▶ text, headers, attachments
//!                                                                      ├▶ html: its cost counted, cleaned
//!                                                                      └▶ links, one-time codes
//! ```
//! All functions here map bytes to a value: no sockets, no clock, no state. The constants of `limits` and
//! [`cost`] limit the cost of a hostile mail; a [`Notice`] tells the reader what a limit cut off. Callers
//! with a clock, or with a client that may disconnect, pass a [`StepLimit`], and every loop charges its steps
//! to the limit.

mod bodies;
mod charset;
pub mod cost;
pub mod css;
pub mod fields;
pub mod findings;
mod heads;
pub mod html;
mod limits;
mod lists;
mod mime;
mod parameters;
mod parts;
mod plain;
mod sources;
mod transfer;
mod tree;
pub mod until;
mod words;

use std::borrow::Cow;

use mail_parser::HeaderName;

pub(crate) use self::limits::cut;
use self::{bodies::Bodies, fields::Address, limits::BODIES_MAX, mime::Tree};
pub use self::{
    limits::{ATTACHMENTS_MAX, HEADERS_MAX, PARSED_BYTES_MAX, TEXT_BYTES_MAX},
    parts::{Attachment, RawPart},
    until::{StepLimit, StepLimitReached},
};

/// Notice to the reader that a mail is shown incompletely or not as the sender meant it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// The mail has more than [`PARSED_BYTES_MAX`] bytes.
    #[error(
        "This mail is too large to be shown in full: only its first 28 MiB and the attachments within them are shown. \
         The source has all of it."
    )]
    MailCut,
    /// The text has more than [`TEXT_BYTES_MAX`] bytes.
    #[error("The text is too long to be shown in full. The source has all of it.")]
    TextCut,
    /// The head has more than [`HEADERS_MAX`] fields.
    #[error("There are too many header fields to show them all. The source has all of them.")]
    HeadersCut,
    /// A head exceeds the limits of `render::heads`.
    #[error(
        "The header of this mail, or of a part of it, is too long to be read in full. The source has all of it."
    )]
    HeadCut,
    /// The [`StepLimit`] was reached.
    #[error("This mail takes too long to parse, so only a part of it is shown. The source has all of it.")]
    TimeOver,
    /// The mail has more than [`ATTACHMENTS_MAX`] attachments.
    #[error("There are too many attachments to list them all. The source has all of them.")]
    AttachmentsCut,
    /// Multiparts are nested deeper than `mime::DEPTH_MAX`.
    #[error("The parts of this mail are nested too deep to be shown. The source has all of it.")]
    TooDeep,
    /// A field has more pieces of parameters than `parameters::PIECES_MAX`.
    #[error("There are too many parameters to read them all. The source has all of them.")]
    ParametersCut,
    /// The mail is empty: it has neither a head nor a body.
    #[error("This mail does not follow the mail standards. The source shows what arrived.")]
    NotAMail,
}

/// A mail whose structure is known and whose content can be decoded.
pub struct DecodedMail<'a> {
    raw: &'a [u8],
    tree: &'a Tree,
    bodies: Bodies,
    attachments: Vec<Attachment>,
    notices: Vec<Notice>,
    until: &'a StepLimit,
}

/// A mail's bytes and the tree of its parts; a [`DecodedMail`] borrows from it.
pub struct ParsedMail<'a> {
    raw: &'a [u8],
    tree: Tree,
    is_cut: bool,
    is_in_time: bool,
    granted: StepLimitRef<'a>,
}

/// Step limit for the work on a mail.
enum StepLimitRef<'a> {
    /// No time limit: only the limits on a mail apply.
    Always(StepLimit),
    Within(&'a StepLimit),
}

impl StepLimitRef<'_> {
    fn until(&self) -> &StepLimit {
        match self {
            Self::Always(until) => until,
            Self::Within(until) => until,
        }
    }
}

impl<'a> ParsedMail<'a> {
    /// Parses a mail without a time limit, for callers that have neither a client nor a clock; all others use
    /// [`Self::within`].
    #[must_use]
    pub fn new(raw: &'a [u8]) -> Self {
        Self::granted(raw, StepLimitRef::Always(StepLimit::default()))
    }

    /// Parses a mail within `until`. The mail is not read if the limit has already ended.
    #[must_use]
    pub fn within(raw: &'a [u8], until: &'a StepLimit) -> Self {
        Self::granted(raw, StepLimitRef::Within(until))
    }

    fn granted(raw: &'a [u8], granted: StepLimitRef<'a>) -> Self {
        let parsed = &raw[..raw.len().min(PARSED_BYTES_MAX)];
        let is_cut = parsed.len() < raw.len();
        match Tree::of(parsed, granted.until()) {
            Ok(tree) => Self { raw: parsed, tree, is_cut, is_in_time: true, granted },
            Err(StepLimitReached) => {
                Self { raw: &[], tree: Tree::empty(), is_cut, is_in_time: false, granted }
            }
        }
    }

    /// Selects bodies and attachments.
    #[must_use]
    pub fn read(&self) -> DecodedMail<'_> {
        DecodedMail::new(self)
    }
}

impl<'a> DecodedMail<'a> {
    fn new(prepared: &'a ParsedMail<'_>) -> Self {
        let ParsedMail { raw, tree, is_cut, is_in_time, granted } = prepared;
        let until = granted.until();
        let bodies = bodies::of(tree);
        let (mut attachments, cut) = parts::attachments(raw, tree, &bodies, until);
        if *is_cut {
            // An attachment that reaches the end of a cut mail is incomplete.
            attachments.retain(|own| tree.parts[own.part as usize].body.end < raw.len());
        }
        let has_more_fields = mime::fields(&raw[tree.parts[0].head.clone()]).nth(HEADERS_MAX).is_some();
        let notices = [
            (*is_cut, Notice::MailCut),
            (!is_in_time, Notice::TimeOver),
            (tree.are_heads_cut, Notice::HeadCut),
            (!tree.is_mail, Notice::NotAMail),
            (tree.is_too_deep, Notice::TooDeep),
            (tree.are_parameters_cut, Notice::ParametersCut),
            (cut || tree.is_cut, Notice::AttachmentsCut),
            (has_more_fields, Notice::HeadersCut),
        ];
        let notices = notices.into_iter().filter_map(|(is_so, notice)| is_so.then_some(notice)).collect();
        Self { raw, tree, bodies, attachments, notices, until }
    }

    /// The mail's own head.
    fn head(&self) -> &'a [u8] {
        &self.raw[self.tree.parts[0].head.clone()]
    }

    /// Returns the first field with this name; any further ones are ignored.
    fn field(&self, name: &str) -> &'a [u8] {
        let head = self.head();
        if self.grants(head.len()) { mime::first(head, name).unwrap_or_default() } else { &[] }
    }

    /// Returns the text of a part. Steps are charged for the whole part, because the whole part is decoded.
    fn text_of(&self, number: usize) -> Result<Cow<'a, str>, StepLimitReached> {
        let part = &self.tree.parts[number];
        let charset = part.charset.as_deref();
        self.until.pay(part.body.len())?;
        Ok(match parts::bytes(self.raw, part) {
            Cow::Borrowed(bytes) => charset::decoded(charset, bytes),
            Cow::Owned(bytes) => Cow::Owned(charset::decoded(charset, &bytes).into_owned()),
        })
    }

    /// Returns whether the limit has not ended, so that no content is missing for lack of time.
    #[must_use]
    pub fn is_in_time(&self) -> bool {
        !self.until.has_ended()
    }

    /// Returns the notices to show to the reader.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns the decoded subject; empty if there is none.
    #[must_use]
    pub fn subject(&self) -> String {
        fields::decode(self.field("Subject")).into_owned()
    }

    /// Returns the mailboxes in the first field with this name.
    #[must_use]
    pub fn addresses(&self, field: HeaderName<'static>) -> Vec<Address<'static>> {
        let value = self.field(field.as_str());
        if self.grants(value.len()) { fields::decode_addresses(value) } else { Vec::new() }
    }

    /// Charges `steps` steps and returns whether they may be executed.
    fn grants(&self, steps: usize) -> bool {
        self.until.pay(steps).is_ok()
    }

    /// Returns the Date field in milliseconds since 1970; `None` if it is missing or invalid.
    #[must_use]
    pub fn date_ms(&self) -> Option<i64> {
        fields::decode_date(self.field("Date")).map(|seconds| seconds.saturating_mul(1000))
    }

    /// Returns the Message-ID without its angle brackets; empty if there is none.
    #[must_use]
    pub fn message_id(&self) -> String {
        let value = fields::printable_lossy(self.field("Message-ID"));
        let within = value.split_once('<').map_or(&*value, |(_, id)| id.split('>').next().unwrap_or(id));
        within.trim().to_owned()
    }

    /// Returns name and value of each field, unfolded, with encoded words decoded; at most [`HEADERS_MAX`].
    #[must_use]
    pub fn headers(&self) -> Vec<(String, String)> {
        let fields = mime::fields(self.head()).take(HEADERS_MAX);
        let decoded = fields.map_while(|(name, value)| {
            self.until.pay(name.len() + value.len()).ok()?;
            Some((fields::printable_lossy(name).into_owned(), fields::decode(value).into_owned()))
        });
        decoded.collect()
    }

    /// Returns the plain text as sent, or text converted from the HTML if there is only HTML.
    #[must_use]
    pub fn text(&self) -> (String, Option<Notice>) {
        let mut whole = String::new();
        for number in self.bodies.text.iter().take(BODIES_MAX) {
            if whole.len() > TEXT_BYTES_MAX {
                break;
            }
            let Ok(text) = self.text_of(*number) else { break };
            if !whole.is_empty() && !whole.ends_with('\n') {
                whole.push('\n');
            }
            // The text holds at least one byte more than is shown, so that the caller can tell that it is
            // cut.
            let room = (TEXT_BYTES_MAX + 4).saturating_sub(whole.len());
            if self.tree.parts[*number].is_html() {
                whole.push_str(&plain::of_html(cut(&text, html::HTML_BYTES_MAX), self.until));
            } else {
                whole.push_str(cut(&text, room));
            }
        }
        if whole.len() > TEXT_BYTES_MAX {
            let end = cut(&whole, TEXT_BYTES_MAX).len();
            whole.truncate(end);
            return (whole, Some(Notice::TextCut));
        }
        (whole, None)
    }

    /// Returns all text that a reader may see: the plain text, and the text of the HTML if the sender wrote
    /// both.
    #[must_use]
    pub fn whole_text(&self) -> String {
        self.with_html_text(self.text().0)
    }

    /// Returns `text`, the plain text from [`Self::text`], followed by the text of the HTML if the sender
    /// wrote both.
    #[must_use]
    pub fn with_html_text(&self, mut text: String) -> String {
        if self.has_own_text()
            && let Some(html) = self.html_source()
        {
            text.push('\n');
            text.push_str(cut(&plain::of_html(cut(&html, html::HTML_BYTES_MAX), self.until), TEXT_BYTES_MAX));
        }
        text
    }

    /// Returns whether the sender wrote a plain text.
    #[must_use]
    pub fn has_own_text(&self) -> bool {
        self.bodies.text.iter().take(BODIES_MAX).any(|part| !self.tree.parts[*part].is_html())
    }

    /// Returns the HTML as sent, if there is any. HTML that is longer than [`html::HTML_BYTES_MAX`] is cut at
    /// least one byte after that limit.
    #[must_use]
    pub fn html_source(&self) -> Option<String> {
        let mut whole: Option<String> = None;
        for number in self.bodies.html.iter().take(BODIES_MAX) {
            // The HTML holds at least one byte more than is shown, so that the caller can tell that it is
            // cut.
            let room = (html::HTML_BYTES_MAX + 4).saturating_sub(whole.as_ref().map_or(0, String::len));
            let is_html = self.tree.parts[*number].is_html();
            if !is_html && whole.is_none() {
                continue;
            }
            let Ok(text) = self.text_of(*number) else { break };
            if is_html {
                whole.get_or_insert_default().push_str(cut(&text, room));
            } else if let Some(whole) = &mut whole {
                // A text part after HTML is shown at its position in the mail.
                whole.push_str(cut(&mail_parser::decoders::html::text_to_html(cut(&text, room)), room));
            }
        }
        whole
    }

    /// Returns the targets of links and pictures as written in the HTML, for a search; at most
    /// [`findings::LINKS_MAX`].
    #[must_use]
    pub fn link_targets(&self) -> Vec<String> {
        self.html_source().map_or_else(Vec::new, |html| findings::targets(&html, self.until))
    }

    /// Returns whether there is any HTML.
    #[must_use]
    pub fn has_html(&self) -> bool {
        self.bodies.html.iter().take(BODIES_MAX).any(|part| self.tree.parts[*part].is_html())
    }

    /// Returns the HTML as a document for a sandboxed frame; `None` if there is no HTML. If a limit is
    /// exceeded, the document shows the mail's text instead.
    #[must_use]
    pub fn html(&self, how: &html::DisplayOptions<'_>, until: &StepLimit) -> Option<html::SanitizedHtml> {
        let source = self.html_source()?;
        let pictures = html::pictures(self.attachments.iter(), how.pictures);
        let mut clean = html::clean(&source, how, pictures, until);
        if clean.over.is_some() {
            clean.html = html::of_text(&self.text().0);
        }
        Some(clean)
    }

    /// Returns the parts that can be fetched separately.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Returns the mail as it was sent, part by part.
    #[must_use]
    pub fn pieces(&self) -> RawPart<'_> {
        parts::piece(self.raw, self.tree, 0)
    }

    /// Returns the decoded bytes of an attachment.
    #[must_use]
    pub fn attachment_bytes(&self, attachment: &Attachment) -> Cow<'_, [u8]> {
        parts::bytes(self.raw, &self.tree.parts[attachment.part as usize])
    }
}

#[cfg(test)]
mod law_tests;
#[cfg(test)]
mod style_tests;
#[cfg(test)]
mod tests;
