//! What the parser must be kept from.
//!
//! The parser walks messages within messages without recursion, yet freeing and copying the result recurses, a level
//! for each `message/rfc822`, and it looks for the end of each unclosed multipart again. Both are harmless for what
//! people send and ruinous for what is built to hurt: 16 MiB hold half a million levels. So the names of containers are
//! counted first, and where there are too many, or a message within a message is encoded (RFC 2046, 5.2.1 forbids it,
//! and what is inside could not be counted), those names are broken in a copy that only the parser sees: the part is
//! then an attachment like any other.
//!
//! It also goes through all parameters for each piece of one that is continued (RFC 2231, 3): 200,000 pieces, in 3 MiB,
//! took seconds. Those beyond a number are broken, too.
//!
//! A part in quoted-printable whose last line ends in a soft break (`=`) loses the two letters before it: the parser
//! takes back a line end that it never wrote (mail-parser 0.11.9, `decode_quoted_printable_mime`). In the copy a blank
//! stands there, which means nothing at the end of a line (RFC 2045, 6.7).
//!
//! Heads have bounds of their own ([`super::heads`]).
//!
//! Two things that senders forget are put in: the empty line between head and body, without which the parser takes the
//! body for fields and drops it, and the subtype of `Content-Type: text`, which is plain text (RFC 2045, 5.2) and not
//! an attachment of no type.

use std::borrow::Cow;

use memchr::{memchr_iter, memmem};

use super::{
    Notice, PARSED_BYTES_MAX, heads,
    until::{Enough, Until},
};

/// `message/…` in one mail.
pub(super) const NESTED_MAX: usize = 50;
/// `multipart/…` in one mail.
pub(super) const MULTIPARTS_MAX: usize = 200;

/// `multipart/…` times the bytes of the mail: the end of each that is not closed is looked for in all of it. 190 in 5 MiB
/// took seconds.
pub(super) const MULTIPART_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Pieces of continued parameters in one mail.
pub(super) const CONTINUATIONS_MAX: usize = 1000;

/// `Content-Type: text` in one mail, of which each is looked at, and how far above it its head may begin.
const TEXTS_MAX: usize = 200;
const HEAD_BYTES_BACK: usize = 4096;

const DIGEST: &[u8; 6] = b"digest";
/// As long as what it replaces.
const MIXED: &[u8; 6] = b"mixed ";

const QUOTED_PRINTABLE: &[u8] = b"quoted-printable";
const CONTENT_TYPE: &[u8] = b"content-type";

/// The bytes for the parser.
pub(super) struct Guarded<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) notices: Vec<Notice>,
}

/// Prepares a mail's bytes for the parser.
///
/// # Errors
/// [`Enough`] when `until` ends: nothing of the mail is taken apart.
pub(super) fn guard<'a>(raw: &'a [u8], until: &Until) -> Result<Guarded<'a>, Enough> {
    let mut notices = Vec::new();
    let bytes = if raw.len() > PARSED_BYTES_MAX {
        notices.push(Notice::MailCut);
        &raw[..PARSED_BYTES_MAX]
    } else {
        raw
    };
    let cuts = heads::beyond(bytes, until)?;
    if cuts.is_empty() {
        return whole(bytes, notices, until);
    }
    notices.push(Notice::HeadCut);
    until.pay(bytes.len())?;
    let cut = heads::without(bytes, &cuts);
    let Guarded { bytes, notices } = whole(&cut, notices, until)?;
    Ok(Guarded { bytes: Cow::Owned(bytes.into_owned()), notices })
}

/// Guards a mail whose heads are within their bounds.
fn whole<'a>(bytes: &'a [u8], mut notices: Vec<Notice>, until: &Until) -> Result<Guarded<'a>, Enough> {
    until.pay(bytes.len())?;
    let containers = Containers::find(bytes);
    let mut broken: Vec<usize> = Vec::new();
    if containers.messages.len() > NESTED_MAX {
        notices.push(Notice::TooDeep);
        broken.extend(containers.messages);
    } else {
        broken.extend(encoded(bytes, &containers.messages, until)?);
    }
    let multiparts = containers.multiparts.len();
    if multiparts > MULTIPARTS_MAX || multiparts * bytes.len() > MULTIPART_BYTES_MAX {
        if !notices.contains(&Notice::TooDeep) {
            notices.push(Notice::TooDeep);
        }
        broken.extend(containers.multiparts);
    }
    until.pay(bytes.len())?;
    let continued: Vec<usize> = continuations(bytes).skip(CONTINUATIONS_MAX).collect();
    if !continued.is_empty() {
        notices.push(Notice::ParametersCut);
        broken.extend(continued);
    }
    until.pay(bytes.len())?;
    let soft_breaks = last_soft_breaks(bytes);
    until.pay(bytes.len())?;
    let missing = missing(bytes);
    if broken.is_empty() && containers.digests.is_empty() && soft_breaks.is_empty() && missing.is_empty() {
        return Ok(Guarded { bytes: Cow::Borrowed(bytes), notices });
    }
    until.pay(bytes.len())?;
    let mut copy = bytes.to_vec();
    for sign in broken {
        copy[sign] = b'-';
    }
    for equals_sign in soft_breaks {
        copy[equals_sign] = b' ';
    }
    for subtype in containers.digests {
        copy[subtype..subtype + DIGEST.len()].copy_from_slice(MIXED);
    }
    if !missing.is_empty() {
        copy = with_put_in(&copy, &missing);
    }
    Ok(Guarded { bytes: Cow::Owned(copy), notices })
}

