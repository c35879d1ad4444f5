//! From and Subject of a mail as lists show them, found without parsing the whole mail.

use memchr::memchr;

/// Maximum number of bytes kept from a header field: no line is longer (RFC 5322, 2.1.1).
pub const FIELD_BYTES_MAX: usize = 998;

/// Bodies of the first From and Subject field, still folded, as slices of the mail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// Body of From, without the space around it.
    pub from: &'a [u8],
    /// Body of Subject, without the space around it.
    pub subject: &'a [u8],
}

/// Finds the fields in the head, which ends at the first empty line. Lines that end in LF alone are accepted,
/// so that lists also show the fields of such mails.
#[must_use]
pub fn fields(mail: &[u8]) -> Fields<'_> {
    let mut fields = Fields::default();
    let (mut rest, mut from_found, mut subject_found) = (mail, false, false);
    while !(from_found && subject_found) {
        let Some(body_at) = rest.iter().position(|byte| matches!(byte, b':' | b'\n')) else { break };
        if rest[body_at] == b'\n' {
            let line = rest[..body_at].strip_suffix(b"\r").unwrap_or(&rest[..body_at]);
            if line.is_empty() {
                break;
            }
            rest = &rest[body_at + 1..];
            continue;
        }
        let name = rest[..body_at].trim_ascii_end();
        let end = end_of_field(rest);
        if !from_found && name.eq_ignore_ascii_case(b"from") {
            fields.from = body(&rest[body_at + 1..end]);
            from_found = true;
        } else if !subject_found && name.eq_ignore_ascii_case(b"subject") {
            fields.subject = body(&rest[body_at + 1..end]);
            subject_found = true;
        }
        rest = &rest[end..];
    }
    fields
}

/// Returns the end of a field: before the first line that does not begin with a blank or tab.
fn end_of_field(field: &[u8]) -> usize {
    let mut at = 0;
    while let Some(lf) = memchr(b'\n', &field[at..]) {
        at += lf + 1;
        if !matches!(field.get(at), Some(b' ' | b'\t')) {
            return at;
        }
    }
    field.len()
}

fn body(field: &[u8]) -> &[u8] {
    let body = field.trim_ascii();
    &body[..body.len().min(FIELD_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mail: &str) -> (String, String) {
        let fields = fields(mail.as_bytes());
        (String::from_utf8_lossy(fields.from).into(), String::from_utf8_lossy(fields.subject).into())
    }

    #[test]
    fn from_and_subject_are_found_where_they_stand() {
        for (mail, from, subject) in [
            ("From: a@b\r\nSubject: x\r\n\r\nSubject: y\r\n", "a@b", "x"),
            ("Received: from x\r\n\tby y: z\r\nSUBJECT : one\r\n two\r\nfrom:a\r\n\r\n", "a", "one\r\n two"),
            ("Subject: first\r\nSubject: second\r\n\r\n", "", "first"),
            ("\r\nSubject: in the body\r\n", "", ""),
            ("no colon\r\nSubject: x", "", "x"),
            ("Subject: x\nFrom: y\n\nbody", "y", "x"),
            ("", "", ""),
            ("Subject", "", ""),
            ("Subject:", "", ""),
        ] {
            assert_eq!(found(mail), (from.to_owned(), subject.to_owned()), "{mail:?}");
        }
    }

    #[test]
    fn a_long_subject_is_cut() {
        let mail = format!("Subject: {}\r\n\r\n", "x".repeat(5000));
        assert_eq!(fields(mail.as_bytes()).subject.len(), FIELD_BYTES_MAX);
    }
}
