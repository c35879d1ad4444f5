//! Parts that can be fetched separately: attachments, and images in the HTML.

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

/// Maximum length of a file name in characters.
const NAME_CHARACTERS_MAX: usize = 120;
/// Maximum length in characters of the file extension, with the dot, that is kept when a name is shortened.
const ENDING_CHARACTERS_MAX: usize = 16;

/// A part that can be fetched separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Number of the part in the mail, used in paths.
    pub part: u32,
    /// File name given by the sender, or built from the part's number and type. It contains no slash and no
    /// control character.
    pub filename: String,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// Transfer encoding (RFC 2045, section 6): `base64`, `quoted-printable`, `7bit`.
    pub encoding: &'static str,
    /// True if the part is to be shown inline rather than listed.
    pub inline: bool,
    /// True if the part counts as attached, as in Mailpit: alternatives of the text and the parts of a bounce
    /// do not.
    pub attached: bool,
    /// Content-ID without angle brackets.
    pub content_id: Option<String>,
    /// Size of the decoded content.
    pub size_bytes: usize,
}

/// A mail, or a part of one, as it was sent, with its own parts.
#[derive(Debug)]
pub struct RawPart<'a> {
    /// Name and value of each field, unfolded but not decoded.
    pub headers: Vec<(String, String)>,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// The bytes after the head, still encoded.
    pub body: &'a [u8],
    /// The body with its transfer encoding decoded, but not its charset.
    pub content: Cow<'a, [u8]>,
    /// Parts of a multipart.
    pub pieces: Vec<RawPart<'a>>,
}

/// Returns a part with all its nested parts. The recursion is bounded by [`super::mime::DEPTH_MAX`].
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
    // Each part is decoded to determine its length.
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

/// Decodes the transfer encoding of a part (RFC 2045, 6), but not its charset.
pub(super) fn bytes<'a>(raw: &'a [u8], part: &Part) -> Cow<'a, [u8]> {
    transfer::decoded(part.encoding, &raw[part.body.clone()])
}

/// Returns the last path component, without characters that have a meaning to a file system or in a header
/// field.
fn safe_filename(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String =
        printable(last).chars().filter(|c| !matches!(c, '"' | '<' | '>' | '|' | ':')).collect();
    shortened(clean.trim_matches(['.', ' ']))
}

/// Cuts a name that is too long, but keeps its extension.
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
