//! Filter for trailers in both directions: fields that must not be trailers are dropped and counted.

use wire::http1::{
    head::Headers,
    trailers::{PermittedTrailers, permitted},
};

use crate::{core::with_core, counters::Counter, head::sent_fields::is_one_of};

/// Returns the trailers of a message that may be forwarded to the origin, or to the client and into the
/// store.
pub(crate) fn going_on(trailers: &[u8], headers: &Headers<'_, '_>) -> Vec<u8> {
    let PermittedTrailers { lines, dropped } = permitted(trailers, headers);
    if dropped > 0 {
        with_core(|core| core.add(Counter::TrailersDropped, dropped));
    }
    lines
}

/// Returns the trailer lines without the fields in `ours`, which are reserved and must not come from clients.
pub(crate) fn not_ours(mut trailers: Vec<u8>, ours: &[Box<str>]) -> Vec<u8> {
    if ours.is_empty() || trailers.is_empty() {
        return trailers;
    }
    let is_ours = |line: &&[u8]| {
        let name = line.split(|&b| b == b':').next().and_then(|name| std::str::from_utf8(name).ok());
        name.is_none_or(|name| is_one_of(name, ours))
    };
    let lines = || trailers.split_inclusive(|&b| b == b'\n');
    let dropped = lines().filter(is_ours).count();
    if dropped > 0 {
        with_core(|core| core.add(Counter::TrailersDropped, dropped as u64));
        trailers = lines().filter(|line| !is_ours(line)).collect::<Vec<_>>().concat();
    }
    trailers
}
