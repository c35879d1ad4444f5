//! Heads of encoded and decoded variants. They differ from the stored head only in `Content-Encoding` and in
//! an entity tag of their own (RFC 9110 §8.8.3.3). All other fields are the stored head's, and are updated
//! with it.

use engine::sys::span::Span;

use super::{meta::StoredMeta, origin_head::drop_lines};
use crate::coding::Coding;

/// Line in the head of every object with more than one representation.
pub const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";

/// Edit that turns a stored head into the head of an encoded variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodedHead {
    coding: Coding,
    /// Position of the quote that ends the entity tag, if there is a tag.
    quote_at: Option<usize>,
}

impl CodedHead {
    /// Creates the edit for an object that is [codable or decodable](mod@crate::policy::codable), whose
    /// entity tag, if present, is therefore valid.
    #[inline]
    pub fn new(coding: Coding, meta: &StoredMeta) -> Self {
        let quote_at = (meta.etag_bytes > 0)
            .then(|| (meta.etag_at as usize + usize::from(meta.etag_bytes)).saturating_sub(1));
        Self { coding, quote_at }
    }

    /// Appends the edited head. Returns how many bytes earlier its entity tag is than in the stored head.
    #[inline]
    pub fn append_span(self, stored: Span<'_>, out: &mut Vec<u8>) -> usize {
        let quote_at = self.quote_at.unwrap_or(stored.len()).min(stored.len());
        let begin = out.len();
        stored.slice(0..quote_at).copy_to(out);
        self.append_suffix(out);
        stored.slice(quote_at..stored.len()).copy_to(out);
        self.say_encoding(out, begin, quote_at)
    }

    /// Does the same as [`append_span`](Self::append_span) for a head outside of the store.
    pub fn append(self, stored: &[u8], out: &mut Vec<u8>) -> usize {
        let quote_at = self.quote_at.unwrap_or(stored.len()).min(stored.len());
        let (before, after) = stored.split_at(quote_at);
        let begin = out.len();
        out.extend_from_slice(before);
        self.append_suffix(out);
        out.extend_from_slice(after);
        self.say_encoding(out, begin, quote_at)
    }

    #[inline]
    fn append_suffix(self, out: &mut Vec<u8>) {
        if self.quote_at.is_some() {
            out.extend_from_slice(self.coding.tag_suffix().as_bytes());
        }
    }

    /// Adds `Content-Encoding` at the end of the head that begins at `begin`, or removes it. Returns the
    /// number of removed bytes in front of the tag.
    #[inline]
    fn say_encoding(self, out: &mut Vec<u8>, begin: usize, quote_at: usize) -> usize {
        out.extend_from_slice(match self.coding {
            Coding::AsSent => b"",
            Coding::Decoded => return drop_lines(out, begin, b"content-encoding:", begin + quote_at),
            Coding::Gzip => b"Content-Encoding: gzip\r\n",
            Coding::Brotli => b"Content-Encoding: br\r\n",
            Coding::Zstd => b"Content-Encoding: zstd\r\n",
        });
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::response_head::BLANK;

    fn coded(coding: Coding, head: &str, tag: &str) -> String {
        let at = head.find(tag).unwrap_or(0);
        let meta = StoredMeta { etag_at: at as u32, etag_bytes: tag.len() as u16, ..BLANK };
        let mut out = Vec::new();
        let earlier = CodedHead::new(coding, &meta).append(head.as_bytes(), &mut out);
        if !tag.is_empty() {
            let (inside, suffix) = (&tag[..tag.len() - 1], coding.tag_suffix());
            let meta = meta.with_tag(suffix, earlier);
            assert_eq!(meta.etag_of(&out), Some(format!("{inside}{suffix}\"").as_bytes()), "{head}");
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_coded_head_has_its_own_etag() {
        let head = "HTTP/1.1 200 OK\r\nETag: W/\"x\"\r\nA: 1\r\n";
        assert_eq!(
            coded(Coding::Brotli, head, "W/\"x\""),
            "HTTP/1.1 200 OK\r\nETag: W/\"x-br\"\r\nA: 1\r\nContent-Encoding: br\r\n"
        );
        assert_eq!(
            coded(Coding::Gzip, head, ""),
            "HTTP/1.1 200 OK\r\nETag: W/\"x\"\r\nA: 1\r\nContent-Encoding: gzip\r\n"
        );
        assert_eq!(coded(Coding::AsSent, head, "W/\"x\""), head);
        assert!(coded(Coding::Zstd, "ETag: \"\"\r\n", "\"\"").starts_with("ETag: \"-zst\"\r\n"));
    }

    #[test]
    fn a_head_without_its_coding_says_none() {
        let head = "HTTP/1.1 200 OK\r\nA: 1\r\nCONTENT-encoding: gzip\r\nETag: \"x\"\r\nB: 2\r\n";
        let want = "HTTP/1.1 200 OK\r\nA: 1\r\nETag: \"x-id\"\r\nB: 2\r\n";
        assert_eq!(coded(Coding::Decoded, head, "\"x\""), want);
        let last = "HTTP/1.1 200 OK\r\nContent-Encoding-Not: 1\r\nContent-Encoding:br\r\n";
        let want = "HTTP/1.1 200 OK\r\nContent-Encoding-Not: 1\r\n";
        assert_eq!(coded(Coding::Decoded, last, ""), want);
        // The bytes before the head in the buffer belong to another answer.
        let mut out = head.as_bytes().to_vec();
        CodedHead::new(Coding::Decoded, &BLANK).append(last.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).expect("text"), format!("{head}{want}"));
    }
}
