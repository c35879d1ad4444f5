//! Parsers of names and sizes with a fixed form or range.

use wire::http1::fields::is_token;

use crate::settings::{
    one_or_more, some_size,
    units::{parse_size, size_text},
};

/// Parses the accelerator's name: `Via` and `Cache-Status` need a token (RFC 9110 §5.6.2).
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    if is_token(text.as_bytes()) && text.as_bytes()[0].is_ascii_alphabetic() {
        Ok(text.to_owned())
    } else {
        Err("a name starts with a letter and has letters, digits and !#$%&'*+-.^_`|~ only".to_owned())
    }
}

pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("the store needs some memory, for instance 256MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Value that disables slicing for answers of any length.
const NEVER: &str = "never";

/// Parses the minimum length of answers that are stored in slices; slicing is useless below two slices.
pub(super) fn parse_blocks_from(text: &str) -> Result<Option<u64>, String> {
    if text == NEVER {
        return Ok(None);
    }
    match parse_size(text) {
        Ok(bytes) if bytes >= 1 << 20 => Ok(Some(bytes)),
        Ok(_) => Err("the size from which answers are sliced is at least 1MiB".to_owned()),
        Err(error) => Err(format!("{error}; or {NEVER}")),
    }
}

pub(super) fn blocks_from_text(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| NEVER.to_owned(), size_text)
}

/// Parses a limit on a message's head: from 1 KiB, below which every message would be refused, to 16 MiB.
pub(super) fn head_size(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(bytes) if (1024..=16 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("invalid limit for a head: expected 1KiB to 16MiB".to_owned()),
    }
}

/// Parses the maximum number of header fields; the parser has room for 128.
pub(super) fn headers_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=128) => Ok(count),
        _ => Err("expected 1 to 128 header fields".to_owned()),
    }
}

/// Parses an HTTP/2 window. RFC 9113 §6.9.1 allows 31 bits; a window smaller than a frame would split every
/// frame in two.
pub(super) fn window_size(text: &str) -> Result<usize, String> {
    match some_size(text)? {
        bytes @ 0x4000..=0x400_0000 => Ok(bytes),
        _ => Err("invalid HTTP/2 window: expected 16KiB to 64MiB".to_owned()),
    }
}

pub(super) fn streams(text: &str) -> Result<usize, String> {
    match one_or_more(text)? {
        streams @ 1..=1000 => Ok(streams),
        _ => Err("invalid number of HTTP/2 streams: expected 1 to 1000".to_owned()),
    }
}
