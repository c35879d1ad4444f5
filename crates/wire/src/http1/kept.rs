//! Heads that outlive the buffer in which they were received: a copy of the bytes, with the parser's offsets.
//!
//! A request that waits for an origin is read many times (for its key, its variants, the request to the
//! origin). It is parsed once, on arrival; its bytes, offsets and request line are kept in three allocations,
//! no larger than the head needs.

use std::ops::Range;

use super::{
    head::{RequestHead, ResponseHead, TargetForm, Version},
    header_slots::KeptSlots,
    url::Scheme,
};

/// A request's head with its own copy of the bytes.
#[derive(Debug, Clone)]
pub struct KeptRequest {
    bytes: Box<[u8]>,
    slots: KeptSlots,
    /// Method and target, one after the other: as text, so that no read of them checks for UTF-8 again.
    line: Box<str>,
    method_bytes: usize,
    form: TargetForm,
    version: Version,
    scheme: Option<Scheme>,
}

impl KeptRequest {
    /// Copies a head of `head_bytes` bytes, the length that the parser returned.
    pub fn new(head: &RequestHead<'_, '_>, head_bytes: usize) -> Self {
        let bytes = &head.headers.bytes()[..head_bytes];
        Self {
            line: [head.method, head.target].concat().into(),
            method_bytes: head.method.len(),
            form: head.form,
            version: head.version,
            scheme: head.scheme,
            slots: head.headers.keep(),
            bytes: bytes.into(),
        }
    }

    /// Returns the head as slices of the stored bytes.
    pub fn head(&self) -> RequestHead<'_, '_> {
        let (method, target) = self.line.split_at(self.method_bytes);
        RequestHead {
            method,
            target,
            form: self.form,
            version: self.version,
            scheme: self.scheme,
            headers: self.slots.headers(&self.bytes),
        }
    }

    /// Returns the head's length in bytes.
    pub fn head_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A response's head with its own copy of the bytes.
#[derive(Debug, Clone)]
pub struct KeptResponse {
    bytes: Box<[u8]>,
    slots: KeptSlots,
    reason: Range<u32>,
    version: Version,
    status: u16,
}

impl KeptResponse {
    /// Copies a head of `head_bytes` bytes, the length that the parser returned.
    pub fn new(head: &ResponseHead<'_, '_>, head_bytes: usize) -> Self {
        let bytes = &head.headers.bytes()[..head_bytes];
        Self {
            reason: within(bytes, head.reason),
            version: head.version,
            status: head.status,
            slots: head.headers.keep(),
            bytes: bytes.into(),
        }
    }

    /// Returns the head as slices of the stored bytes.
    pub fn head(&self) -> ResponseHead<'_, '_> {
        ResponseHead {
            version: self.version,
            status: self.status,
            reason: text(&self.bytes, &self.reason),
            headers: self.slots.headers(&self.bytes),
        }
    }
}

/// Returns the range of `part` within `bytes`; an empty range if `part` is not a slice of `bytes` (for
/// example an empty reason phrase).
fn within(bytes: &[u8], part: &str) -> Range<u32> {
    let at = (part.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
    if at.checked_add(part.len()).is_none_or(|end| end > bytes.len()) {
        return 0..0;
    }
    at as u32..(at + part.len()) as u32
}

fn text<'b>(bytes: &'b [u8], range: &Range<u32>) -> &'b str {
    // The bytes were valid UTF-8 when parsed, so the fallback is never used.
    std::str::from_utf8(&bytes[range.start as usize..range.end as usize]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{
        head::{HeadLimits, HeaderSlots, Progress, parse_request, parse_response},
        known::KnownHeader,
    };

    #[test]
    fn a_kept_request_equals_the_parsed_request() {
        let bytes =
            b"\r\nGET http://a.example/x?y HTTP/1.0\r\nHost: a.example\r\nCookie: 1\r\nX: y\r\nCookie: 2\r\n\r\nbody"
                .to_vec();
        let mut slots = HeaderSlots::new();
        let Ok(Progress::Complete((head, head_bytes))) =
            parse_request(&bytes, &mut slots, &HeadLimits::default())
        else {
            panic!("a valid head");
        };
        let kept = KeptRequest::new(&head, head_bytes);
        let said = format!("{:?} {:?} {:?} {:?}", head.method, head.target, head.form, head.version);
        let headers: Vec<_> = head.headers.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
        let repeated = head.headers.is_repeated(KnownHeader::Cookie);
        drop(bytes);
        let again = kept.head();
        assert_eq!(kept.head_bytes(), head_bytes);
        assert_eq!(
            format!("{:?} {:?} {:?} {:?}", again.method, again.target, again.form, again.version),
            said
        );
        let kept_headers: Vec<_> = again.headers.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
        assert_eq!(kept_headers, headers);
        assert_eq!(again.headers.is_repeated(KnownHeader::Cookie), repeated);
        assert_eq!(again.known(KnownHeader::Cookie), Some(b"1".as_slice()));
        assert_eq!(again.headers.known_all(KnownHeader::Cookie).count(), 2);
    }

    #[test]
    fn a_kept_response_equals_the_parsed_response() {
        for (bytes, reason) in [
            (b"HTTP/1.1 200 Fine\r\nETag: \"x\"\r\n\r\n".as_slice(), "Fine"),
            (b"HTTP/1.1 200\r\nETag: \"x\"\r\n\r\n".as_slice(), ""),
            (b"HTTP/1.1 200 \xc3\xa9\r\nETag: \"x\"\r\n\r\n".as_slice(), ""),
        ] {
            let mut slots = HeaderSlots::new();
            let Ok(Progress::Complete((head, head_bytes))) =
                parse_response(bytes, &mut slots, &HeadLimits::default())
            else {
                panic!("a valid head");
            };
            let kept = KeptResponse::new(&head, head_bytes);
            assert_eq!((kept.head().status, kept.head().reason), (200, reason));
            assert_eq!(kept.head().known(KnownHeader::Etag), Some(b"\"x\"".as_slice()));
        }
    }
}