/// What is to be put in where, from the front.
fn missing(bytes: &[u8]) -> Vec<(usize, &'static [u8])> {
    let mut missing: Vec<(usize, &'static [u8])> = texts_of_no_subtype(bytes).collect();
    if let Some(body) = body_without_empty_line(bytes) {
        missing.insert(missing.partition_point(|(at, _)| *at < body), (body, b"\r\n"));
    }
    missing
}

fn with_put_in(bytes: &[u8], missing: &[(usize, &[u8])]) -> Vec<u8> {
    let more: usize = missing.iter().map(|(_, text)| text.len()).sum();
    let mut whole = Vec::with_capacity(bytes.len() + more);
    let mut done = 0;
    for (at, text) in missing {
        whole.extend_from_slice(&bytes[done..*at]);
        whole.extend_from_slice(text);
        done = *at;
    }
    whole.extend_from_slice(&bytes[done..]);
    whole
}

/// Where the body begins, if no empty line stands before it: at the first line of the head that is no field, nor goes
/// on with one (RFC 5322, 2.2). `From ` in front is how a line of an mbox begins, and no body.
fn body_without_empty_line(bytes: &[u8]) -> Option<usize> {
    let mut begin = 0;
    while begin < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[begin..]).map_or(bytes.len(), |at| begin + at + 1);
        let line = bytes[begin..end].trim_ascii_end();
        let is_mbox = begin == 0 && (line.starts_with(b"From ") || line.starts_with(b">From "));
        match line.first() {
            None => return None,
            Some(b' ' | b'\t') if begin > 0 => {}
            Some(_) if is_field(line) || is_mbox => {}
            // What has no head at all is left as it is.
            Some(_) => return (begin > 0).then_some(begin),
        }
        begin = end;
    }
    None
}

/// Whether a line begins with a field's name: printable characters without a blank, then, perhaps after blanks (RFC
/// 5322, 4.5), a colon.
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let name = line[..colon].trim_ascii_end();
    !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
}

/// Behind each `Content-Type: text` and `text/` that says no more, in the heads of the mail and of its parts.
fn texts_of_no_subtype(bytes: &[u8]) -> impl Iterator<Item = (usize, &'static [u8])> {
    const TEXT: &[u8] = b"text";
    let found = move |colon: usize| {
        let name = bytes[..colon].trim_ascii_end();
        let line_begins = name.len().checked_sub(CONTENT_TYPE.len())?;
        let is_line = line_begins == 0 || bytes[line_begins - 1] == b'\n';
        if !is_line || !ends_ignoring_case(name, CONTENT_TYPE) {
            return None;
        }
        let value = bytes[colon + 1..].trim_ascii_start();
        let after = value.get(..TEXT.len()).filter(|kind| kind.eq_ignore_ascii_case(TEXT));
        let after = after.map(|_| &value[TEXT.len()..])?;
        let (after, subtype): (&[u8], &[u8]) = match after.strip_prefix(b"/") {
            Some(after) => (after, b"plain"),
            None => (after, b"/plain"),
        };
        let ends = match after.trim_ascii_start().first() {
            None | Some(b';') => true,
            // The field ends here, unless the next line goes on with it.
            Some(_) => matches!(after.first(), Some(b'\r' | b'\n')),
        };
        ends.then_some((line_begins, (bytes.len() - after.len(), subtype)))
    };
    let found = memchr_iter(b':', bytes).filter_map(found).take(TEXTS_MAX);
    found.filter(|(line_begins, _)| is_in_head(bytes, *line_begins)).map(|(_, missing)| missing)
}

