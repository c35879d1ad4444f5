//! Limits on the heads of a mail and of its parts.
//!
//! The decoded value of a field takes more memory than the field: a head of 28 MiB of `a:` lines, or the
//! addresses of one `From` of 20 MB, become a gigabyte, and take seconds to decode. Fields beyond the limits
//! below are not read; pages say so ([`super::Notice::HeadCut`]), and the source view shows all of them. The
//! walk over a mail's parts knows where each head is, so that bodies that look like heads are never cut.

use memchr::memchr;

/// Maximum size of one field in bytes, including its name and its folded lines. A thousand recipients take 60
/// KiB.
pub(super) const FIELD_BYTES_MAX: usize = 128 * 1024;
/// Maximum total size of the fields of one head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 512 * 1024;
/// Maximum total size of the fields in all heads of a mail, in bytes.
pub(super) const HEADS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of fields in all heads of a mail.
pub(super) const FIELDS_MAX: usize = 20_000;

/// The remaining budget for all heads of a mail.
pub(super) struct HeadBudget {
    bytes: usize,
    fields: usize,
}

impl Default for HeadBudget {
    fn default() -> Self {
        Self { bytes: HEADS_BYTES_MAX, fields: FIELDS_MAX }
    }
}

impl HeadBudget {
    /// Returns how many bytes of the next head are read, and whether these are the whole head. If a field is
    /// too long, only its beginning is read and charged; the fields after it are read.
    pub(super) fn take(&mut self, head: &[u8]) -> (usize, bool) {
        let (mut read, mut is_whole) = (0, true);
        let mut head_left = HEAD_BYTES_MAX;
        while read < head.len() {
            let field = end_of_field(&head[read..]);
            let bytes = field.min(FIELD_BYTES_MAX);
            if self.fields == 0 || bytes > head_left.min(self.bytes) {
                return (read, false);
            }
            self.fields -= 1;
            self.bytes -= bytes;
            head_left -= bytes;
            is_whole &= bytes == field;
            read += field;
        }
        (read, is_whole)
    }
}

/// Returns the end of a field: the end of the first line that is not followed by a continuation line, which
/// begins with a blank.
#[inline]
pub(super) fn end_of_field(field: &[u8]) -> usize {
    let mut at = 0;
    while let Some(line_feed) = memchr(b'\n', &field[at..]) {
        at += line_feed + 1;
        if !matches!(field.get(at), Some(b' ' | b'\t')) {
            return at;
        }
    }
    field.len()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            mime::{Tree, fields},
            until::StepLimit,
        },
        *,
    };

    /// Returns the number of fields read in all heads, their size in bytes, and whether nothing was cut.
    fn read(mail: &str) -> (usize, usize, bool) {
        let tree = Tree::of(mail.as_bytes(), &StepLimit::default()).unwrap();
        let heads = tree.parts.iter().map(|part| &mail.as_bytes()[part.head.clone()]);
        let read: Vec<usize> =
            heads.flat_map(|head| fields(head).map(|(name, value)| name.len() + value.len())).collect();
        (read.len(), read.iter().sum(), !tree.are_heads_cut)
    }

    const MULTIPART: &str = "Content-Type: multipart/mixed; boundary=b\r\n\r\n";

    #[test]
    fn what_people_send_is_not_cut() {
        let recipients = "somebody.with.a.name@example.org,\r\n ".repeat(1000);
        let part =
            "--b\r\nContent-Type: text/plain; name=x\r\nContent-ID: <a@b>\r\n\r\nbody: x\r\n".repeat(1000);
        let (count, _, is_whole) = read(&format!("To: {recipients}x@y\r\nSubject: x\r\n{MULTIPART}{part}"));
        assert_eq!((count, is_whole), (3 + 2 * 1000, true));
        for small in ["", "\r\n", "A: b", "no head", "A: b\r\nno field\r\n", "\n--", "A: b\n\n--"] {
            assert!(read(small).2, "{small}");
        }
    }

    /// YAML documents that begin with `---` and the head of an attached mail are bodies.
    #[test]
    fn bodies_that_look_like_heads_are_never_cut() {
        let lines = "a: b\r\n".repeat(4 * FIELDS_MAX);
        for kind in ["text/plain", "application/yaml", "message/rfc822"] {
            let part = format!("--b\r\nContent-Type: {kind}\r\n\r\n{lines}---\r\n{lines}\r\n--b--");
            let (count, _, is_whole) = read(&format!("{MULTIPART}{part}"));
            assert_eq!((count, is_whole), (2, true), "{kind}");
        }
    }

    #[test]
    fn a_long_field_is_cut_at_its_bound() {
        let long = "x".repeat(FIELD_BYTES_MAX);
        let (count, bytes, is_whole) = read(&format!("X: {long}\r\n {long}\r\nSubject: y\r\n\r\nbody"));
        assert_eq!((count, is_whole), (2, false));
        assert!((FIELD_BYTES_MAX - 2..FIELD_BYTES_MAX + 8).contains(&bytes), "{bytes}");
    }

    #[test]
    fn all_heads_together_have_bounds() {
        let lines = "a:\n".repeat(2 * FIELDS_MAX);
        for mail in [
            format!("{lines}\nbody"),
            format!("stray\nline\nFrom: a\n{lines}\nbody"),
            format!("{MULTIPART}--b\n{lines}\nbody"),
            format!("{MULTIPART}{}", "--b\na:\nb:\nc:\n\n".repeat(FIELDS_MAX)),
        ] {
            let (count, _, is_whole) = read(&mail);
            assert_eq!((count, is_whole), (FIELDS_MAX, false), "{}", &mail[..60]);
        }
        let head = format!("X: {}\n", "x".repeat(100_000)).repeat(10);
        let (_, bytes, is_whole) = read(&format!("{MULTIPART}--b\n{head}\n"));
        assert!(bytes <= HEAD_BYTES_MAX + 100 && !is_whole, "{bytes}");
        let (_, bytes, is_whole) = read(&format!("{MULTIPART}{}", format!("--b\n{head}\n").repeat(20)));
        assert!(bytes <= HEADS_BYTES_MAX && !is_whole, "{bytes}");
    }
}
