//! Parser for a message's head: the first line and the headers (RFC 9112 §2 to §5).
//!
//! `httparse` finds the parts in one vectorised pass. A second, short pass over the headers (not over their
//! bytes) records their offsets and which of them are [known](super::known). Then follow the checks that
//! `httparse` leaves out. A head that fails any of them is read once more by `strict`, which names the byte
//! and the rule.

pub use super::{
    head_error::{HeadError, HeadRule},
    header_slots::{HEADERS_MAX, HeaderSlots, Headers},
    kept::{KeptRequest, KeptResponse},
};
use super::{
    known::KnownHeader,
    strict::{self, Kind, Verdict, is_target_byte},
    url::{Authority, Scheme, Target},
};

/// Maximum number of empty lines before a request (RFC 9112 §2.2: at least one should be ignored, because old
/// clients end a body with one CRLF too many).
pub const LEADING_EMPTY_LINES_MAX: usize = 1;

/// The largest head that any limit may allow: header offsets are 32 bits wide.
pub const HEAD_BYTES_CAP: usize = 16 << 20;

/// Number of headers for which the first attempt reserves slots. Each slot costs time, and few requests have
/// more headers; a head with more is parsed again with [`HEADERS_MAX`] slots.
const HEADERS_FEW: usize = 24;

/// Size limits of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Maximum length of the first line, without its CRLF. A longer line gives [`HeadRule::LineTooLong`] (414
    /// for a request).
    pub line_bytes_max: usize,
    /// Maximum length of the whole head, with its last CRLF; at most [`HEAD_BYTES_CAP`]. A longer head gives
    /// [`HeadRule::HeadersTooLarge`] (431 for a request), or `LineTooLong` if the first line alone exceeds
    /// it.
    pub head_bytes_max: usize,
}

impl Default for HeadLimits {
    /// Returns 8 KiB for the line (RFC 9112 §3 asks for at least 8,000 bytes) and 32 KiB for the head.
    fn default() -> Self {
        Self { line_bytes_max: 8 << 10, head_bytes_max: 32 << 10 }
    }
}

/// Result of an incremental parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    /// The input was complete.
    Complete(T),
    /// The input breaks no rule so far, but is incomplete.
    NeedMore,
}

/// HTTP version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// The form of a request's target (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, for CONNECT
    Authority,
    /// `*`, for OPTIONS
    Asterisk,
}

/// The head of a request, as slices of the buffer from which it was parsed.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'b, 'h> {
    /// The method, a token; case matters (RFC 9110 §9.1).
    pub method: &'b str,
    /// The target as it was sent: visible ASCII. [`Target::parse`] parses it.
    pub target: &'b str,
    /// The form of `target`.
    pub form: TargetForm,
    /// HTTP version of the request.
    pub version: Version,
    /// Scheme of the underlying connection, if the caller knows it. It takes precedence over any scheme named
    /// in the request's bytes.
    pub scheme: Option<Scheme>,
    /// The headers. An HTTP/1.1 request has exactly one `Host`, and it is valid; an HTTP/1.0 request at most one.
    pub headers: Headers<'b, 'h>,
}

impl<'b, 'h> RequestHead<'b, 'h> {
    /// Returns the value of the first header of that name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.header(name)
    }

    /// Returns the values of all headers of that name, ignoring case.
    pub fn headers<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'h, 'n> {
        self.headers.headers(name)
    }

    /// Returns the value of the first header of a known kind, found without a search.
    #[inline]
    pub fn known(&self, known: KnownHeader) -> Option<&'b [u8]> {
        self.headers.known(known)
    }

    /// Returns the host that the request is for: the host in an absolute-form or authority-form target,
    /// otherwise the value of `Host` (RFC 9112 §3.3). `None` for an HTTP/1.0 request without a host.
    pub fn authority(&self) -> Option<Authority<'b>> {
        match self.form {
            TargetForm::Origin | TargetForm::Asterisk => Authority::parse(self.known(KnownHeader::Host)?),
            TargetForm::Absolute | TargetForm::Authority => {
                Target::parse(self.method, self.target)?.1.authority
            }
        }
    }
}

