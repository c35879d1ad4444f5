//! The grammar of a head, read byte by byte to find *which* byte breaks *which* rule.
//!
//! `httparse` finds the parts of a valid head fast, but it accepts some heads that we refuse (bare LF) and
//! does not say where an invalid one goes wrong. A head that it or a later check rejects is therefore read
//! again here, slowly; a valid head never is. The verdict depends only on the bytes up to the offset that it
//! names, so a head that arrives in pieces is refused for the same reason as one that arrives whole.

use super::{
    fields::{is_field_value_byte, is_tchar, trim_ows},
    head::{HeadLimits, LEADING_EMPTY_LINES_MAX},
    head_error::{HeadError, HeadRule},
    header_slots::HEADERS_MAX,
    url::{Authority, Target},
};

/// Result of reading a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The head is complete and follows all rules.
    Sound,
    /// The bytes end before the head does; so far no rule is broken.
    Unfinished {
        /// True if the first line has not ended yet.
        in_first_line: bool,
    },
    /// The first rule that is broken.
    Broken(HeadError),
}

/// Kind of message to which a head belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
}

/// Reads a head from its first byte to the first broken rule, the end of the head or the end of `buf`.
pub(super) fn read(kind: Kind, buf: &[u8], limits: &HeadLimits) -> Verdict {
    let mut reader = Reader { buf, at: 0, in_first_line: true, line_end_max: usize::MAX, target: None };
    match reader.head(kind, limits) {
        Ok(()) => Verdict::Sound,
        Err(Stop::Broken(error)) => Verdict::Broken(error),
        Err(Stop::Unfinished) => Verdict::Unfinished { in_first_line: reader.in_first_line },
    }
}

/// Returns whether a byte is allowed in a request's target: visible ASCII, except the characters that no URI
/// contains and that browsers always encode. RFC 3986 would refuse ``\^`{|}`` too, but browsers send them
/// (WHATWG URL §1.3), and no two parsers split a request differently because of them.
#[inline]
pub(crate) const fn is_target_byte(b: u8) -> bool {
    matches!(b, b'!'..=b'~') && !matches!(b, b'"' | b'#' | b'<' | b'>')
}

enum Stop {
    Unfinished,
    Broken(HeadError),
}

struct Reader<'b> {
    buf: &'b [u8],
    at: usize,
    in_first_line: bool,
    /// Offset by which the first line must have ended; `usize::MAX` outside it.
    line_end_max: usize,
    /// The request's target, once its line is read.
    target: Option<Target<'b>>,
}

/// A header of the head.
struct Header<'b> {
    name: &'b [u8],
    /// Offset in the head at which the value begins, white space before it included.
    value_at: usize,
    /// The value, without white space around it.
    value: &'b [u8],
}

impl<'b> Reader<'b> {
    fn head(&mut self, kind: Kind, limits: &HeadLimits) -> Result<(), Stop> {
        if kind == Kind::Request {
            self.empty_lines()?;
        }
        self.line_end_max = self.at.saturating_add(limits.line_bytes_max);
        let host_needed = match kind {
            Kind::Request => self.request_line()?,
            Kind::Response => self.status_line()?,
        };
        self.in_first_line = false;
        self.line_end_max = usize::MAX;
        let mut host_seen = false;
        let mut headers = 0;
        while let Some(Header { name, value_at, value }) = self.header()? {
            headers += 1;
            if headers > HEADERS_MAX {
                return Err(self.broken_before(HeadRule::TooManyHeaders));
            }
            if kind == Kind::Request && name.eq_ignore_ascii_case(b"host") {
                if host_seen {
                    return Err(self.broken_before(HeadRule::HostRepeated));
                }
                host_seen = true;
                if Authority::parse(value).is_none() {
                    return Err(broken(HeadRule::HostInvalid, value_at));
                }
                if self.target.is_some_and(|target| !target.agrees_with(value)) {
                    return Err(broken(HeadRule::HostDiffers, value_at));
                }
            }
        }
        if host_needed && !host_seen {
            return Err(self.broken_before(HeadRule::HostMissing));
        }
        Ok(())
    }

    fn empty_lines(&mut self) -> Result<(), Stop> {
        let mut lines = 0;
        while matches!(self.peek()?, b'\r' | b'\n') {
            if lines == LEADING_EMPTY_LINES_MAX {
                return Err(broken(HeadRule::EmptyLines, self.at));
            }
            self.line_end()?;
            lines += 1;
        }
        Ok(())
    }

