//! Where a message's body ends (RFC 9112 §6), and the bytes of it.
//!
//! Two parties that disagree on this are how one client speaks in another's name (RFC 9112 §11.2). So each message
//! has one framing or is refused; what the RFC lets a recipient repair is refused too:
//! - `Transfer-Encoding` beside `Content-Length` (§6.1 would let the first win);
//! - more than one `Content-Length`, equal ones too, on several lines or in a list (§6.3 would let equal ones pass);
//! - `Transfer-Encoding` other than exactly `chunked`, on one line, in any case of letters. A coding beside it
//!   (`gzip, chunked`) is well-formed but not offered by us, since we send no `TE`;
//! - `Transfer-Encoding` in HTTP/1.0 (§6.1: faulty), or in a response that has no body (§6.1: must not be).

mod body;
mod chunked_encoder;

pub use body::{BodyDecoder, BodyError, BodyRule, CHUNK_LINE_BYTES_MAX, Step, StepState, TRAILER_BYTES_MAX};
pub use chunked_encoder::{ChunkHeader, ChunkedEncoder};

use super::{
    fields::{is_token, list},
    head::{Headers, RequestHead, ResponseHead, Version},
    known::KnownHeader,
};

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// After so many bytes (RFC 9112 §6.2).
    Length(u64),
    /// After the last chunk and the trailers (RFC 9112 §7.1).
    Chunked,
    /// When the connection closes; responses only (RFC 9112 §6.3).
    UntilClose,
}

/// Why the end of a body is not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FramingError {
    /// `Transfer-Encoding` and `Content-Length` in one message.
    #[error("both Transfer-Encoding and Content-Length (RFC 9112 §6.3)")]
    BothLengths,
    /// More than one `Content-Length`, equal or not, on several lines or as a list.
    #[error("more than one Content-Length (RFC 9112 §6.3)")]
    RepeatedLength,
    /// `Content-Length` is not digits only.
    #[error("Content-Length is not a number (RFC 9110 §8.6)")]
    InvalidLength,
    /// `Content-Length` is a number beyond 64 bits.
    #[error("Content-Length is beyond 64 bits (RFC 9110 §8.6)")]
    LengthOverflow,
    /// `Transfer-Encoding` in an HTTP/1.0 message.
    #[error("Transfer-Encoding in an HTTP/1.0 message (RFC 9112 §6.1)")]
    CodingInHttp10,
    /// More than one `Transfer-Encoding` line.
    #[error("more than one Transfer-Encoding (RFC 9112 §6.1)")]
    RepeatedCoding,
    /// `Transfer-Encoding` is malformed, or `chunked` is not last, or not only once.
    #[error("Transfer-Encoding does not end in one chunked (RFC 9112 §6.3)")]
    InvalidCoding,
    /// `chunked` is last, but other codings come before it: 501 (RFC 9112 §6.1).
    #[error("a transfer coding that we do not know (RFC 9112 §6.1)")]
    UnsupportedCoding,
    /// An interim or tunnel response announces a body, which it must not have.
    #[error("a body is announced where none may be (RFC 9112 §6.1, RFC 9110 §8.6)")]
    UnexpectedBody,
}

/// How a request's body ends (RFC 9112 §6.3). Never [`Framing::UntilClose`].
///
/// # Errors
/// Whatever leaves room for a second reading; answer 400 (501 for [`FramingError::UnsupportedCoding`]) and close.
#[inline]
pub fn request_framing(head: &RequestHead<'_, '_>) -> Result<Framing, FramingError> {
    Ok(announced(head.version, &head.headers)?.unwrap_or(Framing::None))
}

/// What kind of request a response answers, as far as its framing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// HEAD: the response has no body, whatever its headers say.
    Head,
    /// CONNECT: after a 2xx the connection is a tunnel.
    Connect,
    /// Any other method.
    Other,
}

