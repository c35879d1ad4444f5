//! Names and sizes that have a shape or a bound.

use crate::settings::units::parse_size;

/// RFC 9110 §5.6.2: `Via` and `Cache-Status` take a token as the name.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let is_token = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if is_token && text.as_bytes()[0].is_ascii_alphabetic() {
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

/// No length is long enough.
pub(super) const NEVER: &str = "never";

/// What is shorter than two blocks gains nothing by having them.
pub(super) fn parse_blocks_from(text: &str) -> Result<Option<u64>, String> {
    if text == NEVER {
        return Ok(None);
    }
    match parse_size(text) {
        Ok(bytes) if bytes >= 1 << 20 => Ok(Some(bytes)),
        Ok(_) => Err("answers in blocks have 1MiB at least".to_owned()),
        Err(error) => Err(format!("{error}; or {NEVER}")),
    }
}

/// A head in which nothing fits would refuse every message; one of a gigabyte is no limit.
pub(super) fn head_size(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(bytes) if (1024..=16 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("a limit on a head is from 1KiB to 16MiB".to_owned()),
    }
}

/// As many as there is room for when a head is parsed.
pub(super) fn headers_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=128) => Ok(count),
        _ => Err("from 1 to 128 header fields are taken".to_owned()),
    }
}
