//! `Nats-Request-Info`: the header line by which a server describes the requesting client to a service of
//! another account.
//!
//! Clients must not be able to forge the line. Client libraries ignore the case of header names, some join
//! folded lines, and some accept CR alone as a line end. So every spelling counts as this line, together with
//! its folded continuation. (nats-server removes the exact spelling only.)

/// Name of the header line (nats-server's).
pub(crate) const WHO_ASKS: &str = "Nats-Request-Info";

/// Returns the header with this `Nats-Request-Info` line in place of any existing one.
pub(crate) fn with_line(header: &[u8], who: &str) -> Vec<u8> {
    let mut with = kept_lines(header);
    if with.is_empty() {
        with.extend_from_slice(b"NATS/1.0\r\n");
    }
    for text in [WHO_ASKS, ": ", who, "\r\n\r\n"] {
        with.extend_from_slice(text.as_bytes());
    }
    with
}

/// Returns the header without any `Nats-Request-Info` line; unchanged if it has none.
pub(crate) fn without_who_asks(header: &[u8]) -> Vec<u8> {
    if !has_who_asks(header) {
        return header.to_vec();
    }
    let mut without = kept_lines(header);
    if without.is_empty() {
        without.extend_from_slice(b"NATS/1.0\r\n");
    }
    without.extend_from_slice(b"\r\n");
    without
}

/// Returns whether a header has a `Nats-Request-Info` line.
pub(crate) fn has_who_asks(header: &[u8]) -> bool {
    lines(header).any(says_who_asks)
}

/// Returns the lines up to the header's end, each with a line end, without the `Nats-Request-Info` lines.
fn kept_lines(header: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(header.len() + 256);
    let mut was_dropped = false;
    for line in lines(header) {
        let text = line.trim_ascii_end();
        if text.is_empty() {
            // An empty line ends the header for every reader. CR LF CR makes an empty line, too.
            break;
        }
        let goes_on = matches!(line.first(), Some(b' ' | b'\t'));
        was_dropped = says_who_asks(line) || goes_on && was_dropped;
        if !was_dropped {
            kept.extend_from_slice(line);
            if !line.ends_with(b"\n") && !line.ends_with(b"\r") {
                kept.extend_from_slice(b"\r\n");
            }
        }
    }
    kept
}

/// Splits a header into lines with their line ends: CR LF, LF or CR.
fn lines(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = header;
    std::iter::from_fn(move || {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let bytes = match end {
            None if rest.is_empty() => return None,
            None => rest.len(),
            Some(at) => at + if rest[at..].starts_with(b"\r\n") { 2 } else { 1 },
        };
        let (line, behind) = rest.split_at(bytes);
        rest = behind;
        Some(line)
    })
}

/// Returns whether a line's name is `Nats-Request-Info`, ignoring case and bytes that are not visible ASCII.
fn says_who_asks(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let letters = line[..colon].iter().filter(|byte| byte.is_ascii_graphic());
    letters.map(u8::to_ascii_lowercase).eq(WHO_ASKS.bytes().map(|byte| byte.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_said_once_in_a_header() {
        for (header, with) in [
            ("", "NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n"),
            ("NATS/1.0\r\n\r\n", "NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n"),
            ("NATS/1.0 503\r\nA: b\r\n\r\n", "NATS/1.0 503\r\nA: b\r\nNats-Request-Info: {}\r\n\r\n"),
            (
                "NATS/1.0\r\nNats-Request-Info: lies\r\nA: b\r\nNats-Request-Info: more\r\n\r\n",
                "NATS/1.0\r\nA: b\r\nNats-Request-Info: {}\r\n\r\n",
            ),
            // A header that ends too early, or has no end, cannot hide a line.
            ("NATS/1.0\r\n\r\nA: b\r\n\r\n", "NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n"),
            ("NATS/1.0\r\nA: b", "NATS/1.0\r\nA: b\r\nNats-Request-Info: {}\r\n\r\n"),
        ] {
            assert_eq!(String::from_utf8_lossy(&with_line(header.as_bytes(), "{}")), with);
        }
    }

    #[test]
    fn no_spelling_of_the_line_is_left() {
        for lie in [
            "nats-request-info: lies\r\n",
            "NATS-REQUEST-INFO: lies\r\n",
            "Nats-Request-Info : lies\r\n",
            " Nats-Request-Info: lies\r\n",
            "Nats-Request-Info\t: lies\r\n",
            "Nats-Request-Info: \r\n lies\r\n\tlies\r\n",
            "nats-request-info:lies\r\nNats-Request-Info: lies\r\n",
            "Nats-Request-Info: lies\n",
            "Nats-Request-Info: lies\r",
            "\u{a0}Nats-Request-Info\u{a0}: lies\r\n",
        ] {
            let header = format!("NATS/1.0\r\nA: b\r\n{lie}C: d\r\n\r\n");
            assert!(has_who_asks(header.as_bytes()), "{lie:?}");
            let without = without_who_asks(header.as_bytes());
            assert_eq!(String::from_utf8_lossy(&without), "NATS/1.0\r\nA: b\r\nC: d\r\n\r\n", "{lie:?}");
        }
        let other = b"NATS/1.0\r\nA: nats-request-info: x\r\nNats-Request-Infos: y\r\n z\r\n\r\n";
        assert_eq!(without_who_asks(other), other);
    }
}