/// Whether the lines above are a head: nothing but them is above, or a boundary, as far as is looked back.
fn is_in_head(bytes: &[u8], line_begins: usize) -> bool {
    let looked_at = line_begins.saturating_sub(HEAD_BYTES_BACK);
    let begin = block_begin(&bytes[looked_at..line_begins]);
    looked_at + begin == 0 || bytes[looked_at + begin..].trim_ascii_start().starts_with(b"--")
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

/// Where the asterisk of each `name*7=` and `name*7*=` is.
fn continuations(bytes: &[u8]) -> impl Iterator<Item = usize> {
    memchr_iter(b'*', bytes).filter(|&asterisk| {
        let after = &bytes[asterisk + 1..];
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = after[digits..].strip_prefix(b"*").unwrap_or(&after[digits..]);
        digits > 0 && rest.trim_ascii_start().starts_with(b"=")
    })
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

/// Returns the slashes whose block of lines names an encoding; `slashes` are in order. Each block is searched once,
/// however many slashes it has: searched for each, a block of 24 MB with fifty took 17 s.
fn encoded(bytes: &[u8], slashes: &[usize], until: &Until) -> Result<Vec<usize>, Enough> {
    let mut found = Vec::new();
    let (mut known_end, mut is_encoded) = (0, false);
    for &slash in slashes {
        if slash >= known_end {
            let begin = known_end + block_begin(&bytes[known_end..slash]);
            known_end = slash + block_end(&bytes[slash..]);
            let block = &bytes[begin..known_end];
            until.pay(block.len())?;
            is_encoded =
                contains_ignoring_case(block, b"base64") || contains_ignoring_case(block, QUOTED_PRINTABLE);
        }
        if is_encoded {
            found.push(slash);
        }
    }
    Ok(found)
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

/// Returns whether `haystack` has `needle` in any case of letters; `needle` begins with a letter.
fn contains_ignoring_case(haystack: &[u8], needle: &[u8]) -> bool {
    let first = needle[0];
    memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), haystack)
        .any(|at| haystack[at..].get(..needle.len()).is_some_and(|word| word.eq_ignore_ascii_case(needle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(raw: &[u8]) -> Guarded<'_> {
        super::guard(raw, &Until::default()).unwrap()
    }

    /// A block of 4 MB without an empty line names fifty messages, and is searched once for all of them.
    #[test]
    fn a_block_is_searched_once_for_encodings() {
        let block = |kib: usize| {
            let text = "x".repeat(1000) + "\n";
            let head = "Content-Type: message/rfc822\n".repeat(NESTED_MAX);
            format!("A: b\n\n{head}{}", text.repeat(kib))
        };
        let until = Until::default();
        let large = block(4000);
        super::guard(large.as_bytes(), &until).unwrap();
        let passes = until.steps() / large.len() as u64;
        assert!(passes <= 8, "{passes} passes over the mail");
        assert!(matches!(guard(large.as_bytes()).bytes, Cow::Borrowed(_)), "nothing is encoded");
        let encoded = large + "content-transfer-encoding: BASE64\n\n";
        assert!(!guard(encoded.as_bytes()).bytes.windows(8).any(|w| w == b"message/"), "all are");
    }

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
        let large = "Content-Type: multipart/mixed; boundary=a\n\n--a\n".repeat(100) + &"x".repeat(3 << 20);
        assert_eq!(guard(large.as_bytes()).notices, [Notice::TooDeep]);
    }

    #[test]
    fn too_many_pieces_of_parameters_are_not_put_together() {
        let pieces =
            |n: usize| -> String { (0..n).map(|n| format!(" name*{n}*=a;\r\n name*{n} =b;\r\n")).collect() };
        let few = format!("Content-Type: text/plain;\r\n{}\r\n2*3=6 **", pieces(400));
        assert!(matches!(guard(few.as_bytes()).bytes, Cow::Borrowed(_)));
        let many = format!("Content-Type: text/plain;\r\n{}\r\n", pieces(600));
        let guarded = guard(many.as_bytes());
        assert_eq!(guarded.notices, [Notice::ParametersCut]);
        assert_eq!(continuations(&guarded.bytes).count(), CONTINUATIONS_MAX);
    }

    fn put_in(mail: &str) -> String {
        String::from_utf8_lossy(&guard(mail.as_bytes()).bytes).into_owned()
    }

    #[test]
    fn a_body_begins_where_the_fields_end_even_without_an_empty_line() {
        for (mail, guarded) in [
            ("A: b\r\nHello\r\nC: d\r\n", "A: b\r\n\r\nHello\r\nC: d\r\n"),
            ("A: b\r\n goes on\r\n<p> x: y", "A: b\r\n goes on\r\n\r\n<p> x: y"),
            ("From x Mon\nA : b\nbody here: x\n", "From x Mon\nA : b\n\r\nbody here: x\n"),
        ] {
            assert_eq!(put_in(mail), guarded);
        }
        for whole in ["A: b\r\n\r\nHello", "A: b\r\n", "A: b\r\n \r\nHello", "Hello\r\nthere", ""] {
            assert_eq!(put_in(whole), whole);
        }
    }

    #[test]
    fn a_text_without_a_subtype_is_plain() {
        for (mail, guarded) in [
            ("Content-Type: text\r\n\r\nx", "Content-Type: text/plain\r\n\r\nx"),
            ("content-type:TEXT/; charset=x\n\nx", "content-type:TEXT/plain; charset=x\n\nx"),
            ("A: b\n\n--b\nContent-Type: text ;a=b\n\n", "A: b\n\n--b\nContent-Type: text/plain ;a=b\n\n"),
            ("A: b\nContent-Type: text\nbody", "A: b\nContent-Type: text/plain\n\r\nbody"),
        ] {
            assert_eq!(put_in(mail), guarded);
        }
        for whole in [
            "Content-Type: text/html\n\nContent-Type: text\n",
            "Content-Type: texture\n\n",
            "X-Content-Type: text\n\n",
            "Content-Type: text and more\n\n",
        ] {
            assert_eq!(put_in(whole), whole);
        }
    }
}
