//! The first line and the headers of a message (RFC 9112 §2 to §5).
//!
//! `httparse` finds the parts in one vectorised pass; a second short pass over the headers (not over the bytes)
//! notes where they lie and which are [known](super::known); then come the checks that `httparse` leaves out. A
//! head that fails any of it is read once more by `strict`, which names the byte and the rule.

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

/// Empty lines that may come before a request (RFC 9112 §2.2: at least one should be ignored, because old clients
/// end a body with one CRLF too many).
pub const LEADING_EMPTY_LINES_MAX: usize = 1;

/// The largest head that any limit allows: offsets of headers are 32 bits wide.
pub const HEAD_BYTES_CAP: usize = 16 << 20;

/// Headers for which the first attempt has room. Preparing room costs for each header, and few requests have
/// more; those that have are parsed again with room for [`HEADERS_MAX`].
const HEADERS_FEW: usize = 24;

/// What a head may measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the first line, without its CRLF. Beyond: [`HeadRule::LineTooLong`] (414 for a request).
    pub line_bytes_max: usize,
    /// Bytes of the whole head, with its last CRLF; [`HEAD_BYTES_CAP`] at most. Beyond:
    /// [`HeadRule::HeadersTooLarge`] (431 for a request), or `LineTooLong` if the first line alone is beyond.
    pub head_bytes_max: usize,
}

impl Default for HeadLimits {
    /// 8 KiB for the line (RFC 9112 §3 asks for at least 8,000 bytes), 32 KiB for the head.
    fn default() -> Self {
        Self { line_bytes_max: 8 << 10, head_bytes_max: 32 << 10 }
    }
}

/// How far a parser came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    /// All of it was there.
    Complete(T),
    /// What there is keeps the rules, but does not end yet.
    NeedMore,
}

/// The version of a message.
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
    /// The target as it was sent: visible ASCII. [`Target::parse`] takes it apart.
    pub target: &'b str,
    /// The form of `target`.
    pub form: TargetForm,
    /// The version.
    pub version: Version,
    /// The scheme that the connection below stands for, where whoever has it says so: nothing in the bytes does, and what
    /// they claim does not count then.
    pub scheme: Option<Scheme>,
    /// The headers. An HTTP/1.1 request has exactly one `Host`, and it is valid; an HTTP/1.0 request at most one.
    pub headers: Headers<'b, 'h>,
}

impl<'b, 'h> RequestHead<'b, 'h> {
    /// The value of the first header of that name, in any case of letters.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.header(name)
    }

    /// The values of all headers of that name, in any case of letters.
    pub fn headers<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'h, 'n> {
        self.headers.headers(name)
    }

    /// The value of the first header of a known kind, found without a search.
    #[inline]
    pub fn known(&self, known: KnownHeader) -> Option<&'b [u8]> {
        self.headers.known(known)
    }

    /// Which host the request is for: that of an absolute target, which `Host` names too, else that of `Host` (RFC 9112
    /// §3.3). `None` for an HTTP/1.0 request that names none.
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
    /// The version.
    pub version: Version,
    /// The status, 100 to 999. Below 200 the response is interim: another head follows (RFC 9110 §15.2). Above
    /// 599 it is to be treated as a 5xx (RFC 9110 §15).
    pub status: u16,
    /// The reason; empty if there is none or it is not ASCII. It means nothing (RFC 9112 §4).
    pub reason: &'b str,
    /// The headers.
    pub headers: Headers<'b, 'h>,
}

impl<'b, 'h> ResponseHead<'b, 'h> {
    /// Whether this is an interim response (1xx), after which another head follows. 101 is not: after it the
    /// connection speaks another protocol (RFC 9110 §15.2.2).
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The value of the first header of that name, in any case of letters.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.header(name)
    }

    /// The values of all headers of that name, in any case of letters.
    pub fn headers<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'h, 'n> {
        self.headers.headers(name)
    }

    /// The value of the first header of a known kind, found without a search.
    #[inline]
    pub fn known(&self, known: KnownHeader) -> Option<&'b [u8]> {
        self.headers.known(known)
    }
}

/// Parses the head of a request at the start of `buf`. Returns it with its length in bytes, an empty line before it
/// included: what follows is the body.
///
/// Call it again from the start with more bytes after `NeedMore`; see [`may_end_in`] for how not to do that for
/// every byte. `slots` is overwritten.
///
/// # Errors
/// The first rule that the head breaks (which is the same however the head arrives in pieces).
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

/// Parses the head of a response at the start of `buf`, interim ones (1xx) too. Otherwise as [`parse_request`];
/// no empty line may come before it.
///
/// # Errors
/// The first rule that the head breaks.
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

/// Whether it is worth while to parse `buf` again, of which the first `seen` bytes were parsed before and ended in
/// `NeedMore`: whether a head may end in it, or a limit is newly reached.
///
/// Without this, a peer that sends one byte at a time makes the parser read n²/2 bytes. Only the new bytes are
/// looked at: every head ends in LF CR LF. Two LFs count as well, so that such a head is refused at once.
pub fn may_end_in(buf: &[u8], seen: usize, limits: &HeadLimits) -> bool {
    let fresh = &buf[seen.saturating_sub(2).min(buf.len())..];
    let line_limit = seen <= limits.line_bytes_max && limits.line_bytes_max < buf.len();
    line_limit
        || buf.len() >= limits.head_bytes_max.min(HEAD_BYTES_CAP)
        || memchr::memchr_iter(b'\n', fresh)
            .any(|at| matches!(fresh[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// What the fast pass found.
enum Outcome<T> {
    /// The parts of the first line, and the length of the head.
    Sound(T, usize),
    NeedMore,
    /// There are more headers than there was room for.
    TooMany,
    /// A rule may be broken.
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
    // httparse would skip any number of empty lines.
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

/// The bytes end before the head does: more are needed, unless a limit is reached already.
fn unfinished<T>(window: &[u8], bytes: &[u8], limits: &HeadLimits) -> Outcome<T> {
    let line_is_too_long = bytes.len() > limits.line_bytes_max
        && memchr::memchr2(b'\r', b'\n', &bytes[..=limits.line_bytes_max]).is_none();
    let head_is_too_long = window.len() >= limits.head_bytes_max.min(HEAD_BYTES_CAP);
    if line_is_too_long || head_is_too_long { Outcome::Suspect } else { Outcome::NeedMore }
}

/// Whether all bytes of a target may stand in one, where `httparse` has ruled out controls and spaces: none is
/// beyond ASCII, and none is `"`, `#`, `<` or `>`. Eight bytes at a time; `strict::is_target_byte` is the twin.
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
    // The last eight bytes again, where there are as many; else the few one by one.
    match target.last_chunk::<8>() {
        Some(word) => bad | bad_byte_in(u64::from_ne_bytes(*word)) == 0,
        None => rest.iter().all(|&b| is_target_byte(b)),
    }
}

/// Which rule a head breaks that the fast pass did not like.
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
        // httparse sees some errors a byte or two before the rule is broken for certain ("HTTP/2").
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

    /// Every byte at every place of targets of every length up to three words.
    #[test]
    fn target_bytes_are_judged_as_by_the_twin() {
        for len in 1..=25 {
            for at in 0..len {
                // httparse has ruled out controls and spaces.
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