/// The head of a response, as slices of the buffer from which it was parsed.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'b, 'h> {
    /// HTTP version of the response.
    pub version: Version,
    /// The status, 100 to 999. Below 200 the response is interim: another head follows (RFC 9110 §15.2). A
    /// status above 599 must be treated as a 5xx (RFC 9110 §15).
    pub status: u16,
    /// The reason phrase; empty if there is none or it is not ASCII. It carries no meaning (RFC 9112 §4).
    pub reason: &'b str,
    /// Headers of the response.
    pub headers: Headers<'b, 'h>,
}

impl<'b, 'h> ResponseHead<'b, 'h> {
    /// Returns whether this is an interim response (1xx), after which another head follows. 101 does not
    /// count: after it the connection speaks another protocol (RFC 9110 §15.2.2).
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Returns the value of the first header of that name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.header(name)
    }

    /// Returns the values of all headers of that name, ignoring case.
    pub fn headers<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'h, 'n> {
        self.headers.headers(name)
    }

    /// Returns the value of the first header of a known kind, found without a search.
    #[inline]
    pub fn known(&self, known: KnownHeader) -> Option<&'b [u8]> {
        self.headers.known(known)
    }
}

/// Parses the head of a request at the start of `buf`. Returns the head and its length in bytes, including
/// any empty line before it; the body begins after that length.
///
/// After `NeedMore`, call it again from the start with more bytes; [`may_end_in`] tells when that is
/// worthwhile. `slots` is overwritten.
///
/// # Errors
/// Returns the first rule that the head breaks; it does not depend on how the head is split into pieces.
#[inline]
pub fn parse_request<'b, 'h>(
    buf: &'b [u8],
    slots: &'h mut HeaderSlots,
    limits: &HeadLimits,
) -> Result<Progress<(RequestHead<'b, 'h>, usize)>, HeadError> {
    let window = &buf[..buf.len().min(limits.head_bytes_max).min(HEAD_BYTES_CAP)];
    let skipped = if window.starts_with(b"\r\n") { 2 } else { 0 };
    let mut few = [httparse::EMPTY_HEADER; HEADERS_FEW];
    let first_line = match request_parts(window, skipped, slots, limits, &mut few) {
        Outcome::TooMany => request_parts_many(window, skipped, slots, limits),
        other => other,
    };
    match first_line {
        Outcome::Sound((method, target, form, version), bytes) => {
            let headers = slots.headers(buf);
            Ok(Progress::Complete((
                RequestHead { method, target, form, version, scheme: None, headers },
                bytes,
            )))
        }
        Outcome::NeedMore => Ok(Progress::NeedMore),
        Outcome::TooMany | Outcome::Suspect => explain(Kind::Request, buf, window, limits),
    }
}

/// Parses the head of a response at the start of `buf`, interim responses (1xx) included. Works like
/// [`parse_request`], except that no empty line may precede the head.
///
/// # Errors
/// Returns the first rule that the head breaks.
pub fn parse_response<'b, 'h>(
    buf: &'b [u8],
    slots: &'h mut HeaderSlots,
    limits: &HeadLimits,
) -> Result<Progress<(ResponseHead<'b, 'h>, usize)>, HeadError> {
    let window = &buf[..buf.len().min(limits.head_bytes_max).min(HEAD_BYTES_CAP)];
    let mut few = [httparse::EMPTY_HEADER; HEADERS_FEW];
    let first_line = match response_parts(window, slots, limits, &mut few) {
        Outcome::TooMany => response_parts_many(window, slots, limits),
        other => other,
    };
    match first_line {
        Outcome::Sound((version, status, reason), bytes) => {
            let headers = slots.headers(buf);
            Ok(Progress::Complete((ResponseHead { version, status, reason, headers }, bytes)))
        }
        Outcome::NeedMore => Ok(Progress::NeedMore),
        Outcome::TooMany | Outcome::Suspect => explain(Kind::Response, buf, window, limits),
    }
}

