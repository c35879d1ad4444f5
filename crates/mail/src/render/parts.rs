//! What can be fetched by itself: attachments, and images that the HTML shows.

use std::{borrow::Cow, collections::HashSet};

use mail_parser::Encoding;

use super::{
    ATTACHMENTS_MAX, HEADERS_MAX,
    bodies::{self, Bodies},
    fields::{printable, printable_lossy},
    mime::{self, Disposition, Kind, Part, Tree},
    transfer,
    until::StepLimit,
};

/// Characters of a file's name.
const NAME_CHARACTERS_MAX: usize = 120;
/// Characters of the name's end, with the dot, that says what the file is.
const ENDING_CHARACTERS_MAX: usize = 16;

/// A part that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its place among the mail's parts: what it is called in paths.
    pub part: u32,
    /// The sender's name for it, or one made from its place and type. It has no slash and no control character.
    pub filename: String,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// What RFC 2045, section 6 calls the mechanism: `base64`, `quoted-printable`, `7bit`.
    pub encoding: &'static str,
    /// Meant to be shown in place rather than listed.
    pub inline: bool,
    /// Counted as attached, as Mailpit counts: not a version of the text, nor what a bounce brings.
    pub attached: bool,
    /// Its Content-ID without angle brackets.
    pub content_id: Option<String>,
    /// Of the decoded content.
    pub size_bytes: usize,
}

/// A mail or a part of it as it stands there, with its own parts.
#[derive(Debug)]
pub struct RawPart<'a> {
    /// Name and value of each field, unfolded, nothing decoded.
    pub headers: Vec<(String, String)>,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// The bytes behind the head, encoded as they came.
    pub body: &'a [u8],
    /// The body with its transfer coding undone, and nothing else.
    pub content: Cow<'a, [u8]>,
    /// Pieces of a multipart.
    pub pieces: Vec<RawPart<'a>>,
}

/// The part of this number and those within it. How deep it goes is bounded by [`super::mime::DEPTH_MAX`].
pub(super) fn piece<'a>(raw: &'a [u8], tree: &Tree, number: usize) -> RawPart<'a> {
    let part = &tree.parts[number];
    let headers = mime::fields(&raw[part.head.clone()]).take(HEADERS_MAX);
    let headers = headers
        .map(|(name, value)| (printable_lossy(name).into_owned(), printable_lossy(value).into_owned()));
    let (content, pieces) = match part.kind {
        Kind::Leaf => (bytes(raw, part), Vec::new()),
        Kind::Multipart(_) => {
            (Cow::Borrowed(&[][..]), tree.children(number).map(|child| piece(raw, tree, child)).collect())
        }
    };
    RawPart {
        headers: headers.collect(),
        content_type: part.media_type.clone(),
        body: &raw[part.body.clone()],
        content,
        pieces,
    }
}

/// Returns each leaf that is not shown as the mail's text, and whether some were left out.
pub(super) fn attachments(
    raw: &[u8],
    tree: &Tree,
    bodies: &Bodies,
    until: &StepLimit,
) -> (Vec<Attachment>, bool) {
    let is_shown: HashSet<usize> = bodies.text.iter().chain(&bodies.html).copied().collect();
    let leaves = tree.parts.iter().enumerate().filter(|(_, part)| part.kind == Kind::Leaf);
    let mut all = leaves.filter(|(number, _)| !is_shown.contains(number));
    // Each is decoded for its length.
    let listed = all.by_ref().take(ATTACHMENTS_MAX).map_while(|(number, part)| {
        until.pay(part.body.len()).ok()?;
        Some(attachment(raw, number, part))
    });
    let listed = listed.collect();
    (listed, all.next().is_some())
}

fn attachment(raw: &[u8], number: usize, part: &Part) -> Attachment {
    let content_type = part.media_type.clone();
    let filename = part.filename.as_deref().map(safe_filename).filter(|name| !name.is_empty());
    Attachment {
        part: u32::try_from(number).unwrap_or(u32::MAX),
        filename: filename.unwrap_or_else(|| format!("part-{number}.{}", extension(&content_type))),
        encoding: match part.encoding {
            Encoding::Base64 => "base64",
            Encoding::QuotedPrintable => "quoted-printable",
            Encoding::None => "7bit",
        },
        inline: part.disposition == Disposition::Inline,
        attached: bodies::is_attached(part),
        content_id: part.content_id.clone(),
        size_bytes: bytes(raw, part).len(),
        content_type,
    }
}

/// The bytes of a part as its sender has them: the transfer coding is undone (RFC 2045, 6), the charset is not.
pub(super) fn bytes<'a>(raw: &'a [u8], part: &Part) -> Cow<'a, [u8]> {
    transfer::decoded(part.encoding, &raw[part.body.clone()])
}

/// The last component, without what a file system or a header field would take as more than a name.
fn safe_filename(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String =
        printable(last).chars().filter(|c| !matches!(c, '"' | '<' | '>' | '|' | ':')).collect();
    shortened(clean.trim_matches(['.', ' ']))
}

/// A name that is too long loses its middle, and keeps the end that says what it is.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARACTERS_MAX {
        return name.to_owned();
    }
    let ending = name.rfind('.').map_or("", |dot| &name[dot..]);
    let ending = if ending.chars().count() <= ENDING_CHARACTERS_MAX { ending } else { "" };
    let begin: String = name.chars().take(NAME_CHARACTERS_MAX - ending.chars().count()).collect();
    begin + ending
}

fn extension(content_type: &str) -> &str {
    match content_type {
        "message/rfc822" | "message/global" => "eml",
        "text/plain" => "txt",
        "text/html" => "html",
        "text/calendar" => "ics",
        "image/jpeg" => "jpg",
        "image/png" => "png",
        "image/gif" => "gif",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        _ => "bin",
    }
}
