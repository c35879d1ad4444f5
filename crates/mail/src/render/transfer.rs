//! Decodes transfer encodings (RFC 2045, 6). Nothing else in a part is changed, so that a saved file is
//! identical to the one that was sent.

use std::borrow::Cow;

use mail_parser::{Encoding, decoders::base64::base64_decode};
use memchr::memchr2;

/// Decodes a body; a body that is not valid base64 stays as it is.
pub(super) fn decoded(encoding: Encoding, body: &[u8]) -> Cow<'_, [u8]> {
    match encoding {
        Encoding::None => Cow::Borrowed(body),
        Encoding::Base64 => base64_decode(body).map_or(Cow::Borrowed(body), Cow::Owned),
        Encoding::QuotedPrintable => quoted_printable(body),
    }
}

/// Decodes quoted-printable (RFC 2045, 6.7): `=` and two hexadecimal digits are a byte, `=` at the end of a
/// line joins it with the next, and blanks at the end of a line were added in transit. Any other `=` stays as
/// it is, and the text after it is decoded.
pub(super) fn quoted_printable(body: &[u8]) -> Cow<'_, [u8]> {
    let mut out: Vec<u8> = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = memchr2(b'=', b'\n', rest) {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        if rest[at] == b'\n' {
            let line = before.strip_suffix(b"\r").unwrap_or(before);
            out.extend_from_slice(line);
            trim_blanks(&mut out, line.len());
            out.extend_from_slice(&rest[line.len()..=at]);
            rest = after;
            continue;
        }
        out.extend_from_slice(before);
        let byte = after.get(..2).and_then(|two| Some(hex(two[0])? << 4 | hex(two[1])?));
        rest = match (byte, soft_break(after)) {
            (Some(byte), _) => {
                out.push(byte);
                &after[2..]
            }
            (None, Some(next_line)) => next_line,
            (None, None) => {
                out.push(b'=');
                after
            }
        };
    }
    out.extend_from_slice(rest);
    trim_blanks(&mut out, rest.len());
    Cow::Owned(out)
}

/// Removes blanks from the end of `out`, among its last `bytes_max` bytes: earlier blanks came out of an escape and are
/// meant.
fn trim_blanks(out: &mut Vec<u8>, bytes_max: usize) {
    let plain = &out[out.len() - bytes_max..];
    let blanks = plain.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    out.truncate(out.len() - blanks);
}

/// Returns the next line, if nothing but blanks stands between `after`'s beginning and the end of its line.
fn soft_break(after: &[u8]) -> Option<&[u8]> {
    // No sender pads a line with more blanks.
    let blanks =
        after.iter().take(BLANKS_MAX).take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    match after.get(blanks) {
        None => Some(&[]),
        Some(b'\n') => Some(&after[blanks + 1..]),
        Some(_) => None,
    }
}

/// Blanks at the end of a line that [`soft_break`] looks at.
const BLANKS_MAX: usize = 1000;

pub(super) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(body: &str) -> String {
        String::from_utf8_lossy(&quoted_printable(body.as_bytes())).into_owned()
    }

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        for (body, decoded) in [
            ("Your code is = 482913\r\n", "Your code is = 482913\r\n"),
            ("a = b", "a = b"),
            ("x=5=ZZ a=3Db", "x=5=ZZ a=b"),
            ("==", "="),
            ("a==3D", "a=="),
            ("=e9=E9=c3=", "\u{fffd}\u{fffd}\u{fffd}"),
            ("one=\r\ntwo", "onetwo"),
            ("one= \t\r\ntwo=\nthree=", "onetwothree"),
            ("blank \t\r\nkept=20\r\nend ", "blank\r\nkept \r\nend"),
            ("a=\r\n \r\nb", "a\r\nb"),
            ("a\nb\r\n", "a\nb\r\n"),
            ("=\r\n..com&_t=3D1", "..com&_t=1"),
        ] {
            assert_eq!(text(body), decoded, "{body:?}");
        }
    }

    /// A long line with many `=` takes linear time; it once took hours.
    #[test]
    fn equals_signs_of_one_long_line_are_cheap() {
        let body = "=Z".repeat(4 << 20);
        assert_eq!(quoted_printable(body.as_bytes()).len(), body.len());
    }

    proptest! {
        /// Bytes encoded by the rules of RFC 2045 are decoded unchanged.
        #[test]
        fn encoded_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let encoded: String = bytes.iter().enumerate().map(|(n, byte)| {
                let soft = if n % 20 == 19 { "=\r\n" } else { "" };
                match byte {
                    b'!'..=b'<' | b'>'..=b'~' => format!("{}{soft}", char::from(*byte)),
                    _ => format!("={byte:02X}{soft}"),
                }
            }).collect();
            prop_assert_eq!(quoted_printable(encoded.as_bytes()).into_owned(), bytes);
        }

        /// A letter after an `=` is kept, with any text around it.
        #[test]
        fn no_text_is_lost(body in "[=a-f8-9 \r\nZ]{0,60}") {
            let letters = |text: &str| text.matches('Z').count();
            prop_assert_eq!(letters(&text(&body)), letters(&body));
        }
    }
}
