//! An answer's head as a field block (RFC 9113 §8.3.2, RFC 7541), encoded from the text that HTTP/1 would
//! send.
//!
//! No dynamic table is used, so the encoding does not depend on anything that was sent before.

use wire::http2::hpack::{self, Strings};

/// Appends the field block of a head. `text` is a status line and field lines.
pub(super) fn append_head(text: &[u8], out: &mut Vec<u8>) {
    // "HTTP/1.1 200 ..."
    let digit = |at: usize| text.get(at).map_or(0, |byte| u16::from(byte.wrapping_sub(b'0')));
    let status = digit(9) * 100 + digit(10) * 10 + digit(11);
    hpack::status(out, if (100..1000).contains(&status) { status } else { 500 });
    let lines = memchr::memchr(b'\n', text).map_or(&[][..], |end| &text[end + 1..]);
    out.reserve(lines.len());
    append_lines(lines, out);
}

/// Appends the head that opens a WebSocket: 2xx has the meaning that 101 has in HTTP/1, and
/// `Sec-WebSocket-Accept` is dropped because HTTP/2 does not use it (RFC 8441 §5).
pub(super) fn append_opened(text: &[u8], out: &mut Vec<u8>) {
    hpack::status(out, 200);
    let lines = memchr::memchr(b'\n', text).map_or(&[][..], |end| &text[end + 1..]);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        const PROOF: &[u8] = b"sec-websocket-accept:";
        if !line.get(..PROOF.len()).is_some_and(|name| name.eq_ignore_ascii_case(PROOF)) {
            append_lines(line, out);
        }
    }
}

/// Appends field lines.
pub(super) fn append_lines(lines: &[u8], out: &mut Vec<u8>) {
    let mut rest = lines;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        // Names are short: checking each byte costs less than a call.
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if is_of_connection(name) {
            continue;
        }
        if name.eq_ignore_ascii_case(b"set-cookie") {
            hpack::secret_field(out, name, value, Strings::Plain);
        } else {
            hpack::field(out, name, value, Strings::Plain);
        }
    }
}

/// Returns whether a field is forbidden in HTTP/2 responses (RFC 9113 §8.2.2). Such fields of an origin's
/// answer have already been removed.
fn is_of_connection(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use wire::http2::hpack::{Decoder, FieldSection};

    use super::*;

    fn decoded(block: &[u8]) -> Vec<(String, String)> {
        let (mut decoder, mut section) = (Decoder::new(), FieldSection::new(16 << 10, 64));
        decoder.decode(block, &mut section).expect("a field block");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        section.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a13_connection_specific_headers_are_not_encoded() {
        let mut block = Vec::new();
        append_head(
            b"HTTP/1.1 203 Fine\r\nContent-Type: text/html; a=\"b: c\"\r\nX-Odd:  \t two  \r\nConnection: close\r\n\
              Keep-Alive: 5\r\nSet-Cookie: a=b\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\nAge: 3\r\n",
            &mut block,
        );
        let expected = [
            (":status", "203"),
            ("content-type", "text/html; a=\"b: c\""),
            ("x-odd", "two"),
            ("set-cookie", "a=b"),
            ("age", "3"),
        ];
        let decoded = decoded(&block);
        let decoded: Vec<_> = decoded.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(decoded, expected);
    }

    #[test]
    fn a13_an_invalid_head_becomes_status_500() {
        for text in [&b""[..], b"HTTP/1.1", b"HTTP/1.1 xyz\r\n", b"HTTP/1.1 099 x\r\nno colon\r\n"] {
            let mut block = Vec::new();
            append_head(text, &mut block);
            assert_eq!(decoded(&block), [(":status".to_owned(), "500".to_owned())], "{text:?}");
        }
    }
}