impl RequestKind {
    /// By the request's method.
    pub fn of_method(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// How a response's body ends (RFC 9112 §6.3).
///
/// [`Framing::None`] for interim responses (1xx), 204, 304, answers to HEAD, and a 2xx to CONNECT (what follows it
/// is not HTTP). Their headers are held to the rules all the same, because they are passed on.
///
/// # Errors
/// Whatever leaves room for a second reading; the origin's connection is of no further use.
pub fn response_framing(head: &ResponseHead<'_, '_>, answered: RequestKind) -> Result<Framing, FramingError> {
    let announced = match announced(head.version, &head.headers) {
        // Item 4 of RFC 9112 §6.3: without `chunked` at the end, the connection's end is the body's.
        Err(FramingError::InvalidCoding) if has_unknown_coding(head) => None,
        // Spring Boot sends `chunked` twice over one coding. The body is framed anew for the client, so that nobody behind
        // us can read it otherwise.
        Err(FramingError::InvalidCoding | FramingError::RepeatedCoding) if is_chunked_twice(head) => {
            Some(Framing::Chunked)
        }
        announced => announced?,
    };
    let bodiless = match (head.status, answered) {
        // It ends at its head, whatever that announces (RFC 9112 §6.3); see [`announces_in_vain`].
        (204, _) => true,
        (..200, _) | (200..300, RequestKind::Connect) => {
            if !matches!(announced, None | Some(Framing::Length(0))) {
                return Err(FramingError::UnexpectedBody);
            }
            true
        }
        (304, _) | (_, RequestKind::Head) => true,
        _ => false,
    };
    if bodiless { Ok(Framing::None) } else { Ok(announced.unwrap_or(Framing::UntilClose)) }
}

/// Whether a 204 announces a body, which it must not have (RFC 9110 §8.6, RFC 9112 §6.1): what follows it on its connection is
/// no answer, so the connection is of no further use.
pub fn announces_in_vain(head: &ResponseHead<'_, '_>) -> bool {
    let says_length = || head.headers.known(KnownHeader::ContentLength).is_some_and(|said| said != b"0");
    head.status == 204 && (head.headers.has(KnownHeader::TransferEncoding) || says_length())
}

/// Whether the one transfer coding of a response is none that anybody has registered, nor one that could be mistaken for
/// `chunked`: then nobody applied it either. Content in a coding that there is would be passed on still coded.
fn has_unknown_coding(head: &ResponseHead<'_, '_>) -> bool {
    const REGISTERED: [&[u8]; 7] =
        [b"compress", b"deflate", b"gzip", b"identity", b"trailers", b"x-compress", b"x-gzip"];
    let coding = head.headers.known(KnownHeader::TransferEncoding).unwrap_or_default();
    let has_chunked = coding.windows(b"chunk".len()).any(|part| part.eq_ignore_ascii_case(b"chunk"));
    is_token(coding) && !has_chunked && !REGISTERED.iter().any(|known| known.eq_ignore_ascii_case(coding))
}

/// Whether a response names `chunked` twice, on one line or on two, and no other coding.
fn is_chunked_twice(head: &ResponseHead<'_, '_>) -> bool {
    let lines = head.headers.known_all(KnownHeader::TransferEncoding);
    let mut codings = lines.flat_map(|line| line.split(|&b| b == b',')).map(<[u8]>::trim_ascii);
    let mut next = || codings.next().map(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    next() == Some(true) && next() == Some(true) && next().is_none()
}

/// What `Transfer-Encoding` and `Content-Length` say.
#[inline]
fn announced(version: Version, headers: &Headers<'_, '_>) -> Result<Option<Framing>, FramingError> {
    let length = headers.known(KnownHeader::ContentLength);
    let coding = headers.known(KnownHeader::TransferEncoding);
    match (length, coding) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(FramingError::BothLengths),
        (Some(_), None) if headers.is_repeated(KnownHeader::ContentLength) => {
            Err(FramingError::RepeatedLength)
        }
        (Some(length), None) => Ok(Some(Framing::Length(content_length(length)?))),
        (None, Some(_)) if version == Version::Http10 => Err(FramingError::CodingInHttp10),
        (None, Some(_)) if headers.is_repeated(KnownHeader::TransferEncoding) => {
            Err(FramingError::RepeatedCoding)
        }
        (None, Some(coding)) => transfer_coding(coding).map(|()| Some(Framing::Chunked)),
    }
}

/// 1*DIGIT (RFC 9110 §8.6); zeros may lead.
fn content_length(digits: &[u8]) -> Result<u64, FramingError> {
    if digits.contains(&b',') {
        return Err(FramingError::RepeatedLength);
    }
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(FramingError::InvalidLength);
    }
    digits
        .iter()
        .try_fold(0u64, |length, &b| length.checked_mul(10)?.checked_add(u64::from(b - b'0')))
        .ok_or(FramingError::LengthOverflow)
}

/// Exactly `chunked`, or the reason why not.
fn transfer_coding(value: &[u8]) -> Result<(), FramingError> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let chunked_is_last = list(value).last().is_some_and(is_chunked);
    let chunked_is_single = list(value).filter(|coding| is_chunked(coding)).count() == 1;
    // Parameters after a name are of another coding than `chunked`, which has none (RFC 9112 §7.1).
    let name = |coding: &[u8]| is_token(coding.split(|b| b";\t ".contains(b)).next().unwrap_or_default());
    let well_formed = list(value).all(name) && list(value).count() == value.split(|&b| b == b',').count();
    if chunked_is_last && chunked_is_single && well_formed {
        Err(FramingError::UnsupportedCoding)
    } else {
        Err(FramingError::InvalidCoding)
    }
}
