//! Message framing: where a body ends (RFC 9112 §6), and the encoding of its bytes.
//!
//! Request smuggling begins where two parties disagree on a body's end (RFC 9112 §11.2). Each message
//! therefore has exactly one framing or is refused; even messages that the RFC lets a recipient repair are
//! refused:
//! - `Transfer-Encoding` together with `Content-Length` (§6.1 would let `Transfer-Encoding` take precedence);
//! - more than one `Content-Length`, including equal ones, on several lines or in a list (§6.3 would
//!   accept equal ones);
//! - `Transfer-Encoding` other than exactly `chunked`, on one line, in any case of letters. An additional coding
//!   (`gzip, chunked`) is well-formed but unsupported, since we send no `TE`;
//! - `Transfer-Encoding` in HTTP/1.0 (§6.1: faulty), or in a response that has no body (§6.1: forbidden).

mod body;
mod chunked_encoder;

pub use body::{BodyDecoder, BodyError, BodyRule, CHUNK_LINE_BYTES_MAX, Step, StepState, TRAILER_BYTES_MAX};
pub use chunked_encoder::{ChunkHeader, ChunkedEncoder};

use super::{
    fields::{is_token, list},
    head::{Headers, RequestHead, ResponseHead, Version},
    known::KnownHeader,
};

/// Framing of a body: where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The message has no body.
    None,
    /// The body ends after this number of bytes (RFC 9112 §6.2).
    Length(u64),
    /// The body ends after the last chunk and the trailers (RFC 9112 §7.1).
    Chunked,
    /// The body ends when the connection closes; responses only (RFC 9112 §6.3).
    UntilClose,
}

/// Error for a message whose body's end is ambiguous or undefined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FramingError {
    /// `Transfer-Encoding` and `Content-Length` in one message.
    #[error("both Transfer-Encoding and Content-Length (RFC 9112 §6.3)")]
    BothLengths,
    /// More than one `Content-Length`, equal or not, on several lines or as a list.
    #[error("more than one Content-Length (RFC 9112 §6.3)")]
    RepeatedLength,
    /// `Content-Length` contains something other than digits.
    #[error("Content-Length is not a number (RFC 9110 §8.6)")]
    InvalidLength,
    /// `Content-Length` does not fit 64 bits.
    #[error("Content-Length does not fit in 64 bits (RFC 9110 §8.6)")]
    LengthOverflow,
    /// `Transfer-Encoding` in an HTTP/1.0 message.
    #[error("Transfer-Encoding in an HTTP/1.0 message (RFC 9112 §6.1)")]
    CodingInHttp10,
    /// More than one `Transfer-Encoding` line.
    #[error("more than one Transfer-Encoding (RFC 9112 §6.1)")]
    RepeatedCoding,
    /// `Transfer-Encoding` is malformed, or `chunked` is not last or appears more than once.
    #[error("Transfer-Encoding does not end in exactly one chunked (RFC 9112 §6.3)")]
    InvalidCoding,
    /// `chunked` is last, but other codings come before it; the answer is 501 (RFC 9112 §6.1).
    #[error("unknown transfer coding (RFC 9112 §6.1)")]
    UnsupportedCoding,
    /// An interim or tunnel response announces a body, which is forbidden.
    #[error("a body is announced where none is allowed (RFC 9112 §6.1, RFC 9110 §8.6)")]
    UnexpectedBody,
}

/// Determines how a request's body ends (RFC 9112 §6.3). Never returns [`Framing::UntilClose`].
///
/// # Errors
/// Returns a [`FramingError`] if the head is ambiguous or invalid; answer 400 (501 for
/// [`FramingError::UnsupportedCoding`]) and close the connection.
#[inline]
pub fn request_framing(head: &RequestHead<'_, '_>) -> Result<Framing, FramingError> {
    Ok(announced(head.version, &head.headers)?.unwrap_or(Framing::None))
}

