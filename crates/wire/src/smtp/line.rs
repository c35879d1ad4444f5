//! Where a command's line ends, and what is refused as a line.
//!
//! A line ends in CRLF. LF alone ends nothing (RFC 5321, 2.3.8), but a peer that sends it shall hear why, so the line
//! up to it is refused as a whole. Nothing of a line that is too long is kept: it is skipped to its end.

use memchr::memchr;

/// The longest line, CRLF included: what RFC 4954, 4 demands for AUTH; RFC 5321, 4.5.3.1 asks for 512, and more for
/// each extension.
pub const LINE_BYTES_MAX: usize = 12_288;

/// Why a line is no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFault {
    /// More than [`LINE_BYTES_MAX`].
    TooLong,
    /// It ended in LF without CR.
    BareLf,
    /// It has a CR that no LF follows.
    BareCr,
    /// It has NUL or another control character.
    Control,
    /// It is not UTF-8.
    NotUtf8,
}

/// What the bytes begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line, its CRLF included.
    Whole(&'a str),
    /// The first `bytes` are a line that is refused.
    Refused {
        /// How many are used up.
        bytes: usize,
        /// Why.
        fault: LineFault,
    },
    /// The first `bytes` belong to a line that is too long and goes on: they are of no use.
    Skipped {
        /// How many are used up.
        bytes: usize,
    },
    /// No line ends here yet.
    NeedMore,
}

/// Finds lines; remembers only whether it is in the middle of one that is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lines {
    skipping: bool,
}

impl Lines {
    /// Looks at the begin of `bytes`.
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
    fn a_line_may_be_as_long_as_the_bound_and_no_longer() {
        let mut lines = Lines::default();
        let mut text = "x".repeat(LINE_BYTES_MAX - 2);
        text.push_str("\r\n");
        assert_eq!(lines.first(text.as_bytes()), Line::Whole(&text));
        assert_eq!(lines.first(&text.as_bytes()[..LINE_BYTES_MAX - 1]), Line::NeedMore);
        text.insert(0, 'x');
        assert_eq!(lines.first(text.as_bytes()), refused(LINE_BYTES_MAX + 1, LineFault::TooLong));
    }

    #[test]
    fn a_long_line_is_skipped_to_its_end_and_refused_once() {
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
