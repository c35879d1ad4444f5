//! Copies of a stored body's bytes, which may be spread over several memory regions.

use std::ops::Range;

use engine::store::Object;

/// Appends a range of a stored body to `out`.
#[inline]
pub(crate) fn copy_body(object: &Object<'_>, range: Range<u64>, out: &mut Vec<u8>) {
    let Range { start: mut at, end } = range;
    while at < end {
        let run = object.body(at);
        let bytes = run.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        run.slice(0..bytes).copy_to(out);
        at += bytes as u64;
    }
}
