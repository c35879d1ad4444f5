//! Buffers of a thread for HTTP/2.

use wire::{
    http1::head::HEADERS_MAX,
    http2::{hpack::FieldSection, request::HeadRoom},
};

use crate::{client::http2::hpack_cache::HpackBlockCache, config::Config};

/// Lower limit for the maximum size of a field section: the size of an HPACK dynamic table.
const SECTION_BYTES_MIN: usize = 4096;

/// Buffers of a thread for HTTP/2.
pub(crate) struct Scratch {
    /// Fields of the request that is being read.
    pub(super) section: FieldSection,
    /// The request's fields as an HTTP/1 head.
    pub(super) head: HeadRoom,
    /// An answer's head as text, and its content if it is small.
    pub(super) text: Vec<u8>,
    /// Encoder of field blocks, with its cache.
    pub(super) blocks: HpackBlockCache,
    /// Output of a turn, until it is written.
    pub(super) out: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new(config: &Config) -> Self {
        let list_bytes = config.limits.request_head_bytes_max.max(SECTION_BYTES_MIN);
        Self {
            section: FieldSection::new(list_bytes, HEADERS_MAX),
            head: HeadRoom::new(4096),
            text: Vec::with_capacity(32 << 10),
            blocks: HpackBlockCache::new(),
            out: Vec::with_capacity(512 << 10),
        }
    }
}