/// Kind of the request that a response answers, as far as the response's framing depends on it.
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
    /// Returns the kind for the request's method.
    pub fn of_method(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// Determines how a response's body ends (RFC 9112 §6.3).
///
/// Returns [`Framing::None`] for interim responses (1xx), 204, 304, answers to HEAD, and a 2xx to CONNECT
/// (the bytes after it are not HTTP). Their headers must nevertheless follow the rules, because they are
/// forwarded.
///
/// # Errors
/// Returns a [`FramingError`] if the head is ambiguous or invalid; the origin's connection must then be
/// closed.
pub fn response_framing(head: &ResponseHead<'_, '_>, answered: RequestKind) -> Result<Framing, FramingError> {
    let announced = match announced(head.version, &head.headers) {
        // RFC 9112 §6.3, item 4: without `chunked` at the end, the body ends with the connection.
        Err(FramingError::InvalidCoding) if has_unknown_coding(head) => None,
        // Spring Boot sends `chunked` twice although the body has one such coding. The body is re-framed for
        // the client, so no recipient downstream can read it differently.
        Err(FramingError::InvalidCoding | FramingError::RepeatedCoding) if is_chunked_twice(head) => {
            Some(Framing::Chunked)
        }
        announced => announced?,
    };
    let bodiless = match (head.status, answered) {
        // A 204 ends with its head, whatever its headers announce (RFC 9112 §6.3); see [`announces_in_vain`].
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

/// Returns whether a 204 announces a body, which is forbidden (RFC 9110 §8.6, RFC 9112 §6.1): bytes after it
/// on its connection cannot be trusted as a response, so the connection must be closed.
pub fn announces_in_vain(head: &ResponseHead<'_, '_>) -> bool {
    let says_length = || head.headers.known(KnownHeader::ContentLength).is_some_and(|said| said != b"0");
    head.status == 204 && (head.headers.has(KnownHeader::TransferEncoding) || says_length())
}

/// Returns whether a response's only transfer coding is unregistered and cannot be mistaken for `chunked`.
/// An unregistered coding is assumed not to have been applied to the body. A registered coding is refused, because the
/// body would be forwarded still encoded.
fn has_unknown_coding(head: &ResponseHead<'_, '_>) -> bool {
    const REGISTERED: [&[u8]; 7] =
        [b"compress", b"deflate", b"gzip", b"identity", b"trailers", b"x-compress", b"x-gzip"];
    let coding = head.headers.known(KnownHeader::TransferEncoding).unwrap_or_default();
    let has_chunked = coding.windows(b"chunk".len()).any(|part| part.eq_ignore_ascii_case(b"chunk"));
    is_token(coding) && !has_chunked && !REGISTERED.iter().any(|known| known.eq_ignore_ascii_case(coding))
}

/// Returns whether a response names `chunked` twice, on one line or on two, and no other coding.
fn is_chunked_twice(head: &ResponseHead<'_, '_>) -> bool {
    let lines = head.headers.known_all(KnownHeader::TransferEncoding);
    let mut codings = lines.flat_map(|line| line.split(|&b| b == b',')).map(<[u8]>::trim_ascii);
    let mut next = || codings.next().map(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    next() == Some(true) && next() == Some(true) && next().is_none()
}

/// Returns the framing that `Transfer-Encoding` and `Content-Length` announce; `None` if both are absent.
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

/// Parses 1*DIGIT (RFC 9110 §8.6); leading zeros are allowed.
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

/// Accepts exactly `chunked`; any other value returns the matching error.
fn transfer_coding(value: &[u8]) -> Result<(), FramingError> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let chunked_is_last = list(value).last().is_some_and(is_chunked);
    let chunked_is_single = list(value).filter(|coding| is_chunked(coding)).count() == 1;
    // Parameters after a name belong to a coding other than `chunked`, which has none (RFC 9112 §7.1).
    let name = |coding: &[u8]| is_token(coding.split(|b| b";\t ".contains(b)).next().unwrap_or_default());
    let well_formed = list(value).all(name) && list(value).count() == value.split(|&b| b == b',').count();
    if chunked_is_last && chunked_is_single && well_formed {
        Err(FramingError::UnsupportedCoding)
    } else {
        Err(FramingError::InvalidCoding)
    }
}
