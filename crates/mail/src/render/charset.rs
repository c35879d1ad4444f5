//! Decodes bytes to text by charset name (labels of the WHATWG Encoding standard, as mail-parser knows them).

use std::borrow::Cow;

use mail_parser::decoders::charsets::map::charset_decoder;

/// Decodes bytes. If the charset is missing or unknown, UTF-8 is tried first, then windows-1252, the most
/// likely charset of programs that do not name one.
pub(super) fn decoded<'a>(charset: Option<&str>, bytes: &'a [u8]) -> Cow<'a, str> {
    if let Some(text) = with_mark(bytes) {
        return text;
    }
    let named = charset.map(str::trim).filter(|name| !is_ascii(name));
    // mail-parser has no decoder for UTF-8.
    if named.is_some_and(|name| name.eq_ignore_ascii_case("utf-8") || name.eq_ignore_ascii_case("utf8")) {
        return String::from_utf8_lossy(bytes);
    }
    match named.and_then(|name| charset_decoder(name.as_bytes())) {
        Some(decoder) => Cow::Owned(decoder(bytes)),
        None => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => match charset_decoder(b"windows-1252") {
                Some(decoder) => Cow::Owned(decoder(bytes)),
                None => String::from_utf8_lossy(bytes),
            },
        },
    }
}

/// Decodes a text that begins with a byte order mark, which determines its charset; `None` if there is no
/// mark.
fn with_mark(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let utf16 = |bytes: &[u8], of: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        Cow::Owned(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    };
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => Some(String::from_utf8_lossy(rest)),
        [0xff, 0xfe, rest @ ..] => Some(utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Some(utf16(rest, u16::from_be_bytes)),
        _ => None,
    }
}

fn is_ascii(name: &str) -> bool {
    ["us-ascii", "ascii", "unknown-8bit", "x-unknown", "8bit", ""]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_are_known_by_many_names() {
        for (charset, bytes, text) in [
            (Some("iso-8859-8-i"), &b"\xf2\xf8\xe1"[..], "ערב"),
            (Some("UTF-8"), "é".as_bytes(), "é"),
            (Some("utf-8"), b"caf\xe9", "caf\u{fffd}"),
            (Some("us-ascii"), b"caf\xe9", "café"),
            (None, "é".as_bytes(), "é"),
            (None, b"caf\xe9 \x80", "café €"),
            (Some("nobody-knows"), b"a", "a"),
            (None, b"\xff\xfea\0\xe9\0", "aé"),
            (Some("utf-8"), b"\xef\xbb\xbfa", "a"),
        ] {
            assert_eq!(decoded(charset, bytes), text, "{charset:?} {bytes:?}");
        }
    }
}