/// Returns whether parsing `buf` again is worthwhile, after its first `seen` bytes gave `NeedMore`: whether a
/// head may end in the new bytes, or a limit is newly reached.
///
/// Without this check, a peer that sends one byte at a time would make the parser read n²/2 bytes. Only the
/// new bytes are examined: every head ends in LF CR LF. Two LFs count as well, so that a head with bare LFs
/// is refused at once.
pub fn may_end_in(buf: &[u8], seen: usize, limits: &HeadLimits) -> bool {
    let fresh = &buf[seen.saturating_sub(2).min(buf.len())..];
    let line_limit = seen <= limits.line_bytes_max && limits.line_bytes_max < buf.len();
    line_limit
        || buf.len() >= limits.head_bytes_max.min(HEAD_BYTES_CAP)
        || memchr::memchr_iter(b'\n', fresh)
            .any(|at| matches!(fresh[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// Result of the fast pass over a head.
enum Outcome<T> {
    /// The head is valid: the parts of its first line, and its length.
    Sound(T, usize),
    NeedMore,
    /// The head has more headers than the slots can hold.
    TooMany,
    /// The head may break a rule; the slow parser decides.
    Suspect,
}

type RequestLine<'b> = (&'b str, &'b str, TargetForm, Version);
type StatusLine<'b> = (Version, u16, &'b str);

#[cold]
#[inline(never)]
fn request_parts_many<'b>(
    window: &'b [u8],
    skipped: usize,
    slots: &mut HeaderSlots,
    limits: &HeadLimits,
) -> Outcome<RequestLine<'b>> {
    request_parts(window, skipped, slots, limits, &mut [httparse::EMPTY_HEADER; HEADERS_MAX])
}

#[inline(always)]
fn request_parts<'b>(
    window: &'b [u8],
    skipped: usize,
    slots: &mut HeaderSlots,
    limits: &HeadLimits,
    room: &mut [httparse::Header<'b>],
) -> Outcome<RequestLine<'b>> {
    let bytes = &window[skipped..];
    // Rejects a second empty line: httparse would skip any number of them.
    if let Some(b'\r' | b'\n') = bytes.first() {
        return if skipped == 0 && bytes == b"\r" { Outcome::NeedMore } else { Outcome::Suspect };
    }
    let mut request = httparse::Request::new(room);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return unfinished(window, bytes, limits),
        Err(httparse::Error::TooManyHeaders) => return Outcome::TooMany,
        Err(_) => return Outcome::Suspect,
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Outcome::Suspect;
    };
    let version = if version == 1 { Version::Http11 } else { Version::Http10 };
    let crlf = slots.fill(window, request.headers) && bytes[..len].ends_with(b"\r\n\r\n");
    let headers = slots.headers(window);
    let line_bytes = method.len() + target.len() + " ".len() + " HTTP/1.1".len();
    let host_is_sound = match headers.known(KnownHeader::Host) {
        Some(host) => !headers.is_repeated(KnownHeader::Host) && Authority::is_valid(host),
        None => version == Version::Http10,
    };
    if !(crlf
        && host_is_sound
        && line_bytes <= limits.line_bytes_max
        && target_bytes_are_sound(target.as_bytes()))
    {
        return Outcome::Suspect;
    }
    let form = if target.starts_with('/') && method != "CONNECT" {
        TargetForm::Origin
    } else {
        match Target::parse(method, target) {
            Some((form, parts))
                if headers.known(KnownHeader::Host).is_none_or(|host| parts.agrees_with(host)) =>
            {
                form
            }
            Some(_) | None => return Outcome::Suspect,
        }
    };
    Outcome::Sound((method, target, form, version), skipped + len)
}

#[cold]
#[inline(never)]
fn response_parts_many<'b>(
    window: &'b [u8],
    slots: &mut HeaderSlots,
    limits: &HeadLimits,
) -> Outcome<StatusLine<'b>> {
    response_parts(window, slots, limits, &mut [httparse::EMPTY_HEADER; HEADERS_MAX])
}

