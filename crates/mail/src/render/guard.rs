//! What the parser must be kept from.
//!
//! The parser walks messages within messages without recursion, yet freeing and copying the result recurses, a level
//! for each `message/rfc822`, and it looks for the end of each unclosed multipart again. Both are harmless for what
//! people send and ruinous for what is built to hurt: 16 MiB hold half a million levels. So the names of containers are
//! counted first, and where there are too many, or a message within a message is encoded (RFC 2046, 5.2.1 forbids it,
//! and what is inside could not be counted), those names are broken in a copy that only the parser sees: the part is
//! then an attachment like any other.
//!
//! A part in quoted-printable whose last line ends in a soft break (`=`) loses the two letters before it: the parser
//! takes back a line end that it never wrote (mail-parser 0.11.9, `decode_quoted_printable_mime`). In the copy a blank
//! stands there, which means nothing at the end of a line (RFC 2045, 6.7).

use std::borrow::Cow;

use memchr::{memchr_iter, memmem};

use super::{Notice, PARSED_BYTES_MAX};

/// `message/…` in one mail.
pub(super) const NESTED_MAX: usize = 50;
/// `multipart/…` in one mail.
pub(super) const MULTIPARTS_MAX: usize = 200;

const DIGEST: &[u8; 6] = b"digest";
/// As long as what it replaces.
const MIXED: &[u8; 6] = b"mixed ";

const QUOTED_PRINTABLE: &[u8] = b"quoted-printable";

/// The bytes for the parser.
pub(super) struct Guarded<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) notices: Vec<Notice>,
}

pub(super) fn guard(raw: &[u8]) -> Guarded<'_> {
    let mut notices = Vec::new();
    let bytes = if raw.len() > PARSED_BYTES_MAX {
        notices.push(Notice::MailCut);
        &raw[..PARSED_BYTES_MAX]
    } else {
        raw
    };
    let containers = Containers::find(bytes);
    let mut broken: Vec<usize> = Vec::new();
    if containers.messages.len() > NESTED_MAX {
        notices.push(Notice::TooDeep);
        broken.extend(containers.messages);
    } else {
        broken.extend(containers.messages.into_iter().filter(|&slash| is_encoded(bytes, slash)));
    }
    if containers.multiparts.len() > MULTIPARTS_MAX {
        if !notices.contains(&Notice::TooDeep) {
            notices.push(Notice::TooDeep);
        }
        broken.extend(containers.multiparts);
    }
    let soft_breaks = last_soft_breaks(bytes);
    if broken.is_empty() && containers.digests.is_empty() && soft_breaks.is_empty() {
        return Guarded { bytes: Cow::Borrowed(bytes), notices };
    }
    let mut copy = bytes.to_vec();
    for slash in broken {
        copy[slash] = b'-';
    }
    for equals_sign in soft_breaks {
        copy[equals_sign] = b' ';
    }
    for subtype in containers.digests {
        copy[subtype..subtype + DIGEST.len()].copy_from_slice(MIXED);
    }
    Guarded { bytes: Cow::Owned(copy), notices }
}

/// Where the slash of each container's name is.
#[derive(Default)]
struct Containers {
    messages: Vec<usize>,
    multiparts: Vec<usize>,
    /// Where the word begins. A digest's parts are messages without saying so (RFC 2046, 5.1.5), so none could be
    /// counted: as a mixed multipart it is shown as text.
    digests: Vec<usize>,
}

impl Containers {
    fn find(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        for slash in memchr_iter(b'/', bytes) {
            let before = bytes[..slash].trim_ascii_end();
            if ends_ignoring_case(before, b"message") {
                found.messages.push(slash);
            } else if ends_ignoring_case(before, b"multipart") {
                found.multiparts.push(slash);
                let subtype = bytes[slash + 1..].trim_ascii_start();
                if subtype.len() >= DIGEST.len() && subtype[..DIGEST.len()].eq_ignore_ascii_case(DIGEST) {
                    found.digests.push(bytes.len() - subtype.len());
                }
            }
        }
        found
    }
}

