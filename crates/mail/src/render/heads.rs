//! Bounds of the heads of a mail and of its parts, before the parser sees them.
//!
//! The parser keeps a record of a hundred bytes for each field and of fifty for each address: 28 MiB of `a:` lines, or
//! one `From` of 20 MB, are a gigabyte, and the seconds that it takes to make one. The bytes beyond the bounds below
//! are therefore left out of the copy that only the parser sees; pages say so ([`super::Notice::HeadCut`]), and the
//! source has all of it.
//!
//! Heads are not known before the mail is taken apart. The scan therefore covers each place where a head may begin: the
//! beginning of the mail, behind each line that begins with `--`, as a boundary does, and behind the empty line of a
//! head that names a message within. A text that looks like a head counts as a head; only thousands of lines that look
//! like fields, without an empty line between them, are cut.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr3_iter, memmem};

use super::{
    guard::ends_ignoring_case,
    until::{Enough, Until},
};

/// Bytes of one field, its name and its folded lines together. A thousand recipients have 60 KiB.
pub(super) const FIELD_BYTES_MAX: usize = 128 * 1024;
/// Bytes of the fields of one head.
pub(super) const HEAD_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the fields of all heads of a mail.
pub(super) const HEADS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Fields of all heads of a mail.
pub(super) const FIELDS_MAX: usize = 20_000;
/// Addresses and parameters in the fields of all heads of a mail.
pub(super) const ITEMS_MAX: usize = 20_000;

/// The rest of the bounds for all heads of a mail.
struct Left {
    bytes: usize,
    fields: usize,
    items: usize,
}

/// Returns the ranges beyond the bounds, in order and without overlaps.
pub(super) fn beyond(bytes: &[u8], until: &Until) -> Result<Vec<Range<usize>>, Enough> {
    let mut left = Left { bytes: HEADS_BYTES_MAX, fields: FIELDS_MAX, items: ITEMS_MAX };
    let mut cuts = Vec::new();
    let boundary = memmem::Finder::new("\n--");
    let mut begin = 0;
    loop {
        let end = head(bytes, begin, &mut left, &mut cuts, until)?;
        let names_message = holds_message(&bytes[begin..end]);
        let line_end = |from: usize| memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |at| from + at + 1);
        // The empty line that ends a head may be the one before a boundary.
        begin = if names_message {
            line_end(end)
        } else {
            let from = end.saturating_sub(1);
            let found = boundary.find(&bytes[from..]);
            until.pay(found.unwrap_or(bytes.len() - from))?;
            found.map_or(bytes.len(), |at| line_end(from + at + 1))
        };
        if begin >= bytes.len() {
            return Ok(cuts);
        }
    }
}

/// Copies `bytes` without the ranges in `cuts`.
pub(super) fn without(bytes: &[u8], cuts: &[Range<usize>]) -> Vec<u8> {
    let gone: usize = cuts.iter().map(Range::len).sum();
    let mut kept = Vec::with_capacity(bytes.len() - gone);
    let mut done = 0;
    for cut in cuts {
        kept.extend_from_slice(&bytes[done..cut.start]);
        done = cut.end;
    }
    kept.extend_from_slice(&bytes[done..]);
    kept
}

/// Scans a head, adds the ranges beyond the bounds to `cuts`, and returns the head's end: the empty line, or the mail's
/// end.
fn head(
    bytes: &[u8],
    begin: usize,
    left: &mut Left,
    cuts: &mut Vec<Range<usize>>,
    until: &Until,
) -> Result<usize, Enough> {
    let mut head_left = HEAD_BYTES_MAX;
    // Bytes left for the field that the line belongs to; `None` for a line of no field.
    let mut field_left = None;
    let mut line = begin;
    while line < bytes.len() {
        let end = memchr(b'\n', &bytes[line..]).map_or(bytes.len(), |at| line + at + 1);
        until.pay(end - line)?;
        let text = bytes[line..end].trim_ascii_end();
        if text.is_empty() {
            return Ok(line);
        }
        let goes_on = matches!(text[0], b' ' | b'\t') && line > begin;
        if !goes_on {
            let is_field = memchr(b':', text).is_some();
            if !is_field && begin == 0 && line > 0 {
                // The body begins here: its empty line was forgotten.
                return Ok(line);
            }
            field_left = match left.fields.checked_sub(1) {
                _ if !is_field => None,
                Some(fields) => {
                    left.fields = fields;
                    Some(FIELD_BYTES_MAX)
                }
                None => Some(0),
            };
        }
        // The parser makes nothing of a line that is no field.
        if let Some(own) = &mut field_left {
            let mut kept = (end - line).min(*own).min(head_left).min(left.bytes);
            let mut items = 0;
            for at in memchr3_iter(b',', b';', b'<', &bytes[line..line + kept]) {
                if items == left.items {
                    kept = at;
                    break;
                }
                items += 1;
            }
            left.items -= items;
            left.bytes -= kept;
            head_left -= kept;
            *own -= kept;
            if kept < end - line {
                // The rest of the field is cut, too. A line that is kept in part keeps its line end.
                *own = 0;
                let cut = line + kept..if kept > 0 { (line + text.len()).max(line + kept) } else { end };
                match cuts.last_mut() {
                    Some(last) if last.end == cut.start => last.end = cut.end,
                    _ => cuts.push(cut),
                }
            }
        }
        line = end;
    }
    Ok(bytes.len())
}

