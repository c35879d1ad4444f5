//! What can be fetched by itself: attachments, and images that the HTML shows.

use std::borrow::Cow;

use mail_parser::{Encoding, Message, MessagePart, MimeHeaders, PartType};

use super::{
    ATTACHMENTS_MAX, HEADERS_MAX,
    fields::{printable, printable_lossy},
    transfer,
};

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
    /// Its Content-ID without angle brackets.
    pub content_id: Option<String>,
    /// Of the decoded content.
    pub size_bytes: usize,
}

/// A mail or a part of it as it stands there, with its own parts.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Name and value of each field, unfolded, nothing decoded.
    pub headers: Vec<(String, String)>,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// What follows the head, encoded as it came.
    pub body: &'a [u8],
    /// The body with its transfer coding undone, and nothing else.
    pub content: Cow<'a, [u8]>,
    /// Of a multipart.
    pub pieces: Vec<Piece<'a>>,
}

/// The part of this number and those within it. How deep it goes is bounded by what the guard lets through.
pub(super) fn piece<'a>(message: &'a Message<'_>, number: u32) -> Piece<'a> {
    let Some(part) = message.part(number) else {
        return Piece {
            headers: Vec::new(),
            content_type: String::new(),
            body: &[],
            content: Cow::Borrowed(&[]),
            pieces: Vec::new(),
        };
    };
    let raw = &*message.raw_message;
    let bytes = |from: u32, to: u32| raw.get(from as usize..to as usize).unwrap_or_default();
    let headers = part.headers.iter().take(HEADERS_MAX).map(|header| {
        let value = printable_lossy(bytes(header.offset_start, header.offset_end));
        (printable(header.name()).into_owned(), value.into_owned())
    });
    let within = match &part.body {
        PartType::Multipart(parts) => &**parts,
        _ => &[],
    };
    Piece {
        headers: headers.collect(),
        content_type: content_type(part),
        body: bytes(part.offset_body, part.offset_end),
        content: bytes_of(message, number),
        // Those of a multipart come after it.
        pieces: within
            .iter()
            .filter(|within| **within > number)
            .map(|within| piece(message, *within))
            .collect(),
    }
}

/// All of them, and whether some were left out.
pub(super) fn attachments(message: &Message<'_>) -> (Vec<Attachment>, bool) {
    let listed = message.attachments.iter().take(ATTACHMENTS_MAX);
    let attachments = listed.filter_map(|&part| attachment(message, part)).collect();
    (attachments, message.attachments.len() > ATTACHMENTS_MAX)
}

/// Whether a part, or what it is in, goes to the end of the bytes.
pub(super) fn is_last(message: &Message<'_>, attachment: &Attachment) -> bool {
    let end = message.raw_message.len();
    message.part(attachment.part).is_some_and(|part| part.offset_end as usize >= end)
}

fn attachment(message: &Message<'_>, number: u32) -> Option<Attachment> {
    let part = message.part(number)?;
    let content_type = content_type(part);
    let filename = part
        .attachment_name()
        .map(safe_filename)
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("part-{number}.{}", extension(&content_type)));
    Some(Attachment {
        part: number,
        filename,
        encoding: match encoding(part) {
            Encoding::Base64 => "base64",
            Encoding::QuotedPrintable => "quoted-printable",
            Encoding::None => "7bit",
        },
        inline: part.content_disposition().is_some_and(mail_parser::ContentType::is_inline)
            || matches!(part.body, PartType::InlineBinary(_)),
        content_id: part.content_id().map(|id| printable(id.trim_matches(['<', '>'])).into_owned()),
        size_bytes: bytes_of(message, number).len(),
        content_type,
    })
}

fn content_type(part: &MessagePart<'_>) -> String {
    media_type(&match part.content_type() {
        Some(kind) => format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("octet-stream")),
        None if part.is_message() => "message/rfc822".to_owned(),
        None if part.is_text() => "text/plain".to_owned(),
        None => "application/octet-stream".to_owned(),
    })
}

pub(super) fn bytes<'a>(message: &'a Message<'_>, attachment: &Attachment) -> Cow<'a, [u8]> {
    bytes_of(message, attachment.part)
}

/// The bytes of a part as its sender has them: the transfer coding is undone (RFC 2045, 6), the charset is not.
fn bytes_of<'a>(message: &'a Message<'_>, number: u32) -> Cow<'a, [u8]> {
    let Some(part) = message.part(number) else { return Cow::Borrowed(&[]) };
    let body =
        message.raw_message.get(part.offset_body as usize..part.offset_end as usize).unwrap_or_default();
    match &part.body {
        // mail-parser has converted these to UTF-8: the part's own bytes are decoded here instead.
        PartType::Text(_) | PartType::Html(_) => transfer::decoded(encoding(part), body),
        PartType::Binary(_) | PartType::InlineBinary(_) if encoding(part) == Encoding::QuotedPrintable => {
            transfer::quoted_printable(body)
        }
        PartType::Binary(bytes) | PartType::InlineBinary(bytes) => Cow::Borrowed(bytes),
        // A mail within the mail is returned as it stands.
        PartType::Message(_) => Cow::Borrowed(body),
        PartType::Multipart(_) => Cow::Borrowed(&[]),
    }
}

/// Returns the transfer coding that the part names, even where mail-parser could not undo it.
fn encoding(part: &MessagePart<'_>) -> Encoding {
    match part.content_transfer_encoding() {
        Some(named) if named.eq_ignore_ascii_case("base64") => Encoding::Base64,
        Some(named) if named.eq_ignore_ascii_case("quoted-printable") => Encoding::QuotedPrintable,
        _ => Encoding::None,
    }
}

/// `type/subtype` of tokens only (RFC 2045, 5.1), so that it can stand in a header field of ours.
fn media_type(declared: &str) -> String {
    let lower = declared.to_ascii_lowercase();
    let is_token = |token: &str| {
        (1..=127).contains(&token.len())
            && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    match lower.split_once('/') {
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => lower,
        _ => "application/octet-stream".to_owned(),
    }
}

/// The last component, without what a file system or a header field would take as more than a name.
fn safe_filename(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String =
        printable(last).chars().filter(|c| !matches!(c, '"' | '<' | '>' | '|' | ':')).collect();
    let clean = clean.trim_matches(['.', ' ']);
    clean.chars().take(120).collect()
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
        "application/pdf" => "pdf",
        _ => "bin",
    }
}
