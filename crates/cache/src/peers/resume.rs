//! Resumes an answer at the origin when the peer that sent it failed in the middle (RFC 9110 §14.2, §13.1.5).

use std::sync::Arc;

use wire::http1::{
    fields::{ContentRange, append_field},
    framing::{Framing, RequestKind},
    head::ResponseHead,
    known::KnownHeader,
};

use crate::{
    body::slice::strong_tag,
    core::{SiteUpstreams, with_core, with_core_of},
    counters::Counter,
    fetch::leader::Leader,
    origin::{self, AnswerHead, OriginError, OriginRequest},
    request::{OriginNeed, Request},
};

/// Fetches the rest of an answer of which `came` bytes have arrived; `None` if the origin does not send it,
/// or has another version.
pub(crate) async fn resume(
    request: &Request,
    broken: &AnswerHead,
    came: u64,
    error: &OriginError,
) -> Option<Box<AnswerHead>> {
    let peer = broken.peer.as_ref()?;
    peer.failed(&error.to_string());
    with_core(|core| core.count(Counter::PeerFailures));
    let wanted = Rest::of(request, broken, came)?;
    let (config, head) = with_core_of(request, |core| {
        core.count(Counter::Fetches);
        let head = request.for_store(&wanted.conditions(), core.manner(request.site));
        (Arc::clone(&core.config), head)
    });
    let asked = OriginRequest {
        head: &head,
        wanted: OriginNeed::Storing,
        client: request.client(),
        answered: RequestKind::Other,
        is_idempotent: true,
        why: "resume",
        trace: request.trace.as_ref(),
        server: None,
    };
    let connected = || with_core(|core| core.count(Counter::OriginConnects));
    let arrived = origin::ask(
        &SiteUpstreams::of(request),
        &config.limits,
        &asked,
        &mut Leader { reply: None, is_to_peer: false, entry: None },
        connected,
    )
    .await;
    let mut arrived = arrived.ok().filter(|arrived| wanted.is(&arrived.head.head(), arrived.framing))?;
    (arrived.is_kept, arrived.is_for_one) = (broken.is_kept, broken.is_for_one);
    with_core(|core| core.count(Counter::PeerResumed));
    Some(arrived)
}

/// Missing part of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    etag: Box<[u8]>,
    first: u64,
    /// Offset after the last missing byte; `None` for all bytes to the end.
    end: Option<u64>,
    /// Length of the complete content, if known.
    complete: Option<u64>,
}

impl Rest {
    fn of(request: &Request, broken: &AnswerHead, came: u64) -> Option<Self> {
        let head = broken.head.head();
        let bytes = request.block.as_ref().map(|block| block.bytes());
        let complete = match (&request.block, broken.framing) {
            (Some(block), _) => Some(block.of.complete),
            (None, Framing::Length(bytes)) => Some(bytes),
            (None, _) => None,
        };
        Self::after(&head, bytes, complete, came)
    }

    fn after(
        head: &ResponseHead<'_, '_>,
        block: Option<std::ops::Range<u64>>,
        complete: Option<u64>,
        came: u64,
    ) -> Option<Self> {
        strong_tag(&head.headers)?;
        let etag = head.known(KnownHeader::Etag)?.into();
        let (first, end) = match block {
            Some(bytes) => (bytes.start + came, Some(bytes.end)),
            None => (came, None),
        };
        let is_some_left = end.or(complete).is_none_or(|end| first < end);
        let is_whole = matches!((head.status, end), (200, None) | (206, Some(_)));
        (is_some_left && is_whole).then_some(Self { etag, first, end, complete })
    }

    fn conditions(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let last = self.end.map(|end| (end - 1).to_string()).unwrap_or_default();
        append_field(&mut out, "Range", format!("bytes={}-{last}", self.first).as_bytes());
        append_field(&mut out, "If-Range", &self.etag);
        out
    }

    /// Returns whether an answer is the missing part, of the same version.
    fn is(&self, head: &ResponseHead<'_, '_>, framing: Framing) -> bool {
        let is_same =
            strong_tag(&head.headers).is_some() && head.known(KnownHeader::Etag) == Some(&*self.etag);
        let mut ranges = head.headers("content-range");
        let range = ranges.next().and_then(ContentRange::parse).filter(|_| ranges.next().is_none());
        let Some(ContentRange { first, last, complete: Some(complete) }) = range else { return false };
        let end = self.end.unwrap_or(complete);
        head.status == 206
            && is_same
            && (first, last + 1) == (self.first, end)
            && self.complete.is_none_or(|known| known == complete)
            && match framing {
                Framing::Length(bytes) => bytes == end - first,
                Framing::Chunked => true,
                Framing::None | Framing::UntilClose => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_response;

    fn rest(
        fields: &str,
        block: Option<std::ops::Range<u64>>,
        complete: Option<u64>,
        came: u64,
    ) -> Option<Rest> {
        let status = if block.is_some() { "206 Partial Content" } else { "200 OK" };
        with_response(status, fields, |head| Rest::after(head, block, complete, came))
    }

    fn is(rest: &Rest, status: &str, fields: &str, framing: Framing) -> bool {
        with_response(status, fields, |head| rest.is(head, framing))
    }

    #[test]
    fn only_strongly_validated_answers_are_resumed() {
        for fields in ["ETag: W/\"v\"", "X: y", "ETag: \"v\"\nETag: \"w\""] {
            assert_eq!(rest(fields, None, Some(10), 4), None, "{fields}");
        }
        assert_eq!(rest("ETag: \"v\"", None, Some(10), 10), None, "nothing is missing");
        let text = |rest: Option<Rest>| String::from_utf8(rest.expect("some").conditions()).expect("text");
        assert_eq!(text(rest("ETag: \"v\"", None, Some(10), 4)), "Range: bytes=4-\r\nIf-Range: \"v\"\r\n");
        assert_eq!(
            text(rest("ETag: \"v\"", Some(100..200), Some(1_000), 4)),
            "Range: bytes=104-199\r\nIf-Range: \"v\"\r\n"
        );
    }

    #[test]
    fn a_resumed_answer_must_be_complete_and_unchanged() {
        let whole = rest("ETag: \"v\"", None, Some(10), 4).expect("some");
        let (part, six) = ("206 Partial Content", Framing::Length(6));
        let good = "ETag: \"v\"\nContent-Range: bytes 4-9/10";
        assert!(is(&whole, part, good, six) && is(&whole, part, good, Framing::Chunked));
        for (status, fields, framing) in [
            ("200 OK", good, six),
            (part, "ETag: \"w\"\nContent-Range: bytes 4-9/10", six),
            (part, "ETag: W/\"v\"\nContent-Range: bytes 4-9/10", six),
            (part, "Content-Range: bytes 4-9/10", six),
            (part, "ETag: \"v\"\nContent-Range: bytes 3-8/10", six),
            (part, "ETag: \"v\"\nContent-Range: bytes 4-9/11", six),
            (part, "ETag: \"v\"\nContent-Range: bytes 4-8/10", Framing::Length(5)),
            (part, "ETag: \"v\"\nContent-Range: bytes 4-9/*", six),
            (part, good, Framing::Length(5)),
            (part, good, Framing::UntilClose),
        ] {
            assert!(!is(&whole, status, fields, framing), "{status} {fields} {framing:?}");
        }
        let unknown = rest("ETag: \"v\"", None, None, 4).expect("some");
        assert!(is(&unknown, part, good, six));
        assert!(!is(&unknown, part, "ETag: \"v\"\nContent-Range: bytes 4-8/10", Framing::Length(5)));
    }
}
