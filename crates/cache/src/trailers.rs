//! Trailers on their way through: what must not be one ends here, in either direction, and is counted.

use wire::http1::{
    head::Headers,
    trailers::{Permitted, permitted},
};

use crate::{core::with_core, counters::Counter};

/// The trailers of a message that go on: to the origin, or to the client and into the store.
pub(crate) fn going_on(trailers: &[u8], headers: &Headers<'_, '_>) -> Vec<u8> {
    let Permitted { lines, dropped } = permitted(trailers, headers);
    if dropped > 0 {
        with_core(|core| core.add(Counter::TrailersDropped, dropped));
    }
    lines
}