/// Where soft breaks are that end a line before what may be a boundary, of parts that are quoted-printable.
fn last_soft_breaks(bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut quoted_printable, mut seen) = (false, 0);
    for line_feed in memmem::find_iter(bytes, b"\n--") {
        let line = bytes[..line_feed].strip_suffix(b"\r").unwrap_or(&bytes[..line_feed]);
        if !line.ends_with(b"=") {
            continue;
        }
        // The encoding that was named last holds; what was looked at is not looked at again.
        for colon in memchr_iter(b':', &bytes[seen..line_feed]).map(|at| seen + at) {
            let name = bytes[..colon].trim_ascii_end();
            if ends_ignoring_case(name, b"content-transfer-encoding") {
                let value = bytes[colon + 1..].trim_ascii_start();
                quoted_printable = value
                    .get(..QUOTED_PRINTABLE.len())
                    .is_some_and(|value| value.eq_ignore_ascii_case(QUOTED_PRINTABLE));
            }
        }
        seen = line_feed;
        if quoted_printable {
            found.push(line.len() - 1);
        }
    }
    found
}

pub(super) fn ends_ignoring_case(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len() && text[text.len() - word.len()..].eq_ignore_ascii_case(word)
}

/// Whether the block of lines around the slash has an encoding in it.
fn is_encoded(bytes: &[u8], slash: usize) -> bool {
    let begin = block_begin(&bytes[..slash]);
    let end = slash + block_end(&bytes[slash..]);
    let block = &bytes[begin..end];
    contains_ignoring_case(block, b"base64") || contains_ignoring_case(block, QUOTED_PRINTABLE)
}

/// After the last blank line.
fn block_begin(before: &[u8]) -> usize {
    let mut line_end = before.len();
    while let Some(line_feed) = memchr::memrchr(b'\n', &before[..line_end]) {
        if before[line_feed + 1..line_end].trim_ascii().is_empty() && line_end < before.len() {
            return line_end;
        }
        line_end = line_feed;
    }
    0
}

/// At the next blank line.
fn block_end(after: &[u8]) -> usize {
    let mut line_begin = 0;
    for line_feed in memchr_iter(b'\n', after) {
        if line_begin > 0 && after[line_begin..line_feed].trim_ascii().is_empty() {
            return line_begin;
        }
        line_begin = line_feed + 1;
    }
    after.len()
}

fn contains_ignoring_case(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_mail_is_not_copied() {
        let mail = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\n--b--";
        assert!(matches!(guard(mail).bytes, Cow::Borrowed(bytes) if bytes == mail));
    }

    #[test]
    fn an_encoded_message_is_not_opened() {
        for mail in [
            "Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nU3ViamVjdDogeAoK",
            "X: y\r\ncontent-transfer-encoding: BASE64\r\ncontent-type: MESSAGE /rfc822\r\n\r\nU3ViamVjdDogeAoK",
            "A: b\n\nContent-Type: message/global\nContent-Transfer-Encoding: Quoted-Printable\n\n",
        ] {
            let guarded = guard(mail.as_bytes());
            assert!(!guarded.bytes.windows(8).any(|w| w.eq_ignore_ascii_case(b"message/")), "{mail}");
            assert_eq!(guarded.bytes.len(), mail.len());
        }
    }

    #[test]
    fn only_a_quoted_printable_part_loses_its_last_soft_break() {
        let part = |encoding: &str| format!("Content-Transfer-Encoding: {encoding}\r\n\r\nYWI=\r\n--b\r\n");
        let mail =
            part("Quoted-Printable") + &part("base64") + &part("quoted-printable").replace("\r\n", "\n");
        let guarded = guard(mail.as_bytes());
        let kept = String::from_utf8_lossy(&guarded.bytes);
        let lines: Vec<&str> = kept.lines().filter(|line| line.starts_with("YW")).collect();
        assert_eq!(lines, ["YWI ", "YWI=", "YWI "]);
        assert!(matches!(guard(b"x=\r\n--b").bytes, Cow::Borrowed(_)));
    }

    #[test]
    fn an_encoding_elsewhere_does_not_matter() {
        let mail = b"Content-Transfer-Encoding: base64\n\nx\n\nContent-Type: message/rfc822\n\nbase64";
        assert!(matches!(guard(mail).bytes, Cow::Borrowed(_)));
    }

    #[test]
    fn too_many_levels_are_not_opened() {
        let deep = "Content-Type: message/rfc822\n\n".repeat(NESTED_MAX + 1);
        let guarded = guard(deep.as_bytes());
        assert_eq!(guarded.notices, [Notice::TooDeep]);
        assert!(!guarded.bytes.contains(&b'/'));
        let wide = "Content-Type: multipart/mixed; boundary=a\n\n--a\n".repeat(MULTIPARTS_MAX + 1);
        assert_eq!(guard(wide.as_bytes()).notices, [Notice::TooDeep]);
    }
}
