//! Checks for fuzz targets that need private parts of this crate: storing and sharing of answers, keys, and
//! the metadata words stored with a record. Compiled only for the fuzzer, and for tests, which replay the
//! seeds.

#![allow(clippy::expect_used, reason = "a check may fail")]

mod key;
mod meta;
mod policy;
mod purge;

pub use key::cache_key;
pub use meta::stored_meta;
pub use policy::cache_policy;
pub use purge::purge_request;

use wire::http1::head::{
    HeadLimits, HeaderSlots, Progress, RequestHead, ResponseHead, parse_request, parse_response,
};

/// Splitter of a target's input into its parameters.
#[path = "../../../../fuzz/checks/cut.rs"]
mod cut;
#[cfg(test)]
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

/// Calls `look` with the request at the front of `bytes` and the bytes after it; returns `None` if there is
/// no request.
fn with_request<'b, T>(bytes: &'b [u8], look: impl FnOnce(&RequestHead<'b, '_>, &'b [u8]) -> T) -> Option<T> {
    let mut slots = HeaderSlots::new();
    match parse_request(bytes, &mut slots, &HeadLimits::default()) {
        Ok(Progress::Complete((head, len))) => Some(look(&head, &bytes[len..])),
        _ => None,
    }
}

/// Calls `look` with the response at the front of `bytes`; returns `None` if there is none.
fn with_response<'b, T>(bytes: &'b [u8], look: impl FnOnce(&ResponseHead<'b, '_>) -> T) -> Option<T> {
    let mut slots = HeaderSlots::new();
    match parse_response(bytes, &mut slots, &HeadLimits::default()) {
        Ok(Progress::Complete((head, _))) => Some(look(&head)),
        _ => None,
    }
}

/// Checks the file of purges; see `purge_log/fuzzed.rs`.
pub fn purges_file(bytes: &[u8]) {
    crate::purging::purge_log::fuzzed::purges_file(bytes);
}

#[cfg(test)]
mod tests {
    use super::seeds::replay;

    #[test]
    fn the_seeds_of_keys() {
        replay("cache_key", super::cache_key);
    }

    #[test]
    fn the_seeds_of_words_beside_records() {
        replay("stored_meta", super::stored_meta);
    }

    #[test]
    fn the_seeds_of_purges() {
        replay("purge_request", super::purge_request);
        replay("purges_file", super::purges_file);
    }

    #[test]
    fn the_seeds_of_policy() {
        replay("cache_policy", super::cache_policy);
    }
}