/// Returns whether a head names a type `message/…`, so that a message follows.
fn holds_message(head: &[u8]) -> bool {
    memchr_iter(b'/', head).any(|slash| ends_ignoring_case(head[..slash].trim_ascii_end(), b"message"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(mail: &str) -> String {
        let cuts = beyond(mail.as_bytes(), &Until::default()).unwrap();
        String::from_utf8(without(mail.as_bytes(), &cuts)).unwrap()
    }

    #[test]
    fn what_people_send_is_not_cut() {
        let recipients = "somebody.with.a.name@example.org,\r\n ".repeat(1000);
        let part =
            "--b\r\nContent-Type: text/plain; name=x\r\nContent-ID: <a@b>\r\n\r\nbody: x\r\n".repeat(1000);
        let text = "a line: of text\r\n".repeat(50_000);
        let mail = format!("To: {recipients}x@y\r\nSubject: x\r\n\r\n{part}-- \r\nGreetings\r\n\r\n{text}");
        assert_eq!(cut(&mail), mail);
        for small in ["", "\r\n", "A: b", "no head", "A: b\r\nno field\r\n", "\n--", "A: b\n\n--"] {
            assert_eq!(cut(small), small);
        }
    }

    #[test]
    fn a_field_ends_at_its_bound_and_the_next_one_stays() {
        let long = "x".repeat(FIELD_BYTES_MAX);
        let mail = format!("X: {long}\r\n {long}\r\nSubject: y\r\n\r\nbody");
        let kept = cut(&mail);
        assert!(kept.len() < FIELD_BYTES_MAX + 100 && kept.ends_with("x\r\nSubject: y\r\n\r\nbody"));
        let many = "a,\r\n ".repeat(2 * ITEMS_MAX);
        let kept = cut(&format!("To: {many}\r\nSubject: y\r\n\r\n"));
        assert_eq!(kept.matches(',').count(), ITEMS_MAX);
        assert!(kept.ends_with("\r\nSubject: y\r\n\r\n"), "{}", &kept[kept.len() - 99..]);
    }

    #[test]
    fn all_heads_together_have_bounds() {
        let fields = "a:\n".repeat(FIELDS_MAX);
        for mail in [
            format!("{fields}{fields}\nbody\n\n--b\n{fields}\n"),
            format!("A: b\n\n--b\n{fields}{fields}\nbody"),
            format!("A: b\n\n--b\nno field\n{fields}{fields}\nbody"),
            format!("A: b\nContent-Type: message /rfc822\n\n{fields}{fields}\nbody"),
        ] {
            // Some of these mails have other fields before.
            let kept = cut(&mail).matches(":\n").count();
            assert!((FIELDS_MAX - 2..=FIELDS_MAX).contains(&kept), "{kept}: {}", &mail[..60]);
        }
        let head = format!("X: {}\n", "x".repeat(100_000)).repeat(10);
        let parts = format!("--b\n{head}\n").repeat(20);
        let kept = cut(&format!("{head}\n\n{parts}"));
        assert!(kept.len() < HEADS_BYTES_MAX + 10_000, "{}", kept.len());
    }

    proptest! {
        #[test]
        fn cuts_are_in_order_and_within(mail in "([ab:,\\-\n /]|message/|\n--){0,80}") {
            let cuts = beyond(mail.as_bytes(), &Until::default()).unwrap();
            prop_assert!(cuts.is_empty(), "a small mail is not cut");
        }
    }
}
