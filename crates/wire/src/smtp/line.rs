//! Splits input into command lines, and rejects invalid ones.
//!
//! A line ends in CRLF. A bare LF ends nothing (RFC 5321, 2.3.8), but a client that sends it should learn why
//! it is refused, so the line up to the LF is rejected as a whole. An overlong line is not buffered: it is
//! skipped to its end.

use memchr::memchr;

/// Maximum length of a line, including CRLF: RFC 4954, 4 requires this length for AUTH; RFC 5321, 4.5.3.1
/// requires 512, and more for each extension.
pub const LINE_BYTES_MAX: usize = 12_288;

/// Reason why a line is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFault {
    /// The line is longer than [`LINE_BYTES_MAX`].
    TooLong,
    /// The line ends in LF without CR.
    BareLf,
    /// The line has a CR without a following LF.
    BareCr,
    /// The line contains NUL or another control character.
    Control,
    /// The line is not valid UTF-8.
    NotUtf8,
}

/// Result of looking for a line at the front of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A complete line with its CRLF.
    Whole(&'a str),
    /// A line that is rejected.
    Refused {
        /// Number of bytes consumed.
        bytes: usize,
        /// Reason for the rejection.
        fault: LineFault,
    },
    /// Part of an overlong line whose end has not arrived; the bytes are discarded.
    Skipped {
        /// Number of bytes consumed.
        bytes: usize,
    },
    /// The input contains no line end yet.
    NeedMore,
}

/// Line splitter; its only state is whether it is skipping an overlong line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lines {
    skipping: bool,
}

impl Lines {
    /// Looks for a line at the front of `bytes`.
    #[inline]
    pub fn first<'a>(&mut self, bytes: &'a [u8]) -> Line<'a> {
        let Some(lf) = memchr(b'\n', bytes) else {
            if self.skipping || bytes.len() >= LINE_BYTES_MAX {
                self.skipping = true;
                return Line::Skipped { bytes: bytes.len() };
            }
            return Line::NeedMore;
        };
        let bytes = &bytes[..=lf];
        let refused = |fault| Line::Refused { bytes: bytes.len(), fault };
        if std::mem::take(&mut self.skipping) || bytes.len() > LINE_BYTES_MAX {
            return refused(LineFault::TooLong);
        }
        let Some(text) = bytes.strip_suffix(b"\r\n") else { return refused(LineFault::BareLf) };
        if text.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            let bare_cr = text.contains(&b'\r');
            return refused(if bare_cr { LineFault::BareCr } else { LineFault::Control });
        }
        match std::str::from_utf8(bytes) {
            Ok(line) => Line::Whole(line),
            Err(_) => refused(LineFault::NotUtf8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: usize, fault: LineFault) -> Line<'static> {
        Line::Refused { bytes, fault }
    }

    #[test]
    fn lines_end_in_crlf() {
        let mut lines = Lines::default();
        assert_eq!(lines.first(b"NOOP\r\nQUIT\r\n"), Line::Whole("NOOP\r\n"));
        assert_eq!(lines.first(b"NOOP\r"), Line::NeedMore);
        assert_eq!(lines.first(b""), Line::NeedMore);
        assert_eq!(lines.first(b"NOOP\nQUIT\r\n"), refused(5, LineFault::BareLf));
        assert_eq!(lines.first(b"NO\rOP\r\n"), refused(7, LineFault::BareCr));
        assert_eq!(lines.first(b"NOOP\r\r\n"), refused(7, LineFault::BareCr));
        assert_eq!(lines.first(b"NO\0OP\r\n"), refused(7, LineFault::Control));
        assert_eq!(lines.first(b"NO\xffOP\r\n"), refused(7, LineFault::NotUtf8));
    }

    #[test]
    fn lines_are_accepted_up_to_the_bound() {
        let mut lines = Lines::default();
        let mut text = "x".repeat(LINE_BYTES_MAX - 2);
        text.push_str("\r\n");
        assert_eq!(lines.first(text.as_bytes()), Line::Whole(&text));
        assert_eq!(lines.first(&text.as_bytes()[..LINE_BYTES_MAX - 1]), Line::NeedMore);
        text.insert(0, 'x');
        assert_eq!(lines.first(text.as_bytes()), refused(LINE_BYTES_MAX + 1, LineFault::TooLong));
    }

    #[test]
    fn a_long_line_is_skipped_and_refused_once() {
        let mut lines = Lines::default();
        let part = [b'x'; LINE_BYTES_MAX];
        for _ in 0..1000 {
            assert_eq!(lines.first(&part), Line::Skipped { bytes: part.len() });
        }
        assert_eq!(lines.first(b"x"), Line::Skipped { bytes: 1 });
        assert_eq!(lines.first(b"x\r\nNOOP\r\n"), refused(3, LineFault::TooLong));
        assert_eq!(lines.first(b"NOOP\r\n"), Line::Whole("NOOP\r\n"));
    }
}