#[inline(always)]
fn response_parts<'b>(
    window: &'b [u8],
    slots: &mut HeaderSlots,
    limits: &HeadLimits,
    room: &mut [httparse::Header<'b>],
) -> Outcome<StatusLine<'b>> {
    if let Some(b'\r' | b'\n') = window.first() {
        return Outcome::Suspect;
    }
    let mut response = httparse::Response::new(room);
    let len = match response.parse(window) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return unfinished(window, window, limits),
        Err(httparse::Error::TooManyHeaders) => return Outcome::TooMany,
        Err(_) => return Outcome::Suspect,
    };
    let (Some(version), Some(status), Some(reason)) = (response.version, response.code, response.reason)
    else {
        return Outcome::Suspect;
    };
    let version = if version == 1 { Version::Http11 } else { Version::Http10 };
    let crlf = slots.fill(window, response.headers) && window[..len].ends_with(b"\r\n\r\n");
    let line_bytes = memchr::memchr(b'\n', window).unwrap_or(len).saturating_sub(1);
    let sound = crlf && line_bytes <= limits.line_bytes_max && status >= 100;
    if sound { Outcome::Sound((version, status, reason), len) } else { Outcome::Suspect }
}

/// Handles bytes that end before the head does: more are needed, unless a limit is already reached.
fn unfinished<T>(window: &[u8], bytes: &[u8], limits: &HeadLimits) -> Outcome<T> {
    let line_is_too_long = bytes.len() > limits.line_bytes_max
        && memchr::memchr2(b'\r', b'\n', &bytes[..=limits.line_bytes_max]).is_none();
    let head_is_too_long = window.len() >= limits.head_bytes_max.min(HEAD_BYTES_CAP);
    if line_is_too_long || head_is_too_long { Outcome::Suspect } else { Outcome::NeedMore }
}

/// Returns whether all bytes of a target are allowed, given that `httparse` has ruled out controls and
/// spaces: none is beyond ASCII, and none is `"`, `#`, `<` or `>`. Checks eight bytes at a time;
/// `strict::is_target_byte` is the slow twin.
#[inline]
fn target_bytes_are_sound(target: &[u8]) -> bool {
    const EACH: u64 = u64::MAX / 255;
    let zero_byte_in = |word: u64| word.wrapping_sub(EACH) & !word & (EACH << 7);
    let bad_byte_in = |word: u64| {
        let quote_or_hash = zero_byte_in((word | EACH) ^ (EACH * u64::from(b'#')));
        let angle = zero_byte_in((word | (EACH << 1)) ^ (EACH * u64::from(b'>')));
        word & (EACH << 7) | quote_or_hash | angle
    };
    let (words, rest) = target.as_chunks::<8>();
    let bad = words.iter().fold(0, |bad, word| bad | bad_byte_in(u64::from_ne_bytes(*word)));
    // The last eight bytes, if there are that many, are checked again as one word; a shorter target is
    // checked byte by byte.
    match target.last_chunk::<8>() {
        Some(word) => bad | bad_byte_in(u64::from_ne_bytes(*word)) == 0,
        None => rest.iter().all(|&b| is_target_byte(b)),
    }
}

/// Finds the rule that is broken by a head which the fast pass rejected.
#[cold]
#[inline(never)]
fn explain<T>(kind: Kind, buf: &[u8], window: &[u8], limits: &HeadLimits) -> Result<Progress<T>, HeadError> {
    match strict::read(kind, window, limits) {
        Verdict::Broken(error) => Err(error),
        Verdict::Unfinished { in_first_line }
            if window.len() >= limits.head_bytes_max.min(HEAD_BYTES_CAP) =>
        {
            let rule = if in_first_line { HeadRule::LineTooLong } else { HeadRule::HeadersTooLarge };
            Err(HeadError { rule, at: window.len() as u32 })
        }
        // httparse detects some errors a byte or two before the rule is certainly broken ("HTTP/2").
        Verdict::Unfinished { .. } => Ok(Progress::NeedMore),
        Verdict::Sound => {
            debug_assert!(false, "httparse refuses what strict accepts: {}", buf.escape_ascii());
            Err(HeadError { rule: HeadRule::Unclassified, at: 0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fast check agrees with `is_target_byte` for every byte at every position in targets of up to three
    /// words.
    #[test]
    fn target_bytes_are_judged_as_by_the_twin() {
        for len in 1..=25 {
            for at in 0..len {
                // httparse has already rejected control characters and spaces.
                for byte in (b'!'..=b'~').chain(0x80..=0xff) {
                    let mut target = vec![b'/'; len];
                    target[at] = byte;
                    assert_eq!(
                        target_bytes_are_sound(&target),
                        is_target_byte(byte),
                        "{byte:#x} at {at} of {len}"
                    );
                }
            }
        }
    }
}