    /// Reads the request line. Returns whether the version makes `Host` mandatory.
    fn request_line(&mut self) -> Result<bool, Stop> {
        let method = self.word(is_tchar, HeadRule::Method)?;
        let target = self.word(is_target_byte, HeadRule::TargetByte)?;
        let target_end = self.at - 1;
        // The version is checked before the target's form, so that HTTP/2's `PRI * HTTP/2.0` is reported as
        // an unsupported version.
        let is_11 = self.version()?;
        self.target = match (std::str::from_utf8(method), std::str::from_utf8(target)) {
            (Ok(method), Ok(target)) => Target::parse(method, target).map(|(_, target)| target),
            _ => None,
        };
        if self.target.is_none() {
            return Err(broken(HeadRule::TargetForm, target_end));
        }
        match self.peek()? {
            b'\r' | b'\n' => self.line_end()?,
            _ => return Err(broken(HeadRule::RequestLine, self.at)),
        }
        Ok(is_11)
    }

    /// Reads one or more bytes that `admits` accepts, and the single space after them.
    fn word(&mut self, admits: impl Fn(u8) -> bool, rule: HeadRule) -> Result<&'b [u8], Stop> {
        let start = self.at;
        loop {
            match self.next()? {
                b' ' if self.at - 1 > start => return Ok(&self.buf[start..self.at - 1]),
                b' ' | b'\r' | b'\n' => return Err(self.broken_before(HeadRule::RequestLine)),
                b if admits(b) => {}
                _ => return Err(self.broken_before(rule)),
            }
        }
    }

    /// Reads the version. Returns whether it is HTTP/1.1.
    fn version(&mut self) -> Result<bool, Stop> {
        let start = self.at;
        for want in b"HTTP/d.d" {
            let b = self.next()?;
            if !(b == *want || *want == b'd' && b.is_ascii_digit()) {
                return Err(self.broken_before(HeadRule::Version));
            }
        }
        match &self.buf[start..self.at] {
            b"HTTP/1.1" => Ok(true),
            b"HTTP/1.0" => Ok(false),
            _ => Err(self.broken_before(HeadRule::UnsupportedVersion)),
        }
    }

    /// Reads the status line. Returns false: a response never needs `Host`.
    fn status_line(&mut self) -> Result<bool, Stop> {
        self.version()?;
        if self.next()? != b' ' {
            return Err(self.broken_before(HeadRule::StatusCode));
        }
        for position in 0..3 {
            let b = self.next()?;
            if !b.is_ascii_digit() || position == 0 && b == b'0' {
                return Err(self.broken_before(HeadRule::StatusCode));
            }
        }
        match self.peek()? {
            b'\r' | b'\n' => {}
            b' ' => {
                while !matches!(self.peek()?, b'\r' | b'\n') {
                    if !is_field_value_byte(self.next()?) {
                        return Err(self.broken_before(HeadRule::Reason));
                    }
                }
            }
            _ => return Err(broken(HeadRule::StatusCode, self.at)),
        }
        self.line_end()?;
        Ok(false)
    }

    /// Reads the next header; `None` for the empty line that ends the head.
    fn header(&mut self) -> Result<Option<Header<'b>>, Stop> {
        match self.peek()? {
            b'\r' | b'\n' => {
                self.line_end()?;
                return Ok(None);
            }
            b' ' | b'\t' => return Err(broken(HeadRule::ObsFold, self.at)),
            _ => {}
        }
        let name_at = self.at;
        let name = loop {
            match self.next()? {
                b':' if self.at - 1 > name_at => break &self.buf[name_at..self.at - 1],
                b' ' | b'\t' => return Err(self.broken_before(HeadRule::SpaceBeforeColon)),
                b if is_tchar(b) => {}
                _ => return Err(self.broken_before(HeadRule::HeaderName)),
            }
        };
        let value_at = self.at;
        while !matches!(self.peek()?, b'\r' | b'\n') {
            if !is_field_value_byte(self.next()?) {
                return Err(self.broken_before(HeadRule::HeaderValue));
            }
        }
        let value = trim_ows(&self.buf[value_at..self.at]);
        self.line_end()?;
        Ok(Some(Header { name, value_at, value }))
    }

    /// Reads a CRLF. The next byte must be a CR or an LF.
    fn line_end(&mut self) -> Result<(), Stop> {
        if self.peek()? == b'\n' {
            return Err(broken(HeadRule::BareLf, self.at));
        }
        self.at += 1;
        if self.peek()? != b'\n' {
            return Err(broken(HeadRule::BareCr, self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Result<u8, Stop> {
        let &b = self.buf.get(self.at).ok_or(Stop::Unfinished)?;
        if self.at >= self.line_end_max && !matches!(b, b'\r' | b'\n') {
            return Err(broken(HeadRule::LineTooLong, self.at));
        }
        Ok(b)
    }

    fn next(&mut self) -> Result<u8, Stop> {
        let b = self.peek()?;
        self.at += 1;
        Ok(b)
    }

    /// Reports a rule broken at the byte read last.
    fn broken_before(&self, rule: HeadRule) -> Stop {
        broken(rule, self.at - 1)
    }
}

fn broken(rule: HeadRule, at: usize) -> Stop {
    // A head is at most HEAD_BYTES_CAP long, so the offset fits `u32`.
    Stop::Broken(HeadError { rule, at: at as u32 })
}
