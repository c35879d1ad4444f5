//! Who asks, and how many may at once.

use engine::bounded::Bounds;
pub(crate) use httpd::Peer;

/// Of the places, those that one address may have: a sixteenth, and a browser's handful at least.
const ADDRESS_SHARE: usize = 16;
const ADDRESS_MIN: usize = 16;

/// The bounds of the listener.
pub(super) fn bounds(connections_max: usize) -> Bounds {
    httpd::bounds(connections_max, (connections_max / ADDRESS_SHARE).max(ADDRESS_MIN))
}
